"""Between what a policy gives and what a robot takes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from toys import Rail, rails

import eqsim
from eqsim import AutoReset, TimeLimit
from eqsim.testing import probes
from eqsim_zoo import PPO
from eqsim_zoo.blocks.policies import (
    check_action_bounds,
    scale_action,
    Squash,
    squash_action,
)


BOUNDS = np.array([[-2.0, 3.0], [-np.inf, np.inf], [0.5, np.inf], [-np.inf, 1.0]])


@pytest.fixture(scope="module")
def half_limited():
    """A robot whose first motor has bounds, and whose second has none."""
    env = Rail(2)
    env = eqx.tree_at(lambda e: e.sys, env, rails(2, limited=False))
    bounds = np.asarray(env.action_range)
    np.testing.assert_array_equal(bounds[0], [-2.0, 3.0])
    assert not np.any(np.isfinite(bounds[1]))
    return env


@pytest.mark.parametrize("u", (0.0, 0.7, -3.0, 50.0, -50.0))
def test_squash(u):
    """`tanh` between two bounds; clipped where there is one bound, or none."""
    numbers = jnp.full(4, u)
    found = squash_action(jnp.asarray(BOUNDS), numbers)
    expected = [0.5 + 2.5 * np.tanh(u), u, max(u, 0.5), min(u, 1.0)]
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-14)
    single = squash_action(jnp.asarray(BOUNDS), numbers.astype(jnp.float32))
    assert single.dtype == jnp.float32
    low, high = BOUNDS.T
    assert np.all((np.asarray(single) >= low) & (np.asarray(single) <= high))
    # Also where numbers are at the bounds; there are no infinities times zero.
    slopes = jax.jacfwd(lambda u: squash_action(jnp.asarray(BOUNDS), u))(numbers)
    assert np.all(np.isfinite(slopes))


def test_squash_gradients():
    check_gradients(squash_action, jnp.asarray(BOUNDS[:1]), jnp.array([0.3]))
    check_gradients(lambda u: squash_action(jnp.asarray(BOUNDS), u), jnp.full(4, 0.7))


def test_scale_is_the_wrapper(getkey):
    """The same as `eqsim.ScaleAction`, which scales what was collected."""
    env = Rail(2)
    action = jr.uniform(getkey(), (2,), minval=-1.0)
    found = scale_action(env.action_range, action)
    np.testing.assert_array_equal(found, eqsim.ScaleAction(env).convert(action))
    ends = jnp.array([-1.0, 1.0])
    np.testing.assert_allclose(scale_action(env.action_range, ends), [-2.0, 3.0])


def test_squash_wraps(half_limited, getkey):
    env, wrapped = half_limited, Squash(half_limited)
    assert not np.any(np.isfinite(wrapped.action_range))
    state, first = wrapped.reset(jr.key(0))
    assert tree_allclose((state, first), env.reset(jr.key(0)))
    u = 3.0 * jr.normal(getkey(), (2,))
    action = squash_action(env.action_range, u)
    assert tree_allclose(wrapped.step(state, u), env.step(state, action))
    assert wrapped.dt == env.dt
    with pytest.raises(ValueError, match="action"):
        wrapped.step(state, jnp.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        wrapped.step(state, jnp.array([jnp.nan, 0.0]))


def test_check_bounded(half_limited):
    """Also while JAX traces, as in a compiled `init`."""
    check_action_bounds(PPO(), Rail(2))
    with pytest.raises(ValueError, match="`PPO` scales .* actuator 'motor1'"):
        check_action_bounds(PPO(), half_limited)
    env = AutoReset(TimeLimit(half_limited, 5))
    for fn in (PPO(levels=3).init, eqx.filter_jit(PPO(levels=3).init)):
        with pytest.raises(ValueError, match="motor1"):
            fn(jr.key(0), env)
    with pytest.raises(ValueError, match="motor1"):
        eqx.filter_vmap(lambda env: check_action_bounds(PPO(), env))(
            jtu.tree_map(lambda x: x[None] if eqx.is_array(x) else x, env)
        )
    eqx.filter_jit(lambda env: check_action_bounds(PPO(), env))(Rail(2))
    eqx.filter_jit(lambda env: check_action_bounds(PPO(), env))(probes.action_reward())


@pytest.mark.parametrize("at", (-1.0, 2.0))
def test_squash_at_a_bound(at):
    """The derivative of a clipped action is that of the inside, in both modes."""
    bounds = jnp.array([[-1.0, jnp.inf], [-jnp.inf, 2.0]])
    clipped = lambda u: squash_action(bounds, u)[0 if at < 0 else 1]
    u = jnp.full(2, at)
    for derivative in (jax.jacfwd, jax.jacrev):
        found = derivative(clipped)(u)
        assert np.array_equal(found, np.eye(2)[0 if at < 0 else 1])
