"""Evaluation of many policies in whole episodes."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Float, Key, PRNGKeyArray

import eqsim
from eqsim import AbstractEnv, Timestep
from eqsim.wrappers import RunningStatistics, ScaleAction

from .collecting import count_nonfinite, nonfinite_flags
from .observations import normalize, update_statistics
from .parallel import map_shards, shard_batch
from .policies import DeterministicPolicy


class Perturbations(eqx.Module):
    """Pairs of policies: parameters plus and minus a noise, and what they earned.

    **Arguments:**

    - `noise`: noise that was added to and subtracted from the parameters.
    - `returns`: returns with the noise added, and with it subtracted.
    """

    noise: Float[Array, "pairs parameters"]
    returns: Float[Array, "pairs 2"]


def evaluate_policies(
    env: AbstractEnv,
    policies: Any,
    statistics: RunningStatistics | None,
    keys: Key[Array, "policies episodes"],
    length: int,
) -> tuple[
    Float[Array, "policies episodes"], RunningStatistics | None, dict[str, Array]
]:
    """Compute the returns of policies in whole episodes.

    Equal keys give equal initial states, so policies are compared in the same episodes
    if they are given the same keys.

    **Arguments:**

    - `env`: environment whose actions are scaled to -1 and 1.
    - `policies`: a PyTree of `DeterministicPolicy`s, with the policies along the first
        axis.
    - `statistics`: statistics that normalize observations; None without.
    - `keys`: key of each policy and episode.
    - `length`: largest number of control steps of an episode.

    **Returns:** returns; statistics with all observations of the episodes; and a report:
    mean `return` and `length` of the episodes, the total number of `steps`, and the
    counts of `collect` of what is not finite.
    """

    def run(rows, shared):
        policies, keys = rows
        env, statistics = shared
        one = lambda policy, key: _episode(env, policy, statistics, key, length)
        each = eqx.filter_vmap(one, in_axes=(None, 0))
        return eqx.filter_vmap(each)(policies, keys)

    taken = ScaleAction(env)
    rows = shard_batch(policies), shard_batch(keys)
    obs, rewards, valid, flags = map_shards(run, rows, (taken, statistics))
    returns = jnp.sum(rewards, axis=-1)
    seen = obs.reshape(-1, obs.shape[-1])
    statistics = update_statistics(statistics, seen, valid.reshape(-1))
    steps = jnp.sum(valid.astype(returns.dtype))
    report = {"return": jnp.mean(returns), "length": steps / returns.size}
    report |= count_nonfinite(flags, returns.dtype, valid)
    return returns, statistics, {**report, "steps": steps}


def evaluate_pairs(
    env: AbstractEnv,
    policies: Any,
    statistics: RunningStatistics | None,
    key: PRNGKeyArray,
    length: int,
) -> tuple[Float[Array, "pairs 2"], RunningStatistics | None, dict[str, Array]]:
    """Compute the returns of pairs of policies. Both policies of a pair start from the
    same states, so that only the policies differ.

    **Arguments:** those of `evaluate_policies`, but

    - `policies`: a PyTree with axes (pair, 2).
    - `key`: one key, which is split among the pairs.

    **Returns:** as `evaluate_policies`, with axes (pair, 2) of the returns.
    """
    first = next(x for x in jtu.tree_leaves(policies) if eqx.is_array(x))
    keys = jnp.repeat(jr.split(key, first.shape[0]), 2)[:, None]
    flat = lambda x: x.reshape(-1, *x.shape[2:]) if eqx.is_array(x) else x
    policies = jtu.tree_map(flat, policies)
    returns, statistics, report = evaluate_policies(
        env, policies, statistics, keys, length
    )
    return returns.reshape(-1, 2), statistics, report


def _episode(env, policy: DeterministicPolicy, statistics, key, length: int):
    """Return observations and rewards of an episode, true for the steps in it, and
    `nonfinite_flags`."""
    act = lambda obs, key: policy(normalize(statistics, obs))
    state = env.reset(key)
    kept, _ = eqsim.rollout(
        env,
        act,
        key,
        length,
        start=state,
        collect=_kept,
        stop=lambda timestep: timestep.done,
    )
    obs, reward, done, flags = kept
    obs = jnp.concatenate([state[1].obs[None], obs[:-1]])
    over = done.astype(jnp.int32)
    valid = jnp.cumsum(over, dtype=over.dtype) == over
    return obs, jnp.where(valid, reward, 0.0), valid, flags


def _kept(state, action, timestep: Timestep):
    led_to = timestep.obs if timestep.final_obs is None else timestep.final_obs
    return led_to, timestep.reward, timestep.done, nonfinite_flags(timestep)
