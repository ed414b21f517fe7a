"""Compiled functions of environments."""

import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax

from eqsim import AbstractEnv, ResetOptions, Timestep

from ._build import Start
from ._v5 import state_infos, term_infos, velocity_infos


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

    - `step_infos`: infos that only a step has, by key: reward terms, velocities.
    - `state_infos`: infos that a reset has, too: positions, descriptor.
    - `final_obs`, `final_infos`: observation and `state_infos` before a reset within
        the step.
    """

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    step_infos: dict[str, Any]
    state_infos: dict[str, Any]
    final_obs: Any = None
    final_infos: Any = None


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
    report = _report(env, state, timestep, {})
    return Running(key, state, jnp.zeros((), jnp.int32)), report


def step(env: AbstractEnv, now: Running, action: Any) -> tuple[Running, Report]:
    """Take one step of one environment."""
    state, timestep = env.step(now.state, action)
    infos = velocity_infos(env, now.state, state) | term_infos(env, timestep.terms)
    report = _report(env, state, timestep, infos)
    return Running(now.key, state, now.count + 1), report


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

    - `seen`: observations and `state_infos` of all environments.
    """

    def fresh():
        new, report = resets(env, now.key, start)
        pick = lambda mask, new, old: jtu.tree_map(
            lambda x, y: lax.select(mask, x, y), new, old
        )
        return jax.vmap(pick)(
            mask, (new, (report.obs, report.state_infos)), (now, seen)
        )

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
    last = report.obs, report.state_infos
    mask = report.terminated | report.truncated
    now, (obs, infos) = resets_where(env, now, last, mask)
    return now, report._replace(
        obs=obs,
        state_infos=infos,
        final_obs=last[0],
        final_infos=last[1],
    )


def steps_or_reset(
    env: AbstractEnv, now: Running, action: Any, limit: Any, over: Any
) -> tuple[Running, Report]:
    """Take one step of each environment, or start the next episode where `over` is
    true."""
    now, report = steps(env, now, action, limit)
    seen = report.obs, report.state_infos
    now, (obs, infos) = resets_where(env, now, seen, over)
    return now, report._replace(
        obs=obs,
        reward=jnp.where(over, jnp.zeros_like(report.reward), report.reward),
        terminated=report.terminated & ~over,
        truncated=report.truncated & ~over,
        state_infos=infos,
    )


def _report(
    env: AbstractEnv, state: Any, timestep: Timestep, step_infos: dict[str, Any]
) -> Report:
    infos = state_infos(env, state)
    if timestep.descriptor is not None:
        infos["descriptor"] = timestep.descriptor
    ends = timestep.terminated, timestep.truncated
    return Report(timestep.obs, timestep.reward, *ends, step_infos, infos)
