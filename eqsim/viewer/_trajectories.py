"""Conversion of trajectories to moments."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float

from .._trajectory import Trajectory
from ..envs import AbstractEnv
from ..model import System
from ..pipelines import AbstractPipeline
from ._free_robot import free_robot, FreeRobot, single
from ._physics import Robots
from ._session import Moment


def as_environment(
    target: System | AbstractEnv, pipeline: AbstractPipeline | None = None
) -> AbstractEnv:
    """Return an environment of one robot.

    **Arguments:**

    - `target`: an environment, which is returned, or a robot, which moves without a task.
    - `pipeline`: physics of a robot; by default `Generalized()`.

    **Raises:** `TypeError` if `target` is neither; `ValueError` if it is a batch.
    """
    if isinstance(target, System):
        return free_robot(target, pipeline)
    if isinstance(target, AbstractEnv):
        single(target.sys)
        return target
    raise TypeError(
        f"`robot` must be a `System` or an environment, got {type(target).__name__}."
    )


def moments_of(env: AbstractEnv, trajectory: Trajectory) -> list[Moment]:
    """Return the moments of a rollout, of one environment or of several.

    Steps that no environment has taken are left out.
    """
    time_axis = np.asarray(trajectory.timestep.reward).ndim - 1
    whole = (
        trajectory.state,
        eqx.tree_at(lambda t: t.obs, trajectory.timestep, trajectory.obs),
        trajectory.action,
    )
    arrays = _robots_first(whole, time_axis)
    valid = _robots_first(trajectory.valid, time_axis)
    length = int(np.flatnonzero(valid.any(axis=0)).max(initial=0)) + 1
    # No parameters are sampled again: the state of a random robot has its parameters.
    changed = jtu.tree_map(lambda _: None, env.sys)
    make = lambda parts: Robots(changed, *parts)
    return _moments(arrays, make, length, float(env.dt))


def moments_of_q(
    env: FreeRobot, q: Float[np.ndarray, "*batch time nq"], dt: float
) -> list[Moment]:
    """Return moments of a robot without a task at coordinates `q`, at rest."""
    rows = np.asarray(q, env.sys.dt.dtype).reshape(
        math.prod(q.shape[:-2]), *q.shape[-2:]
    )
    begin = lambda q: env.begin(env.pipeline.init(env.sys, q))
    begun = eqx.filter_jit(jax.vmap(jax.vmap(begin)))(rows)
    action = np.zeros((*rows.shape[:2], env.sys.nu), rows.dtype)
    changed = jtu.tree_map(lambda _: None, env.sys)
    make = lambda parts: Robots(changed, *parts)
    arrays = jtu.tree_map(np.asarray, (*begun, action))
    return _moments(arrays, make, rows.shape[1], dt)


def _robots_first(tree: Any, time_axis: int) -> Any:
    """Return arrays with one axis of robots, then time."""

    def shaped(x):
        x = np.asarray(x)
        # Not -1: arrays may be empty.
        robots = math.prod(x.shape[:time_axis])
        return x.reshape(robots, *x.shape[time_axis:])

    return jtu.tree_map(shaped, tree)


def _moments(arrays: Any, make: Callable, length: int, dt: float) -> list[Moment]:
    pick = lambda k: jtu.tree_map(lambda x: x[:, k], arrays)
    return [Moment(k * dt, make(pick(k))) for k in range(length)]


def recorded_moments(
    robot: System | AbstractEnv, trajectory: Any, dt: float | None
) -> tuple[AbstractEnv, list[Moment]]:
    """Return the environment, and the moments of a trajectory; none without one.

    **Raises:** `ValueError` if the trajectory does not fit the robot.
    """
    env = as_environment(robot)
    if trajectory is None:
        return env, []
    if isinstance(trajectory, Trajectory):
        if isinstance(robot, System):
            raise ValueError(
                "`trajectory` is a rollout in an environment, but `robot` is a `System`. Pass "
                "the environment."
            )
        return env, moments_of(env, trajectory)
    q = np.asarray(trajectory)
    if q.ndim < 2 or q.shape[-1] != env.sys.nq or not q.shape[-2]:
        raise ValueError(
            f"`trajectory` must have shape (..., time, {env.sys.nq}), as the robot has "
            f"so many coordinates, got {q.shape}."
        )
    free = free_robot(env.sys, env.pipeline)
    return free, moments_of_q(free, q, float(env.dt) if dt is None else dt)
