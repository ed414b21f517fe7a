"""Random changes of robots.

In this order: the kinds of randomizers with the functions that make them, a fixed batch of
robots, and the presets of eqsim's environments.
"""

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Key, PRNGKeyArray

from ..envs import AbstractEnv
from ..model import Actuators, Gain, System
from ..model.arrays import as_array
from ..model.changes import changed_parameters, with_same_structure
from ..model.pairs import frictions


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
    """Uniformly distributed values or factors; see `uniform` and `uniform_factor`."""

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


class Motors(AbstractRandomizer):
    """Randomization of the strength of actuators; see `motors`."""

    low: Float[Array, ""] = eqx.field(converter=as_array)
    high: Float[Array, ""] = eqx.field(converter=as_array)

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        _check_order(".actuators", self.low, self.high)
        own, dtype = sys.actuators, sys.actuators.gain.dtype
        low, high = (x.astype(dtype) for x in (self.low, self.high))
        share = jr.uniform(jr.fold_in(key, 0), (sys.nactuator,), dtype)
        factor = low + share * (high - low)
        electric = np.array([gain is Gain.DC_MOTOR for gain in own.gains], bool)
        force = jnp.where(electric, 1.0, factor)
        outputs = np.repeat(np.arange(sys.nactuator), own.num_outputs)
        scaled: list[tuple[Callable, Array]] = [
            (lambda x: (x.gain, x.bias, x.force_range), force[:, None])
        ]
        if electric.any():
            gears = jnp.where(electric, factor, 1.0)[outputs, None]
            scaled.append((lambda x: (x.gear,), gears))
        for where, part in (
            (lambda x: (x.muscles.force, x.muscles.scale), own.muscles),
            (lambda x: (x.pids.integral_gain,), own.pids),
            (_discrete_gains, own.discrete_pids),
        ):
            if part is not None:
                scaled.append((where, force[np.array(part.owners, int)]))
        for where, by in scaled:
            own = eqx.tree_at(where, own, tuple(x * by for x in where(own)))
        return eqx.tree_at(lambda s: s.actuators, sys, own)


def _discrete_gains(own: Actuators):
    pids = own.discrete_pids
    assert pids is not None
    return pids.proportional, pids.integral, pids.derivative, pids.max_integral


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


def uniform_factor(
    where: Where, low: Any, high: Any, *, shared: bool = False
) -> Uniform:
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


def motors(low: Any, high: Any) -> Motors:
    """Scale the forces of each actuator by one factor, drawn uniformly from `low` to `high`:
    gains, largest forces and peak forces of muscles, so that setpoints of servos stay; gears
    of DC motors. Force models that do not use the force of their actuator are not scaled.

    **Arguments:**

    - `low`, `high`: bounds of the factors, numbers; array leaves of the result.
    """
    return Motors(low, high)


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


def batched_env(
    env: AbstractEnv,
    randomize: Callable[[jax.Array, System], System],
    key: Key[jax.Array, " batch"],
) -> tuple[AbstractEnv, Any]:
    """Draw one robot per key, and batch only the parameters that `randomize` changes.

    Shared parameters keep their shape, so compiled programs load them once instead of
    once per environment.

    ```python
    robots, axes = randomize.batched_env(env, randomize.masses(0.5, 2.0), keys)
    states, _ = eqx.filter_vmap(lambda env, key: env.reset(key), in_axes=(axes, 0))(
        robots, keys_reset
    )
    trajectory = eqsim.rollout(robots, policy, keys_rollout, 100, env_axes=axes)
    ```

    **Arguments:**

    - `env`: environment of one robot.
    - `randomize`: function `(key, sys) -> sys`. A parameter counts as unchanged if the
        returned robot contains the identical array object.
    - `key`: one key per environment.

    **Returns:** the environment with batched parameters, and its axes: a tree like the
    environment with 0 for batched arrays and None elsewhere, for `env_axes` of
    `eqsim.rollout` and `in_axes` of `eqx.filter_vmap`.

    **Raises:** `ValueError` if `randomize` changes a shape, a type or the structure of the
    robot, or no parameter at all.
    """
    sys = env.sys

    def draw(one):
        new = randomize(one, sys)
        new = with_same_structure(sys, new, "The robot that `randomize` returns")
        return changed_parameters(sys, new)

    changed = jax.vmap(draw)(key)
    if not jtu.tree_leaves(changed):
        raise ValueError(
            "`randomize` returns the robot unchanged, so there is nothing to batch. "
            "Return a changed copy, for instance by `eqx.tree_at`."
        )
    is_none = lambda x: x is None
    leaf_axes = jtu.tree_map(
        lambda x: None if x is None else 0, changed, is_leaf=is_none
    )
    shared = jtu.tree_map(lambda _: None, env)
    axes = eqx.tree_at(lambda e: e.sys, shared, leaf_axes, is_leaf=is_none)
    return eqx.tree_at(lambda e: e.sys, env, eqx.combine(changed, sys)), axes


