"""Counts of rewards and observations that are not finite."""

from typing import Any

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float

from eqsim import Timestep


REWARDS, OBSERVATIONS = "nonfinite_rewards", "nonfinite_observations"
"""Metrics: numbers of steps whose reward or observation is not finite."""

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
