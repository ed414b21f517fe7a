import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ..model import System
from ..model._fields import as_array


Where = Callable[[System], Any]
"""Says which numbers of a robot are meant: `lambda sys: sys.links.mass`, or a tuple of
such."""


class AbstractRandomizer(eqx.Module):
    """A random change of the numbers of a robot."""

    @abc.abstractmethod
    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        """The changed robot.

        **Raises:** `ValueError` naming the number, if what was asked for does not fit it.
        """


class Chain(AbstractRandomizer):
    """One change after the other, each with a key of its own."""

    parts: tuple[Callable[[PRNGKeyArray, System], System], ...]

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        for k, part in enumerate(self.parts):
            sys = part(jr.fold_in(key, k), sys)
        return sys


class Uniform(AbstractRandomizer):
    """Numbers between two bounds; see `uniform` and `scale`."""

    where: Where = eqx.field(static=True)
    low: Float[Array, "..."] = eqx.field(converter=as_array)
    high: Float[Array, "..."] = eqx.field(converter=as_array)
    factor: bool = eqx.field(static=True)
    shared: bool = eqx.field(static=True)

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        def draw(key, name, leaf):
            low = _fit("low", self.low, name, leaf)
            high = _fit("high", self.high, name, leaf)
            _check_order(name, self.low, self.high)
            shape = () if self.shared else leaf.shape
            share = jr.uniform(key, shape, leaf.dtype)
            value = low + share * (high - low)
            return jnp.broadcast_to(leaf * value if self.factor else value, leaf.shape)

        return _replaced(key, sys, self.where, draw, self.shared)


class Gaussian(AbstractRandomizer):
    """Normal noise; see `gaussian`."""

    where: Where = eqx.field(static=True)
    scale: Float[Array, "..."] = eqx.field(converter=as_array)
    shared: bool = eqx.field(static=True)

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        def draw(key, name, leaf):
            scale = _fit("scale", self.scale, name, leaf)
            shape = () if self.shared else leaf.shape
            return leaf + scale * jr.normal(key, shape, leaf.dtype)

        return _replaced(key, sys, self.where, draw, self.shared)


class Choice(AbstractRandomizer):
    """One out of several values; see `choice`."""

    where: Where = eqx.field(static=True)
    values: Float[Array, "number ..."] = eqx.field(converter=as_array)

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        number = self.values.shape[0]

        def draw(key, name, leaf):
            value = self.values[jr.randint(key, (), 0, number)]
            return jnp.broadcast_to(_fit("values", value, name, leaf), leaf.shape)

        return _replaced(key, sys, self.where, draw, True)


class Masses(AbstractRandomizer):
    """Masses and inertias together; see `masses`."""

    low: Float[Array, "..."] = eqx.field(converter=as_array)
    high: Float[Array, "..."] = eqx.field(converter=as_array)
    shared: bool = eqx.field(static=True)

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        mass = sys.links.mass
        low = _fit("low", self.low, ".links.mass", mass)
        high = _fit("high", self.high, ".links.mass", mass)
        _check_order(".links.mass", self.low, self.high)
        share = jr.uniform(key, () if self.shared else mass.shape, mass.dtype)
        factor = jnp.broadcast_to(low + share * (high - low), mass.shape)
        new = mass * factor, sys.links.inertia * factor[..., None]
        return eqx.tree_at(lambda sys: (sys.links.mass, sys.links.inertia), sys, new)


def uniform(where: Where, low: Any, high: Any, *, shared: bool = False) -> Uniform:
    """Numbers drawn uniformly from `low` to `high`.

    **Arguments:**

    - `where`: which numbers, as for `eqx.tree_at`: `lambda sys: sys.geoms.friction`; a
        tuple for several at once. Recompiles if it is another function, so define it
        once.
    - `low`, `high`: bounds that broadcast to these numbers; array leaves of the result.
    - `shared`: whether all of them get the same draw, instead of one each.
    """
    return Uniform(where, low, high, False, shared)


def scale(where: Where, low: Any, high: Any, *, shared: bool = False) -> Uniform:
    """Numbers times a factor that is drawn uniformly from `low` to `high`.

    **Arguments:** as of `uniform`. To scale masses, see `masses`.
    """
    return Uniform(where, low, high, True, shared)


def gaussian(where: Where, scale: Any, *, shared: bool = False) -> Gaussian:
    """Numbers plus normal noise of standard deviation `scale`.

    **Arguments:** as of `uniform`.
    """
    return Gaussian(where, scale, shared)


def choice(where: Where, values: Any) -> Choice:
    """Numbers out of a list, each entry of which is as likely.

    **Arguments:**

    - `where`: as of `uniform`; several places get the same entry.
    - `values`: of which the first axis is that of the entries.
    """
    return Choice(where, values)


def masses(low: Any, high: Any, *, shared: bool = False) -> Masses:
    """Links of another density: masses and inertias times the same factors, drawn
    uniformly from `low` to `high`.

    **Arguments:** as of `uniform`; `shared`: whether all links get the same factor.
    """
    return Masses(low, high, shared)


def chain(*parts: Callable[[PRNGKeyArray, System], System]) -> Chain:
    """One change after the other. Any function `(key, sys) -> sys` may take part."""
    return Chain(parts)


def _replaced(key, sys: System, where: Where, draw: Callable, shared: bool) -> System:
    chosen = where(sys)
    single = not isinstance(chosen, tuple | list)
    leaves = [chosen] if single else list(chosen)
    new = []
    for k, (name, leaf) in enumerate(zip(_names(sys, leaves), leaves, strict=True)):
        own = key if shared else jr.fold_in(key, k)
        new.append(draw(own, name, leaf))
    return eqx.tree_at(where, sys, new[0] if single else tuple(new))


def _names(sys: System, leaves: Sequence[Any]) -> list[str]:
    """Where in the robot these numbers stand."""
    paths = {id(x): jtu.keystr(path) for path, x in jtu.tree_leaves_with_path(sys)}
    for leaf in leaves:
        if id(leaf) not in paths:
            raise ValueError(
                "`where` must return arrays of the robot as they are, such as "
                f"`sys.links.mass`, but returned {leaf!r}."
            )
    return [paths[id(leaf)] for leaf in leaves]


def _fit(bound: str, value, name: str, leaf):
    if value.ndim > leaf.ndim or any(
        n not in (1, m) for n, m in zip(value.shape[::-1], leaf.shape[::-1])
    ):
        raise ValueError(
            f"`{bound}` for `sys{name}` has shape {value.shape}, which does not broadcast "
            f"to its shape {leaf.shape}."
        )
    value = value.astype(leaf.dtype)
    return value.reshape((1,) * (leaf.ndim - value.ndim) + value.shape)


def _check_order(name: str, low, high) -> None:
    if isinstance(low, Tracer) or isinstance(high, Tracer):
        return
    if not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(
            f"`low` = {low} is not below `high` = {high} for `sys{name}`: a uniform draw "
            "needs low <= high."
        )
