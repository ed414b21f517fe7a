"""Datasets come back from files bit by bit; files of others are read as they are meant."""

import json
import sys
import types

import gymnasium
import jax
import jax.tree_util as jtu
import numpy as np
import pytest
from zoo.datasets import ABOUT, assert_same, BOUNDS, created, dictionaries, vectors

from eqsim_zoo.data import About, Dataset, from_minari, load_data, save_data


@pytest.mark.parametrize("make", (vectors, dictionaries))
def test_round_trip(make, tmp_path):
    """On the host as on the device; what the file says can be said anew."""
    data, path = created((3, 1, 2), (False, True, True), {0}, make), tmp_path / "a.npz"
    for one in (data, data.on_host()):
        save_data(one, path)
        back = load_data(path)
        assert_same(back, data)
        assert back.about == data.about == ABOUT
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
    with np.load(path) as file:
        assert {"format", "about", "at", "action", "bounds"} <= {*file.files}
        names = {name for name in file.files if name.startswith("frames")}
    start = "frames/observation"
    nested = {f"{start}/picture", f"{start}/inner/vector"}
    assert names == ({start} if make is vectors else nested)
    wide = load_data(path, bounds=2 * BOUNDS, about=About("x"))
    assert wide.about == About("x")
    np.testing.assert_array_equal(wide.bounds, 2 * BOUNDS)
    with pytest.raises(ValueError, match="a.npz': `action` is outside its bounds"):
        load_data(path, bounds=0.01 * BOUNDS)
    clipped = load_data(path, bounds=0.01 * BOUNDS, clip=True)
    assert float(clipped.action.max()) == 0.03


def test_a_file_is_replaced_when_the_new_one_is_whole(monkeypatch, tmp_path):
    path = tmp_path / "a.npz"
    save_data(created((2,), (True,)), path)
    before = path.read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.raises(OSError, match="No space left"):
            save_data(created((3,), (True,)), path)
    assert path.read_bytes() == before and len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize(
    "tree, message",
    [
        (lambda x: (x, x), "`frames/observation` is tuple"),
        (lambda x: {"a/b": x}, "the key 'a/b'; keys in files are names without `/`"),
        (lambda x: {"a": {1: x}}, "`frames/observation/a` has the key 1"),
    ],
)
def test_what_has_no_name_is_refused(tree, message, tmp_path):
    obs, zero = tree(np.zeros((1, 2))), np.zeros(1)
    data = Dataset.create(obs, np.zeros((1, 1)), zero, obs, zero, zero)
    with pytest.raises(ValueError, match=message):
        save_data(data, tmp_path / "a.npz")
    assert not [*tmp_path.iterdir()]


# Three trajectories of 2, 1 and 3 steps; the second one ends by itself.
PATHS = [np.arange(a, a + n + 1.0)[:, None] for a, n in ((0, 2), (10, 1), (20, 3))]
OBS = np.concatenate([path[:-1] for path in PATHS])
NEXT = np.concatenate([path[1:] for path in PATHS])
FRAMES = np.concatenate(PATHS)
ENDED = np.array([0, 0, 1, 0, 0, 0], bool)
LAST = np.array([0, 1, 1, 0, 0, 1], bool)
STEPS = {
    "observations": OBS.astype(np.float32),
    "actions": np.linspace(-1, 1, 6, dtype=np.float32)[:, None],
    "rewards": np.arange(6.0),
    "next_observations": NEXT.astype(np.float32),
}
CUT = LAST & ~ENDED
LAYOUTS = {
    "D4RL": {"terminals": ENDED, "timeouts": CUT},
    "D4RL without timeouts": {"terminals": ENDED},
    "jaxrl_m": {"masks": 1.0 - ENDED, "dones_float": LAST.astype(np.float32)},
    "jaxrl_m, masks only": {"masks": 1.0 - ENDED},
    "OGBench, not compact": {"masks": 1.0 - ENDED, "terminals": LAST.astype(float)},
    "all": {"masks": 1.0 - ENDED, "terminals": ENDED, "timeouts": CUT},
}


