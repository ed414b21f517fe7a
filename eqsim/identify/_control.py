"""Commands between the times at which they were recorded."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractInterpolation(eqx.Module):
    """The command as a function of time."""

    @abc.abstractmethod
    def __call__(
        self, time: Float[Array, " c"], ctrl: Float[Array, "c nu"], at: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        """Compute the command at a time.

        **Arguments:**

        - `time`, `ctrl`: recorded, at increasing times.
        - `at`: s; before and after the recording the first and last command hold.
        """


class Hold(AbstractInterpolation):
    """The command holds until the next one. Its derivative by a delay is zero."""

    def __call__(
        self, time: Float[Array, " c"], ctrl: Float[Array, "c nu"], at: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        # Times are differences of floating-point numbers.
        found = jnp.searchsorted(time, at + 1e-9, side="right") - 1
        return ctrl[jnp.clip(found, 0, time.shape[0] - 1)]


class Linear(AbstractInterpolation):
    """The command changes linearly from one to the next: continuous in time."""

    def __call__(
        self, time: Float[Array, " c"], ctrl: Float[Array, "c nu"], at: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        k = _interval(time, at)
        share = jnp.clip((at - time[k]) / (time[k + 1] - time[k]), 0.0, 1.0)
        return ctrl[k] + share * (ctrl[k + 1] - ctrl[k])


class Cubic(AbstractInterpolation):
    """A cubic Hermite spline with slopes of neighbours: continuously differentiable, so
    that derivatives by a delay are continuous."""

    def __call__(
        self, time: Float[Array, " c"], ctrl: Float[Array, "c nu"], at: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        k = _interval(time, at)
        step = time[k + 1] - time[k]
        share = jnp.clip((at - time[k]) / step, 0.0, 1.0)
        a, b = ctrl[k], ctrl[k + 1]
        slope_a, slope_b = _slope(time, ctrl, k), _slope(time, ctrl, k + 1)
        rest = 1.0 - share
        return (
            rest**2 * (1.0 + 2.0 * share) * a
            + share**2 * (1.0 + 2.0 * rest) * b
            + share * rest * step * (rest * slope_a - share * slope_b)
        )


def _interval(time: Array, at: Array) -> Array:
    found = jnp.searchsorted(time, at, side="right") - 1
    return jnp.clip(found, 0, time.shape[0] - 2)


def _slope(time: Array, ctrl: Array, k: Array) -> Array:
    low, high = jnp.maximum(k - 1, 0), jnp.minimum(k + 1, time.shape[0] - 1)
    return (ctrl[high] - ctrl[low]) / (time[high] - time[low])
