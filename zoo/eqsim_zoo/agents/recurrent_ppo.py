"""Proximal policy optimization with memory."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, AbstractRecurrentAgent
from eqsim.wrappers import RunningStatistics

from ..blocks.collecting import (
    add_steps,
    collect,
    flatten_time,
    reset_envs,
    Running,
    Transition,
)
from ..blocks.hyperparameters import check_positive, same_precision, static
from ..blocks.networks import Learner
from ..blocks.observations import (
    acts_on_batches,
    init_statistics,
    ObservationStatistics,
    update_statistics,
)
from ..blocks.parallel import check_divisible, replicate, shard_batch
from ..blocks.policies import bounded_entries, check_action_bounds, Squash
from ..blocks.recurrent import RecurrentActor, RecurrentActorCritic, Sequence, sequences
from ..blocks.returns import gae, in_value_units, ppo_loss, value_units
from .ppo import AbstractProximalAgent


class RecurrentPPOState(eqx.Module):
    """State of `RecurrentPPO`: `learner` of a `RecurrentActorCritic`, running `statistics`
    of observations, running `returns` statistics, action range `bounds`, environments with
    memories of the policy, hidden states of the value network (`value_memory`), factor
    `pace` of the learning rate, and number of control `steps`."""

    learner: Learner
    statistics: ObservationStatistics | None
    returns: RunningStatistics | None
    bounds: Float[Array, "nu 2"]
    running: Running
    value_memory: Float[Array, "envs size"]
    key: PRNGKeyArray
    pace: Float[Array, ""]
    steps: Int[Array, ""]


class RecurrentPPOBatch(eqx.Module):
    """Batch of `RecurrentPPO.update`, one row per environment: `steps` with the memories
    before them, `action` before squashing, `log_prob` of the policy that drew it,
    `advantage`, and `value` before the update."""

    steps: Sequence
    action: Float[Array, "rows time nu"]
    log_prob: Float[Array, "rows time"]
    advantage: Float[Array, "rows time"]
    value: Float[Array, "rows time"]


class RecurrentPPO(AbstractProximalAgent, AbstractRecurrentAgent):
    r"""Proximal policy optimization of a policy with memory, for tasks in which one
    observation does not determine the state: delays, missing velocities, robots with
    random parameters.

    The loss is that of `PPO`. Policy and value are `RecurrentNetwork`s of their own, as
    gradients of the value disturb a shared memory (Ni et al.). Inputs are the normalized
    observation and the previous action, which tells delays and random parameters apart;
    images pass through an encoder before the memory. Minibatches are sequences of
    environments of `unroll_length` steps. Gradients pass through these steps; the hidden
    states before them are those of collection. Hidden states and previous action are zero
    at the start of an episode. A truncated episode is bootstrapped with the value of its
    last observation after the whole episode.

    Evaluation, recording and `eqsim.agent_policy` carry the memory from step to step.
    `act` does not: it acts as in the first step of an episode.

    **Arguments:** those of `AbstractProximalAgent`, and

    - `num_envs`: number of environments.
    - `unroll_length`: steps of each environment per iteration, through which gradients
        pass.
    - `num_minibatches`: minibatches per pass; a divisor of `num_envs`.
    - `memory_size`: size of the hidden states and of the encoded inputs.
    - `policy_hidden`, `value_hidden`: hidden layer sizes of the heads.
    - `activation`: nonlinearity of encoders and heads.

    ??? cite "Reference"
        Schulman et al., *Proximal policy optimization algorithms*, 2017; Ni, Eysenbach,
        Salakhutdinov, *Recurrent model-free RL can be a strong baseline for many
        POMDPs*, 2022.
    """

    num_envs: int = static(128)
    unroll_length: int = static(32)
    memory_size: int = static(64)
    policy_hidden: tuple[int, ...] = static((64,))
    value_hidden: tuple[int, ...] = static((64,))

    def __check_init__(self):
        sizes = "num_envs", "unroll_length", "num_epochs", "num_minibatches"
        check_positive(self, *sizes, "memory_size", "policy_hidden", "value_hidden")
        if self.num_envs % self.num_minibatches:
            raise ValueError(
                f"`RecurrentPPO.num_minibatches` must divide `num_envs` = {self.num_envs}, "
                f"got {self.num_minibatches}."
            )

    @same_precision
    def init(self, key: PRNGKeyArray, env: AbstractEnv) -> RecurrentPPOState:
        check_divisible(self, "num_envs")
        check_action_bounds(self, env, unlimited=True)
        key, key_policy, key_value, key_envs = jr.split(key, 4)
        running = reset_envs(self, env, key_envs, self.num_envs, self.inputs)
        obs = jtu.tree_map(lambda x: x[0], running.obs)
        networks = RecurrentActorCritic.create(
            self.inputs,
            (key_policy, key_value),
            obs,
            (env.sys.nu, self.memory_size),
            (self.policy_hidden, self.value_hidden),
            self.activation,
            self.initial_log_std,
        )
        rows = lambda x: shard_batch(jnp.tile(x, (self.num_envs, 1)))
        memory = RecurrentActor(networks, None, None, True).first_memory()
        return RecurrentPPOState(
            Learner.create(networks, self.optimizer(*jnp.zeros_like(running.last))),
            init_statistics(obs) if self.normalize_observations else None,
            init_statistics(running.last[:1]) if self.normalize_values else None,
            # A copy, as the state may be donated and the system not.
            jnp.array(env.action_range),
            dataclasses.replace(running, memory=jtu.tree_map(rows, memory)),
            rows(networks.value.first_memory()),
            key,
            jnp.ones_like(running.last[0]),
            jnp.zeros((), jnp.int32),
        )

    @acts_on_batches
    def act(
        self, state: RecurrentPPOState, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " nu"]:
        """Compute the action for the first observation of an episode; see `controller`."""
        actor = self.controller(state, sample=key is not None)
        return actor.next_action(actor.first_memory(), obs, key)[1]

    def controller(
        self, state: RecurrentPPOState, *, sample: bool = False
    ) -> RecurrentActor:
        networks = state.learner.model
        return RecurrentActor(networks, state.statistics, state.bounds, sample)

    @same_precision
    def iterate(
        self, state: RecurrentPPOState, env: AbstractEnv
    ) -> tuple[RecurrentPPOState, dict[str, Float[Array, "..."]]]:
        """Collect `unroll_length` steps, and learn from them."""
        key, key_act, key_learn = jr.split(state.key, 3)
        actor = RecurrentActor(state.learner.model, state.statistics, None, True)
        running, steps, report = collect(
            Squash(env), actor, state.running, key_act, self.unroll_length
        )
        batch, value_memory = self.evaluate(state, steps)
        batch, returns = in_value_units(batch, state.returns)
        new = dataclasses.replace(
            state,
            statistics=update_statistics(state.statistics, flatten_time(steps).obs),
            returns=returns,
            running=running,
            value_memory=value_memory,
            key=key_learn,
        )
        new, metrics = self.update(new, batch)
        count = add_steps(report, state.steps)
        return dataclasses.replace(new, key=key, steps=count), report | metrics

    def evaluate(
        self, state: RecurrentPPOState, steps: Transition
    ) -> tuple[RecurrentPPOBatch, Float[Array, "envs size"]]:
        """Compute advantages, and the hidden states of the value network after the last
        step, by the networks and statistics of collection."""
        networks = state.learner.model
        found, next_inputs = sequences(
            state.statistics, steps, state.running.memory, state.value_memory
        )
        values = jax.vmap(networks.values)(found, next_inputs)
        mean, std = value_units(state.returns)
        value, next_value = (mean + std * x for x in values[:2])
        advantage = jax.vmap(gae, in_axes=(0, 0, 0, 0, 0, None, None))(
            steps.reward * self.reward_scale,
            value,
            next_value,
            steps.terminated,
            steps.done,
            self.discount,
            self.gae_decay,
        )
        log_prob = jax.vmap(networks.log_prob)(found, steps.action)
        batch = RecurrentPPOBatch(found, steps.action, log_prob, advantage, value)
        return batch, jnp.where(steps.done[:, -1:], 0.0, values[2])

    @same_precision
    def update(
        self, state: RecurrentPPOState, batch: RecurrentPPOBatch
    ) -> tuple[RecurrentPPOState, dict[str, Float[Array, "..."]]]:
        """Take `num_epochs` passes through a batch, in minibatches of whole sequences.

        **Returns:** the new state; means of the losses, of `entropy`, and of `kl`, an
        estimate of the divergence from the old policy.

        **Raises:** `ValueError` unless `num_minibatches` divides the number of rows.
        """
        rows = len(batch.advantage)
        if rows % self.num_minibatches:
            raise ValueError(
                f"`RecurrentPPO.num_minibatches` must divide the {rows} sequences of a "
                f"batch, got {self.num_minibatches}."
            )
        bounded = bounded_entries(state.bounds)
        key, *keys = jr.split(state.key, 1 + self.num_epochs)
        orders = [jr.permutation(key, rows) for key in keys]
        pieces = jnp.concatenate(orders).reshape(-1, rows // self.num_minibatches)

        def loss(networks, now):
            piece, key = now
            few = shard_batch(jtu.tree_map(lambda x: x[piece], batch))
            keys = jr.split(key, len(piece))
            each = jax.vmap(networks.evaluate, in_axes=(0, 0, None, 0))
            return ppo_loss(self, few, *each(few.steps, few.action, bounded, keys))

        key, key_loss = jr.split(key)
        inputs = pieces, jr.split(key_loss, len(pieces))
        steps = state.steps.astype(batch.advantage.dtype)
        found = self.descend(state.learner, steps, state.pace, loss, inputs)
        learner, pace, metrics = found
        learner = replicate(learner)
        new = dataclasses.replace(state, learner=learner, key=key, pace=pace)
        return new, metrics
