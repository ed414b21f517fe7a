r"""Parameters of a robot that are to be found.

A solver moves *free numbers*. An unknown says which values of the robot they stand for (an
array chosen by `where`, a common factor, a function of the user), by which map (positive
values by their logarithm), within which bounds, and what is known of them before (a prior).
In this order: transforms, priors, the choice of entries, unknowns.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from .._errors import check_numbers
from ..model import System
from ..model.arrays import as_array


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
        if self.lower <= value <= self.upper:
            return None
        return (
            f"starts at {value:g}, which is not within its bounds {self.lower:g} and "
            f"{self.upper:g}. Pass an `initial` within them"
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


_is_positive = lambda x: x > 0


class AbstractPrior(eqx.Module):
    """Knowledge of the values of one unknown."""

    @abc.abstractmethod
    def cost(
        self, value: Float[Array, " n"], start: Float[Array, " n"]
    ) -> Float[Array, ""]:
        """Compute the negative log density, up to a constant.

        **Arguments:**

        - `value`: parameters in their own units.
        - `start`: the same in the system that the fit starts from.
        """


class NormalPrior(AbstractPrior):
    """A normal distribution of each value.

    **Arguments:**

    - `mean`: mean, in the unit of the value; by default the start.
    - `sd`: standard deviation, in the unit of the value.
    """

    mean: Float[Array, "..."] | None = eqx.field(converter=as_array)
    sd: Float[Array, "..."] = eqx.field(converter=as_array)

    def __check_init__(self):
        check_numbers("NormalPrior.sd", self.sd, _is_positive, "positive")

    def cost(
        self, value: Float[Array, " n"], start: Float[Array, " n"]
    ) -> Float[Array, ""]:
        mean = start if self.mean is None else self.mean
        return 0.5 * jnp.sum(((value - mean) / self.sd) ** 2)


class LogNormalPrior(AbstractPrior):
    """A normal distribution of the logarithm of each (positive) value.

    **Arguments:**

    - `mean`: median, in the unit of the value; by default the start.
    - `sd`: relative standard deviation.
    """

    mean: Float[Array, "..."] | None = eqx.field(converter=as_array)
    sd: Float[Array, "..."] = eqx.field(converter=as_array)

    def __check_init__(self):
        check_numbers("LogNormalPrior.sd", self.sd, _is_positive, "positive")
        check_numbers("LogNormalPrior.mean", self.mean, _is_positive, "positive")

    def cost(
        self, value: Float[Array, " n"], start: Float[Array, " n"]
    ) -> Float[Array, ""]:
        mean = start if self.mean is None else self.mean
        return 0.5 * jnp.sum((jnp.log(value / mean) / self.sd) ** 2)


Where = Callable[[System], Any]
Entries = tuple[int | tuple[int, ...], ...]
Widths = Mapping[str, int]
"""Number of columns of each channel; `"ctrl"` are the commands, `RUNS` the number of runs."""
RUNS = "number of runs"


def values_of(sys: System, where: Where, entries: Entries | None):
    """Return the chosen entries as one vector."""
    parts = []
    for leaf in _leaves(sys, where):
        chosen = [leaf] if entries is None else [leaf[index] for index in entries]
        parts += [part.reshape(-1) for part in chosen]
    if isinstance(parts[0], np.ndarray | np.generic):
        return np.concatenate(parts)
    return jnp.concatenate(parts)


def replaced(sys: System, where: Where, entries: Entries | None, value: Array):
    """Return the robot with other values of the chosen entries."""
    new, at = [], 0
    for leaf in _leaves(sys, where):
        for index in [...] if entries is None else entries:
            size = leaf[index].size
            part = value[at : at + size].reshape(leaf[index].shape)
            leaf, at = leaf.at[index].set(part.astype(leaf.dtype)), at + size
        new.append(leaf)
    single = not isinstance(where(sys), tuple | list)
    return eqx.tree_at(where, sys, new[0] if single else tuple(new))


def labels_of(sys: System, where: Where, entries: Entries | None) -> list[str]:
    """Return the index of each chosen entry, such as `[0]` or `[1,2]`; with several
    arrays, their paths before it."""
    leaves = _leaves(sys, where)
    paths = {id(x): jtu.keystr(path) for path, x in jtu.tree_leaves_with_path(sys)}
    out = []
    for leaf in leaves:
        if id(leaf) not in paths:
            raise ValueError(
                "`where` must return unchanged arrays of the robot, such as "
                "`sys.links.mass`; select entries with `entries`."
            )
        path = paths[id(leaf)] if len(leaves) > 1 else ""
        places = np.arange(leaf.size).reshape(leaf.shape)
        chosen = [places] if entries is None else [places[index] for index in entries]
        for place in np.concatenate([np.ravel(x) for x in chosen] or [[]]):
            index = np.unravel_index(int(place), leaf.shape)
            out.append(f"{path}[{','.join(map(str, index))}]")
    if not out:
        raise ValueError(
            "`where` and `entries` select nothing. Select at least one entry of the "
            "robot."
        )
    return out


def _leaves(sys: System, where: Where) -> list:
    chosen = where(sys)
    return list(chosen) if isinstance(chosen, tuple | list) else [chosen]


def check_arrays(name: str, sys: System, where: Where) -> None:
    """Raise `ValueError` unless `where` selects arrays."""
    for leaf in _leaves(sys, where):
        if not eqx.is_array_like(leaf) or isinstance(leaf, bool | int):
            raise ValueError(
                f"Unknown {name!r}: `where` must select arrays of numbers of the robot, such "
                f"as `lambda s: s.links.mass`, got {leaf!r}."
            )


class Signals(eqx.Module):
    """Corrections of commands and sensors by channel; `"ctrl"` are the commands.

    **Arguments:**

    - `gains`, `biases`: one number per column. `delays`: s.
    - `run_biases`: one row per run, in sorted order of `Recording.run`, and a last row of
        zeros for other runs.
    - `num_runs`: number of runs of the fit.
    """

    gains: dict[str, Array] = eqx.field(default_factory=dict)
    biases: dict[str, Array] = eqx.field(default_factory=dict)
    delays: dict[str, Array] = eqx.field(default_factory=dict)
    run_biases: dict[str, Array] = eqx.field(default_factory=dict)
    num_runs: int = eqx.field(static=True, default=0)


class Model(NamedTuple):
    """Everything that parameters describe: the robot, and its signals."""

    sys: System
    signals: Signals


class AbstractUnknown(eqx.Module):
    """One or more numbers that are to be found."""

    if TYPE_CHECKING:
        # Type checkers would take an `AbstractVar` for the first argument of subclasses.
        prior: ClassVar[AbstractPrior | None]
        transform: ClassVar[AbstractTransform]
    else:
        prior: eqx.AbstractVar[AbstractPrior | None]
        transform: eqx.AbstractVar[AbstractTransform]

    @abc.abstractmethod
    def labels(self, name: str, sys: System, widths: Widths) -> tuple[str, ...]:
        """Return a name for each value."""

    @abc.abstractmethod
    def initial_values(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        """Return the values to start from.

        **Raises:** `ValueError` that names a value which cannot be a start.
        """

    @abc.abstractmethod
    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        """Put the values into the robot or its signals."""

    @abc.abstractmethod
    def inactive(self, mask: System) -> np.ndarray | None:
        """Pick, from a mask of parameters without influence, the entries of this
        unknown; None if it is not part of the robot."""

    def start(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        """Return the free numbers to start from.

        **Arguments:**

        - `name`: name of the unknown in messages.
        - `sys`, `widths`: the robot as given, and the columns of each channel.

        **Raises:** `ValueError` that names a value which cannot be a start.
        """
        values = self.initial_values(name, sys, widths)
        for label, number in zip(self.labels(name, sys, widths), values, strict=True):
            if not np.isfinite(number):
                raise ValueError(
                    f"Unknown {name!r}: the initial value of {label} must be finite, got "
                    f"{number}."
                )
            problem = self.transform.problem(float(number))
            if problem is not None:
                raise ValueError(f"Unknown {name!r}: {label} {problem}.")
        return self.transform.free(values)

    def values(self, free: Float[Array, " n"]) -> Float[Array, " values"]:
        """Compute the values in their own units."""
        return self.transform.value(free)


def parts_of(free: Float[Array, " p"], sizes: tuple[int, ...]) -> list[Array]:
    """Split the free numbers by unknown."""
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return [free[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def applied(
    sys: System,
    unknowns: tuple[AbstractUnknown, ...],
    sizes: tuple[int, ...],
    free: Float[Array, " p"],
    num_runs: int = 0,
) -> Model:
    """Return a robot and its signals with these parameters."""
    model = Model(sys, Signals(num_runs=num_runs))
    for unknown, part in zip(unknowns, parts_of(free, sizes), strict=True):
        model = unknown.apply(model, part)
    return model


class Leaves(AbstractUnknown):
    """Entries of arrays of the robot; made by `Positive`, `Bounded` and `Unbounded`."""

    where: Where = eqx.field(static=True)
    transform: AbstractTransform
    entries: Entries | None = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    initial: float | None = eqx.field(static=True)
    prior: AbstractPrior | None = None

    def labels(self, name: str, sys: System, widths: Widths) -> tuple[str, ...]:
        names = labels_of(sys, self.where, self.entries)
        if self.shared or len(names) == 1:
            return (name,)
        return tuple(f"{name}{index}" for index in names)

    def initial_values(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        check_arrays(name, sys, self.where)
        value = np.asarray(values_of(sys, self.where, self.entries), float)
        if self.initial is not None:
            value = np.full_like(value, self.initial)
        if not self.shared:
            return value
        if np.ptp(value) > 1e-9 * np.abs(value).max():
            raise ValueError(
                f"Unknown {name!r} is shared, but its entries start at different values "
                f"{value}. Pass `initial`, or use `Tied` for a common factor."
            )
        return value[:1]

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        value = self.values(free)
        if self.shared:
            count = values_of(model.sys, self.where, self.entries).shape[0]
            value = jnp.broadcast_to(value, (count,))
        sys = replaced(model.sys, self.where, self.entries, value)
        return model._replace(sys=sys)

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

    @property
    def transform(self) -> AbstractTransform:
        """The transform from the parameter to the coordinate of the fit."""
        return Log()

    def labels(self, name: str, sys: System, widths: Widths) -> tuple[str, ...]:
        return (name,)

    def initial_values(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        check_arrays(name, sys, self.where)
        if not np.any(np.asarray(values_of(sys, self.where, self.entries))):
            raise ValueError(
                f"Unknown {name!r} scales numbers that are all zero, so it has no "
                "influence. Select other numbers with `where` or `entries`."
            )
        return np.ones(1)

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        old = jnp.asarray(values_of(model.sys, self.where, self.entries))
        sys = replaced(model.sys, self.where, self.entries, old * self.values(free))
        return model._replace(sys=sys)

    def inactive(self, mask: System) -> np.ndarray | None:
        found = np.asarray(values_of(mask, self.where, self.entries), bool)
        return np.array([found.all()])


class Custom(AbstractUnknown):
    """Numbers that change the robot through a function.

    **Arguments:**

    - `change`: `(sys, value) -> sys`, differentiable in `value`, an array of one axis.
        Recompiles if it is another function, so define it once.
    - `initial`: start, one number or several.
    - `lower`, `upper`: bounds; without them every number is allowed.
    - `prior`: prior of the values.
    """

    change: Callable[[System, Array], System] = eqx.field(static=True)
    initial: tuple[float, ...] = eqx.field(
        static=True, converter=lambda x: tuple(np.ravel(x).tolist())
    )
    lower: float = eqx.field(static=True, default=-np.inf)
    upper: float = eqx.field(static=True, default=np.inf)
    prior: AbstractPrior | None = None

    @property
    def transform(self) -> AbstractTransform:
        """The transform from the parameter to the coordinate of the fit."""
        return Box(self.lower, self.upper)

    def labels(self, name: str, sys: System, widths: Widths) -> tuple[str, ...]:
        count = len(self.initial)
        return (name,) if count == 1 else tuple(f"{name}[{k}]" for k in range(count))

    def initial_values(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        return np.asarray(self.initial)

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        return model._replace(sys=self.change(model.sys, free))

    def inactive(self, mask: System) -> np.ndarray | None:
        return None


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
    return Leaves(where, Log(), entries, shared, initial, prior)


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
    return Leaves(where, Box(lower, upper), entries, shared, initial, prior)


def Unbounded(
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
    return Leaves(where, Identity(), entries, shared, initial, prior)
