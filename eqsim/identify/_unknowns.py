"""Parameters of a robot that are to be found, chosen by `where`."""

import abc
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import System
from ._entries import check_start, Entries, labels_of, replaced, values_of, Where
from ._priors import AbstractPrior
from ._transforms import AbstractTransform, Box, Identity, Log


class Signals(eqx.Module):
    """Corrections of commands and sensors by channel; `"ctrl"` are the commands.

    **Arguments:**

    - `gains`, `biases`: one number per column. `delays`: s.
    """

    gains: dict[str, Array] = eqx.field(default_factory=dict)
    biases: dict[str, Array] = eqx.field(default_factory=dict)
    delays: dict[str, Array] = eqx.field(default_factory=dict)


class Model(NamedTuple):
    """Everything that parameters describe: the robot, and its signals."""

    sys: System
    signals: Signals


class Context(NamedTuple):
    """The robot as given and the columns of each channel, on which unknowns may depend."""

    sys: System
    widths: Mapping[str, int]


class AbstractUnknown(eqx.Module):
    """One or more numbers that are to be found."""

    if TYPE_CHECKING:
        # Type checkers would take an `AbstractVar` for the first argument of subclasses.
        prior: ClassVar[AbstractPrior | None]
    else:
        prior: eqx.AbstractVar[AbstractPrior | None]

    @abc.abstractmethod
    def labels(self, name: str, context: Context) -> tuple[str, ...]:
        """Return a name for each value."""

    @abc.abstractmethod
    def start(self, name: str, context: Context) -> np.ndarray:
        """Return the free numbers to start from.

        **Raises:** `ValueError` that names a value which cannot be a start.
        """

    @abc.abstractmethod
    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds of the free numbers, which may depend on their start."""

    @abc.abstractmethod
    def values(self, free: Float[Array, " n"]) -> Float[Array, " values"]:
        """Compute the values in their own units."""

    @abc.abstractmethod
    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        """Put the values into the robot or its signals."""

    @abc.abstractmethod
    def scales(self, value: np.ndarray) -> np.ndarray:
        """Return what a large change of each value would be, in its own unit."""

    @abc.abstractmethod
    def inactive(self, mask: System) -> np.ndarray | None:
        """Pick, from a mask of parameters without influence, the entries of this
        unknown; None if it is not part of the robot."""


def parts_of(free: Float[Array, " p"], sizes: tuple[int, ...]) -> list[Array]:
    """Split the free numbers by unknown."""
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return [free[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def applied(
    sys: System,
    unknowns: tuple[AbstractUnknown, ...],
    sizes: tuple[int, ...],
    free: Float[Array, " p"],
) -> Model:
    """Return a robot and its signals with these parameters."""
    model = Model(sys, Signals())
    for unknown, part in zip(unknowns, parts_of(free, sizes), strict=True):
        model = unknown.apply(model, part)
    return model


class Leaves(AbstractUnknown):
    """Entries of arrays of the robot; made by `Positive`, `Bounded` and `Free`."""

    where: Where = eqx.field(static=True)
    transform: AbstractTransform
    entries: Entries | None = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    initial: float | None = eqx.field(static=True)
    prior: AbstractPrior | None = None

    def labels(self, name: str, context: Context) -> tuple[str, ...]:
        names = labels_of(context.sys, self.where, self.entries)
        if self.shared or len(names) == 1:
            return (name,)
        return tuple(f"{name}{index}" for index in names)

    def start(self, name: str, context: Context) -> np.ndarray:
        value = np.asarray(values_of(context.sys, self.where, self.entries), float)
        if self.initial is not None:
            value = np.full_like(value, self.initial)
        if self.shared:
            if np.ptp(value) > 1e-9 * np.abs(value).max():
                raise ValueError(
                    f"Unknown {name!r} is shared, but its entries start at different "
                    f"values {value}. Pass `initial`, or use `Tied` for a common factor."
                )
            value = value[:1]
        check_start(name, self.labels(name, context), value, self.transform)
        return self.transform.free(value)

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.transform.bounds(start)

    def values(self, free: Float[Array, " n"]) -> Float[Array, " values"]:
        return self.transform.value(free)

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        value = self.values(free)
        if self.shared:
            count = values_of(model.sys, self.where, self.entries).shape[0]
            value = jnp.broadcast_to(value, (count,))
        sys = replaced(model.sys, self.where, self.entries, value)
        return model._replace(sys=sys)

    def scales(self, value: np.ndarray) -> np.ndarray:
        return self.transform.scales(value)

    def inactive(self, mask: System) -> np.ndarray | None:
        found = np.asarray(values_of(mask, self.where, self.entries), bool)
        return np.array([found.all()]) if self.shared else found


class Tied(AbstractUnknown):
    """One positive factor by which all chosen entries are multiplied.

    **Arguments:**

    - `where`: one array of the robot, or a tuple of arrays:
        `lambda s: (s.links.mass, s.links.inertia)`.
    - `entries`: see `Positive`; chosen in each of the arrays.
    - `prior`: prior of the factor, which starts at 1.
    """

    where: Where = eqx.field(static=True)
    entries: Entries | None = eqx.field(static=True, default=None)
    prior: AbstractPrior | None = None

    def labels(self, name: str, context: Context) -> tuple[str, ...]:
        return (name,)

    def start(self, name: str, context: Context) -> np.ndarray:
        value = values_of(context.sys, self.where, self.entries)
        if not np.any(np.asarray(value)):
            raise ValueError(
                f"Unknown {name!r} scales numbers that are all zero, so it has no "
                "influence. Select other numbers with `where` or `entries`."
            )
        return np.zeros(1)

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Log().bounds(start)

    def values(self, free: Float[Array, " n"]) -> Float[Array, " values"]:
        return jnp.exp(free)

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        old = jnp.asarray(values_of(model.sys, self.where, self.entries))
        value = old * jnp.exp(free)
        sys = replaced(model.sys, self.where, self.entries, value)
        return model._replace(sys=sys)

    def scales(self, value: np.ndarray) -> np.ndarray:
        return value

    def inactive(self, mask: System) -> np.ndarray | None:
        found = np.asarray(values_of(mask, self.where, self.entries), bool)
        return np.array([found.all()])


def Positive(
    where: Where,
    *,
    entries: Entries | None = None,
    shared: bool = False,
    initial: float | None = None,
    prior: AbstractPrior | None = None,
) -> Leaves:
    """Choose positive numbers, such as damping or friction; found by their logarithm,
    from a start of any size.

    **Arguments:**

    - `where`: an array of the robot as for `eqx.tree_at`: `lambda s: s.joints.damping`;
        or a tuple of arrays. Recompiles if it is another function, so define it once.
    - `entries`: entries of the array, as a tuple of indices; an index with several
        axes is a tuple itself: `((0, 2), (1, 2))`. By default all.
    - `shared`: true for one common value of all entries.
    - `initial`: first value; by default that of the robot.
    - `prior`: prior of the values in their own units.
    """
    return Leaves(
        where=where,
        transform=Log(),
        entries=entries,
        shared=shared,
        initial=initial,
        prior=prior,
    )


def Bounded(
    where: Where,
    lower: float,
    upper: float,
    *,
    entries: Entries | None = None,
    shared: bool = False,
    initial: float | None = None,
    prior: AbstractPrior | None = None,
) -> Leaves:
    """Choose numbers between two bounds, which no step of the solver leaves.

    **Arguments:** see `Positive`, and

    - `lower`, `upper`: bounds, in the unit of the parameter.
    """
    return Leaves(
        where=where,
        transform=Box(lower, upper),
        entries=entries,
        shared=shared,
        initial=initial,
        prior=prior,
    )


def Free(
    where: Where,
    *,
    entries: Entries | None = None,
    shared: bool = False,
    initial: float | None = None,
    prior: AbstractPrior | None = None,
) -> Leaves:
    """Choose numbers of any sign, such as a place or a bias.

    **Arguments:** see `Positive`.
    """
    return Leaves(
        where=where,
        transform=Identity(),
        entries=entries,
        shared=shared,
        initial=initial,
        prior=prior,
    )
