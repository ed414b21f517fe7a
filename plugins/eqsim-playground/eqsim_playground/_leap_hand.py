"""A LEAP hand that holds a cube: model, sensor values, and initial states."""

import xml.etree.ElementTree as ET
from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, State, System

from ._models import add_force_sensors, edited_model
from ._task import index, with_sensors


TIPS = "th_tip", "if_tip", "mf_tip", "rf_tip"
"""Names of the fingertips: thumb, index, middle and ring finger."""
_SCENE = "manipulation/leap_hand/xmls/scene_mjx_cube.xml"


def leap_model() -> System:
    """Return the right LEAP hand and the cube of Playground's `scene_mjx_cube.xml`.

    A sensor of the force of each actuator, named `<actuator>_force`, is added. The box
    that shows the goal is at its position in the keyframe `home`; fingers can touch it.
    """
    return edited_model(_SCENE, place_goal)


def leap_model_without_goal() -> System:
    """Return the same model, with the box that shows the goal far away."""
    return edited_model(_SCENE, hide_goal)


def place_goal(root: ET.Element) -> None:
    """Place the goal as in the keyframe `home`."""
    add_force_sensors(root)
    _goal(root).set("pos", _home(root).get("mpos", ""))


def hide_goal(root: ET.Element) -> None:
    """Place the goal far away."""
    add_force_sensors(root)
    _goal(root).set("pos", "-100 -100 -100")


def _goal(root: ET.Element) -> ET.Element:
    return next(x for x in root.iter("body") if x.get("name") == "goal")


def _home(root: ET.Element) -> ET.Element:
    return next(x for x in root.iter("key") if x.get("name") == "home")


class LeapReading(NamedTuple):
    """Sensor values of the hand and the cube.

    - `angles`, `rates`: angles and velocities of the joints of the hand, rad and rad/s.
    - `torque`: forces of the actuators, N m.
    - `tips`: positions of the fingertips in the frame of the palm, m.
    - `offset`: position of the palm minus that of the cube, m.
    - `cube`, `quat`: position, m, and orientation of the cube.
    - `cube_velocity`, `cube_rate`: velocity, m/s, and angular velocity of the cube in
        world axes, rad/s.
    """

    angles: Float[Array, "16"]
    rates: Float[Array, "16"]
    torque: Float[Array, "16"]
    tips: Float[Array, "12"]
    offset: Float[Array, "3"]
    cube: Float[Array, "3"]
    quat: Float[Array, "4"]
    cube_velocity: Float[Array, "3"]
    cube_rate: Float[Array, "3"]


def read_leap(
    pipeline: AbstractPipeline, sys: System, robot: State, ctrl: Float[Array, "16"]
) -> LeapReading:
    """Read the sensors of the hand in a state.

    **Raises:** `ValueError` if the robot lacks a sensor, or the pipeline does not
    support sensors.
    """
    values = with_sensors(pipeline).sensors(sys, robot, ctrl)
    names = sys.sensors.names
    read = lambda name: values[names[index(names, name, "sensor")]]
    forces = [read(f"{name}_force") for name in sys.actuators.names]
    cube = read("cube_position")
    return LeapReading(
        angles=robot.q[:16],
        rates=robot.qd[:16],
        torque=jnp.concatenate(forces),
        tips=jnp.concatenate([read(f"{tip}_position") for tip in TIPS]),
        offset=read("palm_position") - cube,
        cube=cube,
        quat=read("cube_orientation"),
        cube_velocity=read("cube_linvel"),
        cube_rate=read("cube_angvel"),
    )


def default_pose(sys: System) -> Float[Array, "16"]:
    """Return the joint angles of the hand in the keyframe `home`, rad."""
    return sys.keyframe("home").q[:16]


def random_hand(
    sys: System, key: PRNGKeyArray, spread: Float[Array, ""]
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Draw an initial state: angles with normal noise, within the range of the servos,
    and the cube above the palm in any orientation; at rest.

    **Arguments:**

    - `spread`: standard deviation of the angles, rad.
    """
    key_hand, key_place, key_turn = jr.split(key, 3)
    angles = default_pose(sys)
    low, high = sys.actuators.ctrl_range.T
    noise = spread * jr.normal(key_hand, angles.shape, angles.dtype)
    place = sys.keyframe("home").q[16:19]
    place = place + jr.uniform(key_place, (3,), place.dtype, -0.01, 0.01)
    quat = random_quaternion(key_turn, place.dtype)
    q = jnp.concatenate([jnp.clip(angles + noise, low, high), place, quat])
    return q, jnp.zeros(sys.nv, q.dtype)


def random_quaternion(key: PRNGKeyArray, dtype) -> Float[Array, "4"]:
    """Draw a uniformly distributed orientation.

    ??? cite "Reference"
        Shoemake, *Uniform random rotations*, 1992.
    """
    u, v, w = jr.uniform(key, (3,), dtype)
    one, two = 2.0 * jnp.pi * v, 2.0 * jnp.pi * w
    a, b = jnp.sqrt(1.0 - u), jnp.sqrt(u)
    parts = a * jnp.sin(one), a * jnp.cos(one), b * jnp.sin(two), b * jnp.cos(two)
    return jnp.stack(parts)
