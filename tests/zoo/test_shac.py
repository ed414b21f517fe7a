"""The entropy term of SHAC, beside a sum over samples and finite differences."""

import dataclasses
import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import check_gradients

import eqsim
import eqsim_zoo as zoo
from eqsim_zoo.agents.shac import SHACBatch


SMALL = zoo.SHAC(
    num_envs=2,
    horizon=4,
    num_epochs=1,
    num_minibatches=1,
    actor_hidden=(8,),
    critic_hidden=(8,),
)


@ft.cache
def start():
    """Return a state, and a batch whose rewards do not depend on the policy."""
    env = eqsim.AutoReset(eqsim.TimeLimit(eqsim.make("inverted_pendulum"), 8))
    state = eqx.filter_jit(SMALL.init)(jr.key(0), env)
    obs = jr.normal(jr.key(1), (8, 4))
    zeros = jtu.tree_map(jnp.zeros_like, eqx.filter(state.actor.model, eqx.is_array))
    return state, SHACBatch(zeros, obs, jnp.zeros(8))


@eqx.filter_jit
def learn(agent, state, batch):
    def step(state, _):
        state, metrics = agent.update(state, batch)
        return eqx.filter(state, eqx.is_array), metrics["entropy"]

    dynamic, static = eqx.partition(state, eqx.is_array)
    again = lambda state, _: step(eqx.combine(state, static), _)
    return jax.lax.scan(again, dynamic, None, length=300)[1]


@pytest.mark.parametrize("cost,sign", [(0.1, 1), (-0.1, -1)])
def test_entropy_cost_changes_the_deviation(cost, sign):
    agent = dataclasses.replace(SMALL, entropy_cost=cost)
    entropy = np.asarray(learn(agent, *start()))
    assert sign * (entropy[-50:].mean() - entropy[:50].mean()) > 0.2


def test_policy_is_kept_without_reward_and_entropy_cost():
    state, batch = start()
    new, _ = eqx.filter_jit(SMALL.update)(state, batch)
    same = jtu.tree_map(
        np.array_equal,
        eqx.filter(new.actor.model, eqx.is_array),
        eqx.filter(state.actor.model, eqx.is_array),
    )
    assert all(jtu.tree_leaves(same))


def test_entropy_is_minus_the_mean_log_density():
    state, batch = start()
    _, entropy = SMALL._entropy_loss(state.actor.model, batch.obs, jr.key(2))
    keys = jr.split(jr.key(2), len(batch.obs))
    log_probs = [
        state.actor.model(obs).sample_and_log_prob(key)[1]
        for obs, key in zip(batch.obs, keys)
    ]
    np.testing.assert_allclose(entropy, -np.mean(log_probs), rtol=1e-6)


def test_derivatives_of_the_entropy_loss():
    state, batch = start()
    dynamic, static = eqx.partition(state.actor.model, eqx.is_array)
    agent = dataclasses.replace(SMALL, entropy_cost=1.0)
    check_gradients(
        lambda dynamic: agent._entropy_loss(
            eqx.combine(dynamic, static), batch.obs, jr.key(2)
        )[0],
        dynamic,
    )
