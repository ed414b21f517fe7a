"""Wrapped environments for training and evaluation, and their random keys."""

import jax
from jaxtyping import PRNGKeyArray

from eqsim import AbstractEnv, AutoReset, TimeLimit
from eqsim.bridges import check_count, check_no_auto_reset
from eqsim.wrappers import pool_resets


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
