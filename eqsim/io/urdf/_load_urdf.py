"""`load_urdf`, and what it adds to a robot: floating base, ground and actuators."""

import dataclasses
import fnmatch
import math
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..._errors import check_finite, check_numbers, check_type, listed
from ...model import System
from ..mjcf import load_mjcf, UnsupportedMJCF
from ..mjcf.mujoco_names import engine
from ..mjcf.sources import compile_source, read_spec
from ._description import Description, read_description
from ._mesh_files import MeshFiles


@dataclasses.dataclass(frozen=True)
class Motors:
    """Torque motors, one per joint, with the name of the joint.

    The control is the torque (N m) or force (N), limited by the joint's `effort`.

    **Arguments:**

    - `joints`: patterns of the names of driven joints, such as `("*_wheel",)`.
    """

    joints: str | Sequence[str] = ("*",)


@dataclasses.dataclass(frozen=True)
class Servos:
    """Position servos, one per joint, with the name of the joint.

    The control is the target position, within the limits of the joint, and the torque
    `stiffness * (ctrl - q) - damping * qd` is limited by the joint's `effort`. The
    integrator is `implicitfast`, which is stable for large gains, unless the file sets
    one.

    **Arguments:**

    - `stiffness`: N m/rad, or N/m. One number for all joints, or numbers by pattern of
        joint names: `{"*_knee": 60.0, "*": 40.0}`. The first pattern that matches counts;
        joints without one are not driven.
    - `damping`: N m s/rad, or N s/m, in the same form; zero without a match.
    """

    stiffness: float | Mapping[str, float]
    damping: float | Mapping[str, float] = 0.0


def load_urdf(
    source: str | os.PathLike,
    assets: Mapping[str, bytes | str] | None = None,
    *,
    packages: Mapping[str, str | os.PathLike] | None = None,
    floating: bool = False,
    pos: Sequence[float] | np.ndarray | None = None,
    ground: bool = False,
    actuators: Motors | Servos | None = None,
    density: float = 1000.0,
    repair_inertia: bool = False,
    min_mass: float = 1e-3,
    min_inertia: float = 1e-6,
    fuse_links: bool = False,
    self_collisions: bool = True,
    visuals: bool = False,
    skip_meshes: str | Sequence[str] = (),
) -> System:
    """Load a robot from a URDF file, as MuJoCo reads it.

    Mimic joints become equality constraints, `<limit effort>` limits the force of the
    actuators at a joint, and `<dynamics>` sets damping and dry friction.

    !!! example

        ```python
        sys = load_urdf("go1.urdf", floating=True, ground=True, actuators=Motors())
        ```

    **Arguments:**

    - `source`: path of a file, or XML text. Macros of xacro must be expanded.
    - `assets`: contents of mesh files by name, which precede files.
    - `packages`: folders of ROS packages by name, for `package://NAME/PATH`. Others are
        searched in the folders above the file, `ROS_PACKAGE_PATH` and
        `AMENT_PREFIX_PATH`.
    - `floating`: give the root link a free joint; else it is fixed to the world.
    - `pos`: position of the root link, m; by default the origin, or for a floating robot
        on a ground the height at which it touches the ground in the reference pose.
    - `ground`: add a plane at z = 0, called `ground`.
    - `actuators`: `Motors()`, `Servos(stiffness, damping)`, or None. Mimic joints, and
        joints of several degrees of freedom, are not driven.
    - `density`: density of the collision shapes of links without `<inertial>`, kg/m³, as
        in MuJoCo; 0 makes such links massless, as in ROS.
    - `repair_inertia`: correct inertias instead of refusing them: one that no rigid body
        has becomes the nearest of a body, and moving links without mass get `min_mass`
        (kg) and `min_inertia` (kg m²), which also replaces inertias of zero.
    - `fuse_links`: merge links with the link that they are fixed to, as MuJoCo does;
        their names are lost.
    - `self_collisions`: true if the robot collides with itself. A link and its parent do
        not, unless the parent is fixed to the world (as in MuJoCo).
    - `visuals`: also load visual shapes, for images; meshes that cannot be read are left
        out.
    - `skip_meshes`: patterns of names of collision meshes to leave out.

    **Returns:** the robot. `System.notes` lists what is not simulated, and links whose
    inertia is that of their shapes, or repaired.

    **Raises:**

    - `FileNotFoundError`: the file, a package or meshes of collisions do not exist.
    - `ValueError`: the file is not a URDF, a mesh cannot be read, a moving link has no
        inertia, an argument is out of range or matches nothing, or MuJoCo rejects the
        robot.
    """
    check_numbers("density", density, lambda x: x >= 0.0, "zero or positive (kg/m³)")
    check_numbers("min_mass", min_mass, lambda x: x > 0.0, "positive (kg)")
    check_numbers("min_inertia", min_inertia, lambda x: x > 0.0, "positive (kg m²)")
    expected = "`Motors()`, `Servos(...)` or None"
    check_type("actuators", actuators, Motors | Servos | None, expected)
    if pos is not None:
        check_finite("pos", pos)
        if np.shape(pos) != (3,):
            raise ValueError(f"`pos` must be three numbers (m), got {pos!r}.")
    robot, folder = read_description(source)
    least = (min_mass, min_inertia) if repair_inertia else None
    robot.select_shapes(visuals, _patterns(skip_meshes))
    robot.check_inertia(floating, density, least)
    files = MeshFiles(folder, packages or {}, assets or {}, robot.compiler("meshdir"))
    robot.collect_meshes(files)
    robot.set_compiler(
        fusestatic=robot.must_fuse() or fuse_links,
        discardvisual=not visuals,
        strippath=False,
    )
    try:
        spec = read_spec(ET.tostring(robot.root, "unicode"), files.contents)
        _edit_shapes(spec, robot, density, self_collisions)
        if actuators is not None:
            _add_actuators(spec, robot, actuators)
        _place(spec, robot, floating, pos, ground)
        system = load_mjcf(spec)
    except UnsupportedMJCF as error:
        text = str(error).replace("The MjSpec", robot.label)
        raise UnsupportedMJCF(text, error.problems) from error
    except ValueError as error:
        raise ValueError(_explained(error, robot)) from error
    return dataclasses.replace(system, notes=(*robot.notes, *system.notes))


