"""Sensor values of a Go1 for the joystick task."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from eqsim import AbstractPipeline, State, System
from eqsim.kinematics import site_poses

from ._models import add_force_sensors, edited_model
from ._task import index, with_sensors


FEET = "FR", "FL", "RR", "RL"
"""Names of the feet: front and rear, right and left."""


class Go1Reading(NamedTuple):
    """Sensor values of a Go1.

    - `gyro`, `velocity`, `accelerometer`: angular velocity (rad/s), velocity (m/s) and
        acceleration against free fall (m/s$^2$) of the IMU, in its axes.
    - `gravity`: direction of gravity in the axes of the IMU.
    - `up`: vertical axis of the IMU, in the world.
    - `world_velocity`, `world_rate`: velocity (m/s) and angular velocity (rad/s) of the
        IMU, in world axes.
    - `feet_velocity`: velocities of the feet in world axes, m/s.
    - `feet_height`: heights of the feet, m.
    - `contact`: true for feet that touch the floor.
    - `torque`: forces of the actuators, N m.
    """

    gyro: Float[Array, "3"]
    velocity: Float[Array, "3"]
    accelerometer: Float[Array, "3"]
    gravity: Float[Array, "3"]
    up: Float[Array, "3"]
    world_velocity: Float[Array, "3"]
    world_rate: Float[Array, "3"]
    feet_velocity: Float[Array, "4 3"]
    feet_height: Float[Array, "4"]
    contact: Bool[Array, "4"]
    torque: Float[Array, " nu"]


def go1_model() -> System:
    """Return the Go1 of Playground's flat terrain, of which only the feet touch the
    floor.

    A sensor of the force of each actuator, named `<actuator>_force`, is added.
    """
    scene = "locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml"
    return edited_model(scene, add_force_sensors)


def read_go1(
    pipeline: AbstractPipeline,
    sys: System,
    robot: State,
    ctrl: Float[Array, " nu"],
    external: Float[Array, "nlink 6"] | None = None,
) -> Go1Reading:
    """Read the sensors of a Go1 in a state.

    **Raises:** `ValueError` if the robot lacks a sensor or a site, or the pipeline does
    not support sensors.
    """
    values = with_sensors(pipeline).sensors(sys, robot, ctrl, external)
    names = sys.sensors.names
    read = lambda name: values[names[index(names, name, "sensor")]]
    feet = lambda name: jnp.stack([read(name.format(foot)) for foot in FEET])
    sites, poses = sys.sites.names, site_poses(sys, robot.q)
    heights = [poses.pos[index(sites, foot, "site"), 2] for foot in FEET]
    forces = [read(f"{name}_force") for name in sys.actuators.names]
    return Go1Reading(
        gyro=read("gyro"),
        velocity=read("local_linvel"),
        accelerometer=read("accelerometer"),
        gravity=-poses.rot[index(sites, "imu", "site"), 2],
        up=read("upvector"),
        world_velocity=read("global_linvel"),
        world_rate=read("global_angvel"),
        feet_velocity=feet("{}_global_linvel"),
        feet_height=jnp.stack(heights),
        contact=feet("{}_floor_found")[:, 0] > 0.0,
        torque=jnp.concatenate(forces),
    )
