"""Recordings: reading, writing, and errors that name what is wrong (I10)."""

import numpy as np
import pytest

from eqsim import identify


TIME = np.array([0.0, 0.1, 0.25, 0.3])


def _recording(**changes):
    parts = {"time": TIME, "ctrl": np.ones((4, 2)), "channels": {"q": np.ones((4, 3))}}
    return identify.Recording(**(parts | changes), name="lab")


def test_save_and_load(tmp_path):
    """Ragged runs with irregular times come back as they were."""
    first = _recording()
    channels = {"q": np.arange(6.0).reshape(2, 3)}
    second = identify.Recording([1, 2], np.zeros((2, 2)), channels, "b", run="lab")
    identify.save_recordings(tmp_path / "runs.npz", [first, second])
    found = identify.load_recordings(tmp_path / "runs.npz")
    assert [(r.name, r.run) for r in found] == [("lab", "lab"), ("b", "lab")]
    for a, b in zip(found, (first, second), strict=True):
        np.testing.assert_array_equal(a.time, b.time)
        np.testing.assert_array_equal(a.ctrl, b.ctrl)
        np.testing.assert_array_equal(a.channels["q"], b.channels["q"])


def test_load_other_names(tmp_path):
    """Arrays with other names, and a rate in place of time stamps."""
    q = np.arange(10.0).reshape(5, 2)
    np.savez(tmp_path / "x.npz", angle=q, torque=q, offsets=[0, 3, 5], rate=100.0)
    first, second = identify.load_recordings(
        tmp_path / "x.npz", ctrl="torque", channels={"q": "angle"}
    )
    np.testing.assert_allclose(first.time, [0, 0.01, 0.02])
    np.testing.assert_array_equal(second.channels["q"], q[3:])
    with pytest.raises(ValueError, match="has no array 'ctrl'"):
        identify.load_recordings(tmp_path / "x.npz")
    with pytest.raises(FileNotFoundError, match="no file"):
        identify.load_recordings(tmp_path / "missing.npz")


BAD = {
    "time going back": (
        {"time": np.array([0.0, 0.2, 0.1, 0.3])},
        "'lab': `time` does not increase at row 2",
    ),
    "repeated time": ({"time": np.array([0.0, 0.2, 0.2, 0.3])}, "row 2"),
    "NaN time": ({"time": np.array([0.0, np.nan, 0.2, 0.3])}, "row 1 is nan"),
    "one sample": (
        {"time": TIME[:1], "ctrl": np.ones((1, 2)), "channels": {}},
        "at least 2 samples",
    ),
    "no sample": ({"time": TIME[:0]}, "at least 2 samples"),
    "NaN row": (
        {
            "channels": {
                "q": np.where(np.arange(4)[:, None] == 2, np.nan, np.ones((4, 3)))
            }
        },
        "`q` is nan in row 2, column 0",
    ),
    "wrong length": ({"ctrl": np.ones((3, 2))}, "`ctrl` has shape"),
    "reserved name": ({"channels": {"ctrl": np.ones((4, 1))}}, "channel named 'ctrl'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_recordings(case):
    changes, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        _recording(**changes)


def test_split_keeps_runs_together():
    """Copies of a run are all on one side."""
    runs = [f"run-{k // 2}" for k in range(12)]
    recordings = [
        identify.Recording(TIME, np.ones((4, 0)), {}, f"r{k}", run)
        for k, run in enumerate(runs)
    ]
    fitted, held = identify.split(recordings, 0.3)
    assert not {r.run for r in fitted} & {r.run for r in held}
    assert len(fitted) + len(held) == 12 and len({r.run for r in held}) == 2
    with pytest.raises(ValueError, match="at least two runs"):
        identify.split(recordings[:2])


@pytest.mark.parametrize(
    "change, words",
    (
        ({"time": np.array(1.0)}, "`time` has shape"),
        ({"offsets": np.array([0.0, 5.0])}, "`offsets` must be"),
        ({"offsets": np.array([0, 99])}, "`offsets` must be"),
        ({"offsets": np.array([4, 2])}, "`offsets` must be"),
        ({"name": np.array("a")}, "`name` has shape"),
        ({"q": np.array(["x"] * 5)}, "`q` has shape .* rows of real numbers"),
        ({"q": np.ones(5) * 1j}, "`q` has shape .* rows of real numbers"),
        ({"time": None, "rate": np.array(0.0)}, "`rate` must be"),
        ({"time": None, "rate": np.array([1.0, 2.0])}, "`rate` must be"),
    ),
)
def test_a_file_of_another_layout_is_one_error(tmp_path, change, words):
    arrays = {"time": np.arange(5.0), "ctrl": np.zeros((5, 1)), "q": np.zeros((5, 2))}
    arrays |= {"offsets": np.array([0, 5]), "name": np.array(["a"])} | change
    path = tmp_path / "x.npz"
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(ValueError, match=words):
        identify.load_recordings(path, channels={"q": "q"})
