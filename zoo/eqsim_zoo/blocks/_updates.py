"""Metrics of several updates."""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float


def mean_metrics(
    metrics: Mapping[str, Float[Array, "..."]], axes: int = 1
) -> dict[str, Float[Array, "..."]]:
    """Average the metrics of several updates, and count the updates that are not finite.

    **Arguments:**

    - `metrics`: metrics of updates along the leading axes.
    - `axes`: number of these axes.

    **Returns:** the mean of each metric over the updates in which it is finite, NaN if there
    are none; the number of `updates`; and `nonfinite`, the number of updates in which a
    metric is not finite, which `Learner` skips. The training loop adds the two up.
    """
    if not metrics:
        return {}
    over = tuple(range(axes))
    fine = {name: jnp.isfinite(x) for name, x in metrics.items()}
    out = {}
    for name, x in metrics.items():
        number = jnp.sum(fine[name], axis=over, dtype=x.dtype)
        total = jnp.sum(jnp.where(fine[name], x, 0.0), axis=over)
        out[name] = jnp.where(number > 0, total / jnp.maximum(number, 1.0), jnp.nan)
    first = next(iter(metrics.values()))
    flags = [x.reshape(*x.shape[:axes], -1).all(axis=axes) for x in fine.values()]
    whole = jnp.all(jnp.stack(flags), axis=0)
    counts = {"updates": whole.size, "nonfinite": jnp.sum(~whole)}
    return out | {name: jnp.asarray(n, first.dtype) for name, n in counts.items()}
