"""Frames over time: a simulation with its history, or a recording.

`Session` holds the frames and moves between them. Below, a `System` becomes an environment
without a task, and trajectories become frames. Nothing here draws.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._trajectory import Trajectory
from ..envs import AbstractEnv, AbstractTask, ResetOptions
from ..envs.gymnasium_parts import physics
from ..model import State, System
from ..pipelines import AbstractPipeline
from ._physics import Mode, replace, reset, Robots, Setup, step


MOST_FRAMES = 2000
"""Frames of a simulation that are kept."""

# Seconds that one call of `tick` may simulate.
_BUDGET = 0.1


class Frame(NamedTuple):
    """Robots at one time, s."""

    time: float
    robots: Robots


class Session:
    """A simulation with its history, or a recording. Nothing in it draws.

    If `simulates` is true, the simulation continues from the current frame, and later
    frames are dropped; otherwise the frames are played in a loop.

    **Arguments:**

    - `setup`: environment, sliders, policy and random parameters.
    - `values`: numbers of the sliders.
    - `key`: a key of `jax.random.key`.
    - `count`: number of robots.
    - `recorded`: frames of a recording; by default one frame after a reset.
    """

    def __init__(
        self,
        setup: Setup,
        values: Float[np.ndarray, " nslider"],
        key: PRNGKeyArray,
        count: int,
        recorded: list[Frame] | None = None,
    ):
        self.setup, self.values, self.count = setup, np.array(values, float), count
        self.initial_values = self.values.copy()
        self.simulates = recorded is None
        self.playing, self.speed, self.restarts = True, 1.0, True
        self.mode = Mode.SLIDERS if setup.policy is None else Mode.POLICY
        self.ctrl = np.zeros(setup.env.sys.nu)
        self.dt = round(float(setup.env.dt), 6)
        self._key, self._draws, self._debt = key, 0, 0.0
        self.history = recorded or [Frame(0.0, self._reset(None))]
        self.index = 0

    @property
    def frame(self) -> Frame:
        """The frame that is shown."""
        return self.history[self.index]

    @property
    def parameters(self) -> Any:
        """Numbers of the sliders, as an argument of the compiled functions."""
        return jnp.asarray(self.values, self.setup.env.sys.dt.dtype)

    def tick(self, seconds: float) -> bool:
        """Let time pass, and return true if the frame is another one.

        **Arguments:**

        - `seconds`: time since the last call, s. A simulation that is slower than that
            falls behind, and does not catch up.
        """
        if not self.playing:
            return False
        before, end = self.frame, time.monotonic() + _BUDGET
        self._debt += seconds * self.speed
        while self._debt >= self._spacing() and time.monotonic() < end:
            self._debt -= self._spacing()
            self.advance()
        self._debt = min(self._debt, self._spacing())
        return self.frame is not before

    def advance(self) -> None:
        """Advance by one frame."""
        if not self.simulates:
            self.index = (self.index + 1) % len(self.history)
            return
        del self.history[self.index + 1 :]
        now = self.frame
        new = self._step(now.robots)
        self.history.append(Frame(round(now.time + self.dt, 6), new))
        if len(self.history) > MOST_FRAMES:
            del self.history[0]
        self.index = len(self.history) - 1

    def seek(self, when: float) -> None:
        """Pause at the frame that is nearest to a time, s."""
        times = [frame.time for frame in self.history]
        self.index = int(np.argmin(np.abs(np.array(times) - when)))
        self.playing, self._debt = False, 0.0

    def reset(self, keyframe: str | None = None) -> None:
        """Start again.

        **Arguments:**

        - `keyframe`: name of a keyframe of the robot; by default the first state of the
            environment. Its controls become those of the sliders.
        """
        options = None
        if keyframe is not None:
            key = self.setup.env.sys.keyframe(keyframe)
            options = ResetOptions(key.q, key.qd)
            self.ctrl = np.array(key.ctrl, float)
        if self.simulates:
            self.history = [Frame(0.0, self._reset(options))]
        self.index, self._debt = 0, 0.0

    def _spacing(self) -> float:
        if self.simulates or self.index + 1 >= len(self.history):
            return self.dt
        return max(self.history[self.index + 1].time - self.frame.time, 1e-6)

    def _reset(self, options: ResetOptions | None) -> Robots:
        return reset(self.setup, self.parameters, self._keys(), options)

    def _step(self, robots: Robots) -> Robots:
        dtype = robots.action.dtype
        new = step(
            self.setup,
            self.parameters,
            robots,
            jnp.asarray(self.ctrl, dtype),
            jnp.asarray(self.mode.value, jnp.int32),
            self._keys(),
        )
        # An environment that resets itself reports the end of the last episode.
        if self.restarts and new.timestep.final_obs is None:
            done = np.asarray(new.timestep.done)
            if done.any():
                new = replace(new, self._reset(None), jnp.asarray(done))
        return new

    def _keys(self) -> Any:
        self._draws += 1
        return jr.split(jr.fold_in(self._key, self._draws), self.count)


def single(sys: System) -> System:
    """Return the robot unchanged.

    **Raises:** `ValueError` if it is a batch.
    """
    if sys.dt.ndim:
        raise ValueError(
            f"`robot` must be a single robot, got a batch of shape {sys.dt.shape}. "
            "Pass the function that creates the others as `randomize`."
        )
    return sys


class FreeRobot(AbstractTask):
    """A robot without a task: episodes start at the reference pose and never end.

    **Arguments:**

    - `sys`, `pipeline`: the robot and its physics.
    - `frame_skip`: time steps in a control step.
    """

    sys: System = eqx.field(converter=single)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key: PRNGKeyArray) -> State:
        return self.pipeline.init(self.sys)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q, state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {"none": jnp.zeros((), state.q.dtype)}

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)


def free_robot(sys: System, pipeline: AbstractPipeline | None = None) -> FreeRobot:
    """Return a robot without a task whose control step takes about 10 ms."""
    skip = max(1, round(0.01 / float(single(sys).dt)))
    return FreeRobot(sys=sys, pipeline=pipeline, frame_skip=skip)


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


def frames_of(env: AbstractEnv, trajectory: Trajectory) -> list[Frame]:
    """Return the frames of a rollout, of one environment or of several.

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
    return _frames(arrays, make, length, float(env.dt))


