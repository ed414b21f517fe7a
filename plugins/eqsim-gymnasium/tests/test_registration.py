"""Names of eqsim in Gymnasium's registry, and shapes, types and bounds of its spaces."""

import subprocess
import sys

import eqsim_gymnasium
import gymnasium
import numpy as np
import pytest
from eqsim_gymnasium import ArraySpec, EqsimEnv, from_space
from gymnasium import spaces

import eqsim


CLASSIC = {
    "Ant": 1000,
    "HalfCheetah": 1000,
    "Hopper": 1000,
    "Humanoid": 1000,
    "HumanoidStandup": 1000,
    "InvertedDoublePendulum": 1000,
    "InvertedPendulum": 1000,
    "Pusher": 100,
    "Reacher": 50,
    "Swimmer": 1000,
    "Walker2d": 1000,
}


def test_all_names():
    names = [spec.kwargs["env"] for id, spec in _registered().items()]
    assert sorted(names) == sorted(eqsim.ENVS.names())
    assert eqsim_gymnasium.register_envs() == ()


@pytest.mark.parametrize("name", CLASSIC)
def test_episodes_are_as_long_as_gymnasium_has_them(name):
    steps = _registered()[f"eqsim/{name}-v0"].max_episode_steps
    assert steps == gymnasium.spec(f"{name}-v5").max_episode_steps == CLASSIC[name]


def test_specs_are_strings():
    """So that they can be saved, and nothing is imported before it is made."""
    for spec in _registered().values():
        assert gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()) == spec


def test_name_that_is_registered_later(monkeypatch):
    # What the test adds goes with it.
    monkeypatch.setattr(eqsim.ENVS, "_registered", {})
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(_all()))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    eqsim.ENVS.register("my_point", eqsim.envs.PointMass)
    assert eqsim_gymnasium.register_envs() == ("eqsim/MyPoint-v0",)
    env = gymnasium.make("eqsim/MyPoint-v0", ctrl_cost_weight=0.0)
    assert env.spec.max_episode_steps == 1000
    eqsim.ENVS.register("myPoint", eqsim.envs.PointMass)
    eqsim.ENVS.register("my point!", eqsim.envs.PointMass)
    with pytest.warns(UserWarning) as warned:
        assert eqsim_gymnasium.register_envs() == ()
    texts = [str(w.message) for w in warned]
    assert any("'my point!' is no name for Gymnasium" in text for text in texts)
    assert any("'my_point' would be 'eqsim/MyPoint-v0'" in text for text in texts)


def test_packages_are_imported_when_an_environment_is_made(tmp_path):
    """One that is broken hides no other."""
    (tmp_path / "sleds-1.0.dist-info").mkdir()
    (tmp_path / "sleds-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sleds\nVersion: 1.0\n"
    )
    (tmp_path / "sleds-1.0.dist-info" / "entry_points.txt").write_text(
        "[eqsim.envs]\nrocket_sled = rocket_sled:Sled\nbroken_sled = broken_sled:Sled\n"
    )
    (tmp_path / "rocket_sled.py").write_text(
        "from eqsim.envs import PointMass as Sled\n"
    )
    (tmp_path / "broken_sled.py").write_text("raise RuntimeError('no snow')\n")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import gymnasium
import eqsim_gymnasium
assert not {{"rocket_sled", "broken_sled"}} & set(sys.modules)
assert "eqsim/BrokenSled-v0" in gymnasium.registry
env = gymnasium.make("eqsim/RocketSled-v0")
assert env.reset(seed=0)[0].shape == (2,)
try:
    gymnasium.make("eqsim/BrokenSled-v0")
except ImportError as error:
    assert "broken_sled" in str(error) and "no snow" in str(error)
else:
    raise AssertionError("a broken package was imported")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def _all():
    return gymnasium.registry


def _registered():
    return {id: spec for id, spec in _all().items() if id.startswith("eqsim/")}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1.0, np.array([1.0, 2.0]), dtype=np.float64),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 5], start=[1, 0]),
        spaces.MultiBinary((2, 2)),
    ],
)
def test_bounds_are_reached_and_hold(space):
    spec = from_space(space)
    samples = np.stack([space.sample() for _ in range(200)])
    assert samples.shape[1:] == spec.shape and samples.dtype == spec.dtype
    assert spec.low.dtype == spec.high.dtype == spec.dtype
    assert spec.low.shape == spec.high.shape == spec.shape
    assert np.all(samples >= spec.low) and np.all(samples <= spec.high)
    assert space.contains(_element(space, spec.low))
    assert space.contains(_element(space, spec.high))
    if np.issubdtype(spec.dtype, np.integer):
        assert np.array_equal(samples.min(0), spec.low)
        assert np.array_equal(samples.max(0), spec.high)


def _element(space, value):
    return int(value) if isinstance(space, spaces.Discrete) else value


def test_nested():
    box, number = spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(2)
    spec = from_space(spaces.Dict(a=box, b=spaces.Tuple((number, box))))
    assert set(spec) == {"a", "b"} and isinstance(spec["b"], tuple)
    assert isinstance(spec["b"][0], ArraySpec) and spec["a"].shape == (2,)
    with pytest.raises(TypeError, match="Text"):
        from_space(spaces.Dict(a=spaces.Text(3)))


def test_spaces_of_environments():
    env = EqsimEnv("inverted_pendulum")
    spec = from_space(env.action_space)
    expected = eqsim.make("inverted_pendulum").action_range
    assert np.array_equal(np.stack([spec.low, spec.high], -1), expected)
    assert np.all(np.isinf(EqsimEnv("point_mass").action_space.high))
