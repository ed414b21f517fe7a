"""Actions that are clipped, scaled and late."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from hypothesis import given, strategies as st
from toys import Rail, rails, steps

from eqsim.wrappers import ClipAction, DelayAction, ScaleAction


ENV = Rail()
ACTIONS = jr.uniform(jr.key(0), (6, 2), minval=-1.0, maxval=1.0)


def test_range():
    assert np.array_equal(ENV.action_range, [[-2.0, 3.0]] * 2)
    assert np.array_equal(ClipAction(ENV).action_range, [[-np.inf, np.inf]] * 2)
    assert np.array_equal(ScaleAction(ENV).action_range, [[-1.0, 1.0]] * 2)
    free = eqx.tree_at(lambda env: env.sys, ENV, rails(2, limited=False))
    assert np.array_equal(free.action_range, [[-2.0, 3.0], [-np.inf, np.inf]])
    with pytest.raises(ValueError, match="'motor1'.*ctrlrange"):
        ScaleAction(free)


def test_clip():
    state, _ = ENV.reset(jr.key(0))
    wide, fits = jnp.array([-9.0, 9.0]), jnp.array([-2.0, 3.0])
    clipped = ClipAction(ENV).step(state, wide)
    assert tree_allclose(clipped, ENV.step(state, fits), rtol=0.0, atol=0.0)
    inside = ClipAction(ENV).step(state, ACTIONS[0])
    assert tree_allclose(inside, ENV.step(state, ACTIONS[0]), rtol=0.0, atol=0.0)


@given(a=st.floats(-1.5, 1.5), b=st.floats(-1.0, 1.0))
def test_scale(a, b):
    """-1 and 1 are the ends of the range; in between and beyond it is linear."""
    state, _ = ENV.reset(jr.key(0))
    scaled = jnp.array([0.5 + 2.5 * a, 0.5 + 2.5 * b])
    got = ScaleAction(ENV).step(state, jnp.array([a, b]))
    assert tree_allclose(got, ENV.step(state, scaled), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("delay", (1, 2, 4))
@pytest.mark.quick_cases("2")
def test_delay(delay):
    env = DelayAction(ENV, delay)
    state, _ = env.reset(jr.key(1))
    inner = state.inner
    _, late = steps(env, state, ACTIONS)
    shifted = jnp.concatenate([jnp.zeros((delay, 2)), ACTIONS])[:6]
    _, expected = steps(ENV, inner, shifted)
    assert tree_allclose(late, expected, rtol=1e-14, atol=1e-14)


def test_random_delay():
    """Drawn for each episode, from the shortest to the longest, both included."""
    env = DelayAction(ENV, 3, 0)
    states, _ = eqx.filter_vmap(env.reset)(jr.split(jr.key(2), 200))
    numbers, counts = np.unique(states.delay, return_counts=True)
    assert list(numbers) == [0, 1, 2, 3] and min(counts) > 25
    now = eqx.tree_at(lambda s: s.delay, env.reset(jr.key(0))[0], jnp.array(0))
    _, undelayed = steps(env, now, ACTIONS)
    _, expected = steps(ENV, now.inner, ACTIONS)
    assert tree_allclose(undelayed, expected, rtol=1e-14, atol=1e-14)
    for wrong, name in (
        ((0, None), "delay"),
        ((2, 3), "shortest"),
        ((2, -1), "shortest"),
    ):
        with pytest.raises(ValueError, match=rf"`DelayAction\.{name}` must be"):
            DelayAction(ENV, *wrong)


@pytest.mark.parametrize(
    "bounds",
    ((-3e38, 3e38), (1.0, 1.0), (1.0, -1.0), (0.0, jnp.inf), (-jnp.inf, jnp.inf)),
    ids=str,
)
def test_ranges_without_a_scale(bounds):
    """The span of the first one is too large for single precision."""
    limits = jnp.asarray([bounds] * ENV.sys.nu, jnp.float32)
    env = eqx.tree_at(lambda env: env.sys.actuators.ctrl_range, ENV, limits)
    with pytest.raises(
        ValueError, match="`ScaleAction` scales actions, .* of actuator '"
    ):
        ScaleAction(env)
