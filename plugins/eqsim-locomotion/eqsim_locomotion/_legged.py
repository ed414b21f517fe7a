"""Base class of tasks of legged robots, with their commands, servos and observations."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from eqsim import AbstractEnv, scan, State, System, Timestep
from eqsim.envs import Deployment, ObservationPart
from eqsim.model.arrays import as_array
from eqsim.pipelines import Solved
from eqsim.spatial import positive_part

from ._robots import Names, Robot


def as_arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the numbers of a dictionary, see `as_array`."""
    return {name: as_array(value) for name, value in values.items()}


def array(default: Any) -> Any:
    """Return a field for an array with a default value."""
    return eqx.field(converter=as_array, default=default)


def check_numbers(name: str, value: Any, accepted: Callable, expected: str) -> None:
    """Raise `ValueError` unless all values are finite and accepted. Skipped for traced
    values.

    **Arguments:**

    - `name`: name of the value in the message.
    - `value`: number or array; anything else passes.
    - `accepted`: function of an array that returns booleans.
    - `expected`: description of accepted values.
    """
    if isinstance(value, Tracer) or not eqx.is_array_like(value):
        return
    value = np.asarray(value)
    if not np.all(np.isfinite(value) & accepted(value)):
        raise ValueError(f"`{name}` must be {expected}, got {value.tolist()}.")


def check_positive(name: str, value: Any) -> None:
    """Raise `ValueError` unless all values are positive and finite, see `check_numbers`."""
    check_numbers(name, value, lambda x: x > 0.0, "positive")


class Commands(eqx.Module):
    """Velocity commands, redrawn at random times.

    Each entry of a command is uniform between `low` and `high`, or zero with a probability
    of its own, so that commands along one axis are as frequent as others; with probability
    `standing`, the whole command is zero. The time between commands is exponentially
    distributed.

    **Arguments:**

    - `low`, `high`: smallest and largest forward and lateral velocity, m/s, and yaw rate,
        rad/s.
    - `zero`: probabilities that an entry is zero.
    - `standing`: probability of a command to stand.
    - `mean_time`: mean time between commands, s.
    """

    low: Float[Array, "3"] = array((-1.0, -0.5, -1.0))
    high: Float[Array, "3"] = array((1.0, 0.5, 1.0))
    zero: Float[Array, "3"] = array((0.1, 0.5, 0.5))
    standing: Float[Array, ""] = array(0.1)
    mean_time: Float[Array, ""] = array(5.0)

    def __check_init__(self):
        for name, value in (("low", self.low), ("high", self.high)):
            check_numbers(f"Commands.{name}", value, np.isfinite, "finite")
        for name, value in (("zero", self.zero), ("standing", self.standing)):
            accepted = lambda x: (x >= 0.0) & (x <= 1.0)
            check_numbers(f"Commands.{name}", value, accepted, "between 0 and 1")
        check_positive("Commands.mean_time", self.mean_time)

    def scaled(self, speed: float | int) -> "Commands":
        """Return these commands with velocities multiplied by `speed`."""
        where = lambda commands: (commands.low, commands.high)
        return eqx.tree_at(where, self, (speed * self.low, speed * self.high))

    def draw(
        self, key: PRNGKeyArray, dt: Float[Array, ""]
    ) -> tuple[Float[Array, "3"], Int[Array, ""]]:
        """Draw a command, and the number of control steps of `dt` that it lasts."""
        # One draw: random numbers are a good part of the cost of a step.
        share = jr.uniform(key, (8,), self.low.dtype)
        value = self.low + (self.high - self.low) * share[:3]
        value = jnp.where(share[5:] < self.zero, 0.0, value)
        time = -self.mean_time * jnp.log1p(-share[4])
        steps = jnp.maximum(jnp.round(time / dt), 1.0).astype(jnp.int32)
        return jnp.where(share[3] < self.standing, 0.0, value), steps


def default_frame_skip(robot: Robot) -> int:
    """Return the number of time steps in a control step of 0.02 s."""
    return max(round(0.02 / robot.dt), 1)


def check_term(
    term: str, weights: Iterable[str], lacking: Iterable[str], needed: str
) -> None:
    """Raise `ValueError` if `weights` names a reward term whose needs the robot does not
    meet.

    **Arguments:**

    - `term`: name of the term.
    - `weights`: names of the terms of the task.
    - `lacking`: parts of the robot without what the term needs.
    - `needed`: description of what it needs.
    """
    lacking = list(lacking)
    if term in weights and lacking:
        raise ValueError(
            f"The reward term {term!r} needs {needed}, unlike "
            f"{', '.join(map(repr, lacking))}. Leave it out of `weights`, or change "
            "the robot."
        )


def check_torque_limits(sys: System, weights: Iterable[str]) -> None:
    """Raise `ValueError` if `weights` names the term `torques`, which divides by the torque
    limits, and an actuator has none."""
    pairs = zip(sys.actuators.names, sys.actuators.force_limited, strict=True)
    free = [name for name, limited in pairs if not limited]
    needed = "actuators with a torque limit (`forcerange`)"
    check_term("torques", weights, free, needed)


