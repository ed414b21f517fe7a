"""Sensor values and observations of legged robots."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import site_poses

from ._models import add_force_sensors, edited_model
from ._task import index, number, Observation, with_sensors


class LeggedRobot(NamedTuple):
    """Names of a legged robot in Playground's files, and the layout of its task.

    - `scene`: file of the scene, below `mujoco_playground/_src`.
    - `keyframe`: name of the keyframe with the default pose.
    - `trunk`: link on which pushes act.
    - `imu`, `suffix`: site of the IMU, and the suffix of the names of its sensors.
    - `up`: sensor of the vertical axis of the trunk.
    - `feet`: sites of the feet.
    - `contacts`: contact sensors of each foot, of which one must report a contact.
    - `fatal`: contact sensors that terminate an episode.
    - `hips`, `knees`: joints with terms of their own.
    - `observation`, `privileged`: parts of `state`, and what `privileged_state` has after
        them.
    - `clipped`: true if the reward is clipped from below at 0.
    """

    scene: str
    keyframe: str
    trunk: str
    imu: str
    suffix: str
    up: str
    feet: tuple[str, ...]
    contacts: tuple[tuple[str, ...], ...]
    observation: tuple[str, ...]
    privileged: tuple[str, ...]
    clipped: bool
    fatal: tuple[str, ...] = ()
    hips: tuple[str, ...] = ()
    knees: tuple[str, ...] = ()


class LeggedSensors(NamedTuple):
    """Sensor values of a legged robot.

    - `gyro`, `velocity`, `accelerometer`: angular velocity (rad/s), velocity (m/s) and
        acceleration against free fall (m/s$^2$) of the IMU, in its axes.
    - `gravity`: direction of gravity in the axes of the IMU.
    - `up`: vertical axis of the trunk, in the world.
    - `world_velocity`, `world_rate`: velocity (m/s) and angular velocity (rad/s) of the
        IMU, in world axes.
    - `imu_position`: position of the IMU, m.
    - `feet_velocity`: velocities of the feet in world axes, m/s.
    - `feet_position`: positions of the feet, m.
    - `contact`: true for feet that touch the floor.
    - `torque`: forces of the actuators, N m.
    - `sensors`: all sensors by name.
    """

    gyro: Float[Array, "3"]
    velocity: Float[Array, "3"]
    accelerometer: Float[Array, "3"]
    gravity: Float[Array, "3"]
    up: Float[Array, "3"]
    world_velocity: Float[Array, "3"]
    world_rate: Float[Array, "3"]
    imu_position: Float[Array, "3"]
    feet_velocity: Float[Array, "nfeet 3"]
    feet_position: Float[Array, "nfeet 3"]
    contact: Bool[Array, " nfeet"]
    torque: Float[Array, " nu"]
    sensors: dict[str, Float[Array, "..."]]

    @property
    def feet_height(self) -> Float[Array, " nfeet"]:
        """Heights of the feet, m."""
        return self.feet_position[:, 2]

    def found(self, names: tuple[str, ...]) -> Bool[Array, ""]:
        """Test if one of several contact sensors reports a contact."""
        hits = [self.sensors[name][0] > 0.0 for name in names]
        return jnp.any(jnp.stack(hits)) if hits else jnp.zeros((), bool)


def legged_model(about: LeggedRobot) -> System:
    """Return the robot of a scene of Playground.

    A sensor of the force of each actuator, named `<actuator>_force`, is added.
    """
    return edited_model(about.scene, add_force_sensors)


def read_legged(
    about: LeggedRobot,
    pipeline: AbstractPipeline,
    sys: System,
    robot: State,
    ctrl: Float[Array, " nu"],
    external: Float[Array, "nlink 6"] | None = None,
) -> LeggedSensors:
    """Read the sensors of a robot in a state.

    **Raises:** `ValueError` if the robot lacks a sensor or a site, or the pipeline does
    not support sensors.
    """
    values = with_sensors(pipeline).sensors(sys, robot, ctrl, external)
    names = sys.sensors.names
    read = lambda name: values[names[index(names, name, "sensor")]]
    of_imu = lambda name: read(name + about.suffix)
    for name in about.fatal:
        read(name)
    sites, poses = sys.sites.names, site_poses(sys, robot.q)
    site = lambda name: index(sites, name, "site")
    touching = [
        jnp.any(jnp.stack([read(name)[0] > 0.0 for name in group]))
        for group in about.contacts
    ]
    forces = [read(f"{name}_force") for name in sys.actuators.names]
    return LeggedSensors(
        gyro=of_imu("gyro"),
        velocity=of_imu("local_linvel"),
        accelerometer=of_imu("accelerometer"),
        gravity=-poses.rot[site(about.imu), 2],
        up=read(about.up),
        world_velocity=of_imu("global_linvel"),
        world_rate=of_imu("global_angvel"),
        imu_position=poses.pos[site(about.imu)],
        feet_velocity=jnp.stack([read(f"{x}_global_linvel") for x in about.feet]),
        feet_position=jnp.stack([poses.pos[site(x)] for x in about.feet]),
        contact=jnp.stack(touching),
        torque=jnp.concatenate(forces),
        sensors=values,
    )


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
