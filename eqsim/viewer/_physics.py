"""The compiled functions of the viewer: numbers of sliders are arguments, so that moving a
slider compiles nothing."""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from .._controller import AbstractController, renewed
from ..envs import AbstractEnv, ResetOptions, Timestep
from ..kinematics import forward
from ..model import System
from ..render._shapes import place, Placed
from ..wrappers import AbstractConversion, episode_robot, nested_envs
from ._sliders import AbstractSlider, apply_sliders


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
