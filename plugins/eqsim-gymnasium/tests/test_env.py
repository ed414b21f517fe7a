"""One environment: what Gymnasium asks for, and what eqsim computes."""

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from eqsim_gymnasium import EqsimEnv
from gymnasium.utils.env_checker import check_env

import eqsim
from eqsim.bridges import _call


CLASSIC = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)
QUICK = ("PointMass", "InvertedPendulum")
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in CLASSIC if n not in QUICK]


# Gymnasium's advice on bounds that are what they are; everything else is an error.
@pytest.mark.filterwarnings("ignore:.*A Box (action|observation) space m")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend")
@pytest.mark.parametrize("name", (*QUICK, *SLOW))
def test_gymnasium_is_content(name):
    env = gymnasium.make(f"eqsim_gymnasium:eqsim/{name}-v0")
    check_env(env.unwrapped, skip_render_check=True)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)


@pytest.mark.filterwarnings("ignore:.*A Box (action|observation) space m")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend")
def test_gymnasium_is_content_with_pictures(opengl):
    env = gymnasium.make(
        "eqsim/PointMass-v0", render_mode="rgb_array", width=40, height=32
    )
    check_env(env.unwrapped)
    env.reset(seed=0, options={"q": [-0.5], "qd": [0.0]})
    left = env.render()
    assert left.shape == (32, 40, 3) and left.dtype == np.uint8
    env.reset(options={"q": [0.5], "qd": [0.0]})
    assert np.any(env.render() != left)
    assert EqsimEnv("point_mass").render() is None


def test_is_the_environment_of_eqsim():
    task = eqsim.make("inverted_pendulum")
    env = EqsimEnv("inverted_pendulum")
    q, qd = np.array([0.1, 0.02]), np.array([0.3, -0.1])
    obs, info = env.reset(options={"q": q, "qd": qd})
    start = {"q": jnp.asarray(q), "qd": jnp.asarray(qd)}
    state, timestep = task.reset(jr.key(0), start)
    assert np.array_equal(obs, timestep.obs) and info == {}
    for action in np.linspace(-3, 3, 5):
        action = np.array([action])
        obs, reward, terminated, truncated, info = env.step(action)
        state, timestep = eqx.filter_jit(task.step)(state, jnp.asarray(action))
        np.testing.assert_allclose(obs, timestep.obs, rtol=1e-12, atol=1e-12)
        assert reward == timestep.reward == sum(info.values())
        assert list(info) == ["reward_survive"]
        assert type(reward) is float and type(info["reward_survive"]) is float
        assert terminated is bool(timestep.terminated) and truncated is False
        assert obs.dtype == env.observation_space.dtype == np.float64
        assert obs.flags.writeable


def test_seeds():
    """A seed begins a chain of episodes, whatever was before; no seed goes on with it."""
    first, second = EqsimEnv("point_mass"), EqsimEnv("point_mass")
    second.reset(seed=7)
    runs = []
    for env in (first, second):
        runs.append([env.reset(seed=s)[0] for s in (3, None, None)])
    assert np.array_equal(*runs)
    starts = [*runs[0], first.reset(seed=4)[0]]
    assert len({obs.tobytes() for obs in starts}) == 4
    unseeded = {EqsimEnv("point_mass").reset()[0].tobytes() for _ in range(3)}
    assert len(unseeded) == 3


def test_time_limit_and_end():
    env = gymnasium.make("eqsim/PointMass-v0", max_episode_steps=4)
    env.reset(seed=0)
    flags = [env.step(np.zeros(1))[2:4] for _ in range(4)]
    assert flags == [(False, False)] * 3 + [(False, True)]
    env.reset(options={"q": [0.99], "qd": [1.0]})
    terminated, truncated = env.step(np.zeros(1))[2:4]
    assert terminated is True and truncated is False


def test_options_of_make():
    env = gymnasium.make("eqsim/PointMass-v0", pipeline="spring", ctrl_cost_weight=2.0)
    assert isinstance(env.unwrapped.eqsim_env.pipeline, eqsim.Spring)
    env.reset(seed=0)
    assert env.step(np.ones(1))[4]["reward_ctrl"] == -2.0
    assert env.metadata["render_fps"] == 10
    with pytest.raises(TypeError, match="no option 'ctrl_cost'"):
        gymnasium.make("eqsim/PointMass-v0", ctrl_cost=2.0)