def _explained(error: ValueError, robot: Description) -> str:
    """Return the message of MuJoCo, and what to do."""
    text = str(error)
    if "XML Error" in text:
        # Elements of the text itself have line numbers.
        try:
            read_spec(robot.text)
        except ValueError as original:
            text = str(original)
    text = re.sub(r"The (MJCF text|MjSpec)( \((['\"]).*?\3\))?", robot.label, text)
    return text + robot.advice(text)


# Additions to the description that MuJoCo has read.


def _edit_shapes(
    spec: Any, robot: Description, density: float, self_collisions: bool
) -> None:
    """Set densities and collision flags, and remove limits at infinity."""
    bare = set(robot.bare)
    for body in spec.bodies:
        for geom in body.geoms:
            if body.name in bare:
                collides = geom.contype or geom.conaffinity
                geom.density = density if collides else 0.0
            if not self_collisions and geom.contype:
                # Collides with the ground, whose flags are both 1.
                geom.contype = 0
    for joint in spec.joints:
        if not np.all(np.isfinite(joint.range)):
            joint.limited, joint.range = engine().mjtLimited.mjLIMITED_FALSE, [0.0, 0.0]
        if not np.all(np.isfinite(joint.actfrcrange)):
            joint.actfrclimited = engine().mjtLimited.mjLIMITED_FALSE
            joint.actfrcrange = [0.0, 0.0]


