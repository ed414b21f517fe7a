"""Environments in which agents learn, and the collection of their steps.

Wrapped environments of training and evaluation with their random keys; `Running`, the states
of vectorized environments; `collect`, which steps them by `eqsim.rollout` and returns
transitions; the checks that agents make of an environment; and counts of rewards and
observations that are not finite.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

import eqsim
from eqsim import (
    AbstractController,
    AbstractEnv,
    AbstractTask,
    TimeLimit,
    Timestep,
)
from eqsim.bridges import check_count, check_no_auto_reset, check_type
from eqsim.wrappers import (
    AbstractWrapper,
    AutoReset,
    Lifetime,
    nested_envs,
    NormalizeObservation,
    pool_resets,
    progress_of,
    ResetMode,
)

from .networks import AbstractInputs
from .observations import is_vector
from .parallel import map_shards, replicate, shard_batch


# Environments of training and evaluation.


def training_env(
    env: AbstractEnv, episode_length: int, pool_size: int, key: PRNGKeyArray
) -> AutoReset:
    """Wrap an environment for training: `AutoReset(TimeLimit(env, episode_length))`.

    **Arguments:**

    - `env`: environment of one episode, with all its wrappers.
    - `episode_length`: control steps after which an episode is truncated.
    - `pool_size`: number of precomputed resets that episodes begin with, since a batch
        computes a whole reset in every step; 0 for true resets.
    - `key`: random key of the pool.

    **Raises:** `ValueError` if the environment resets itself, or a number is out of range.
    """
    check_count("pool_size", pool_size, 0)
    episode = evaluation_env(env, episode_length)
    return AutoReset(pool_resets(episode, key, pool_size) if pool_size else episode)


def evaluation_env(env: AbstractEnv, episode_length: int) -> TimeLimit:
    """Wrap an environment for evaluation: `TimeLimit(env, episode_length)`.

    **Raises:** `ValueError` if the environment resets itself, or the length is not
    positive; `TypeError` if it is no environment.
    """
    check_no_auto_reset(
        env,
        "eqsim-zoo",
        ": `train` adds `TimeLimit` and `AutoReset`, and agents keep statistics of "
        "observations in their state",
    )
    check_count("episode_length", episode_length)
    return TimeLimit(env, episode_length)


def pool_key(seed: int) -> PRNGKeyArray:
    """Return the random key of the pool of resets of a member."""
    return jax.random.fold_in(jax.random.key(seed), 1)


def evaluation_key(seed: int, turn: int) -> PRNGKeyArray:
    """Return the random key of the evaluation of a member after a turn."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 2), turn)


def member_key(seed: int) -> PRNGKeyArray:
    """Return the random key of `agent.init`."""
    return jax.random.fold_in(jax.random.key(seed), 3)


# Vectorized environments.


class Running(eqx.Module):
    """States of vectorized environments.

    **Arguments:**

    - `state`, `timestep`: state and timestep of each environment.
    - `returns`, `lengths`: return and length of the running episodes so far.
    - `last`: mean return and length of the episodes that ended last; zeros before.
    - `memory`: memory of a controller in each environment; None before its first step,
        and without one.
    """

    state: Any
    timestep: Timestep
    returns: Float[Array, " envs"]
    lengths: Float[Array, " envs"]
    last: Float[Array, "2"]
    memory: Any = None

    @property
    def obs(self) -> Any:
        """Current observations."""
        return self.timestep.obs


def reset_envs(
    agent: eqx.Module,
    env: AbstractEnv,
    key: PRNGKeyArray,
    number: int,
    inputs: AbstractInputs | None = None,
) -> Running:
    """Reset vectorized environments.

    **Arguments:**

    - `inputs`: inputs of the agent's networks; None for observations that are one
        vector.

    **Raises:** `ValueError` if the agent cannot take the observations, or the environment
    has no auto-reset.
    """
    check_env(agent, env, inputs)
    return reset_batch(env, key, number)


def reset_batch(env: AbstractEnv, key: PRNGKeyArray, number: int) -> Running:
    """Reset vectorized environments of any observations."""
    keys = shard_batch(jr.split(key, number))
    state, timestep = map_shards(_reset, keys, env)
    # Different arrays, as each can be donated once.
    none = lambda size: jnp.zeros(size, timestep.reward.dtype)
    sums = shard_batch(none(number)), shard_batch(none(number))
    return Running(state, timestep, *sums, replicate(none(2)))


@eqx.filter_jit
def _reset(keys, env):
    return eqx.filter_vmap(env.reset)(keys)


