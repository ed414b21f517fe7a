"""Conversion of a `System` to MJCF text."""

import xml.etree.ElementTree as ET
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ...model import JointKind, System
from ._write_actuators import disabled_groups, write_actuators
from ._write_colors import write_color
from ._write_equalities import write_equalities
from ._write_meshes import shape_attributes, write_assets
from ._write_sensors import magnetic_field, write_sensors
from ._write_tendons import write_sites, write_tendons
from ._xml import add_element


def write_mjcf(sys: System) -> str:
    """Write a robot as MJCF, for viewers and for comparison with MuJoCo.

    `load_mjcf(write_mjcf(sys))` returns the same system up to rounding, except for
    `System.notes` and for properties that MJCF does not have (the reference frame of a
    free link is its `Joints.ref`).

    **Arguments:**

    - `sys`: one robot, not a batch. MJCF has one damping, armature and dry friction per
        joint, so these must be equal in all degrees of freedom of a joint. Links must
        be in depth-first order, as in MuJoCo.

    **Returns:** the XML text, with values in full precision.

    **Raises:** `ValueError` if the robot is batched or traced, or cannot be expressed
    in MJCF.
    """
    sys = _concrete(sys)
    root = ET.Element("mujoco", model="eqsim")
    ET.SubElement(
        root,
        "compiler",
        angle="radian",
        autolimits="false",
        inertiafromgeom="false",
        alignfree="false",
    )
    _write_options(root, sys)
    write_assets(root, sys)
    world = ET.SubElement(root, "worldbody")
    parts: dict[int, ET.Element] = {-1: world}
    _check_order(sys)
    _write_geoms(world, sys, -1)
    write_sites(world, sys, -1)
    for link, parent in enumerate(sys.links.parents):
        parts[link] = _write_link(parts[parent], sys, link)
        _write_joints(parts[link], sys, link)
        _write_geoms(parts[link], sys, link)
        write_sites(parts[link], sys, link)
    _write_contacts(root, sys)
    write_tendons(root, sys)
    write_equalities(root, sys)
    write_actuators(root, sys)
    write_sensors(root, sys)
    _write_keyframes(root, sys)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _concrete(sys: System) -> System:
    leaves = jax.tree_util.tree_leaves(sys)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise ValueError(
            "write_mjcf needs concrete values: call it outside jit, grad and vmap."
        )
    if sys.dt.ndim != 0 or sys.links.mass.ndim != 1:
        raise ValueError(
            f"write_mjcf takes one robot, but this is a batch (mass has shape "
            f"{sys.links.mass.shape} for {sys.nlink} links). Pick one of them first, "
            "for instance with jax.tree.map(lambda x: x[0], sys)."
        )
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, np.float64), sys)


def _check_order(sys: System) -> None:
    path: list[int] = [-1]
    for link, parent in enumerate(sys.links.parents):
        if parent not in path:
            raise ValueError(
                f"Link {sys.links.names[link]!r} is not in depth-first order, which "
                "MuJoCo requires. Reorder the links."
            )
        path = [*path[: path.index(parent) + 1], link]


def _write_options(root: ET.Element, sys: System) -> None:
    option = add_element(
        root,
        "option",
        {
            "timestep": sys.dt,
            "gravity": sys.gravity,
            "wind": sys.wind,
            "density": sys.density,
            "viscosity": sys.viscosity,
            "impratio": sys.impratio,
            "integrator": sys.integrator.value,
            "cone": sys.cone.value,
            **magnetic_field(sys),
            **disabled_groups(sys),
        },
    )
    switches = {
        "filterparent": sys.filter_parent,
        "refsafe": sys.safe_solref,
        "eulerdamp": sys.implicit_damping,
        "actuation": sys.actuators.active,
    }
    words = {name: "enable" if on else "disable" for name, on in switches.items()}
    add_element(option, "flag", words)


def _write_link(parent: ET.Element, sys: System, link: int) -> ET.Element:
    links, joints = sys.links, sys.joints
    pos, quat = links.pos[link], links.quat[link]
    for joint, owner in enumerate(joints.links):
        if owner == link and joints.kinds[joint] is JointKind.FREE:
            start = joints.q_starts[joint]
            pos, quat = joints.ref[start : start + 3], joints.ref[start + 3 : start + 7]
    body = add_element(
        parent,
        "body",
        {
            "name": links.names[link],
            "pos": pos,
            "quat": quat,
            "gravcomp": links.gravity_compensation[link],
            "mocap": links.mocap[link],
        },
    )
    inertia = np.array(links.inertia[link])
    # Rounding to single precision may violate A + B >= C, which MuJoCo requires.
    largest = np.argmax(inertia)
    others = inertia.sum() - inertia[largest]
    if inertia[largest] <= others * (1 + 1e-6):
        inertia[largest] = min(inertia[largest], others)
    add_element(
        body,
        "inertial",
        {
            "pos": links.com[link],
            "quat": links.inertia_quat[link],
            "mass": links.mass[link],
            "diaginertia": inertia,
        },
    )
    return body


