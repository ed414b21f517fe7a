"""Compiled functions of environments."""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax

from eqsim import AbstractEnv, ResetOptions, Timestep

from ._build import Start


class Running(NamedTuple):
    """State of one or many running environments.

    - `key`: key for the next episodes.
    - `count`: number of steps in this episode.
    """

    key: Any
    state: Any
    count: Any


class Report(NamedTuple):
    """Results of a step that Gymnasium needs.

    - `final_obs`, `final_descriptor`: observation and descriptor before a reset within
        the step.
    """

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    terms: dict[str, Any]
    descriptor: Any
    final_obs: Any = None
    final_descriptor: Any = None


class Program:
    """Compiled functions of an environment.

    Passing a tree of modules to a compiled function is slow, so it is flattened once.
    Environments that differ only in values share compiled programs.
    """

    def __init__(self, env: AbstractEnv):
        self._env = env
        leaves, treedef = jtu.tree_flatten(env)
        self._arrays = [x if eqx.is_array(x) else None for x in leaves]
        static = tuple(None if eqx.is_array(x) else x for x in leaves)
        self._static = _Static(treedef, static)

    def __call__(self, function: Callable, *args: Any) -> Any:
        """Call `function(env, *args)`, compiled once for each function and shapes."""
        return _call(function, self._static, self._arrays, *args)

    def __reduce__(self) -> tuple[type, tuple]:
        # The cached hash is valid only in this process.
        return Program, (self._env,)


class _Static:
    """Parts of an environment that are not arrays, with a cached hash."""

    def __init__(self, treedef: Any, leaves: tuple):
        self.treedef, self.leaves = treedef, leaves
        self._hash = hash((treedef, leaves))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, _Static) and (self.treedef, self.leaves) == (
            other.treedef,
            other.leaves,
        )


@ft.partial(jax.jit, static_argnums=(0, 1))
def _call(function: Callable, static: _Static, arrays: list, *args: Any) -> Any:
    pairs = zip(static.leaves, arrays, strict=True)
    leaves = [own if array is None else array for own, array in pairs]
    return function(jtu.tree_unflatten(static.treedef, leaves), *args)


def chain(env: AbstractEnv, words: Any) -> Any:
    """Create the initial key of a sequence of episodes."""
    return jr.fold_in(jr.key(words[0]), words[1])


def chains(env: AbstractEnv, words: Any) -> Any:
    """Create the initial keys of many environments."""
    return jax.vmap(ft.partial(chain, env))(words)


def reset(
    env: AbstractEnv, key: Any, start: Start | None = None
) -> tuple[Running, Report]:
    """Start the next episode of a sequence."""
    key, key_reset = jr.split(key)
    options = None if start is None else ResetOptions(**start._asdict())
    state, timestep = env.reset(key_reset, options)
    return Running(key, state, jnp.zeros((), jnp.int32)), _report(timestep)


def step(env: AbstractEnv, now: Running, action: Any) -> tuple[Running, Report]:
    """Take one step of one environment."""
    state, timestep = env.step(now.state, action)
    return Running(now.key, state, now.count + 1), _report(timestep)


def resets(
    env: AbstractEnv, key: Any, start: Start | None = None
) -> tuple[Running, Report]:
    """Start the next episode of each environment."""
    axes = None if start is None else Start(0, 0, 0, None)
    return jax.vmap(ft.partial(reset, env), (0, axes))(key, start)


def resets_where(
    env: AbstractEnv, now: Running, seen: Any, mask: Any, start: Any = None
) -> tuple[Running, Any]:
    """Start the next episode of the environments in `mask`.

    - `seen`: observations and descriptors of all environments.
    """

    def fresh():
        new, report = resets(env, now.key, start)
        pick = lambda mask, new, old: jtu.tree_map(
            lambda x, y: lax.select(mask, x, y), new, old
        )
        return jax.vmap(pick)(mask, (new, (report.obs, report.descriptor)), (now, seen))

    return lax.cond(jnp.any(mask), fresh, lambda: (now, seen))


def steps(
    env: AbstractEnv, now: Running, action: Any, limit: Any
) -> tuple[Running, Report]:
    """Take one step of each environment, without resets."""
    now, report = jax.vmap(ft.partial(step, env))(now, action)
    if limit is not None:
        truncated = report.truncated | (now.count >= limit)
        report = report._replace(truncated=truncated)
    return now, report


def steps_then_reset(
    env: AbstractEnv, now: Running, action: Any, limit: Any
) -> tuple[Running, Report]:
    """Take one step of each environment, and start the next episode where one has
    ended."""
    now, report = steps(env, now, action, limit)
    last = report.obs, report.descriptor
    mask = report.terminated | report.truncated
    now, (obs, descriptor) = resets_where(env, now, last, mask)
    return now, report._replace(
        obs=obs,
        descriptor=descriptor,
        final_obs=last[0],
        final_descriptor=last[1],
    )


def steps_or_reset(
    env: AbstractEnv, now: Running, action: Any, limit: Any, over: Any
) -> tuple[Running, Report]:
    """Take one step of each environment, or start the next episode where `over` is
    true."""
    now, report = steps(env, now, action, limit)
    seen = report.obs, report.descriptor
    now, (obs, descriptor) = resets_where(env, now, seen, over)
    return now, report._replace(
        obs=obs,
        reward=jnp.where(over, jnp.zeros_like(report.reward), report.reward),
        terminated=report.terminated & ~over,
        truncated=report.truncated & ~over,
        descriptor=descriptor,
    )


def _report(timestep: Timestep) -> Report:
    return Report(
        timestep.obs,
        timestep.reward,
        timestep.terminated,
        timestep.truncated,
        timestep.terms,
        timestep.descriptor,
    )
