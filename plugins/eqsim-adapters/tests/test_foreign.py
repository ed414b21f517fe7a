"""What is and what is not in an environment without a robot, shown with a small one."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from eqsim_adapters import AbstractLibrary
from eqsim_adapters._foreign import foreign, Found

import eqsim


@dataclasses.dataclass(frozen=True)
class _Walk(AbstractLibrary):
    """A random walk `x' = x + gain * action + noise`, which ends beyond 1; its state is a
    dictionary that a step writes into."""

    name: str = "walks"

    def reset(self, params, key):
        x = jr.uniform(key, (1,), minval=-0.5, maxval=0.5)
        state = {"x": x, "count": 0}
        return Found(state, x, 0.0, False, False)

    def step(self, params, inner, action, key):
        x = inner["x"] + params["gain"] * action[:1] + 0.01 * jr.normal(key, (1,))
        inner["x"], inner["count"] = x, inner["count"] + 1
        return Found(inner, x, -jnp.sum(x**2), jnp.abs(x[0]) > 1, False)


RANGE = np.array([[-1.0, 1.0], [-np.inf, np.inf]])


def _walk(gain=0.2, **options):
    return foreign(_Walk(), {"gain": jnp.asarray(gain)}, RANGE, 0.05, **options)


def _policy(obs, key):
    return jr.uniform(key, (2,), minval=-1.0, maxval=1.0)


def test_what_is_read_from_the_placeholder():
    env = _walk()
    assert np.array_equal(env.action_range, RANGE)
    assert env.sys.nu == 2 and env.dt == 0.05


def test_rollout_is_that_of_the_library():
    env = _walk()
    trajectory = eqsim.rollout(env, _policy, jr.key(0), length=6)
    state, timestep = env.reset(jr.split(jr.key(0))[0])
    assert timestep.first and timestep.reward == 0
    for k in range(6):
        assert np.array_equal(trajectory.obs[k], timestep.obs)
        key_step, _ = jr.split(state.key)
        before = state.inner["count"]
        action = trajectory.action[k]
        found = _Walk().step(env.params, dict(state.inner), action, key_step)
        state, timestep = env.step(state, action)
        np.testing.assert_allclose(timestep.obs, found.obs, rtol=1e-12)
        assert state.inner["count"] == before + 1 == k + 1
        assert timestep.terms["reward"] == timestep.reward == found.reward
        assert not timestep.first


def test_time_limit_and_resets():
    env = eqsim.AutoReset(eqsim.TimeLimit(_walk(0.8), 4))
    trajectory = eqsim.rollout(env, _policy, jr.split(jr.key(0), 5), length=30)
    timestep = trajectory.timestep
    assert np.any(timestep.terminated) and np.any(timestep.truncated)
    length = trajectory.state.inner.count
    assert np.max(length) == 3 and np.min(length) == 0
    done = np.asarray(timestep.done)[:, :-1]
    starts = np.asarray(trajectory.obs)[:, 1:][done]
    assert np.all(np.abs(starts) <= 0.5) and len(np.unique(starts)) == done.sum()
    batch = eqx.filter_vmap(lambda gain: _walk(gain))(jnp.array([0.1, 0.2]))
    two = eqsim.rollout(
        batch, _policy, jr.split(jr.key(0), 2), length=3, env_axes=eqx.if_array(0)
    )
    assert np.all(np.isfinite(two.obs))


def test_derivatives_by_parameters_and_actions():
    def loss(gain, action):
        env = _walk(gain)
        state, _ = env.reset(jr.key(0))
        state, timestep = env.step(state, action)
        return jnp.sum(timestep.obs)

    action = jnp.array([0.3, 0.0])
    by_gain, by_action = jax.grad(loss, (0, 1))(0.2, action)
    np.testing.assert_allclose(by_gain, 0.3)
    np.testing.assert_allclose(by_action, [0.2, 0.0])


def test_numbers_that_are_not_finite_are_noticed():
    env = _walk(np.nan)
    with pytest.raises(FloatingPointError, match="At step 0"):
        eqsim.rollout(env, _policy, jr.key(0), length=3)


def test_there_is_no_physics():
    env = _walk()
    state, _ = env.reset(jr.key(0))
    robot = env.physics(state)
    assert not np.any(robot.q) and not np.any(robot.qd)
    for call in (
        lambda: env.pipeline.init(env.sys),
        lambda: env.pipeline.step(env.sys, robot, jnp.zeros(2)),
        lambda: env.pipeline.contacts(env.sys, robot, jnp.zeros(2)),
        lambda: env.pipeline.constraint_forces(env.sys, robot, jnp.zeros(2)),
    ):
        with pytest.raises(RuntimeError, match="walks computes the physics"):
            call()


def test_bad_input():
    env = _walk()
    with pytest.raises(ValueError, match="walks draws initial states itself"):
        env.reset(jr.key(0), {"q": jnp.zeros(1)})
    with pytest.raises(ValueError, match="no reset option 'p'"):
        env.reset(jr.key(0), {"p": 1})
    with pytest.raises(TypeError, match="`sys` must be left out, because walks"):
        _walk(sys=eqsim.make("point_mass").sys)
    state, _ = env.reset(jr.key(0))
    with pytest.raises(ValueError, match="`action` must have shape"):
        env.step(state, jnp.zeros(1))


@pytest.mark.usefixtures("lenient")
@pytest.mark.filterwarnings("ignore")
def test_examples(readme):
    """What the README shows runs as it stands."""
    names = {}
    for block in readme:
        if "from brax" in block:
            pytest.importorskip("brax", reason="needs the extra brax")
        exec(block, names)
