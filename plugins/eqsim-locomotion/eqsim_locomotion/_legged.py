"""Functions that the tasks of legged robots share."""

from collections.abc import Iterable, Mapping

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, scan, State, System
from eqsim.envs import Deployment, ObservationPart
from eqsim.pipelines import Solved

from ._robots import Names, Robot


def default_frame_skip(robot: Robot) -> int:
    """Return the number of time steps in a control step of 0.02 s."""
    return max(round(0.02 / robot.dt), 1)


def unbounded_actions(sys: System) -> Float[Array, "nu 2"]:
    """Return an infinite range for each action."""
    endless = jnp.asarray([[-jnp.inf, jnp.inf]], sys.dt.dtype)
    return jnp.broadcast_to(endless, (sys.nu, 2))


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


def control_step(
    pipeline: AbstractPipeline,
    sys: System,
    robot: State,
    ctrl: Float[Array, " nu"],
    frame_skip: int,
) -> tuple[State, Solved]:
    """Take one control step, and return the solution at its last time step."""
    # The first time step is not in the scan, as the solution is part of the carry.
    step = lambda now, _: (pipeline.advance(sys, now[0], ctrl), None)
    first = pipeline.advance(sys, robot, ctrl)
    return scan(step, first, length=frame_skip - 1)[0]


def describe_servos(
    sys: System,
    names: Names,
    pose: Float[Array, " nu"],
    action_scale: Float[Array, " nu"],
    period: Float[Array, ""],
    observation: Iterable[ObservationPart],
) -> Deployment:
    """Return the deployment of a task whose actions are targets of servos about a pose.

    **Arguments:**

    - `pose`, `action_scale`: see `Deployment`. `period`: control step, s.
    - `observation`: parts of the observation, in order.
    """
    actuators = sys.actuators
    listed = lambda x: tuple(float(value) for value in x)
    return Deployment(
        root=sys.links.names[names.root],
        joints=names.joints,
        default_pose=listed(pose),
        action_scale=listed(action_scale),
        stiffness=listed(-actuators.bias[:, 1]),
        damping=listed(-actuators.bias[:, 2]),
        torque_limit=listed(actuators.force_range[:, 1]),
        period=float(period),
        observation=tuple(observation),
    )


def joint_ranges(
    sys: System, names: Names, share: float | Float[Array, ""]
) -> tuple[Float[Array, " nu"], Float[Array, " nu"]]:
    """Return lower and upper limits of a share of the range of each joint, about its middle,
    rad; infinite for joints without limits."""
    low, high = sys.joints.range[jnp.asarray(names.places)].T
    middle, half = 0.5 * (low + high), 0.5 * share * (high - low)
    limited = jnp.asarray([sys.joints.limited[k] for k in names.places])
    half = jnp.where(limited, half, jnp.inf)
    return middle - half, middle + half


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