def _add_actuators(spec: Any, robot: Description, actuators: Motors | Servos) -> None:
    mujoco = engine()
    on, off = mujoco.mjtLimited.mjLIMITED_TRUE, mujoco.mjtLimited.mjLIMITED_FALSE
    if isinstance(actuators, Motors):
        patterns = _patterns(actuators.joints)
        for joint in robot.driven(patterns):
            if not any(fnmatch.fnmatch(joint.name, x) for x in patterns):
                continue
            limited = 0.0 < joint.effort < math.inf
            bound = joint.effort if limited else 0.0
            spec.add_actuator(
                name=joint.name,
                target=joint.name,
                trntype=mujoco.mjtTrn.mjTRN_JOINT,
                ctrllimited=on if limited else off,
                ctrlrange=[-bound, bound],
            ).set_to_motor()
        return
    stiffness = _by_pattern("stiffness", actuators.stiffness)
    damping = _by_pattern("damping", actuators.damping)
    for joint in robot.driven([*stiffness, *damping]):
        kp, kv = _first(stiffness, joint.name), _first(damping, joint.name)
        if kp is None:
            continue
        limited = 0.0 < joint.effort < math.inf
        bound = joint.effort if limited else 0.0
        within = spec.joint(joint.name).range
        has_range = bool(within[0] < within[1])
        servo = spec.add_actuator(
            name=joint.name,
            target=joint.name,
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            ctrllimited=on if has_range else off,
            ctrlrange=within if has_range else [0.0, 0.0],
            forcelimited=on if limited else off,
            forcerange=[-bound, bound],
        )
        servo.set_to_position(kp=kp, kv=kv or 0.0)
    option = robot.root.find("mujoco/option")
    if option is None or "integrator" not in option.attrib:
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST


def _patterns(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one pattern or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def _by_pattern(name: str, gains: float | Mapping[str, float]) -> dict[str, float]:
    found = dict(gains) if isinstance(gains, Mapping) else {"*": float(gains)}
    for value in found.values():
        check_numbers(name, value, lambda x: x >= 0.0, "zero or positive")
    return found


def _first(gains: Mapping[str, float], joint: str) -> float | None:
    values = [v for k, v in gains.items() if fnmatch.fnmatch(joint, k)]
    return values[0] if values else None


def _place(
    spec: Any,
    robot: Description,
    floating: bool,
    pos: Sequence[float] | np.ndarray | None,
    ground: bool,
) -> None:
    """Add the free joint of the base, its position, and the ground."""
    mujoco = engine()
    roots = spec.worldbody.bodies
    if floating:
        fixed = [body for body in roots if not body.joints]
        if len(fixed) != len(roots) or len(roots) != 1:
            names = [body.name for body in roots]
            raise ValueError(
                f"{robot.label}: `floating` needs one root link that is fixed to the "
                f"world. The roots are {listed(names) or 'none'}, of which "
                f"{len(roots) - len(fixed)} can move. Leave `floating` out, or correct "
                "the file."
            )
        names = {joint.name for joint in spec.joints}
        free = "floating_base"
        while free in names:
            free += "_"
        roots[0].add_freejoint(name=free)
    if pos is None:
        lifted = floating and ground
        pos = (0.0, 0.0, -_lowest(compile_source(spec).model) if lifted else 0.0)
    for body in roots:
        body.pos = np.asarray(body.pos) + np.asarray(pos, float)
    if ground:
        taken = {geom.name for geom in spec.geoms}
        name = "ground"
        while name in taken:
            name += "_"
        plane = mujoco.mjtGeom.mjGEOM_PLANE
        spec.worldbody.add_geom(name=name, type=plane, size=[0.0, 0.0, 1.0])


def _lowest(model: Any) -> float:
    """Return the lowest height of all shapes that collide, in the reference pose."""
    mujoco = engine()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    lows = [0.0] if model.ngeom == 0 else []
    for k in np.flatnonzero(model.geom_contype | model.geom_conaffinity):
        if model.geom_type[k] == mujoco.mjtGeom.mjGEOM_MESH:
            mesh = model.geom_dataid[k]
            first = model.mesh_vertadr[mesh]
            points = model.mesh_vert[first : first + model.mesh_vertnum[mesh]]
        else:
            center, half = np.split(model.geom_aabb[k], 2)
            signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T
            points = center + signs * half
        lows.append(np.min(points @ data.geom_xmat[k].reshape(3, 3)[2]))
        lows[-1] += data.geom_xpos[k, 2]
    return float(min(lows, default=0.0))
