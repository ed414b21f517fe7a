"""Compiled functions of environments, and infos from their reports."""

import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax import lax

from eqsim import AbstractEnv, ResetOptions, Timestep
from eqsim.wrappers import next_episode

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
    env: AbstractEnv, key: Any, start: Start | None = None, last: Any = None
) -> tuple[Running, Report]:
    """Start the next episode of a sequence.

    - `start`: reset options, which replace those of a curriculum.
    - `last`: last state of the episode before, on which a curriculum depends.
    """
    key, key_reset = jr.split(key)
    options = None if start is None else ResetOptions(**start._asdict())
    if last is None:
        state, timestep = env.reset(key_reset, options)
    else:
        state, timestep = next_episode(env, key_reset, last, options)
    report = _report(env, state, timestep, {})
    return Running(key, state, jnp.zeros((), jnp.int32)), report


def step(env: AbstractEnv, now: Running, action: Any) -> tuple[Running, Report]:
    """Take one step of one environment."""
    state, timestep = env.step(now.state, action)
    infos = velocity_infos(env, now.state, state) | term_infos(env, timestep.terms)
    report = _report(env, state, timestep, infos)
    return Running(now.key, state, now.count + 1), report


def resets(
    env: AbstractEnv, key: Any, start: Start | None = None, last: Any = None
) -> tuple[Running, Report]:
    """Start the next episode of each environment."""
    axes = None if start is None else Start(0, 0, 0, 0, None, None)
    return jax.vmap(ft.partial(reset, env), (0, axes, 0))(key, start, last)


def resets_where(
    env: AbstractEnv,
    now: Running,
    seen: Any,
    mask: Any,
    start: Any = None,
    last: Any = None,
) -> tuple[Running, Any]:
    """Start the next episode of the environments in `mask`.

    - `seen`: observations and `state_infos` of all environments.
    - `last`: last states of their episodes, on which a curriculum depends.
    """

    def fresh():
        new, report = resets(env, now.key, start, last)
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
    now, (obs, infos) = resets_where(env, now, last, mask, None, now.state)
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
    before, (now, report) = now.state, steps(env, now, action, limit)
    seen = report.obs, report.state_infos
    now, (obs, infos) = resets_where(env, now, seen, over, None, before)
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


def single_infos(report: Report) -> dict[str, Any]:
    """Return the infos of one environment: numbers and arrays."""
    infos = report.state_infos | report.step_infos
    return {
        name: float(x) if np.ndim(x) == 0 else np.array(x) for name, x in infos.items()
    }


def vector_infos(
    state_infos: dict[str, Any],
    step_infos: dict[str, Any],
    described: np.ndarray,
    acted: np.ndarray,
) -> dict[str, Any]:
    """Return infos of states for the environments that are `described`, and infos of
    steps for those that `acted`; zero for others. Names that no environment reports are
    left out."""
    infos: dict[str, Any] = {}
    for found, mask in ((state_infos, described), (step_infos, acted)):
        for name, values in found.items() if np.any(mask) else ():
            dtype = np.float64 if np.ndim(values) == 1 else None
            infos[name] = np.array(values, dtype)
            infos[name][~mask] = 0
            infos[f"_{name}"] = mask.copy()
    return infos


def final_infos(report: Report, done: np.ndarray) -> dict[str, Any]:
    """Return the final infos of the episodes that are `done`."""
    if not np.any(done):
        return {}
    obs = np.full(done.shape, None, object)
    for k in np.flatnonzero(done):
        obs[k] = np.array(report.final_obs[k])
    return {
        "final_obs": obs,
        "_final_obs": done.copy(),
        "final_info": vector_infos(report.final_infos, report.step_infos, done, done),
        "_final_info": done.copy(),
    }
