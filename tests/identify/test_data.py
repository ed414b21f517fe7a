"""Recordings and windows: files, ragged runs, irregular times and interruptions."""

import jax.numpy as jnp
import numpy as np
import pytest
from recorded_rails import DAMPING, slide, SYS, TRUTH
from toys import Rails

from eqsim import identify
from eqsim.estimate.stochastic_model import measurement
from eqsim.identify._fit import prepare
from eqsim.identify._fit_problem import residuals
from eqsim.identify._solver import iterate_at
from eqsim.identify._windows import cut


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


BACK, TWICE, NAN = [0.0, 0.2, 0.1, 0.3], [0.0, 0.2, 0.2, 0.3], [0.0, np.nan, 0.2, 0.3]
ONE = {"time": TIME[:1], "ctrl": np.ones((1, 2)), "channels": {}}
HOLE = np.where(np.arange(4)[:, None] == 2, np.nan, np.ones((4, 3)))
BAD = {
    "'lab': `time` does not increase at row 2": {"time": BACK},
    "does not increase at row 2": {"time": TWICE},
    "row 1 is nan": {"time": NAN},
    "at least 2 samples": ONE,
    "shape .*least 2 samples": {"time": TIME[:0]},
    "`q` is nan in row 2, column 0": {"channels": {"q": HOLE}},
    "`ctrl` has shape": {"ctrl": np.ones((3, 2))},
    "channel named 'ctrl'": {"channels": {"ctrl": np.ones((4, 1))}},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_recordings(message):
    with pytest.raises(ValueError, match=message):
        _recording(**BAD[message])


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
    for few in ([], recordings[:2]):
        with pytest.raises(ValueError, match="at least two runs"):
            identify.split(few)


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


def _problem(runs, windows):
    measure = measurement(identify.JointPositions())
    args = SYS, runs, DAMPING, windows, {"q": 0.1}, measure, Rails()
    return prepare(*args).problem


def _iterate(runs, windows):
    """Cost and derivatives away from the minimum."""
    problem = _problem(runs, windows)
    starts = np.ones(problem.batch.sd.shape)
    return iterate_at(problem, np.asarray(problem.origin), starts, 0)


def test_ragged_runs_are_padded_without_effect():
    """Runs of different lengths together cost the sum of what each costs alone."""
    runs = [slide(k, steps, 0.01) for k, steps in enumerate((60, 33, 7))]
    windows = identify.Windows(2.0)
    both = _iterate(runs, windows)
    alone = [_iterate([run], windows) for run in runs]
    assert len(both.starts) == sum(len(x.starts) for x in alone) == 6
    assert both.cost == pytest.approx(sum(x.cost for x in alone))
    for get in (lambda x: x.arrow.theta, lambda x: x.arrow.theta_gradient):
        np.testing.assert_allclose(get(both), sum(map(get, alone)), rtol=1e-9)
    counts = both.blocks.counts["q"]
    np.testing.assert_array_equal(counts[:, 0], [20, 20, 20, 20, 13, 7])


def test_irregular_times():
    """Chosen rows of a recording cost what they cost among all rows, as long as commands
    hold in between, and they are enough to find the truth."""
    whole = slide(3, 40, steady=True)
    rows = np.array([0, 1, 2, 5, 6, 9, 13, 14, 15, 19, 22, 23, 24, 27, 31, 33, 34, 38])
    start = lambda recording, row: (np.ones(2), np.zeros(2))
    windows = identify.Windows(5.0, start=start)
    few, many = (_iterate([x], windows) for x in (whole.rows(rows), whole))
    assert few.blocks.counts["q"].sum(axis=1).tolist() == [2 * len(rows)]
    problem = _problem([whole], windows)
    error = np.asarray(residuals(problem, problem.origin, jnp.ones((1, 4)))["q"])[0]
    np.testing.assert_allclose(
        few.blocks.squares["q"][0], (error[rows] ** 2).sum(axis=0)
    )
    np.testing.assert_allclose(many.blocks.squares["q"][0], (error**2).sum(axis=0))
    args = SYS, whole.rows(rows), DAMPING
    found = identify.fit(*args, windows=identify.Windows(5.0), pipeline=Rails())
    np.testing.assert_allclose(found.values, TRUTH, rtol=1e-3)


def test_interrupted_recordings():
    """Commands in an interruption are not known, so no window extends over it."""
    run = slide(4, 120, 1e-3)
    rows = np.r_[0:38, 51:120]
    skipped = run.rows(rows)
    windows = identify.Windows(8.0)
    found = cut(SYS, [skipped], ["q"], windows, 0.0)
    time = found.begin[:, None] + np.asarray(found.batch.time)
    assert not ((time[:, 0] < 3.75) & (time.max(axis=1) > 3.75)).any()
    assert 5.1 in np.round(found.begin, 9)
    fit = lambda recording, windows: identify.fit(
        SYS, recording, DAMPING, windows=windows, pipeline=Rails()
    )
    error = lambda result: np.abs(result.values / TRUTH - 1).max()
    good = fit(skipped, windows)
    bad = fit(skipped, windows._replace(gap=100.0))
    assert error(good) < 0.01 and error(bad) > 10 * error(good)
    assert float(good.sigma["q"].max()) < 2e-3 < 0.1 < float(bad.sigma["q"].max())


def test_nothing_is_read_over_interruptions():
    """The local fit after an interruption is that of a recording that begins there, and
    continuity ends there."""
    run = slide(5, 100, 1e-3)
    windows = identify.Windows(1.0, continuity=1.0)
    found = cut(SYS, [run.rows(np.r_[0:30, 60:100])], ["q"], windows, 0.0)
    alone = cut(SYS, [run.rows(np.arange(60, 100))], ["q"], windows, 0.0)
    np.testing.assert_allclose(found.begin, [0, 1, 2, 6, 7, 8, 9])
    for name, rtol in (("q", 1e-9), ("qd", 1e-9), ("sd", 1e-2)):
        # The least noise depends on the range of motion of the whole recording.
        one, other = (np.asarray(vars(x.batch)[name]) for x in (found, alone))
        np.testing.assert_allclose(one[3], other[0], rtol=rtol)
    linked = np.asarray(found.batch.linked).tolist()
    assert linked == [True, True, False, True, True, True, False]


def test_bad_gap():
    with pytest.raises(ValueError, match="`gap` must be positive, got -1"):
        cut(SYS, [slide(7, 20)], ["q"], identify.Windows(1.0, gap=-1.0), 0.0)
