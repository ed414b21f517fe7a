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
from ..model.arrays import as_array


Where = Callable[[System], Any]
"""Selection of parameters of a robot: `lambda sys: sys.links.mass`, or a function that
returns a tuple of arrays."""


class AbstractRandomizer(eqx.Module):
    """A random change of parameters of a robot."""

    @abc.abstractmethod
    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        """Return the changed robot.

        **Raises:** `ValueError` with the name of the parameter, if the distribution
        does not fit it.
        """


class Chain(AbstractRandomizer):
    """Several randomizations in sequence, each with its own key."""

    parts: tuple[Callable[[PRNGKeyArray, System], System], ...]

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        for k, part in enumerate(self.parts):
            sys = part(jr.fold_in(key, k), sys)
        return sys


class Uniform(AbstractRandomizer):
    """Uniformly distributed values or factors; see `uniform` and `scale`."""

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
    """Additive normal noise; see `gaussian`."""

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
    """One of several values; see `choice`."""

    where: Where = eqx.field(static=True)
    values: Float[Array, "number ..."] = eqx.field(converter=as_array)

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        number = self.values.shape[0]

        def draw(key, name, leaf):
            value = self.values[jr.randint(key, (), 0, number)]
            return jnp.broadcast_to(_fit("values", value, name, leaf), leaf.shape)

        return _replaced(key, sys, self.where, draw, True)


class Masses(AbstractRandomizer):
    """Masses and inertias scaled together; see `masses`."""

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
    """Draw parameters uniformly from `low` to `high`.

    **Arguments:**

    - `where`: selects the parameters as in `eqx.tree_at`: `lambda sys:
        sys.geoms.friction`; may return a tuple. A different function object recompiles,
        so define it once.
    - `low`, `high`: bounds, broadcast to the parameters; array leaves of the result.
    - `shared`: true to use the same draw for all entries instead of one per entry.
    """
    return Uniform(where, low, high, False, shared)


def scale(where: Where, low: Any, high: Any, *, shared: bool = False) -> Uniform:
    """Multiply parameters by factors drawn uniformly from `low` to `high`.

    **Arguments:** as for `uniform`. To scale masses, see `masses`.
    """
    return Uniform(where, low, high, True, shared)


def gaussian(where: Where, scale: Any, *, shared: bool = False) -> Gaussian:
    """Add normal noise with standard deviation `scale` to parameters.

    **Arguments:** as for `uniform`.
    """
    return Gaussian(where, scale, shared)


def choice(where: Where, values: Any) -> Choice:
    """Choose parameters from a list of values with equal probability.

    **Arguments:**

    - `where`: selection of parameters, see `uniform`; all get the same entry.
    - `values`: the values, along the first axis.
    """
    return Choice(where, values)


def masses(low: Any, high: Any, *, shared: bool = False) -> Masses:
    """Scale masses and inertias of links by common factors, drawn uniformly from `low`
    to `high`.

    **Arguments:** as for `uniform`; `shared`: true to use the same factor for all
    links.
    """
    return Masses(low, high, shared)


def chain(*parts: Callable[[PRNGKeyArray, System], System]) -> Chain:
    """Apply randomizations in sequence. Any functions `(key, sys) -> sys` can be
    combined."""
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
    """Return the paths of the selected parameters in the robot."""
    paths = {id(x): jtu.keystr(path) for path, x in jtu.tree_leaves_with_path(sys)}
    for leaf in leaves:
        if id(leaf) not in paths:
            raise ValueError(
                "`where` must return arrays of the robot, unchanged, such as "
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
            f"`low` must not exceed `high` in a uniform draw, got low = {low} and high "
            f"= {high} for `sys{name}`."
        )
