"""The control suite's reward function for a value and its target."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .sigmoids import gaussian


def tolerance(
    x: Float[Array, "..."],
    bounds: tuple[Any, Any] = (0.0, 0.0),
    margin: Any = 0.0,
    sigmoid: Callable[[Array, Any], Array] = gaussian,
    value_at_margin: Any = 0.1,
) -> Float[Array, "..."]:
    r"""Compute how well values lie within bounds, from 0 to 1.

    $1$ for $l \le x \le h$, else $s(d / m)$ with the distance $d$ from the nearer bound,
    the margin $m$ and a sigmoid $s$ with $s(0) = 1$ and $s(1) =$ `value_at_margin`. With
    margin 0 it is 0 outside.

    It can be differentiated with respect to all arguments, in both modes; the
    derivative of a jump (margin 0) is zero.

    **Arguments:**

    - `x`: values of any shape.
    - `bounds`: lower bound $l$ and upper bound $h$, inclusive; may be infinite.
    - `margin`: distance from the bounds, in units of `x`, at which the result is
        `value_at_margin`.
    - `sigmoid`: one of `eqsim_dmc.sigmoids`, or a function `(distance, value at 1)`.
    - `value_at_margin`: value between 0 and 1; 0 is allowed for `cosine`, `linear` and
        `quadratic`.

    **Returns:** values of the shape of `x`.

    **Raises:** `ValueError` if the bounds are in the wrong order, the margin is
    negative, or the sigmoid cannot have `value_at_margin`. Not checked for traced
    values.

    ??? cite "Reference"
        Tassa et al., *DeepMind Control Suite*, 2018, section 4.
    """
    low, high = bounds
    _check(low, high, margin)
    low, high, margin = (jnp.asarray(b, x.dtype) for b in (low, high, margin))
    below, inside = x < low, (x >= low) & (x <= high)
    distance = jnp.where(below, low - x, x - high)
    # An infinite bound must not enter a sigmoid, not even in the branch that is not
    # taken.
    distance = jnp.where(inside, jnp.zeros_like(x), distance)
    soft = margin > 0.0
    scaled = distance / jnp.where(soft, margin, jnp.ones_like(margin))
    beyond = jnp.where(soft, sigmoid(scaled, value_at_margin), jnp.zeros_like(x))
    return jnp.where(inside, jnp.ones_like(x), beyond)


def _check(low: Any, high: Any, margin: Any) -> None:
    known = lambda *values: not any(isinstance(v, Tracer) for v in values)
    if known(low, high) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(f"`bounds` must be in ascending order, got ({low}, {high}).")
    if known(margin) and not np.all(np.asarray(margin) >= 0.0):
        raise ValueError(f"`margin` must be at least 0, got {margin}.")