def _write_joints(body: ET.Element, sys: System, link: int) -> None:
    joints = sys.joints
    damping = _coefficients(joints.damping, joints.damping_poly, slice(None))
    for joint, owner in enumerate(joints.links):
        if owner != link:
            continue
        kind, name = joints.kinds[joint], joints.names[joint]
        coordinate, dof = joints.q_starts[joint], joints.v_starts[joint]
        dofs = slice(dof, dof + kind.nv)
        attributes = {
            "name": name,
            "type": kind.value,
            "pos": joints.anchor[joint],
            "axis": joints.axis[joint],
            "limited": joints.limited[joint],
            "range": joints.range[joint],
            "margin": joints.limit_margin[joint],
            "solreflimit": joints.limit_solref[joint],
            "solimplimit": joints.limit_solimp[joint],
            "stiffness": _coefficients(joints.stiffness, joints.stiffness_poly, joint),
            "damping": _same(damping[dofs], name, "damping"),
            "actuatorfrclimited": joints.force_limited[joint],
            "actuatorgravcomp": joints.actuator_gravity[joint],
            "armature": _same(joints.armature[dofs], name, "armature"),
            "frictionloss": _same(joints.frictionloss[dofs], name, "frictionloss"),
            "solreffriction": _same(joints.friction_solref[dofs], name, "solref"),
            "solimpfriction": _same(joints.friction_solimp[dofs], name, "solimp"),
        }
        if joints.force_range is not None:
            attributes["actuatorfrcrange"] = joints.force_range[joint]
        if kind.nq == 1:
            attributes["ref"] = joints.ref[coordinate]
            attributes["springref"] = joints.spring_ref[coordinate]
        else:
            _check_rest(sys, joint)
        add_element(body, "joint", attributes)


def _coefficients(linear: Any, poly: Any, index: Any) -> Any:
    """Return a coefficient followed by its polynomial, if there is one."""
    linear = linear[index]
    if poly is None:
        return linear
    return np.concatenate([linear[..., None], poly[index]], axis=-1)


def _same(values: Any, joint: str, what: str) -> Any:
    if not np.all(values == values[0]):
        raise ValueError(
            f"Joint {joint!r} has different {what} in its degrees of freedom "
            f"({values.tolist()}), which MJCF cannot express. Make them equal."
        )
    return values[0]


def _check_rest(sys: System, joint: int) -> None:
    joints = sys.joints
    start = joints.q_starts[joint]
    stop = start + joints.kinds[joint].nq
    ref, rest = joints.ref[start:stop], joints.spring_ref[start:stop]
    ball = joints.kinds[joint] is JointKind.SPHERICAL
    if not np.array_equal(ref, rest) or (
        ball and not np.array_equal(ref, [1, 0, 0, 0])
    ):
        raise ValueError(
            f"Joint {joints.names[joint]!r} has reference {ref.tolist()} and spring "
            f"reference {rest.tolist()}, which MJCF cannot express. The two must be equal, "
            "and (1, 0, 0, 0) for a ball joint."
        )


def _write_geoms(body: ET.Element, sys: System, link: int) -> None:
    geoms = sys.geoms
    for geom, owner in enumerate(geoms.links):
        if owner != link:
            continue
        fluid = {}
        if geoms.fluid[geom]:
            fluid["fluidshape"] = "ellipsoid"
            fluid["fluidcoef"] = geoms.fluid_coefficients[geom]
        add_element(
            body,
            "geom",
            fluid
            | {
                "name": geoms.names[geom],
                **shape_attributes(sys, geom),
                "contype": geoms.contype[geom],
                "conaffinity": geoms.conaffinity[geom],
                "condim": geoms.condim[geom],
                "priority": geoms.priority[geom],
                "friction": geoms.friction[geom],
                "solref": geoms.solref[geom],
                "solimp": geoms.solimp[geom],
                "solmix": geoms.solmix[geom],
                "margin": geoms.margin[geom],
                **write_color(sys, geom),
            },
        )


def _write_contacts(root: ET.Element, sys: System) -> None:
    contact = ET.SubElement(root, "contact")
    names, pairs = sys.geoms.names, sys.pairs
    for index, (a, b) in enumerate(pairs.geoms):
        add_element(
            contact,
            "pair",
            {
                "geom1": names[a],
                "geom2": names[b],
                "condim": pairs.condim[index],
                "friction": pairs.friction[index],
                "solref": pairs.solref[index],
                "solreffriction": pairs.solref_friction[index],
                "solimp": pairs.solimp[index],
                "margin": pairs.margin[index],
            },
        )
    links = (*sys.links.names, "world")
    for a, b in sys.excludes:
        add_element(contact, "exclude", {"body1": links[a], "body2": links[b]})


def _write_keyframes(root: ET.Element, sys: System) -> None:
    keys = sys.keyframes
    part = ET.SubElement(root, "keyframe") if keys.names else root
    for index, name in enumerate(keys.names):
        attributes = {
            "qpos": keys.q[index],
            "qvel": keys.qd[index],
            "act": keys.act[index],
            "ctrl": keys.ctrl[index],
        }
        kept = {key: value for key, value in attributes.items() if value.size}
        add_element(part, "key", {"name": name, **kept})
