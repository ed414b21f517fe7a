"""Sigmoids: functions that fall from 1 at distance 0 to a given value at distance 1.

All take a distance $x \\ge 0$ of any shape and the value $v$ at distance 1, and return
values between 0 and 1. They raise `ValueError` for a value that they cannot have.
"""

from typing import Any

import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float


def gaussian(x: Float[Array, "..."], value_at_1: Any) -> Float[Array, "..."]:
    r"""Compute $\exp(-\tfrac{1}{2} (s x)^2)$, $s = \sqrt{-2 \ln v}$, $0 < v < 1$."""
    _check(gaussian, value_at_1, zero=False)
    return jnp.exp(jnp.log(_like(x, value_at_1)) * x**2)


def hyperbolic(x: Float[Array, "..."], value_at_1: Any) -> Float[Array, "..."]:
    r"""Compute $1 / \cosh(s x)$, $s = \operatorname{arcosh}(1 / v)$, $0 < v < 1$."""
    _check(hyperbolic, value_at_1, zero=False)
    scale = jnp.arccosh(1.0 / _like(x, value_at_1))
    # This form does not overflow at large distances.
    decay = jnp.exp(-scale * x)
    return 2.0 * decay / (1.0 + decay**2)


def long_tail(x: Float[Array, "..."], value_at_1: Any) -> Float[Array, "..."]:
    r"""Compute $1 / (1 + (s x)^2)$, $s = \sqrt{1 / v - 1}$, $0 < v < 1$."""
    _check(long_tail, value_at_1, zero=False)
    return 1.0 / ((1.0 / _like(x, value_at_1) - 1.0) * x**2 + 1.0)


def reciprocal(x: Float[Array, "..."], value_at_1: Any) -> Float[Array, "..."]:
    r"""Compute $1 / (1 + s x)$, $s = 1 / v - 1$, $0 < v < 1$."""
    _check(reciprocal, value_at_1, zero=False)
    return 1.0 / ((1.0 / _like(x, value_at_1) - 1.0) * x + 1.0)


def cosine(x: Float[Array, "..."], value_at_1: Any) -> Float[Array, "..."]:
    r"""Compute $\tfrac{1}{2} (1 + \cos(s x))$ while $s x < \pi$, then 0; $s = \arccos(2
    v - 1)$, $0 \le v < 1$."""
    _check(cosine, value_at_1, zero=True)
    angle = jnp.arccos(2.0 * _like(x, value_at_1) - 1.0) * x
    return jnp.where(angle < jnp.pi, 0.5 * (1.0 + jnp.cos(angle)), jnp.zeros_like(x))


def linear(x: Float[Array, "..."], value_at_1: Any) -> Float[Array, "..."]:
    r"""Compute $1 - (1 - v) x$ while that is positive, then 0; $0 \le v < 1$."""
    _check(linear, value_at_1, zero=True)
    return _positive(1.0 - (1.0 - _like(x, value_at_1)) * x)


def quadratic(x: Float[Array, "..."], value_at_1: Any) -> Float[Array, "..."]:
    r"""Compute $1 - (1 - v) x^2$ while that is positive, then 0; $0 \le v < 1$."""
    _check(quadratic, value_at_1, zero=True)
    return _positive(1.0 - (1.0 - _like(x, value_at_1)) * x**2)


def tanh_squared(x: Float[Array, "..."], value_at_1: Any) -> Float[Array, "..."]:
    r"""Compute $1 - \tanh^2(s x)$, $s = \operatorname{artanh} \sqrt{1 - v}$, $0 < v <
    1$."""
    _check(tanh_squared, value_at_1, zero=False)
    scale = jnp.arctanh(jnp.sqrt(1.0 - _like(x, value_at_1)))
    return 1.0 - jnp.tanh(scale * x) ** 2


def _like(x, value) -> Array:
    return jnp.asarray(value, x.dtype)


def _positive(value):
    return jnp.where(value > 0.0, value, jnp.zeros_like(value))


def _check(sigmoid: Any, value: Any, zero: bool) -> None:
    if isinstance(value, Tracer):
        return
    if not (0.0 < value < 1.0 or (zero and value == 0.0)):
        least = "0 <= value" if zero else "0 < value"
        raise ValueError(
            f"The value at the margin must satisfy {least} < 1 for "
            f"`{sigmoid.__name__}`, got {value}."
        )
