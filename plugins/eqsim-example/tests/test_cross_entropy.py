"""The agent: what its update does, and that it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from eqsim_example import BallBeam, CrossEntropy
from eqsim_example._cross_entropy import Trials

import eqsim


def test_update_moves_to_the_best():
    """Mean and deviation are those of the elites; what is not finite is not among
    them."""
    agent, env = CrossEntropy(population=6, elites=2, noise=0.5), BallBeam()
    state = agent.init(jr.key(0), env)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(6, 1, 5)))
    returns = jnp.array([1.0, jnp.nan, 5.0, -2.0, 4.0, jnp.inf])
    new, report = agent.update(state, Trials(weights, returns))
    chosen = np.asarray(weights)[[2, 4]]
    assert jnp.allclose(new.mean, chosen.mean(axis=0))
    assert jnp.allclose(new.deviation, np.sqrt(chosen.var(axis=0) + 0.25))
    assert report["best"] == 5.0


def test_actions_stay_within_their_range():
    agent, env = CrossEntropy(deviation=100.0), BallBeam()
    state = agent.init(jr.key(0), env)
    act = lambda key: agent.act(state, jnp.ones(4), key=key)
    actions = jax.vmap(act)(jr.split(jr.key(1), 100))
    assert jnp.min(actions) < -0.99 and jnp.max(actions) > 0.99
    assert jnp.max(jnp.abs(actions)) <= 1.0


@pytest.mark.slow
def test_learns_to_balance():
    """Without learning the ball falls off; after it, it stays in the middle."""
    agent, env = CrossEntropy(), BallBeam()
    state = agent.init(jr.key(0), env)
    iterate = eqx.filter_jit(lambda state: agent.iterate(state, env))
    state, first = iterate(state)
    for _ in range(20):
        state, last = iterate(state)
    assert first["return"] < 100.0 < last["return"]
    policy = lambda obs, key: agent.act(state, obs)
    keys = jr.split(jr.key(7), 16)
    end = eqsim.rollout(env, policy, keys, 200).last[0]
    assert jnp.all(jnp.abs(end.q[:, 1]) < 0.1)


def test_more_elites_than_policies():
    with pytest.raises(ValueError, match="`elites` is 9, of a `population` of 4"):
        CrossEntropy(population=4, elites=9)
