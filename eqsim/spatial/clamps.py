r"""Bounds, with one-sided derivatives.

`jnp.clip`, `jnp.maximum` and `jnp.minimum` have half of a derivative where their arguments
are equal. States at bounds are common: an activation begins at zero, a joint stands at its
limit. Here, a value on a bound is in the range, and the derivative is that of its inside;
what begins beyond a threshold, such as the force of a tendon that becomes taut, has not
begun at the threshold. NaN stays NaN.
"""

import jax.numpy as jnp


def at_least(x, low):
    """Return the larger value; the derivative is that by `x` where both are equal."""
    return jnp.where(x < low, low, x)


def at_most(x, high):
    """Return the smaller value; the derivative is that by `x` where both are equal."""
    return jnp.where(x > high, high, x)


def clamp(x, low, high):
    """Limit `x` to a range; on a bound, the derivative is that by `x`. A range of one
    value returns this value, whatever `x` is."""
    inside = at_most(at_least(x, low), high)
    return jnp.where(low == high, _one_value(low, high), inside)


def _one_value(low, high):
    """Return the mean of equal bounds; zero where they differ, as they may be infinite."""
    one, two = (jnp.where(low == high, bound, 0.0) for bound in (low, high))
    return 0.5 * (one + two)


def positive_part(x):
    r"""Compute $\max(x, 0)$; the derivative at zero is zero."""
    return jnp.where(x <= 0.0, 0.0, x)


def outside(x, low, high):
    """Compute how far `x` is above a range, or below it, which is negative; zero in the
    range, with zero derivatives on its bounds unless it has only one value."""
    beyond = jnp.where(x < low, x - low, x - high)
    apart = jnp.where((x >= low) & (x <= high), 0.0, beyond)
    return jnp.where(low == high, x - _one_value(low, high), apart)