def check_env(
    agent: eqx.Module, env: AbstractEnv, inputs: AbstractInputs | None = None
) -> None:
    """Raise `ValueError` unless an agent can learn from steps: it can take the
    observations, see `check_observations`, and episodes are reset automatically, in the
    step in which one ends."""
    check_observations(agent, env, inputs)
    name = type(agent).__name__
    resets = False
    for layer in nested_envs(env):
        lasts = isinstance(layer, AbstractWrapper) and layer.lifetime is Lifetime.RUN
        resets |= lasts and not isinstance(layer, NormalizeObservation)
        if isinstance(layer, AutoReset) and layer.mode is not ResetMode.SAME_STEP:
            raise ValueError(
                f"`{name}` learns from every step, but with `{layer.mode}` some steps "
                "are resets. Use `ResetMode.SAME_STEP`."
            )
    if isinstance(layer, AbstractTask) and not resets:
        raise ValueError(
            f"`{type(env).__name__}` does not reset itself when an episode has ended. Write "
            "`AutoReset(TimeLimit(env, length))`."
        )


def check_observations(
    agent: eqx.Module, env: AbstractEnv, inputs: AbstractInputs | None = None
) -> None:
    """Raise `ValueError` unless an agent can take the observations: one vector, or whatever
    the `inputs` of its networks allow."""
    check_type("env", env, AbstractEnv, "an environment", "Pass `(key, env)`.")
    _, timestep = eqx.filter_eval_shape(lambda e, k: e.reset(k), env, jr.key(0))
    obs, name = timestep.obs, type(agent).__name__
    if inputs is not None:
        inputs.check(name, obs)
    elif not is_vector(obs):
        raise ValueError(
            f"`{name}` needs observations that are one real vector, but those of "
            f"`{type(env).__name__}` are {obs}."
        )


# Collection of steps.


class Transition(eqx.Module):
    """Transitions, with any leading axes.

    **Arguments:**

    - `obs`, `action`, `reward`: observation before the step, action and reward.
    - `next_obs`: observation after the step, before any reset.
    - `terminated`: true if the task ended, so that nothing is bootstrapped.
    - `truncated`: true if the episode was cut off, so that the value is bootstrapped.
    """

    obs: Any
    action: Any
    reward: Float[Array, "..."]
    next_obs: Any
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]

    @property
    def done(self) -> Bool[Array, "..."]:
        """True at the last step of an episode."""
        return self.terminated | self.truncated


def collect(
    env: AbstractEnv,
    policy: Callable[[Any, PRNGKeyArray], Float[Array, " nu"]] | AbstractController,
    running: Running,
    key: PRNGKeyArray,
    length: int,
    checkpoint_every: int | None = None,
) -> tuple[Running, Transition, dict[str, Float[Array, ""]]]:
    """Step all environments.

    **Arguments:**

    - `policy`: `(obs, key) -> action`, a PyTree, or a controller, which continues with
        `running.memory`.
    - `length`: number of steps of each environment.
    - `checkpoint_every`: interval of checkpoints for reverse mode, see `eqsim.rollout`.

    **Returns:** the environments; transitions with axes (environment, time); and a report:
    mean `return` and `length` of the episodes that ended last, NaN before the first one
    has; the number of `episodes` that ended; the number of `steps`; means over the
    environments at the end of what `progress_of` returns (`task/NAME`); and the numbers of
    steps whose reward, observation or reward term is not finite (`nonfinite_rewards`,
    `nonfinite_observations`, `nonfinite_term/NAME`).
    """
    keys = shard_batch(jr.split(key, running.lengths.shape[0]))

    def run(rows, shared):
        (start, keys), (env, policy) = rows, shared
        return eqsim.rollout(
            env,
            policy,
            keys,
            length,
            start=start,
            collect=_kept,
            checkpoint_every=checkpoint_every,
            throw=False,
        )

    start = running.state, running.timestep
    if running.memory is not None:
        start += (running.memory,)
    (steps, after, flags), last = map_shards(run, (start, keys), (env, policy))
    before = jtu.tree_map(
        lambda x, y: jnp.concatenate([x[:, None], y[:, :-1]], axis=1),
        running.obs,
        after,
    )
    transitions = Transition(before, *steps)
    sums, (returns, lengths) = _episodes(running, transitions)
    count = sums[0]
    means = jnp.where(count > 0, sums[1:] / jnp.maximum(count, 1.0), running.last)
    state, timestep, *memory = last
    episodes = shard_batch(returns), shard_batch(lengths), replicate(means)
    new = Running(state, timestep, *episodes, *memory)
    total = jnp.full((), transitions.reward.size, means.dtype)
    # Before the first episode has ended its length is 0.
    known = jnp.where(means[1] > 0, means, jnp.nan)
    report = {"return": known[0], "length": known[1], "episodes": count, "steps": total}
    shown = jax.vmap(lambda state: progress_of(env, state))(state)
    report |= {
        TASK + name: jnp.mean(x, where=jnp.isfinite(x)) for name, x in shown.items()
    }
    return new, transitions, report | count_nonfinite(flags, means.dtype)