def _damping(sys: System):
    return sys.joints.damping


def _gravity(sys: System):
    return sys.gravity


def _armature(sys: System):
    return sys.joints.armature


def _medium(sys: System):
    return sys.density, sys.viscosity


def _gear(sys: System):
    return sys.actuators.gear


# Environments without servos, whose robots carry fewer parameters by their gears alone.
_WITHOUT_SERVOS = (
    *("ant", "half_cheetah", "hopper", "humanoid", "humanoidstandup", "point_mass"),
    *("inverted_double_pendulum", "inverted_pendulum", "pusher", "reacher", "swimmer"),
    "walker2d",
)
_WITHOUT_GRAVITY = ("point_mass", "pusher", "reacher", "swimmer")
_WITHOUT_CONTACT = (
    "point_mass",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "reacher",
    "swimmer",
)


def presets(name: str = "") -> dict[str, AbstractRandomizer]:
    """Return the randomization presets of an environment, by name.

    `default` is moderate: masses (with inertias) by 20 %, damping by 30 %, forces of
    actuators by 15 %, friction by 40 %. `hard` uses factors up to about 2. `masses` and
    `motors` change one group of parameters; `gravity`, `friction` and `medium` do as
    well, and exist only for robots that they affect.

    **Arguments:**

    - `name`: name of the environment. Variants such as `ant_uni` have the presets of
        `ant`; environments of other packages have the general ones.
    """
    base = name.removesuffix("_uni").removesuffix("_omni")
    strength = motors
    if base in _WITHOUT_SERVOS:
        strength = functools.partial(uniform_factor, _gear)
    strengths, gravity = (
        strength(0.6, 1.4),
        uniform_factor(_gravity, 0.8, 1.2, shared=True),
    )
    single: dict[str, AbstractRandomizer] = {
        "masses": masses(0.5, 1.5),
        "motors": strengths,
    }
    slight = [
        masses(0.8, 1.2),
        uniform_factor(_damping, 0.7, 1.3),
        strength(0.85, 1.15),
    ]
    wide = [
        masses(0.5, 1.5),
        uniform_factor(_damping, 0.3, 2.0),
        uniform_factor(_armature, 0.5, 2.0),
    ]
    wide.append(strengths)
    if base not in _WITHOUT_GRAVITY:
        single["gravity"] = gravity
        wide.append(uniform_factor(_gravity, 0.9, 1.1, shared=True))
    if base not in _WITHOUT_CONTACT:
        single["friction"] = uniform_factor(frictions, 0.3, 2.0, shared=True)
        slight.append(uniform_factor(frictions, 0.6, 1.4, shared=True))
        wide.append(single["friction"])
    if base == "swimmer":
        single["medium"] = uniform_factor(_medium, 0.3, 2.0)
        slight.append(uniform_factor(_medium, 0.8, 1.2))
        wide.append(single["medium"])
    return single | {"default": chain(*slight), "hard": chain(*wide)}