def frames_of_q(
    env: FreeRobot, q: Float[np.ndarray, "*batch time nq"], dt: float
) -> list[Frame]:
    """Return frames of a robot without a task at coordinates `q`, at rest."""
    rows = np.asarray(q, env.sys.dt.dtype).reshape(
        math.prod(q.shape[:-2]), *q.shape[-2:]
    )
    begin = lambda q: env.begin(env.pipeline.init(env.sys, q))
    begun = eqx.filter_jit(jax.vmap(jax.vmap(begin)))(rows)
    action = np.zeros((*rows.shape[:2], env.sys.nu), rows.dtype)
    changed = jtu.tree_map(lambda _: None, env.sys)
    make = lambda parts: Robots(changed, *parts)
    arrays = jtu.tree_map(np.asarray, (*begun, action))
    return _frames(arrays, make, rows.shape[1], dt)


def _robots_first(tree: Any, time_axis: int) -> Any:
    """Return arrays with one axis of robots, then time."""

    def shaped(x):
        x = np.asarray(x)
        # Not -1: arrays may be empty.
        robots = math.prod(x.shape[:time_axis])
        return x.reshape(robots, *x.shape[time_axis:])

    return jtu.tree_map(shaped, tree)


def _frames(arrays: Any, make: Callable, length: int, dt: float) -> list[Frame]:
    pick = lambda k: jtu.tree_map(lambda x: x[:, k], arrays)
    return [Frame(k * dt, make(pick(k))) for k in range(length)]


def recorded_frames(
    robot: System | AbstractEnv, trajectory: Any, dt: float | None
) -> tuple[AbstractEnv, list[Frame]]:
    """Return the environment, and the frames of a trajectory; none without one.

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
        return env, frames_of(env, trajectory)
    q = np.asarray(trajectory)
    if q.ndim < 2 or q.shape[-1] != env.sys.nq or not q.shape[-2]:
        raise ValueError(
            f"`trajectory` must have shape (..., time, {env.sys.nq}), as the robot has "
            f"so many coordinates, got {q.shape}."
        )
    free = free_robot(env.sys, env.pipeline)
    return free, frames_of_q(free, q, float(env.dt) if dt is None else dt)
