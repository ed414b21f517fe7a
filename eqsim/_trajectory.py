"""What came out of a rollout, and the statistics of its episodes."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from ._errors import RESULTS
from .envs import Timestep


class Episodes(eqx.Module):
    """Statistics of the episodes in a rollout, as running values: at each step those of
    the episode so far. The axes are those of the rollout.

    **Arguments:**

    - `ended`: whether an episode ended with this step: where the other numbers are those
        of a whole one.
    - `returns`: sum of the rewards.
    - `length`: number of steps.
    - `terms`: sum of each term of the reward.

    The first episode counts from the beginning of the rollout. Where an episode ends and
    `AutoReset` is missing, each step after it that still ends the task counts as an
    episode; `rollout(..., stop=lambda timestep: timestep.done)` leaves them out.
    """

    ended: Bool[Array, "..."]
    returns: Float[Array, "..."]
    length: Int[Array, "..."]
    terms: dict[str, Float[Array, "..."]]

    def mean(self) -> dict[str, float]:
        """Averages over all episodes that ended: `return`, `length`, every term, and
        `episodes`, their number. Averages over none are NaN."""
        ended = np.asarray(self.ended)
        number = int(ended.sum())
        average = lambda x: (
            float(np.asarray(x)[ended].mean()) if number else float("nan")
        )
        sums = {"return": self.returns, "length": self.length} | self.terms
        return {name: average(x) for name, x in sums.items()} | {"episodes": number}


def episodes(timestep: Timestep, valid: Bool[Array, "..."] | None = None) -> Episodes:
    """Statistics of the episodes in what a rollout reported.

    **Arguments:**

    - `timestep`: of a rollout; time is the last axis of its rewards.
    - `valid`: which steps were taken; by default all. See `Trajectory`.
    """
    taken = jnp.ones(timestep.reward.shape, bool) if valid is None else valid
    counts = taken & ~timestep.first
    ended = counts & timestep.done
    sums = {"": timestep.reward, **timestep.terms}

    def step(carry, now):
        fresh, length, totals = carry
        counts, ended, values = now
        length = jnp.where(fresh, 0, length) + counts.astype(jnp.int32)
        add = lambda total, x: jnp.where(fresh, 0.0, total) + jnp.where(counts, x, 0.0)
        totals = jtu.tree_map(add, totals, values)
        return (ended, length, totals), (length, totals)

    first = lambda x: jnp.moveaxis(x, -1, 0)
    xs = jtu.tree_map(first, (counts, ended, sums))
    batch = xs[0].shape[1:]
    zeros = jtu.tree_map(lambda x: jnp.zeros(batch, x.dtype), sums)
    begin = jnp.ones(batch, bool), jnp.zeros(batch, jnp.int32), zeros
    _, out = lax.scan(step, begin, xs)
    length, totals = jtu.tree_map(lambda x: jnp.moveaxis(x, 0, -1), out)
    return Episodes(ended, totals.pop(""), length, totals)


class Trajectory(eqx.Module):
    """What happened, with a leading axis of time (behind those of environments).

    **Arguments:**

    - `state`: of the environment, before each step.
    - `obs`: what the policy saw, before each step.
    - `action`: of each step.
    - `timestep`: what each step reported.
    - `valid`: whether the step was taken; not so after a stop condition was met.
    - `last`: the state after the last step and its report, without axis of time;
        `rollout(..., start=trajectory.last)` goes on from there.
    - `result`: whether all numbers are finite, and which were not first.
    - `failed_step`: the first step with a number that is not finite; -1 without one.
    """

    state: Any
    obs: PyTree[Shaped[Array, "..."]]
    action: Float[Array, "..."]
    timestep: Timestep
    valid: Bool[Array, "..."]
    last: tuple[Any, Timestep]
    result: RESULTS
    failed_step: Int[Array, "..."]

    def episodes(self) -> Episodes:
        """Return, length and reward terms of the episodes."""
        return episodes(self.timestep, self.valid)
