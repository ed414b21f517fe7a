"""The entropy term of SHAC, beside a sum over samples and finite differences, and actions
with and without bounds."""

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
from eqsim.wrappers import ScaleAction
from eqsim_zoo.agents.shac import SHACBatch
from eqsim_zoo.blocks.collecting import collect
from eqsim_zoo.blocks.policies import Explorer, Squash, squash_action


SMALL = zoo.SHAC(
    num_envs=2,
    horizon=4,
    num_epochs=1,
    num_minibatches=1,
    actor_hidden=(8,),
    critic_hidden=(8,),
)


@ft.cache
def pendulum():
    return eqsim.AutoReset(eqsim.TimeLimit(eqsim.make("inverted_pendulum"), 8))


@ft.cache
def start():
    """Return a state, and a batch whose rewards do not depend on the policy."""
    state = eqx.filter_jit(SMALL.init)(jr.key(0), pendulum())
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
    policy, bounds = state.actor.model, state.world.bounds
    _, entropy = SMALL._entropy_loss(policy, bounds, batch.obs, jr.key(2))
    keys = jr.split(jr.key(2), len(batch.obs))
    log_probs = [
        policy(obs).sample_and_log_prob(key)[1] for obs, key in zip(batch.obs, keys)
    ]
    np.testing.assert_allclose(entropy, -np.mean(log_probs), rtol=1e-6)
    # Without bounds, that of normal numbers; here the deviation is the same everywhere.
    obs = jnp.broadcast_to(batch.obs[0], (20_000, 4))
    endless = jnp.array([[-jnp.inf, jnp.inf]], bounds.dtype)
    _, entropy = SMALL._entropy_loss(policy, endless, obs, jr.key(2))
    exact = policy(batch.obs[0]).normal.entropy()
    np.testing.assert_allclose(entropy, exact, atol=0.02)


def test_actions_without_bounds_are_those_before_squashing():
    """If the environment squashes them, the agent learns the same as where it does."""
    iterate = eqx.filter_jit(lambda agent, state, env: agent.iterate(state, env)[0])
    found = []
    for env in (pendulum(), Squash(pendulum())):
        state = eqx.filter_jit(SMALL.init)(jr.key(0), env)
        for _ in range(3):
            state = iterate(SMALL, state, env)
        found.append(state)
    bounded, free = found
    for one, other in zip(
        jtu.tree_leaves(eqx.filter((bounded.actor, bounded.critic), eqx.is_array)),
        jtu.tree_leaves(eqx.filter((free.actor, free.critic), eqx.is_array)),
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    obs, bounds = start()[1].obs[0], bounded.world.bounds
    for key in (None, jr.key(3)):
        action = SMALL.act(free, obs, key=key)
        same = SMALL.act(bounded, obs, key=key)
        np.testing.assert_allclose(squash_action(bounds, action), same, rtol=1e-5)
        assert not np.allclose(action, same)


def test_explores_as_with_actions_squashed_by_the_policy():
    """The same draws."""
    agent, env = dataclasses.replace(SMALL, horizon=10), pendulum()
    state = eqx.filter_jit(agent.init)(jr.key(0), env)
    new, _ = eqx.filter_jit(agent.iterate)(state, env)
    never = jnp.zeros((), bool)
    explorer = Explorer(state.actor.model, state.world.statistics, never)
    _, key = jr.split(state.key)
    expected, steps, _ = eqx.filter_jit(collect)(
        ScaleAction(env), explorer, state.world.running, key, agent.horizon
    )
    np.testing.assert_array_equal(new.world.running.obs, expected.obs)
    np.testing.assert_array_equal(new.world.running.returns, expected.returns)
    assert np.std(steps.action) > 0.1


def test_derivatives_of_the_entropy_loss():
    state, batch = start()
    dynamic, static = eqx.partition(state.actor.model, eqx.is_array)
    agent = dataclasses.replace(SMALL, entropy_cost=1.0)
    check_gradients(
        lambda dynamic: agent._entropy_loss(
            eqx.combine(dynamic, static), state.world.bounds, batch.obs, jr.key(2)
        )[0],
        dynamic,
    )
