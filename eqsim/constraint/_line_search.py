"""Line search for convex functions, by the Illinois variant of regula falsi.

Source: Dowell and Jarratt, *A modified regula falsi method for computing the root of an
equation*, BIT 11, 1971.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax


_NARROWINGS = 6
"""Newton's method needs no exact line search."""
_SHRINK = 0.1
"""Factor of the slope at an end that stays, instead of 1/2: behind a stiff contact, slopes
are so large that with halves a step would be far too short."""


class _Bracket(NamedTuple):
    """Two shares of a line between which the slope changes its sign.

    - `slopes`: slopes at both ends, times `_SHRINK` where the other end has moved twice in
        turn.
    - `side`: 1 where the upper end moved last, -1 where the lower one did, 0 at first.
    """

    low: Any
    high: Any
    slopes: tuple[Any, Any]
    side: Any


def least_share(slope: Callable, one):
    """Compute where a convex function is least between 0 and 1, approximately.

    **Arguments:**

    - `slope`: derivative of the function, negative at 0.
    - `one`: an array of ones of the shape of a share.
    """

    def narrow(_, now: _Bracket) -> _Bracket:
        share = _crossing(now)
        value = slope(share)
        rising = value > 0.0
        first = jnp.where(rising, now.slopes[0], value)
        last = jnp.where(rising, value, now.slopes[1])
        first = jnp.where(rising & (now.side > 0.0), _SHRINK * first, first)
        last = jnp.where(~rising & (now.side < 0.0), _SHRINK * last, last)
        low = jnp.where(rising, now.low, share)
        high = jnp.where(rising, share, now.high)
        return _Bracket(low, high, (first, last), jnp.where(rising, one, -one))

    ends = slope(0.0 * one), slope(one)
    start = _Bracket(0.0 * one, one, ends, 0.0 * one)
    end = lax.fori_loop(0, _NARROWINGS, narrow, start)
    # The function falls up to the lower end.
    found = jnp.where(end.low > 0.0, end.low, _crossing(end))
    return jnp.where(ends[1] <= 0.0, 1.0, found)


def _crossing(now: _Bracket):
    """Return where a straight line between the slopes is zero; the middle if that is not
    inside."""
    below, above = now.slopes
    rise = above - below
    share = now.low - below * (now.high - now.low) / jnp.where(rise > 0.0, rise, 1.0)
    inside = (share > now.low) & (share < now.high)
    return jnp.where(inside, share, 0.5 * (now.low + now.high))
