r"""Spaces of measurements: how two values are compared, and what lies between them."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import kinematics
from ..model import System
from ..spatial import integrate as turn, logarithm, multiply, Vec3


class AbstractSpace(eqx.Module):
    """The space in which one channel is measured."""

    @abc.abstractmethod
    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        r"""Compute the step from `a` to `b`, $b \ominus a$."""

    @abc.abstractmethod
    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        r"""Move `a` by a step, $a \oplus \mathrm{step}$."""


class Euclidean(AbstractSpace):
    """Numbers that are subtracted."""

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        return b - a

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return a + step


class Coordinates(AbstractSpace):
    """Coordinates of a robot, in which orientations are unit quaternions.

    **Arguments:**

    - `sys`: the robot; only its structure is read.
    """

    sys: System

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        return kinematics.difference(self.sys, a, b)

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return kinematics.integrate(self.sys, a, step)


class Orientation(AbstractSpace):
    """A unit quaternion, scalar first; steps are rotation vectors in body axes, rad."""

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        w, x, y, z = _entries(a / jnp.linalg.norm(a))
        product = multiply((w, -x, -y, -z), _entries(b / jnp.linalg.norm(b)))
        return jnp.concatenate(tuple(logarithm(product)))

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return jnp.concatenate(turn(_entries(a), Vec3(*_entries(step)), 1.0))


def _entries(x: Array) -> tuple[Array, ...]:
    return tuple(x[k : k + 1] for k in range(x.shape[0]))


def interpolate(space: AbstractSpace, a: Array, b: Array, weight: Array) -> Array:
    """Compute the value between `a` (weight 0) and `b` (weight 1)."""
    return space.integrate(a, weight * space.difference(a, b))
