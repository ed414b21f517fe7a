"""The robot and common parts of the quadruped's tasks."""

import dataclasses
import xml.etree.ElementTree as ET

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from eqsim import State, System
from eqsim.kinematics import forward
from eqsim.model import JointKind, SensorKind

from ._models import edited_model, find, remove
from ._starts import lift_without_contact
from ._task import index
from ._tolerance import tolerance
from .sigmoids import linear


def quadruped_model(
    floor: float | None = None, ball: bool = False, terrain: bool = False
) -> System:
    """Return the system of `quadruped.xml`, by default on flat ground.

    **Arguments:**

    - `floor`: half width of the ground as it is drawn, m; None for that of the file.
    - `ball`: true for walls and a ball.
    - `terrain`: true for a height field and rangefinders. The terrain is flat; see
        `RandomBowl`. Each shape has at most 8 contacts with it
        (`sys.height_fields.capacity`).
    """
    sys = edited_model(_edit, "quadruped.xml", floor, ball, terrain)
    if not terrain:
        return sys
    # A ball on a grid point touches 6 triangles.
    fields = dataclasses.replace(sys.height_fields, capacity=(8,))
    return eqx.tree_at(lambda s: s.height_fields, sys, fields)


def _edit(root: ET.Element, floor: float | None, ball: bool, terrain: bool) -> None:
    if floor is not None:
        find(root, "geom", "floor").set("size", f"{floor} {floor} 0.5")
    if not terrain:
        remove(root, "geom", "terrain")
        remove(root, "hfield", "terrain")
        for part in root.findall("sensor"):
            for ray in part.findall("rangefinder"):
                part.remove(ray)
    if not ball:
        for wall in ("wall_px", "wall_py", "wall_nx", "wall_ny"):
            remove(root, "geom", wall)
        remove(root, "body", "ball")
        remove(root, "site", "target")


def torso_of(sys: System) -> int:
    """Return the link `torso`."""
    return index(sys.links.names, "torso", "link")


def standing(sys: System, place, quat) -> Float[Array, " nq"]:
    """Return coordinates of the robot at a position and orientation, above the
    ground."""
    joints = sys.joints
    root = joints.q_starts[index(joints.names, "root", "joint")]
    q = joints.ref.at[root : root + 2].set(place).at[root + 3 : root + 7].set(quat)
    return lift_without_contact(sys, q, root + 2)


def upright(sys: System, state: State, least: float = 1.0) -> Float[Array, ""]:
    """Return the degree to which the torso is upright, from 0 (upside down) to 1.

    **Arguments:**

    - `least`: smallest cosine of the angle from upright for the value 1.
    """
    cosine = forward(sys, state.q).rot[torso_of(sys), 2, 2]
    return tolerance(cosine, (least, jnp.inf), 1.0 + least, linear, 0.0)


def of_kinds(
    sys: System, values: dict[str, Float[Array, " size"]], *kinds: SensorKind
) -> Float[Array, " total"]:
    """Return the values of all sensors of some kinds, in the order of the file."""
    sensors = zip(sys.sensors.names, sys.sensors.kinds)
    return jnp.concatenate([values[name] for name, kind in sensors if kind in kinds])


def common_parts(
    sys: System, state: State, values: dict[str, Float[Array, " size"]]
) -> dict[str, Float[Array, "..."]]:
    """Return the parts of the observation of all tasks.

    **Arguments:**

    - `values`: values of the sensors.
    """
    joints = sys.joints
    hinges = [k for k, kind in enumerate(joints.kinds) if kind is JointKind.REVOLUTE]
    q, qd = (
        x[jnp.asarray([starts[k] for k in hinges])]
        for x, starts in ((state.q, joints.q_starts), (state.qd, joints.v_starts))
    )
    forces = of_kinds(sys, values, SensorKind.FORCE, SensorKind.TORQUE)
    return {
        "egocentric_state": jnp.concatenate([q, qd, state.act]),
        "torso_velocity": values["velocimeter"],
        "torso_upright": forward(sys, state.q).rot[torso_of(sys), 2, 2],
        "imu": of_kinds(sys, values, SensorKind.ACCELEROMETER, SensorKind.GYRO),
        "force_torque": jnp.arcsinh(forces),
    }
