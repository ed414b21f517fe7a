"""eqsim in Brax's interface, and Brax's environments in eqsim's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from eqsim_adapters import from_brax, from_playground, to_brax

import eqsim


pytestmark = [
    pytest.mark.usefixtures("lenient"),
    # Of Brax and what it imports.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def brax():
    pytest.importorskip("brax", reason="needs the extra brax")
    from brax import envs

    return envs


def _keys(number):
    return jax.random.split(jax.random.PRNGKey(0), number)


def test_wrappers_of_brax(brax):
    """Time limit, resets and metrics of Brax; physics of eqsim."""
    task = eqsim.make("point_mass", reset_noise_scale=0.01)
    env = to_brax(task)
    assert env.observation_size == 2 and env.action_size == 1
    wrapped = brax.training.wrap(env, episode_length=4)
    state, step = wrapped.reset(_keys(3)), jax.jit(wrapped.step)
    first, task_step = state.obs, eqx.filter_jit(task.step)
    assert np.array_equal(first[1], task.reset(jr.wrap_key_data(_keys(3)[1]))[1].obs)
    for k in range(4):
        before = jtu.tree_map(lambda x: x[0], state.pipeline_state)
        _, expected = task_step(before, jnp.array([0.1]))
        state = step(state, jnp.full((3, 1), 0.1))
        np.testing.assert_allclose(state.reward[0], expected.reward, rtol=1e-10)
        assert np.all(state.done == (k == 3)) and np.all(state.info["steps"] == k + 1)
        assert set(state.metrics) == {"distance", "ctrl"}
    assert np.all(state.info["truncation"] == 1) and np.array_equal(state.obs, first)


def test_evaluation_of_brax(brax):
    """Its wrapper adds a metric of its own, which steps must keep."""
    env = brax.training.wrap(to_brax(eqsim.make("point_mass")), episode_length=2)
    env = brax.training.EvalWrapper(env)
    state = env.reset(_keys(2))
    state, rewards = jax.lax.scan(
        lambda state, _: 2 * (env.step(state, jnp.zeros((2, 1))),), state, length=2
    )
    metrics = state.info["eval_metrics"]
    total = np.sum(rewards.reward, 0)
    np.testing.assert_allclose(metrics.episode_metrics["reward"], total)
    np.testing.assert_allclose(metrics.episode_metrics["distance"], total)
    assert np.all(metrics.episode_steps == 2) and not np.any(metrics.active_episodes)


def test_random_robots_of_brax(brax):
    env = to_brax(eqsim.make("point_mass"))

    def heavier(sys):
        mass = jnp.array([[2.0], [4.0]])
        batch = eqx.tree_at(lambda s: s.links.mass, sys, mass)
        shared = jtu.tree_map(lambda _: None, sys)
        axes = eqx.tree_at(
            lambda s: s.links.mass, shared, 0, is_leaf=lambda x: x is None
        )
        return batch, axes

    wrapped = brax.training.wrap(env, 9, randomization_fn=heavier)
    state = wrapped.reset(_keys(2))
    gained = wrapped.step(state, jnp.ones((2, 1))).obs[:, 1] - state.obs[:, 1]
    np.testing.assert_allclose(gained, [0.15, 0.075])
    assert np.array_equal(env.sys.links.mass, [2.0])


def test_environment_of_brax(brax):
    """Steps are Brax's own; time limits of both."""
    env = brax.get_environment("fast")
    ours = from_brax(brax.training.EpisodeWrapper(env, 5, 1), dt=0.02)
    assert np.array_equal(ours.action_range, [[-1.0, 1.0]] * env.action_size)
    policy = lambda obs, key: jr.uniform(key, (env.action_size,), minval=-1.0)
    trajectory = eqsim.rollout(eqsim.AutoReset(ours), policy, jr.key(0), length=10)
    timestep = trajectory.timestep
    assert np.flatnonzero(timestep.truncated).tolist() == [4, 9]
    assert not np.any(timestep.terminated)
    state = jtu.tree_map(lambda x: x[2], trajectory.state.inner.inner)
    expected = jax.jit(env.step)(state, trajectory.action[2])
    np.testing.assert_allclose(timestep.final_obs[2], expected.obs, rtol=1e-6)
    np.testing.assert_allclose(timestep.reward[2], expected.reward, rtol=1e-6)


