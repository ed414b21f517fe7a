"""Costs: weights, and the reward of an environment."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim import control


def test_weights():
    """Zero is allowed; what is negative is refused, and not taken for zero."""
    cost = control.QuadraticCost(jnp.zeros(2), jnp.array([0.0, 4.0]), 0.0)
    residual = cost.stage(None, jnp.ones(2), jnp.ones(1))
    np.testing.assert_array_equal(residual, [0.0, 2.0, 0.0])
    slope = jax.grad(
        lambda w: jnp.sum(
            control.QuadraticCost(jnp.zeros(1), w, 1.0).stage(
                None, jnp.ones(1), jnp.ones(1)
            )
            ** 2
        )
    )(jnp.array(3.0))
    np.testing.assert_allclose(slope, 1.0)
    for name in ("state_weight", "action_weight", "terminal_weight"):
        weights = {"state_weight": 1.0, "action_weight": 1.0, name: -1.0}
        with pytest.raises(ValueError, match=f"`Quadratic.{name}` must be at least 0"):
            control.QuadraticCost(jnp.zeros(2), **weights)


def test_reward_belongs_to_the_robot_of_the_problem():
    """So that a plan is differentiated by the robot that moves, and no copy of it."""
    env = eqsim.make("reacher")
    cost = control.RewardCost(env, action_weight=0.0)
    state = env.pipeline.init(env.sys)
    total = lambda mass: jnp.sum(
        cost.stage(
            eqx.tree_at(lambda s: s.links.mass, env.sys, mass), state, jnp.ones(2)
        )
        ** 2
    )
    value, slope = jax.jit(jax.value_and_grad(total))(env.sys.links.mass)
    assert np.isfinite(value) and np.all(np.isfinite(slope))
    assert np.any(np.abs(slope) > 1e-9)
    with pytest.raises(ValueError, match="`Reward.termination` must be at least 0"):
        control.RewardCost(env, termination=-1.0)