class AbstractLegged(AbstractEnv):
    """A task of a legged robot, whose actions are targets of servos."""

    frame_skip: eqx.AbstractVar[int]
    names: eqx.AbstractVar[Names]
    weights: eqx.AbstractVar[dict[str, Float[Array, ""]]]
    pose: eqx.AbstractVar[Float[Array, " nu"]]
    action_scale: eqx.AbstractVar[Float[Array, " nu"]]

    @property
    def dt(self) -> Float[Array, ""]:
        """Duration of a control step, s."""
        return self.sys.dt * self.frame_skip

    @property
    def action_range(self) -> Float[Array, "nu 2"]:
        """No bounds: targets are limited by the torques of the servos."""
        endless = jnp.asarray([[-jnp.inf, jnp.inf]], self.sys.dt.dtype)
        return jnp.broadcast_to(endless, (self.sys.nu, 2))

    def physics(self, state: Any) -> State:
        """Return the state of the robot."""
        return state.robot

    def advance(self, robot: State, ctrl: Float[Array, " nu"]) -> tuple[State, Solved]:
        """Take one control step, and return the solution at its last time step."""
        # The first time step is not in the scan, as the solution is part of the carry.
        step = lambda now, _: (self.pipeline.advance(self.sys, now[0], ctrl), None)
        first = self.pipeline.advance(self.sys, robot, ctrl)
        return scan(step, first, length=self.frame_skip - 1)[0]

    def joint_ranges(
        self, share: float | Float[Array, ""]
    ) -> tuple[Float[Array, " nu"], Float[Array, " nu"]]:
        """Return lower and upper limits of a share of the range of each joint, about its
        middle, rad; infinite for joints without limits."""
        joints, places = self.sys.joints, self.names.places
        low, high = joints.range[jnp.asarray(places)].T
        middle, half = 0.5 * (low + high), 0.5 * share * (high - low)
        limited = jnp.asarray([joints.limited[k] for k in places])
        half = jnp.where(limited, half, jnp.inf)
        return middle - half, middle + half

    def beyond(
        self, angles: Float[Array, " nu"], share: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        """Return how far joint angles are beyond `joint_ranges(share)`, rad."""
        low, high = self.joint_ranges(share)
        return positive_part(low - angles) + positive_part(angles - high)

    def torque_limit(self) -> Float[Array, " nu"]:
        """Return half the widths of the ranges of the torques, N m."""
        least, most = self.sys.actuators.force_range.T
        return 0.5 * (most - least)

    def describe(self, observation: Iterable[ObservationPart]) -> Deployment:
        """Return the deployment with the parts of an observation, in order."""
        actuators = self.sys.actuators
        listed = lambda x: tuple(float(value) for value in x)
        return Deployment(
            root=self.sys.links.names[self.names.root],
            joints=self.names.joints,
            default_pose=listed(self.pose),
            action_scale=listed(self.action_scale),
            stiffness=listed(-actuators.bias[:, 1]),
            damping=listed(-actuators.bias[:, 2]),
            torque_limit=listed(actuators.force_range[:, 1]),
            period=float(self.dt),
            observation=tuple(observation),
        )

    def first_report(self, obs: Float[Array, " nobs"]) -> Timestep:
        """Return the report of a reset."""
        zero, no = jnp.zeros((), obs.dtype), jnp.zeros((), bool)
        terms = {name: zero for name in self.weights}
        return Timestep(obs, zero, no, no, terms, ~no)

    def report(
        self,
        obs: Float[Array, " nobs"],
        known: Mapping[str, Callable[[Any], Float[Array, ""]]],
        now: Any,
        terminated: Bool[Array, ""],
    ) -> Timestep:
        """Return the report of a step, with the terms of `known` that have a weight."""
        terms = {
            name: weight * self.dt * known[name](now)
            for name, weight in self.weights.items()
        }
        total, no = jnp.sum(jnp.stack(list(terms.values()))), jnp.zeros((), bool)
        return Timestep(obs, total, terminated, no, terms, no)


def per_entry(
    names: tuple[str, ...],
    parts: Mapping[str, Float[Array, " _"]],
    table: Mapping[str, Float[Array, ""]],
    default: float,
) -> Float[Array, " nobs"]:
    """Return the number in `table` of the part that each entry of an observation is of."""
    number = lambda name, x: table.get(name, jnp.asarray(default, x.dtype))
    each = ((number(name, parts[name]), parts[name].shape) for name in names)
    return jnp.concatenate([jnp.broadcast_to(value, shape) for value, shape in each])


def with_noise(
    key: PRNGKeyArray | None,
    names: tuple[str, ...],
    parts: Mapping[str, Float[Array, " _"]],
    noise: Mapping[str, Float[Array, ""]],
) -> Float[Array, " nobs"]:
    """Concatenate parts of an observation, with uniform noise if there is a key for it.

    **Arguments:**

    - `names`: names of the parts, in order.
    - `parts`: all parts by name.
    - `noise`: half widths of the noise of parts; 0 for others.
    """
    value = jnp.concatenate([parts[name] for name in names])
    if key is None:
        return value
    draw = jr.uniform(key, value.shape, value.dtype, -1.0, 1.0)
    return value + per_entry(names, parts, noise, 0.0) * draw