def test_observations_of_several_parts(brax, two_parts):
    env = to_brax(two_parts)
    assert env.observation_size == {"obs": (2,), "privileged": (1,)}
    assert jax.tree.map(jnp.shape, env.reset(jr.key(0)).obs) == env.observation_size


def test_bad_input(brax, curriculum):
    env = brax.get_environment("fast")
    with pytest.raises(ValueError, match="must not reset itself.*AutoReset"):
        from_brax(brax.training.wrap(env, 5), dt=0.02)
    with pytest.raises(ValueError, match="`obs` must be left out.*array, got 'state'"):
        from_brax(env, obs="state", dt=0.02)
    with pytest.raises(ValueError, match="`obs` must be one of .*state.*got None"):
        from_brax(brax.get_environment("fast", obs_mode="dict_state"), dt=0.02)
    with pytest.raises(ValueError, match="`AutoReset`.*Brax"):
        to_brax(eqsim.AutoReset(eqsim.make("point_mass")))
    with pytest.raises(ValueError, match="curriculum of `Curriculum`.*Leave it out"):
        to_brax(curriculum)


@pytest.mark.slow
def test_robot_of_brax(brax):
    """Coordinates and pictures, if one says which robot it is."""
    env = brax.get_environment("inverted_pendulum", backend="generalized")
    task = eqsim.make("inverted_pendulum")
    sys = eqx.tree_at(lambda s: s.dt, task.sys, jnp.asarray(float(env.dt)))
    ours = from_brax(env, sys=sys)
    state, _ = eqx.filter_jit(ours.reset)(jr.key(0))
    state, timestep = eqx.filter_jit(ours.step)(state, jnp.ones(1))
    robot = ours.physics(state)
    np.testing.assert_allclose(np.concatenate([robot.q, robot.qd]), timestep.obs)
    with pytest.raises(ValueError, match="`sys.nq` must be 2,.*Brax, got 1"):
        from_brax(env, sys=eqsim.make("point_mass").sys)
    with pytest.raises(ValueError, match="`sys.dt` must be"):
        from_brax(env, sys=task.sys)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("inverted_pendulum", "hopper", "ant"))
def test_ppo_of_brax(brax, monkeypatch, name):
    """Some updates."""
    from brax.training.agents.ppo import train

    def put(x, devices):
        return jtu.tree_map(lambda y: jnp.stack([y] * len(devices)), x)

    # Brax 0.14.2 calls a function that JAX has removed since.
    monkeypatch.setattr(jax, "device_put_replicated", put, raising=False)
    reported = []
    with jax.enable_x64(False):
        train.train(
            environment=to_brax(eqsim.make(name)),
            num_timesteps=1_000,
            episode_length=100,
            num_envs=16,
            batch_size=16,
            num_minibatches=4,
            unroll_length=5,
            num_updates_per_batch=2,
            num_evals=2,
            num_eval_envs=4,
            progress_fn=lambda steps, metrics: reported.append((steps, metrics)),
        )
    assert reported[-1][0] >= 1_000
    assert np.isfinite(reported[-1][1]["eval/episode_reward"])
    assert np.isfinite(reported[-1][1]["training/total_loss"])


@pytest.mark.slow
def test_environment_of_playground():
    pytest.importorskip("mujoco_playground", reason="needs the extra playground")
    from mujoco_playground import registry

    # The default, Warp, needs a GPU.
    env = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    ours = eqsim.AutoReset(eqsim.TimeLimit(from_playground(env), 3))
    policy = lambda obs, key: jr.uniform(key, (env.action_size,), minval=-1.0)
    trajectory = eqsim.rollout(ours, policy, jr.key(0), length=6)
    assert np.flatnonzero(trajectory.timestep.truncated).tolist() == [2, 5]
    assert np.all(trajectory.timestep.reward > 0)
