"""HDF5 files of D4RL, beside the loop of its `qlearning_dataset`."""

import sys

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, settings, strategies as st

from eqsim_zoo.data import load_data
from eqsim_zoo.data.foreign import foreign_steps


def qlearning_dataset(rows):
    """One row after the other: rows at timeouts and the last one are left out."""
    kept = [k for k in range(len(rows["rewards"]) - 1) if not rows["timeouts"][k]]
    following = [k + 1 for k in kept]
    names = "observations", "actions", "rewards", "terminals"
    return kept, {name: rows[name][kept] for name in names} | {
        "next_observations": rows["observations"][following]
    }


def rows_of(lengths, terminals):
    """Episodes one after the other; the rows of each end by itself or at a timeout."""
    number = sum(lengths)
    ends = np.cumsum(lengths) - 1
    terminated, timeouts = np.zeros(number, bool), np.zeros(number, bool)
    terminated[ends], timeouts[ends] = terminals, ~np.array(terminals, bool)
    return {
        "observations": np.arange(2.0 * number, dtype=np.float32).reshape(number, 2),
        "actions": np.linspace(-1, 1, number, dtype=np.float32)[:, None],
        "rewards": np.arange(number, dtype=np.float32),
        "terminals": terminated,
        "timeouts": timeouts,
    }


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=5))
def test_rows(episodes):
    """The rows of D4RL. A trajectory ends where the next row is not of the same episode,
    and at a terminal no other episode begins in the next observation."""
    lengths, terminals = zip(*episodes)
    rows = rows_of(lengths, terminals)
    kept, expected = qlearning_dataset(rows)
    steps = foreign_steps(rows)
    number = np.repeat(np.arange(len(lengths)), lengths)
    for name, x in (
        ("observations", steps.obs),
        ("actions", steps.action),
        ("rewards", steps.reward),
        ("terminals", steps.terminated),
    ):
        np.testing.assert_array_equal(x, expected[name])
    going = ~expected["terminals"]
    np.testing.assert_array_equal(
        steps.next_obs[going], expected["next_observations"][going]
    )
    of_next = {tuple(x): k for x, k in zip(rows["observations"], number)}
    assert [of_next[tuple(x)] for x in steps.next_obs] == [*number[kept]]
    changes = np.append(np.diff(number[kept]) != 0, [True] * bool(kept))
    np.testing.assert_array_equal(steps.terminated | steps.truncated, changes)
    assert not np.any(steps.terminated & steps.truncated)


def written(path, arrays):
    h5py = pytest.importorskip("h5py", reason="needs the extra `d4rl`")
    with h5py.File(path, "w") as file:
        for name, x in arrays.items():
            file[name] = x
    return path


OTHERS = {"infos/qpos": np.zeros((7, 3)), "metadata/algorithm": "SAC"}
ROWS = rows_of((3, 2, 2), (False, True, False))


def test_files(tmp_path):
    """Other arrays are not read; columns are read as rows."""
    column = {"rewards": ROWS["rewards"][:, None]}
    data = load_data(written(tmp_path / "a.hdf5", ROWS | OTHERS | column))
    steps = data.steps()
    np.testing.assert_array_equal(steps.reward, [0, 1, 3, 4, 5])
    np.testing.assert_array_equal(steps.terminated, [0, 0, 0, 1, 0])
    np.testing.assert_array_equal(data.terminal, [0, 1, 0, 1, 1])


def test_files_with_next_observations(tmp_path):
    """Every row is a step, also at a timeout."""
    following = {"next_observations": ROWS["observations"] + 2.0}
    data = load_data(written(tmp_path / "a.hdf5", ROWS | OTHERS | following))
    steps = data.steps()
    np.testing.assert_array_equal(steps.next_obs, following["next_observations"])
    np.testing.assert_array_equal(data.terminal, [0, 0, 1, 0, 1, 0, 1])


def test_files_that_cannot_be_read(monkeypatch, tmp_path):
    early = {name: x for name, x in ROWS.items() if name != "timeouts"}
    path = written(tmp_path / "a.hdf5", early)
    with pytest.raises(ValueError, match="a.hdf5': .* neither `timeouts` nor"):
        load_data(path)
    written(path, ROWS)
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(ValueError, match="a.hdf5': this HDF5 file is damaged"):
        load_data(path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"need h5py.*eqsim-zoo\[d4rl\]"):
        load_data(path)
