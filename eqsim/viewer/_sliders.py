"""Sliders that change parameters of a robot."""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from ..model import System


class AbstractSlider(eqx.Module):
    """A number that a slider sets, and its effect on a robot.

    A slider changes values of a robot, not its structure, so that moving it compiles
    nothing.
    """

    where: eqx.AbstractVar[Callable[[System], Any]]
    low: eqx.AbstractVar[float]
    high: eqx.AbstractVar[float]

    @abc.abstractmethod
    def initial(self, sys: System) -> float:
        """Return the number at which the robot is as it was."""

    @abc.abstractmethod
    def apply(self, sys: System, value: Float[Array, ""]) -> System:
        """Return the robot with the number of the slider."""


class Scale(AbstractSlider):
    """A slider that multiplies parameters by a factor, 1 at first.

    **Arguments:**

    - `where`: function from a `System` to an array or a tuple of arrays in it, such as
        `lambda sys: sys.links.mass`.
    - `low`, `high`: range of the factor.
    - `index`: entry or slice of the arrays to multiply; by default all.
    """

    where: Callable[[System], Any]
    low: float = eqx.field(static=True, default=0.0)
    high: float = eqx.field(static=True, default=3.0)
    index: Any = eqx.field(static=True, default=...)

    def __check_init__(self):
        _check_range(self)

    def initial(self, sys: System) -> float:
        return 1.0

    def apply(self, sys: System, value: Float[Array, ""]) -> System:
        change = lambda x: x.at[self.index].multiply(value.astype(x.dtype))
        return eqx.tree_at(self.where, sys, replace_fn=change)


class Value(AbstractSlider):
    """A slider that sets a parameter.

    **Arguments:**

    - `where`: function from a `System` to an array in it, such as
        `lambda sys: sys.gravity`.
    - `low`, `high`: range of the parameter, in its unit.
    - `index`: entry or slice of the array to set; by default all, to the same number.
    """

    where: Callable[[System], Any]
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)
    index: Any = eqx.field(static=True, default=...)

    def __check_init__(self):
        _check_range(self)

    def initial(self, sys: System) -> float:
        chosen = np.asarray(self.where(sys))[self.index]
        return float(np.mean(chosen))

    def apply(self, sys: System, value: Float[Array, ""]) -> System:
        change = lambda x: x.at[self.index].set(value.astype(x.dtype))
        return eqx.tree_at(self.where, sys, replace_fn=change)


def _check_range(slider: Scale | Value) -> None:
    if not slider.low < slider.high:
        raise ValueError(
            f"`low` must be below `high` in a `{type(slider).__name__}`, got "
            f"{slider.low} and {slider.high}."
        )


def default_sliders(sys: System) -> dict[str, AbstractSlider]:
    """Return sliders for gravity, masses, friction, damping and actuators, as far as the
    robot has them."""
    down = float(sys.gravity[2])
    out: dict[str, AbstractSlider] = {
        "gravity, m/s²": Value(
            lambda s: s.gravity, min(-20.0, 2.0 * down), max(5.0, 2.0 * down), 2
        ),
        "mass ×": Scale(lambda s: (s.links.mass, s.links.inertia), 0.2, 3.0),
    }
    if sys.geoms.kinds:
        out["friction ×"] = Scale(lambda s: s.geoms.friction, 0.0, 3.0)
    if np.any(np.asarray(sys.joints.damping)):
        out["damping ×"] = Scale(lambda s: s.joints.damping, 0.0, 10.0)
    if sys.nu:
        out["actuator gear ×"] = Scale(lambda s: s.actuators.gear, 0.0, 3.0)
    return out


def apply_sliders(
    sliders: tuple[AbstractSlider, ...], sys: System, values: Float[Array, " n"]
) -> System:
    """Return the robot with the numbers of all sliders."""
    for slider, value in zip(sliders, values, strict=True):
        sys = slider.apply(sys, jnp.asarray(value))
    return sys


def check_sliders(sys: System, sliders: Mapping[str, AbstractSlider]) -> None:
    """Raise `ValueError` or `TypeError` for a slider that this robot cannot have."""
    for name, slider in sliders.items():
        if not isinstance(slider, AbstractSlider):
            raise TypeError(
                f"The slider {name!r} must be a `Scale(...)` or a `Value(...)`, got "
                f"{slider!r}."
            )
        try:
            initial = slider.initial(sys)
            new = slider.apply(sys, jnp.asarray(initial, sys.dt.dtype))
            pairs = list(zip(*map(jtu.tree_leaves, map(slider.where, (sys, new)))))
        except Exception as error:
            raise ValueError(
                f"The slider {name!r} cannot be applied to this robot: {error}. Let `where` "
                "return an array of the `System` that it is given."
            ) from error
        same = all(np.allclose(x, y, rtol=1e-5, atol=1e-12) for x, y in pairs)
        if not same or not slider.low <= initial <= slider.high:
            raise ValueError(
                f"The slider {name!r} goes from {slider.low} to {slider.high} and sets one "
                f"number, but the robot has {[np.asarray(x).tolist() for x, _ in pairs]}. "
                "Choose a range that contains it, an `index`, or `Scale`."
            )
