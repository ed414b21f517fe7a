"""Maps between a parameter in its own unit and a number that a solver may move freely."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class AbstractTransform(eqx.Module):
    """A map from free numbers to values, entry by entry."""

    @abc.abstractmethod
    def value(self, free: Float[Array, " n"]) -> Float[Array, " n"]:
        """Compute values from free numbers."""

    @abc.abstractmethod
    def free(self, value: np.ndarray) -> np.ndarray:
        """Compute free numbers from values."""

    @abc.abstractmethod
    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds of the free numbers, which may depend on their start."""

    @abc.abstractmethod
    def scales(self, value: np.ndarray) -> np.ndarray:
        """Return what a large change of each value would be."""

    @abc.abstractmethod
    def problem(self, value: float) -> str | None:
        """Say why a value cannot be a start; None if it can."""


_REACH = 1e3
"""Factor of the start within which positive values are searched. A fit continues beyond it
if that lowers the cost; what tends to zero stops there, and is reported to be at a bound."""


class Log(AbstractTransform):
    """Positive values, by their logarithm, within a factor of a thousand of the start."""

    def value(self, free: Float[Array, " n"]) -> Float[Array, " n"]:
        return jnp.exp(free)

    def free(self, value: np.ndarray) -> np.ndarray:
        return np.log(value)

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return start - np.log(_REACH), start + np.log(_REACH)

    def scales(self, value: np.ndarray) -> np.ndarray:
        return value

    def problem(self, value: float) -> str | None:
        if value > 0:
            return None
        return (
            f"starts at {value:g}, at or below its bound zero, but must be positive. Pass "
            "a positive `initial`, or leave it out with `entries`"
        )


class Box(AbstractTransform):
    """Values between two bounds, which the solver respects.

    **Arguments:**

    - `lower`, `upper`: bounds, in the unit of the value.
    """

    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)

    def __check_init__(self):
        if not self.lower < self.upper:
            raise ValueError(
                f"`lower` = {self.lower} must be less than `upper` = {self.upper}."
            )

    def value(self, free: Float[Array, " n"]) -> Float[Array, " n"]:
        return free

    def free(self, value: np.ndarray) -> np.ndarray:
        return value

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full_like(start, self.lower), np.full_like(start, self.upper)

    def scales(self, value: np.ndarray) -> np.ndarray:
        if np.isfinite(self.upper - self.lower):
            return np.full_like(value, 0.25 * (self.upper - self.lower))
        return magnitudes(value)

    def problem(self, value: float) -> str | None:
        if self.lower < value < self.upper:
            return None
        return (
            f"starts at {value:g}, which is not between its bounds {self.lower:g} and "
            f"{self.upper:g}. Pass an `initial` between them"
        )


class Identity(AbstractTransform):
    """Any values."""

    def value(self, free: Float[Array, " n"]) -> Float[Array, " n"]:
        return free

    def free(self, value: np.ndarray) -> np.ndarray:
        return value

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full_like(start, -np.inf), np.full_like(start, np.inf)

    def scales(self, value: np.ndarray) -> np.ndarray:
        return magnitudes(value)

    def problem(self, value: float) -> str | None:
        return None


def magnitudes(value: np.ndarray) -> np.ndarray:
    """Return the sizes of values, and one where they are zero."""
    size = np.abs(value)
    return np.where(size > 1e-9, size, 1.0)
