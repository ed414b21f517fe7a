"""Shared data of the checks of one environment: programs, states and values."""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._rollout import rollout
from .._trajectory import Trajectory
from ..envs import AbstractEnv, ResetOptions, Timestep
from ..model import State
from ._gradients import Function
from ._tools import counted_jit, double_precision


STEPS = 20
"""Number of steps of the rollout."""


@counted_jit
def reset(env, key):
    """Reset, compiled; environments of the same structure share the program."""
    return env.reset(key)


@counted_jit
def step(env, state, action):
    """Take a step, compiled."""
    return env.step(state, action)


@eqx.filter_jit
def _start(env, key, options):
    return env.reset(key, options)


def _report(action, state, env):
    _, timestep = env.step(state, action)
    return timestep.obs, timestep.reward


class RandomPolicy(eqx.Module):
    """A policy of random actions within the range of an environment."""

    env: AbstractEnv

    def __call__(self, obs: Any, key: PRNGKeyArray) -> Float[Array, " nu"]:
        return random_actions(self.env, key, ())


class EnvKit:
    """An environment, and quantities that are computed when a check first needs
    them."""

    def __init__(self, env: AbstractEnv, build: Callable[[], Any] | None):
        self.env, self.build = env, build
        self.keys = jr.split(jr.key(0), 3)

    @ft.cached_property
    def actions(self) -> Float[Array, "3 nu"]:
        """Random actions within the range, or between -1 and 1 if it is infinite."""
        return random_actions(self.env, self.keys[0], (3,))

    @ft.cached_property
    def first(self) -> tuple[Any, Timestep]:
        """State and timestep of a reset."""
        return reset(self.env, self.keys[0])

    @ft.cached_property
    def path(self) -> list[tuple[Any, Timestep]]:
        """Three steps after `first`, one by one."""
        return self.follow(self.env, self.first[0])

    def follow(self, env: AbstractEnv, state: Any) -> list[tuple[Any, Timestep]]:
        """Take steps with `actions` from a state, in an environment of the same
        structure."""
        out = []
        for action in self.actions:
            state, timestep = step(env, state, action)
            out.append((state, timestep))
        return out

    @ft.cached_property
    def trajectory(self) -> Trajectory:
        """A rollout from `first` with random actions."""
        policy = RandomPolicy(self.env)
        return rollout(
            self.env, policy, self.keys[1], STEPS, start=self.first, throw=False
        )

    @ft.cached_property
    def shapes(self) -> tuple[tuple[Any, Timestep], tuple[Any, Timestep]]:
        """Shapes of a reset and of a step."""
        return shapes_of(self.env)

    @ft.cached_property
    def started(self) -> tuple[State, tuple[Any, Timestep]]:
        """Coordinates and velocities that no key produces, and the result of a reset
        with them."""
        physics = self.env.physics(self.path[0][0])
        qd = physics.qd + jnp.asarray(0.125, physics.qd.dtype)
        found = _start(self.env, self.keys[0], ResetOptions(physics.q, qd))
        return State(physics.q, qd, physics.act), found

    @ft.cached_property
    def derivatives(self) -> Function:
        """Observation and reward of a step as a function of the action, the state and
        the parameters of the environment, in double precision, with derivatives."""
        with double_precision() as convert:
            env, (state, _) = convert((self.env, self.path[0]))
            return Function.of(_report, convert(self.actions[1]), state, env)

    @ft.cached_property
    def at_rest(self) -> Function:
        """The same at the start of an episode, with zero action."""
        with double_precision() as convert:
            env, (state, _) = convert((self.env, self.first))
            return self.derivatives.at(convert(jnp.zeros(env.sys.nu)), state, env)


def shapes_of(env: AbstractEnv) -> tuple[tuple[Any, Timestep], tuple[Any, Timestep]]:
    """Return shapes of a reset and of a step of an environment, without compilation."""
    first = eqx.filter_eval_shape(lambda env, key: env.reset(key), env, jr.key(0))
    action = jax.ShapeDtypeStruct((env.sys.nu,), env.sys.dt.dtype)
    next_of = lambda env, state, action: env.step(state, action)
    return first, eqx.filter_eval_shape(next_of, env, first[0], action)


def random_actions(
    env: AbstractEnv, key: PRNGKeyArray, batch: tuple[int, ...]
) -> Float[Array, "... nu"]:
    """Draw actions inside the range of an environment, away from its bounds."""
    dtype = env.sys.dt.dtype
    share = jr.uniform(key, (*batch, env.sys.nu), dtype, 0.1, 0.9)
    low, high = jnp.broadcast_to(env.action_range, (env.sys.nu, 2)).astype(dtype).T
    endless = ~(jnp.isfinite(low) & jnp.isfinite(high))
    low, high = jnp.where(endless, -1.0, low), jnp.where(endless, 1.0, high)
    line = lambda x: jnp.broadcast_to(x, share.shape)
    return line(low) + line(high - low) * share