def _kept(state, action, timestep: Timestep):
    led_to = timestep.obs if timestep.final_obs is None else timestep.final_obs
    flags = timestep.terminated, timestep.truncated
    steps = action, timestep.reward, led_to, *flags
    return steps, timestep.obs, nonfinite_flags(timestep)


def _episodes(running: Running, steps: Transition):
    """Return the number of episodes that ended, the sums of their returns and lengths,
    and the returns and lengths of the episodes in progress."""

    def step(carry, now):
        sums, returns, lengths = carry
        reward, done = now
        returns, lengths = returns + reward, lengths + 1.0
        ended = jnp.stack([jnp.ones_like(returns), returns, lengths])
        sums = sums + jnp.sum(jnp.where(done[None], ended, 0.0), axis=1)
        return (
            sums,
            jnp.where(done, 0.0, returns),
            jnp.where(done, 0.0, lengths),
        ), None

    time_first = steps.reward.T, steps.done.T
    start = jnp.zeros(3, steps.reward.dtype), running.returns, running.lengths
    (sums, *rest), _ = lax.scan(step, start, time_first)
    return sums, rest


def flatten_time(steps: Any) -> Any:
    """Merge the axes of environments and times of all arrays."""
    return jtu.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), steps)


def add_steps(report: dict[str, Array], steps: Int[Array, ""]) -> Int[Array, ""]:
    """Add the steps of a report to a counter, which saturates at $2^{31} - 1$."""
    new = report["steps"].astype(steps.dtype)
    return steps + jnp.minimum(new, jnp.iinfo(steps.dtype).max - steps)


# Values that are not finite.


REWARDS, OBSERVATIONS = "nonfinite_rewards", "nonfinite_observations"
"""Metrics: numbers of steps whose reward or observation is not finite."""


TASK = "task/"
"""Beginning of the metric of a number that `progress_of` returns."""
TERM = "nonfinite_term/"
"""Beginning of the metric of a reward term, which its name completes."""


def nonfinite_flags(timestep: Timestep) -> dict[str, Bool[Array, ""]]:
    """Return whether the reward of a step, each of its terms, and its observations are not
    finite, by name of the metric that counts them."""
    bad = lambda x: ~jnp.all(jnp.isfinite(x))
    leaves = jtu.tree_leaves((timestep.obs, timestep.final_obs))
    seen = jnp.zeros((), bool)
    for x in leaves:
        if jnp.issubdtype(x.dtype, jnp.inexact):
            seen = seen | bad(x)
    terms = {TERM + name: bad(x) for name, x in timestep.terms.items()}
    return {REWARDS: bad(timestep.reward), OBSERVATIONS: seen} | terms


def count_nonfinite(
    flags: dict[str, Bool[Array, "..."]],
    dtype: Any,
    valid: Bool[Array, "..."] | None = None,
) -> dict[str, Float[Array, ""]]:
    """Count the flags of `nonfinite_flags`.

    **Arguments:**

    - `flags`: flags of many steps.
    - `dtype`: type of the counts.
    - `valid`: true for steps that count; all by default.
    """
    taken = lambda flag: flag if valid is None else flag & valid
    return {name: jnp.sum(taken(flag), dtype=dtype) for name, flag in flags.items()}


def minibatches(
    key: PRNGKeyArray, rows: int, num_epochs: int, num_minibatches: int
) -> tuple[Int[Array, "updates size"], Key[Array, " updates"]]:
    """Draw the rows of each minibatch, and a random key for it; a pass through the rows
    draws each at most once."""
    size = rows // num_minibatches

    def epoch(key):
        key_order, key = jr.split(key)
        order = jr.permutation(key_order, rows)[: size * num_minibatches]
        return order.reshape(num_minibatches, size), jr.split(key, num_minibatches)

    index, keys = jax.vmap(epoch)(jr.split(key, num_epochs))
    return index.reshape(-1, size), keys.reshape(-1)