def written(folder, arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


@pytest.mark.parametrize("flags", LAYOUTS.values(), ids=LAYOUTS)
def test_steps_of_others(flags, tmp_path):
    """Every row is a step."""
    extra = {"infos/qpos": np.zeros((6, 2)), "names": np.array(["a"], object)}
    data = load_data(written(tmp_path, STEPS | flags | extra), about=ABOUT)
    steps = data.steps()
    for name, x in zip(
        ("observations", "actions", "rewards", "next_observations"), steps
    ):
        np.testing.assert_array_equal(STEPS[name], x)
    np.testing.assert_array_equal(steps.terminated, ENDED)
    np.testing.assert_array_equal(data.terminal, LAST)
    assert data.about == ABOUT
    np.testing.assert_array_equal(data.bounds, [[-1.0, 1.0]])


ROWS = np.arange(len(FRAMES))
END = np.isin(ROWS, [2, 4, 8])


@pytest.mark.parametrize("marked", (True, False))
def test_frames_of_others(marked, tmp_path):
    """A step between each two frames of a trajectory; the last frame of all is marked or
    not. The action and the reward of a last frame are of no step."""
    ends = END if marked else END & (ROWS < 8)
    frames = {
        "observations": FRAMES,
        "actions": np.where(END, 9.0, 0.1 * ROWS)[:, None],
        "terminals": ends.astype(np.float32),
        "qpos": np.zeros(9),
    }
    plain = load_data(written(tmp_path, frames))
    at = np.flatnonzero(~END)
    steps = plain.steps()
    np.testing.assert_array_equal(steps.obs, OBS)
    np.testing.assert_array_equal(steps.next_obs, NEXT)
    np.testing.assert_array_equal(steps.action[:, 0], 0.1 * at)
    np.testing.assert_array_equal(plain.terminal, LAST)
    assert not steps.terminated.any() and not steps.reward.any()
    assert plain.frames.shape == FRAMES.shape
    masks = np.isin(ROWS, [3], invert=True)
    found = load_data(
        written(tmp_path, frames | {"rewards": 1.0 * ROWS, "masks": masks})
    )
    np.testing.assert_array_equal(found.steps().reward, at)
    np.testing.assert_array_equal(found.steps().terminated, ENDED)
    np.testing.assert_array_equal(found.terminal, LAST)


def test_pictures_of_others(tmp_path):
    """Stay in bytes, also beside vectors."""
    pictures = np.random.default_rng(0).integers(0, 256, (9, 4, 4, 3)).astype(np.uint8)
    frames = {"actions": np.zeros((9, 1)), "terminals": END}
    data = load_data(written(tmp_path, frames | {"observations": pictures}))
    assert data.frames.dtype == np.uint8
    np.testing.assert_array_equal(data.frames, pictures)
    both = {"observations/image": pictures, "observations/state": FRAMES}
    data = load_data(written(tmp_path, frames | both))
    assert_same(data.frames, {"image": pictures, "state": FRAMES})


def _stored(**changes):
    """Arrays of a file of ours, some of them changed, or left out where None."""
    data = created((3, 1), (False, True))
    arrays = {
        name: np.asarray(vars(data)[name]) for name in vars(data) if name != "about"
    }
    arrays["frames/observation"] = arrays.pop("frames")
    about = np.asarray(json.dumps(ABOUT._asdict()))
    arrays |= {"format": np.asarray("eqsim-data-1"), "about": about} | changes
    return {name: x for name, x in arrays.items() if x is not None}


COMPACT = {"observations": FRAMES, "actions": np.zeros((9, 1)), "terminals": END}
ENDING = STEPS | {"terminals": ENDED}
NO_ROWS = {name: x[:0] for name, x in STEPS.items() if name != "next_observations"}
NO_ROWS |= {"terminals": END[:0], "timeouts": END[:0]}
ROLLOUT = {k: np.zeros((2, 3, 1)) for k in ("observations", "next_observations")}
ROLLOUT |= {"actions": np.zeros((2, 3, 1)), "rewards": np.zeros((2, 3))}
ROLLOUT |= {k: np.zeros((2, 3), "U1") for k in ("terminated", "truncated", "valid")}
HALF = np.where(ROWS[:6] < 4, 0.0, np.nan)
SEEN = "frames/observation"
# Arrays of files of others and of ours, and words of the message.
BAD = (
    ({}, r"arrays \(none\); expected `observations`"),
    ({"observations": OBS, "terminals": ENDED}, "arrays observations, terminals; exp"),
    (STEPS, "next_observations, observations, rewards; expected"),
    (COMPACT | {"timeouts": END}, "terminals, timeouts; expected"),
    (NO_ROWS, "`timeouts` is empty; expected at least two rows"),
    (COMPACT | {"valids": END}, "without `timeouts`, `dones_float` and"),
    (
        COMPACT | {"terminals": END | (ROWS == 1) | (ROWS == 5)},
        "2 trajectories have no step, the first in row 2",
    ),
    ({name: x[:0] for name, x in COMPACT.items()}, "at least two frames"),
    (
        STEPS | {"terminals": 0.5 * ENDED},
        r"`terminals` has shape \(6,\) .* float64; exp",
    ),
    (STEPS | {"masks": ENDED[:, None]}, r"`masks` has shape \(6, 1\)"),
    (
        ENDING | {"timeouts": CUT[1:]},
        r"`timeouts` has shape \(5,\), but `actions` has 6 rows",
    ),
    (
        ENDING | {"next_observations": np.zeros((6, 2))},
        r"`observations` has shape \(6, 1\), but `next_observations` has \(6, 2\)",
    ),
    (ENDING | {"rewards": HALF}, "`reward` is not finite in 2 .* first in row 4: nan"),
    (
        ENDING | {"actions": 2.0 * STEPS["actions"]},
        r"`action` is outside its bounds in 4 of 6 rows, first in row 0: \[-2.\]",
    ),
    (
        ENDING | {"rewards": np.array([None] * 6)},
        "array 'rewards' cannot be read: it contains Python objects",
    ),
    (ROLLOUT, "`terminated` has type <U1; expected booleans"),
    (_stored(format=np.asarray("eqsim-data-9")), "is 'eqsim-data-9'"),
    (_stored(last=None, at=None), "`at, last` is missing; the file has"),
    (_stored(**{SEEN: None}), f"`{SEEN}`"),
    (_stored(**{SEEN: np.full((6, 3), np.nan)}), "`frames` is not finite in 6 of 6"),
    (_stored(about=np.asarray("[1]")), "`about` is '.1.'; expected the fields of"),
    (_stored(at=np.arange(5)), r"`at` has shape \(5,\) and type int64"),
    (_stored(at=np.array([0, 1, 2, 5])), "`at` must increase"),
    (_stored(at=np.array([0, 1, 0, 4])), "`at` must increase"),
    (_stored(last=np.array([0, 1, 1, 3])), "`last` must be the index"),
    (_stored(last=np.array([2, 3, 2, 3])), "`last` differs between"),
    (_stored(terminated=np.ones(4, bool)), "`last` must be the index"),
    (_stored(reward=np.zeros((0,))), r"`reward` has shape \(0,\)"),
    (_stored(action=np.zeros(4)), r"`action` has shape \(4,\)"),
    (_stored(bounds=np.zeros((2, 2))), "`bounds` are"),
)


@pytest.mark.parametrize("arrays, message", BAD)
def test_bad_files(arrays, message, tmp_path):
    with pytest.raises(ValueError, match=f"a.npz'.*{message}"):
        load_data(written(tmp_path, arrays))


def test_damaged_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="No dataset .*b.npz"):
        load_data(tmp_path / "b.npz")
    path = tmp_path / "a.npz"
    save_data(created((30,), (True,)), path)
    whole = path.read_bytes()
    for data in (b"", b"no numbers", whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(
            ValueError, match="a.npz': this is not a complete `.npz` file"
        ):
            load_data(path)
    # One bit, within an array.
    at = whole.index(b"action.npy") + 200
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(ValueError, match="a.npz': array 'action' .*Bad CRC-32"):
        load_data(path)


class Minari:
    """What is read of a `minari.MinariDataset`."""

    def __init__(self, episodes, **metadata):
        self.episodes = episodes
        self.storage = types.SimpleNamespace(metadata=metadata)
        self.env_spec = types.SimpleNamespace(id="Reach-v1")
        self.spec = types.SimpleNamespace(dataset_id="reach/test-v0")
        self.action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))

    def iterate_episodes(self):
        return iter(self.episodes)


