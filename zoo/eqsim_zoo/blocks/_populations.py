"""To try many policies, each in an episode of its own."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

import eqsim
from eqsim import AbstractEnv, Timestep
from eqsim.wrappers import ScaleAction, Statistics

from ._parallel import map_shards, shard_batch
from ._policies import DeterministicPolicy
from ._statistics import normalize, update_statistics


class Perturbations(eqx.Module):
    """Pairs of policies: parameters plus and minus a noise, and what they earned.

    **Arguments:**

    - `noise`: noise that was added to and subtracted from the parameters.
    - `returns`: returns with the noise added, and with it subtracted.
    """

    noise: Float[Array, "pairs parameters"]
    returns: Float[Array, "pairs 2"]


def evaluate_pairs(
    env: AbstractEnv,
    policies: Any,
    statistics: Statistics | None,
    key: PRNGKeyArray,
    length: int,
) -> tuple[Float[Array, "pairs 2"], Statistics | None, dict[str, Array]]:
    """Compute the returns of pairs of policies. Both policies of a pair start from the
    same states, so that only the policies differ.

    **Arguments:**

    - `policies`: a PyTree of them, with axes (pair, 2).
    - `statistics`: statistics of observations.
    - `length`: steps of an episode, at most.

    **Returns:** returns; statistics with what was observed; `return` and `length`, means
    over all, and `steps`, taken in all.
    """
    first = next(x for x in jax.tree_util.tree_leaves(policies) if eqx.is_array(x))
    keys = shard_batch(jr.split(key, first.shape[0]))

    def run(rows, shared):
        policies, keys = rows
        env, statistics = shared
        one = lambda policy, key: _episode(env, policy, statistics, key, length)
        both = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), None))
        return eqx.filter_vmap(both)(policies, keys)

    taken = ScaleAction(env)
    obs, rewards, valid = map_shards(
        run, (shard_batch(policies), keys), (taken, statistics)
    )
    returns = jnp.sum(rewards, axis=-1)
    seen = obs.reshape(-1, obs.shape[-1])
    statistics = update_statistics(statistics, seen, valid.reshape(-1))
    steps = jnp.sum(valid.astype(returns.dtype))
    report = {"return": jnp.mean(returns), "length": steps / returns.size}
    return returns, statistics, {**report, "steps": steps}


def _episode(env, policy: DeterministicPolicy, statistics, key, length: int):
    """Return observations and rewards of an episode, and true for the steps in it."""
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
    obs, reward, done = kept
    obs = jnp.concatenate([state[1].obs[None], obs[:-1]])
    over = done.astype(jnp.int32)
    valid = jnp.cumsum(over, dtype=over.dtype) == over
    return obs, jnp.where(valid, reward, 0.0), valid


def _kept(state, action, timestep: Timestep):
    led_to = timestep.obs if timestep.final_obs is None else timestep.final_obs
    return led_to, timestep.reward, timestep.done
