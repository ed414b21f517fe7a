"""A tiny agent with all that a real one has, for tests of the loop around it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from eqsim import AbstractOnlineAgent
from eqsim_zoo.blocks.networks import Activation


class Searched(eqx.Module):
    """Weights, the best so far, environments, a key, sums of the episode, a counter."""

    weight: Array
    best: Array
    value: Array
    envs: Any
    key: Array
    running: Array
    last: Array
    count: Array


class Search(AbstractOnlineAgent):
    """Random search of a linear policy: a step in a direction that is kept if the reward
    of some steps was higher.

    - `rate`: length of a direction.
    - `bad_after`: after so many iterations a weight becomes NaN.
    - `anneal_steps`: not used.
    - `num_envs`, `unroll`: environments and steps.
    """

    rate: Array = eqx.field(converter=jnp.asarray, default=0.3)
    bad_after: Array = eqx.field(converter=jnp.asarray, default=10**6)
    anneal_steps: Array = eqx.field(converter=jnp.asarray, default=0.0)
    num_envs: int = eqx.field(static=True, default=2)
    unroll: int = eqx.field(static=True, default=4)
    sizes: tuple[int, ...] = eqx.field(static=True, default=(8, 8))
    activation: Activation = eqx.field(static=True, default=Activation.TANH)
    loud: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.num_envs < 1:
            raise ValueError(f"`num_envs` must be at least 1, got {self.num_envs}.")

    def init(self, key, env):
        key, draw = jr.split(key)
        envs = jax.vmap(env.reset)(jr.split(draw, self.num_envs))
        obs = envs[1].obs
        weight = jnp.zeros((env.sys.nu, obs.shape[-1]), obs.dtype)
        number = jnp.zeros((), obs.dtype)
        running = jnp.zeros((2, self.num_envs), obs.dtype)
        last = jnp.full(2, jnp.nan, obs.dtype)
        # One array twice, and one that is not finite to begin with.
        start = weight, weight, number - jnp.inf, envs, key, running, last
        return Searched(*start, jnp.zeros((), jnp.int32))

    def act(self, state, obs, *, key=None):
        weight = state.best
        if key is not None:
            weight = weight + jr.normal(key, weight.shape, weight.dtype)
        return jnp.tanh(weight @ obs)

    def iterate(self, state, env):
        key, draw = jr.split(state.key)
        rate = self.rate.astype(state.weight.dtype)
        weight = state.best + rate * jr.normal(draw, state.best.shape, state.best.dtype)

        def step(carry, _):
            (inner, timestep), running, last = carry
            actions = jax.vmap(lambda o: jnp.tanh(weight @ o))(timestep.obs)
            inner, timestep = jax.vmap(env.step)(inner, actions)
            running = running + jnp.stack([timestep.reward, jnp.ones_like(running[1])])
            ended = jnp.sum(timestep.done.astype(running.dtype))
            mean = jnp.sum(jnp.where(timestep.done[None], running, 0.0), axis=1)
            last = jnp.where(ended > 0, mean / jnp.maximum(ended, 1.0), last)
            running = jnp.where(timestep.done[None], 0.0, running)
            return ((inner, timestep), running, last), timestep.reward

        begin = state.envs, state.running, state.last
        (envs, running, last), rewards = jax.lax.scan(step, begin, None, self.unroll)
        value = jnp.mean(rewards)
        better = value > state.value
        best = jnp.where(better, weight, state.best)
        count = state.count + 1
        bad = jnp.asarray(count, self.bad_after.dtype) > self.bad_after
        best = jnp.where(bad, jnp.nan, best)
        new = Searched(
            weight,
            best,
            jnp.maximum(value, state.value),
            envs,
            key,
            running,
            last,
            count,
        )
        metrics = {
            "steps": jnp.asarray(float(self.num_envs * self.unroll)),
            "return": last[0],
            "length": last[1],
            "loss": -value,
        }
        return new, metrics

    def update(self, state, batch):
        raise NotImplementedError("It learns from environments.")
