"""Sliders that change parameters of a robot, and the compiled functions of the viewer.

The numbers of the sliders are arguments of `reset`, `step`, `see` and `contact_forces`, so
that moving a slider compiles nothing. All of them act on several robots.
"""

import abc
import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from .._policies import AbstractController, renewed
from ..envs import AbstractEnv, ResetOptions, Timestep
from ..kinematics import forward
from ..model import System
from ..model.pairs import frictions
from ..render.cameras import place, Placed
from ..wrappers import AbstractConversion, episode_robot, nested_envs


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


class ScaleSlider(AbstractSlider):
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


class ValueSlider(AbstractSlider):
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


def _check_range(slider: ScaleSlider | ValueSlider) -> None:
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
        "gravity, m/s²": ValueSlider(
            lambda s: s.gravity, min(-20.0, 2.0 * down), max(5.0, 2.0 * down), 2
        ),
        "mass ×": ScaleSlider(lambda s: (s.links.mass, s.links.inertia), 0.2, 3.0),
    }
    if sys.geoms.kinds:
        out["friction ×"] = ScaleSlider(frictions, 0.0, 3.0)
    if np.any(np.asarray(sys.joints.damping)):
        out["damping ×"] = ScaleSlider(lambda s: s.joints.damping, 0.0, 10.0)
    if sys.nu:
        out["actuator gear ×"] = ScaleSlider(lambda s: s.actuators.gear, 0.0, 3.0)
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
                f"The slider {name!r} must be a `ScaleSlider(...)` or a `ValueSlider(...)`, got "
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
                "Choose a range that contains it, an `index`, or `ScaleSlider`."
            )


class Mode(enum.Enum):
    """Source of the actions."""

    SLIDERS = 0
    RANDOM = 1
    POLICY = 2


class Setup(eqx.Module):
    """The constants of a simulation.

    - `env`: environment of one robot.
    - `sliders`: sliders over parameters of `env.sys`.
    - `policy`: function `(obs, key) -> action`, or a controller.
    - `randomize`: function `(key, sys) -> sys`, drawn once per robot and reset.
    """

    env: AbstractEnv
    sliders: tuple[AbstractSlider, ...] = ()
    policy: Callable[[Any, Any], Any] | AbstractController | None = None
    randomize: Callable[[Any, System], System] | None = None


class Robots(eqx.Module):
    """Several robots at one time; all arrays have an axis of robots in front.

    - `changed`: parameters that `Setup.randomize` has drawn.
    - `state`, `timestep`: state of the environment and report of the last step.
    - `action`: action that is held.
    - `memory`: memory of a controller; None before its first step in a recording.
    """

    changed: System
    state: Any
    timestep: Timestep
    action: Float[Array | np.ndarray, "*robot nu"]
    memory: Any = None


class Seen(NamedTuple):
    """Poses of shapes and of first links.

    - `placed`: centers, axes and sizes of shapes.
    - `root`: position of the first link.
    """

    placed: Placed
    root: Float[Array | np.ndarray, "*robot 3"]


@eqx.filter_jit
def reset(
    setup: Setup,
    values: Float[Array, " nslider"],
    keys: Key[Array, " robot"],
    start: ResetOptions | None = None,
) -> Robots:
    """Draw parameters and a first state for each key."""

    def one(key):
        key_sys, key_state = jr.split(key)
        changed = _draw(setup, key_sys)
        env = _adjusted(setup, values, changed)
        state, timestep = env.reset(key_state, start)
        action = jnp.zeros(env.sys.nu, env.physics(state).q.dtype)
        memory = _first_memory(setup, env, state, key_state)
        return Robots(changed, state, timestep, action, memory)

    return jax.vmap(one)(keys)


