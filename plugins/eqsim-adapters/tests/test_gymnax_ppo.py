"""An agent that is written for gymnax: proximal policy optimization, in the form that
purejaxrl made common, with five results of a step and automatic resets."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from eqsim_adapters import to_gymnax

import eqsim


NUMBER, STEPS, GAMMA, LAMBDA = 16, 32, 0.99, 0.95


class _Seen(NamedTuple):
    obs: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any
    done: Any


class _Agent(eqx.Module):
    actor: eqx.nn.MLP
    critic: eqx.nn.MLP
    log_std: Any

    def __init__(self, nobs, nu, key):
        keys = jr.split(key)
        self.actor = eqx.nn.MLP(nobs, nu, 32, 1, jnp.tanh, key=keys[0])
        self.critic = eqx.nn.MLP(nobs, "scalar", 32, 1, jnp.tanh, key=keys[1])
        self.log_std = jnp.zeros(nu)

    def log_prob(self, obs, action):
        z = (action - self.actor(obs)) / jnp.exp(self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std)

    def sample(self, obs, key):
        noise = jr.normal(key, self.log_std.shape)
        return self.actor(obs) + jnp.exp(self.log_std) * noise


def _collect(env, params, agent, obs, state, key):
    def step(carry, key):
        obs, state = carry
        key_act, key_step = jr.split(key)
        action = jax.vmap(agent.sample)(obs, jr.split(key_act, NUMBER))
        value = jax.vmap(agent.critic)(obs)
        log_prob = jax.vmap(agent.log_prob)(obs, action)
        keys = jr.split(key_step, NUMBER)
        many = jax.vmap(env.step, in_axes=(0, 0, 0, None))
        new, state, reward, done, _ = many(keys, state, action, params)
        return (new, state), _Seen(obs, action, log_prob, value, reward, done)

    return jax.lax.scan(step, (obs, state), jr.split(key, STEPS))


def _advantages(seen, last):
    def step(carry, x):
        gae, value = carry
        go_on = 1.0 - x.done.astype(value.dtype)
        delta = x.reward + GAMMA * value * go_on - x.value
        gae = delta + GAMMA * LAMBDA * go_on * gae
        return (gae, x.value), gae

    start = jnp.zeros_like(last), last
    return jax.lax.scan(step, start, seen, reverse=True)[1]


def _loss(agent, seen, advantage):
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    seen, advantage = jax.tree_util.tree_map(flat, (seen, advantage))
    scaled = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
    change = jax.vmap(agent.log_prob)(seen.obs, seen.action) - seen.log_prob
    ratio = jnp.exp(change)
    clipped = jnp.clip(ratio, 0.8, 1.2)
    surrogate = jnp.mean(jnp.minimum(ratio * scaled, clipped * scaled))
    error = jax.vmap(agent.critic)(seen.obs) - (seen.value + advantage)
    return 0.5 * jnp.mean(error**2) - surrogate


def _train(env, updates, key):
    """The mean length of episodes in each update."""
    params, keys = env.default_params, jr.split(key, 3)
    nobs = env.observation_space(params).shape[0]
    agent = _Agent(nobs, env.action_space(params).shape[0], keys[0])
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-3))
    many = jax.vmap(env.reset, in_axes=(0, None))
    obs, state = many(jr.split(keys[1], NUMBER), params)
    arrays, static = eqx.partition(agent, eqx.is_inexact_array)

    def update(carry, key):
        arrays, opt, obs, state = carry
        agent = eqx.combine(arrays, static)
        (obs, state), seen = _collect(env, params, agent, obs, state, key)
        advantage = _advantages(seen, jax.vmap(agent.critic)(obs))

        def epoch(carry, _):
            arrays, opt = carry
            loss = lambda a: _loss(eqx.combine(a, static), seen, advantage)
            value, gradient = jax.value_and_grad(loss)(arrays)
            change, opt = optimizer.update(gradient, opt)
            return (optax.apply_updates(arrays, change), opt), value

        (arrays, opt), losses = jax.lax.scan(epoch, (arrays, opt), length=8)
        ends = jnp.maximum(jnp.sum(seen.done), 1)
        return (arrays, opt, obs, state), (losses[-1], NUMBER * STEPS / ends)

    start = arrays, optimizer.init(arrays), obs, state
    run = jax.jit(lambda start, keys: jax.lax.scan(update, start, keys)[1])
    return run(start, jr.split(keys[2], updates))


@pytest.mark.slow
@pytest.mark.usefixtures("lenient")
def test_learns_to_balance():
    env = to_gymnax(eqsim.make("inverted_pendulum"), "legacy", max_steps_in_episode=200)
    losses, lengths = _train(env, 60, jr.key(0))
    assert np.all(np.isfinite(losses))
    assert np.mean(lengths[-5:]) > 3 * np.mean(lengths[:5]), lengths


@pytest.mark.slow
@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("name", ("hopper", "ant"))
def test_some_updates(name):
    env = to_gymnax(eqsim.make(name), "legacy", max_steps_in_episode=20)
    losses, lengths = _train(env, 3, jr.key(0))
    assert np.all(np.isfinite(losses)) and np.all(lengths <= 32)
