"""Advantage actor-critic, from the building blocks of eqsim-zoo."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float

import eqsim
from eqsim_zoo import blocks
from eqsim_zoo.blocks.collecting import Running
from eqsim_zoo.blocks.hyperparameters import check_positive, check_ranges
from eqsim_zoo.blocks.networks import AbstractInputs, Activation
from eqsim_zoo.blocks.observations import ObservationStatistics
from eqsim_zoo.blocks.policies import Actor, squash_action


class A2CState(eqx.Module):
    learner: blocks.Learner  # networks, and the state of their optimizer
    statistics: ObservationStatistics
    bounds: Array
    running: Running  # states of the environments
    key: Array


class A2C(eqsim.AbstractOnlineAgent):
    """Advantage actor-critic, which observes vectors, images and dictionaries."""

    inputs: AbstractInputs = blocks.Vectors()  # or images
    num_envs: int = blocks.static(64)
    length: int = blocks.static(16)
    learning_rate: Float[Array, ""] = eqx.field(
        converter=blocks.as_scalar, default=1e-3
    )
    discount: Float[Array, ""] = eqx.field(converter=blocks.as_scalar, default=0.95)

    def __check_init__(self):
        check_positive(self, "num_envs", "length")
        check_ranges(self)  # by name: `discount` is in [0, 1]

    @blocks.same_precision  # numbers of the agent have the type of the environment
    def init(self, key, env):
        key, *keys, key_envs = jr.split(key, 4)
        running = blocks.reset_envs(self, env, key_envs, self.num_envs, self.inputs)
        obs = jax.tree.map(lambda x: x[0], running.obs)
        hidden, log_std = ((64, 64), (64, 64)), jnp.full_like(running.last[0], -0.5)
        networks = blocks.ActorCritic.create(
            self.inputs, keys, obs, env.action_size, hidden, Activation.TANH, log_std
        )
        learner = blocks.Learner.create(networks, optax.adam(self.learning_rate))
        bounds, statistics = jnp.array(env.action_range), blocks.init_statistics(obs)
        return A2CState(learner, statistics, bounds, running, key)

    @blocks.acts_on_batches
    def act(self, state, obs, *, key=None):
        actor = Actor(state.learner.model, state.statistics)
        return squash_action(state.bounds, actor(obs, key))

    @blocks.same_precision
    def iterate(self, state, env):
        key, key_act = jr.split(state.key)
        actor = Actor(state.learner.model, state.statistics)
        running, steps, report = blocks.collect(
            blocks.Squash(env), actor, state.running, key_act, self.length
        )
        new, metrics = self.update(state, steps)
        rows = blocks.flatten_time(steps).obs
        statistics = blocks.update_statistics(state.statistics, rows)
        new = dataclasses.replace(new, statistics=statistics, running=running, key=key)
        return new, report | metrics  # `report` has return, length and steps

    @blocks.same_precision
    def update(self, state, batch):
        """Learn from `Transition`s with axes (environment, time)."""
        each = lambda fn: jax.vmap(jax.vmap(fn))
        seen = each(lambda obs: blocks.normalize(state.statistics, obs))
        value_of = lambda net, obs: each(lambda obs: net.value(obs)[0])(obs)
        old, obs = state.learner.model, seen(batch.obs)
        value, next_value = value_of(old, obs), value_of(old, seen(batch.next_obs))
        advantage = jax.vmap(blocks.gae, in_axes=(0, 0, 0, 0, 0, None, None))(
            batch.reward,
            value,
            next_value,
            batch.terminated,
            batch.done,
            self.discount,
            jnp.full_like(self.discount, 0.95),
        )

        def loss(new):
            log_prob = lambda obs, action: new.distribution(obs).log_prob(action)
            gain = jnp.mean(advantage * each(log_prob)(obs, batch.action))
            return jnp.mean((value_of(new, obs) - advantage - value) ** 2) - gain

        adam = optax.adam(self.learning_rate)
        one = jnp.ones_like(self.learning_rate)
        learner, metrics = state.learner.apply_loss_fn(loss, adam, max_grad_norm=one)
        return dataclasses.replace(state, learner=learner), metrics