def test_random_robots():
    def heavier(key, sys):
        mass = sys.links.mass * jr.uniform(key, (), minval=1.0, maxval=3.0)
        return eqx.tree_at(lambda s: s.links.mass, sys, mass)

    for randomize in (heavier, "masses"):
        env = EqsimEnv("point_mass", randomize=randomize)
        env.reset(seed=0)
        mass = lambda: float(
            eqsim.wrappers.episode_robot(env.eqsim_env, env.state).links.mass[0]
        )
        masses = {mass(), *(env.reset() and mass() for _ in range(3))}
        assert len(masses) == 4
        context = np.full(env.eqsim_env.context(env.state).size, 4.0)
        env.reset(options={"q": [0.0], "qd": [0.0], "context": context})
        assert mass() == 4.0
        np.testing.assert_allclose(env.step(np.ones(1))[0][1], 0.1 * 3 / 4)


class _Described(eqsim.wrappers.AbstractDescriptor):
    """Where the mass is."""

    env: eqsim.AbstractEnv

    descriptor_names = ("x",)
    descriptor_range = jnp.array([[-1.0, 1.0]])

    def describe(self, state, timestep):
        return self.physics(state).q


def test_descriptor():
    env = EqsimEnv(_Described(eqsim.make("point_mass")))
    _, info = env.reset(options={"q": [0.25], "qd": [0.0]})
    assert info["descriptor"] == [0.25]
    obs, *_, info = env.step(np.ones(1))
    assert info["descriptor"] == obs[:1] and "reward_distance" in info


def test_same_robots_share_programs():
    """A second environment compiles nothing, whatever its numbers."""
    env = EqsimEnv("point_mass")
    env.reset(seed=0)
    env.step(np.zeros(1))
    before = _call._cache_size()
    other = EqsimEnv("point_mass", ctrl_cost_weight=0.7)
    other.reset(seed=1)
    for _ in range(3):
        other.step(np.ones(1))
    assert _call._cache_size() == before


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"env": "point_mas"}, ValueError, "Did you mean 'point_mass'"),
        ({"render_mode": "human"}, ValueError, "'rgb_array', got 'human'"),
        ({"randomize": "masse"}, ValueError, "'masse'.*Presets: .*masses"),
        ({"env": object()}, TypeError, "object"),
        ({"env": eqsim.make("point_mass"), "frame_skip": 2}, TypeError, "frame_skip"),
        ({"env": eqsim.AutoReset(eqsim.make("point_mass"))}, ValueError, "`AutoReset`"),
    ],
)
def test_bad_construction(options, error, text):
    with pytest.raises(error, match=text):
        EqsimEnv(**{"env": "point_mass", **options})


def test_observations_of_several_parts(two_parts):
    with pytest.raises(ValueError, match="parts .'obs'., .'privileged'.. Leave out"):
        EqsimEnv(two_parts)


def test_bad_calls():
    env = EqsimEnv("point_mass")
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(np.zeros(1))
    with pytest.raises(ValueError, match="no reset option 'p'.*Options: q, qd"):
        env.reset(options={"p": [0.0]})
    with pytest.raises(ValueError, match=r"options\['q'\].*finite.*nan"):
        env.reset(options={"q": [np.nan]})
    with pytest.raises(ValueError, match="options.q.*nq.*1"):
        env.reset(options={"q": [0.0, 0.0]})
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(1,\).*\(2,\)"):
        env.step(np.zeros(2))
    with pytest.raises(ValueError, match="finite.*nan"):
        env.step(np.array([np.nan]))


def test_examples(readme):
    """What the README shows runs as it stands."""
    names = {}
    for block in readme:
        if "sb3" not in block:
            exec(block, names)


def test_curriculum(curriculum):
    """It goes on until there is a seed. Options of a reset replace those that it gives, and
    leave others."""
    env, q = gymnasium.wrappers.TimeLimit(EqsimEnv(curriculum), 2), {"q": [0.25]}
    begins = {"seed": 0}, {}, {"options": q}, {}, {"options": {"start": 7}}, {}
    seen, places = [], []
    for options in (*begins, {"options": {"start": 5} | q}, {"seed": 1, "options": q}):
        seen.append(float(env.reset(**options)[0][0]))
        places.append(float(env.unwrapped.state.inner.q[0]) == 0.25)
        while not any(env.step(np.zeros(1))[2:4]):
            pass
    assert seen == [0, 1, 2, 3, 7, 8, 5, 0]
    assert [k for k, there in enumerate(places) if there] == [2, 6, 7]