@eqx.filter_jit
def step(
    setup: Setup,
    values: Float[Array, " nslider"],
    robots: Robots,
    ctrl: Float[Array, " nu"],
    mode: Int[Array, ""],
    keys: Key[Array, " robot"],
) -> Robots:
    """Take a control step with actions of a `Mode`. The memory of a controller changes
    only in steps in which it acts, and is initialized in new episodes."""
    policy = setup.policy

    def one(now, key):
        env, obs = _adjusted(setup, values, now.changed), now.timestep.obs
        memory = now.memory
        if memory is None:
            memory = _first_memory(setup, env, now.state, key)

        def act():
            if isinstance(policy, AbstractController):
                new, action = policy.act(memory, env.physics(now.state), obs, key)
                return new, action.astype(ctrl.dtype)
            assert policy is not None
            return memory, policy(obs, key).astype(ctrl.dtype)

        choices = [
            lambda: (memory, ctrl),
            lambda: (memory, _random_action(env, ctrl, key)),
        ]
        if policy is not None:
            choices.append(act)
        memory, action = lax.switch(mode, choices)
        state, timestep = env.step(now.state, action)
        if isinstance(policy, AbstractController):
            again = jr.fold_in(key, 1)
            memory = renewed(policy, env, memory, state, timestep, again)
        return Robots(now.changed, state, timestep, action, memory)

    return jax.vmap(one)(robots, keys)


def _first_memory(setup: Setup, env: AbstractEnv, state, key) -> Any:
    """Return the memory of a controller in a first state; None for a function."""
    if not isinstance(setup.policy, AbstractController):
        return None
    return setup.policy.init(env.physics(state), jr.fold_in(key, 1))


@eqx.filter_jit
def replace(old: Robots, new: Robots, where: Bool[Array, " robot"]) -> Robots:
    """Return robots of which those that are marked are replaced."""

    def choose(x, y):
        mark = where.reshape(where.shape + (1,) * (x.ndim - 1))
        return jnp.where(mark, y, x)

    return jtu.tree_map(choose, old, new)


@eqx.filter_jit
def see(setup: Setup, values: Float[Array, " nslider"], robots: Robots) -> Seen:
    """Compute the poses of all shapes."""

    def one(now):
        env = _adjusted(setup, values, now.changed)
        sys, q = episode_robot(env, now.state), env.physics(now.state).q
        root = forward(sys, q).pos[0] if sys.nlink else jnp.zeros(3, q.dtype)
        return Seen(place(sys, q), root)

    return jax.vmap(one)(robots)


@eqx.filter_jit
def contact_forces(
    setup: Setup, values: Float[Array, " nslider"], robots: Robots
) -> tuple[Float[Array, "robot ncon 3"], Float[Array, "robot ncon 3"]]:
    """Compute contact points and forces on the second shape, N."""

    def one(now):
        env = _adjusted(setup, values, now.changed)
        ctrl = now.action
        for layer in nested_envs(env):
            if isinstance(layer, AbstractConversion):
                ctrl = layer.convert(ctrl)
        state = env.physics(now.state)
        found = env.pipeline.contacts(episode_robot(env, now.state), state, ctrl)
        return found.pos, found.force

    return jax.vmap(one)(robots)


def _draw(setup: Setup, key) -> System:
    """Draw the random parameters, with None in place of all others."""
    old = setup.env.sys
    new = old if setup.randomize is None else setup.randomize(key, old)
    return jtu.tree_map(lambda x, y: None if x is y else jnp.asarray(y), old, new)


def _adjusted(setup: Setup, values, changed: System) -> AbstractEnv:
    """Return the environment with the robot set by sliders and random parameters."""
    sys = apply_sliders(setup.sliders, eqx.combine(changed, setup.env.sys), values)
    return eqx.tree_at(lambda env: env.sys, setup.env, sys)


def _random_action(env: AbstractEnv, ctrl, key):
    """Draw an action uniformly between the bounds; between -1 and 1 without bounds."""
    low, high = env.action_range.astype(ctrl.dtype).T
    low = jnp.where(jnp.isfinite(low), low, -1.0)
    high = jnp.where(jnp.isfinite(high), high, 1.0)
    return low + jr.uniform(key, ctrl.shape, ctrl.dtype) * (high - low)
