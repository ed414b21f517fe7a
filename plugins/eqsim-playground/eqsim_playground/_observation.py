"""Observations of legged robots."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import State

from ._reading import LeggedRobot, LeggedSensors
from ._task import number, Observation


class JoystickNoise(eqx.Module):
    """Scales of the uniform noise of the observation.

    **Arguments:**

    - `joint_pos`, `joint_vel`: noise of joint angles, rad, and velocities, rad/s; one
        number, or one for each joint.
    - `gyro`, `gravity`, `linvel`: noise of the gyroscope, rad/s, the direction of gravity, and the
        velocity, m/s.
    """

    joint_pos: Float[Array, "..."] = number(0.03)
    joint_vel: Float[Array, "..."] = number(1.5)
    gyro: Float[Array, ""] = number(0.2)
    gravity: Float[Array, ""] = number(0.05)
    linvel: Float[Array, ""] = number(0.1)


def sensed(
    seen: LeggedSensors, robot: State, default: Float[Array, " nu"]
) -> dict[str, Float[Array, "..."]]:
    """Return the parts of an observation that depend on the robot alone, by name.

    **Arguments:**

    - `default`: joint angles that are subtracted from `angles`, rad.
    """
    q, qd = robot.q, robot.qd
    return {
        "velocity": seen.velocity,
        "gyro": seen.gyro,
        "gravity": seen.gravity,
        "angles": q[7:] - default,
        "rates": qd[6:],
        "joints": q[7:],
        "accelerometer": seen.accelerometer,
        "world_rate": seen.world_rate,
        "height": q[2:3],
        "imu_height": seen.imu_position[2:],
        "torque": seen.torque,
        "contact": seen.contact.astype(q.dtype),
        "feet_velocity": jnp.ravel(seen.feet_velocity),
    }


def observed(
    key: PRNGKeyArray,
    about: LeggedRobot,
    parts: dict[str, Float[Array, "..."]],
    noise: JoystickNoise,
    privileged: bool,
) -> Observation:
    """Return an observation: the parts of `about.observation` with noise.

    **Arguments:**

    - `parts`: all parts by name.
    - `privileged`: true for a dictionary with `state` and `privileged_state`.
    """
    scales = {
        "velocity": noise.linvel,
        "gyro": noise.gyro,
        "gravity": noise.gravity,
        "angles": noise.joint_pos,
        "rates": noise.joint_vel,
    }
    chosen = {name: parts[name] for name in about.observation}
    value = jnp.concatenate(list(chosen.values()))
    none = jnp.zeros((), value.dtype)
    full = [
        jnp.broadcast_to(scales.get(name, none), x.shape) for name, x in chosen.items()
    ]
    draw = jr.uniform(key, value.shape, value.dtype, -1.0, 1.0)
    state = value + jnp.concatenate(full) * draw
    if not privileged:
        return state
    exact = [parts[name] for name in about.privileged]
    return {"state": state, "privileged_state": jnp.concatenate([state, *exact])}
