"""Results of a rollout, and statistics of its episodes."""

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
    """Running statistics of the episodes in a rollout: at each step, those of the
    current episode up to this step. The axes are those of the rollout.

    **Arguments:**

    - `ended`: true if an episode ended with this step, so that the other values are
        those of a complete episode.
    - `returns`: sum of rewards.
    - `length`: number of steps.
    - `terms`: sum of each reward term.

    The first episode starts at the beginning of the rollout. Without `AutoReset`, each
    step after the end of an episode that still terminates counts as an episode;
    `rollout(..., stop=lambda timestep: timestep.done)` excludes them.
    """

    ended: Bool[Array, "..."]
    returns: Float[Array, "..."]
    length: Int[Array, "..."]
    terms: dict[str, Float[Array, "..."]]

    def mean(self) -> dict[str, float]:
        """Average over all episodes that ended: `return`, `length`, every reward term,
        and `episodes`, their number. Averages are NaN if no episode ended."""
        ended = np.asarray(self.ended)
        number = int(ended.sum())
        average = lambda x: (
            float(np.asarray(x)[ended].mean()) if number else float("nan")
        )
        sums = {"return": self.returns, "length": self.length} | self.terms
        return {name: average(x) for name, x in sums.items()} | {"episodes": number}


def episodes(timestep: Timestep, valid: Bool[Array, "..."] | None = None) -> Episodes:
    """Compute statistics of the episodes in a rollout.

    **Arguments:**

    - `timestep`: timesteps of a rollout; time is the last axis of the rewards.
    - `valid`: true for steps that were taken; by default all. See `Trajectory`.
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
    """The results of a rollout. The axes are those of the environments, then time.

    **Arguments:**

    - `state`: state of the environment before each step.
    - `obs`: observation of the policy before each step.
    - `action`: action of each step.
    - `timestep`: timestep returned by each step.
    - `valid`: true if the step was taken; false after the stop condition was met.
    - `last`: state and timestep after the last step, and the memory of the policy if
        that is a controller, without the time axis; `rollout(...,
        start=trajectory.last)` continues from there.
    - `result`: outcome: successful, or which values were first not finite.
    - `failed_step`: first step with a value that is not finite; -1 if there is none.
    """

    state: Any
    obs: PyTree[Shaped[Array, "..."]]
    action: Float[Array, "..."]
    timestep: Timestep
    valid: Bool[Array, "..."]
    last: tuple[Any, Timestep] | tuple[Any, Timestep, Any]
    result: RESULTS
    failed_step: Int[Array, "..."]

    @property
    def reward(self) -> Float[Array, "..."]:
        """Reward of each step, the same as `timestep.reward`. After the stop condition was
        met, steps are not `valid` and repeat the last reward."""
        return self.timestep.reward

    def episodes(self) -> Episodes:
        """Compute return, length and reward terms of the episodes."""
        return episodes(self.timestep, self.valid)