def episode(number, path, terminated, truncated):
    steps = len(path) - 1
    goal = np.full((len(path), 2), 7.0 * number)
    flags = lambda last: [False] * (steps - 1) + [last] * (steps > 0)
    return types.SimpleNamespace(
        id=number,
        observations={"observation": path, "desired_goal": goal},
        actions=np.full((steps, 1), 0.5 * number),
        rewards=np.arange(1.0 * steps),
        terminations=flags(terminated),
        truncations=flags(truncated),
    )


def test_minari():
    flags = (False, True), (True, True), (False, False)
    episodes = [episode(k, path, *flags[k]) for k, path in enumerate(PATHS)]
    data = from_minari(Minari(episodes, ref_min_score=1.0, ref_max_score=np.float64(3)))
    steps = data.steps()
    goal = np.repeat(7.0 * np.arange(3), [2, 1, 3])[:, None] * np.ones(2)
    for found, expected in ((steps.obs, OBS), (steps.next_obs, NEXT)):
        assert_same(found, {"observation": expected, "desired_goal": goal})
    np.testing.assert_array_equal(steps.action[:, 0], [0, 0, 0.5, 1, 1, 1])
    np.testing.assert_array_equal(steps.reward, [0, 1, 0, 0, 1, 2])
    np.testing.assert_array_equal(steps.terminated, ENDED)
    np.testing.assert_array_equal(steps.truncated, CUT)
    np.testing.assert_array_equal(data.bounds, [[-2.0, 2.0]])
    assert data.about == About("Reach-v1", ("reach/test-v0",), 1.0, 3.0)
    assert from_minari(Minari(episodes)).about.expert_return is None
    with pytest.raises(ValueError, match="has no episodes"):
        from_minari(Minari([]))
    with pytest.raises(
        ValueError, match=r"Episode 3 has 0 rewards and \[1\] observations"
    ):
        from_minari(Minari([*episodes, episode(3, PATHS[0][:1], False, False)]))


def test_minari_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match="pip install 'eqsim-zoo.minari.'"):
        from_minari("D4RL/pen/human-v2")


def test_types_are_those_of_jax(tmp_path):
    """A file of double precision is read in single precision, and its bounds hold."""
    path = tmp_path / "a.npz"
    data = created((3,), (True,))
    save_data(data, path)
    with jax.enable_x64(False):
        single = load_data(path)
        leaves = jtu.tree_leaves((single.frames, single.action, single.bounds))
        assert all(x.dtype == np.float32 for x in leaves)
