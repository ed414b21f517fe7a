"""The memory of controllers in `eqsim.rollout`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from toys import Rail

import eqsim
from eqsim import AbstractController
from eqsim.wrappers import AutoReset, ResetMode, TimeLimit


class Counter(AbstractController):
    """Remembers where its episode began, and how many actions it has given."""

    def init(self, state, key):
        return state.q[0], jnp.zeros((), jnp.int32)

    def act(self, memory, state, obs, key):
        start, count = memory
        return (start, count + 1), jnp.stack([start, count.astype(start.dtype)])


def ends(length: int, mode=ResetMode.SAME_STEP):
    """Episodes of a length, limits of actions that the counter does not reach."""
    return AutoReset(TimeLimit(Rail(), length), mode=mode)


def test_memory_begins_anew_with_an_episode():
    run = eqsim.rollout(ends(3), Counter(), jr.key(0), 8)
    start, count = np.asarray(run.action).T
    np.testing.assert_array_equal(count, [0, 1, 2, 0, 1, 2, 0, 1])
    first = np.asarray(run.state.inner.inner.q)[[0, 3, 6], 0]
    np.testing.assert_array_equal(start, np.repeat(first, 3)[:8])
    assert len(set(first.tolist())) == 3


def test_memory_begins_anew_after_a_reset_in_a_step_of_its_own():
    run = eqsim.rollout(ends(2, ResetMode.NEXT_STEP), Counter(), jr.key(0), 8)
    count = np.asarray(run.action)[:, 1]
    # Every third action is ignored: the step is a reset.
    np.testing.assert_array_equal(count, [0, 1, 0, 0, 1, 0, 0, 1])


def test_every_environment_of_a_batch_begins_anew_by_itself():
    lengths = jnp.array([2, 3], jnp.int32)
    length = lambda env: env.env.length
    axes = jax.tree.map(lambda _: None, ends(2))
    axes = eqx.tree_at(length, axes, 0, is_leaf=lambda x: x is None)
    fleet = eqx.tree_at(length, ends(2), lengths)
    run = eqsim.rollout(fleet, Counter(), jr.split(jr.key(0), 2), 6, env_axes=axes)
    count = np.asarray(run.action)[..., 1]
    np.testing.assert_array_equal(count, [[0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2]])


@pytest.mark.parametrize("shape", ((), (2,), (2, 1)))
@pytest.mark.quick_cases("shape1")
def test_memory_continues_with_a_rollout(shape):
    """Two rollouts in a row count as one does; without the memory, counting begins
    again."""
    keys = jr.split(jr.key(0), shape) if shape else jr.key(0)
    env = TimeLimit(Rail(), 99)
    count = lambda run: np.asarray(run.action)[..., 1]
    first = eqsim.rollout(env, Counter(), keys, 3)
    second = eqsim.rollout(env, Counter(), keys, 2, start=first.last)
    expected = np.broadcast_to([3, 4], (*shape, 2))
    np.testing.assert_array_equal(count(second), expected)
    afresh = eqsim.rollout(env, Counter(), keys, 2, start=first.last[:2])
    np.testing.assert_array_equal(count(afresh), expected - 3)
    still = lambda obs, key: 0.0 * obs[:2]
    assert len(eqsim.rollout(env, still, keys, 2, start=first.last).last) == 2


def test_memory_goes_on_without_reset():
    run = eqsim.rollout(TimeLimit(Rail(), 3), Counter(), jr.key(0), 6)
    np.testing.assert_array_equal(np.asarray(run.action)[:, 1], range(6))


@pytest.mark.parametrize("mode", tuple(ResetMode))
@pytest.mark.quick_cases("ResetMode.SAME_STEP")
def test_forward_mode(mode):
    """Memory of a new episode follows the numbers of the environment."""

    def total(mass):
        env = eqx.tree_at(lambda e: e.env.env.sys.links.mass, ends(2, mode), mass)
        return jnp.sum(eqsim.rollout(env, Counter(), jr.key(0), 5).timestep.reward)

    mass = ends(2).sys.links.mass
    tangent = jax.jvp(total, (mass,), (jnp.ones_like(mass),))[1]
    step = 1e-3
    differences = (total(mass + step) - total(mass - step)) / (2.0 * step)
    np.testing.assert_allclose(tangent, differences, rtol=1e-2)
