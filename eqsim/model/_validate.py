"""Checks of parameters when a robot is loaded or built, never in a step."""

import jax
import numpy as np

from ._checks import check_shapes, check_solimp, joint_quaternions, known, reject
from ._kinds import JointKind
from ._pairs import candidate_array, has_collider, kinds_of_pairs
from ._system import System
from ._validate_parts import (
    check_actuators,
    check_independent_slides,
    check_sensors,
    check_sites,
    check_tendons,
)


_CONDIMS = (1, 3, 4, 6)


def validate(sys: System) -> System:
    """Check that the parameters of a robot, or of a batch of robots, are valid.

    Traced values are not checked.

    **Arguments:**

    - `sys`: the robot.

    **Returns:** `sys` itself.

    **Raises:** `ValueError` with the element and its value: for an array of the wrong
    shape or type, NaN, a negative mass or damping, a moving link without mass or
    inertia, an impossible inertia, a quaternion of zero norm, limits in the wrong
    order, and parameters that contradict the structure.
    """
    check_shapes(sys, batched=True)
    for check in (
        check_finite,
        _check_options,
        _check_links,
        _check_mocap,
        _check_moving_mass,
        check_independent_slides,
        _check_joints,
        _check_contacts,
        _check_geoms,
        _check_height_fields,
        check_actuators,
        check_sites,
        check_tendons,
        check_sensors,
    ):
        check(sys)
    return sys


def check_finite(sys: System) -> None:
    """Check that no parameter of a robot is NaN. Traced values are skipped.

    **Raises:** `ValueError` with the field and the index.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(sys):
        value = known(leaf)
        if value is not None and np.any(np.isnan(value)):
            index = tuple(int(i) for i in np.argwhere(np.isnan(value))[0])
            field = jax.tree_util.keystr(path).lstrip(".")
            raise ValueError(
                f"System.{field} is NaN at index {index}. Look for a missing "
                "value or a division by zero where it was computed."
            )


def _check_options(sys: System) -> None:
    rules = (
        (sys.dt, "dt", lambda x: x <= 0, "positive"),
        (sys.density, "density", lambda x: x < 0, "zero or positive"),
        (sys.viscosity, "viscosity", lambda x: x < 0, "zero or positive"),
        (sys.impratio, "impratio", lambda x: x <= 0, "positive"),
    )
    for value, name, bad, need in rules:
        text = f"System.{{name}} is {{value}}, but must be {need}."
        reject(value, lambda x: bad(x)[..., None], (name,), text)
    if not sys.has_fluid:
        for value, name in ((sys.density, "density"), (sys.viscosity, "viscosity")):
            reject(
                value,
                lambda x: (x != 0)[..., None],
                (name,),
                "System.{name} is {value}, but System.has_fluid is False, so the "
                "medium is not simulated. Build the System with has_fluid=True.",
            )


def _check_links(sys: System) -> None:
    links = sys.links
    reject(
        links.mass,
        lambda mass: mass < 0,
        links.names,
        "Link {name!r} has mass {value} kg. A mass must not be negative.",
    )
    reject(
        links.inertia,
        lambda inertia: np.any(inertia < 0, axis=-1),
        links.names,
        "Link {name!r} has moments of inertia {value}. They must not be negative.",
    )
    reject(
        links.inertia,
        _breaks_triangle,
        links.names,
        "Link {name!r} has moments of inertia {value}, which no body has: the largest "
        "exceeds the sum of the two others.",
    )
    for field, value in (("quat", links.quat), ("inertia_quat", links.inertia_quat)):
        reject(
            value,
            lambda quat: ~np.any(quat, axis=-1),
            links.names,
            f"Links.{field} of {{name!r}} is zero, which is no orientation. Use "
            "(1, 0, 0, 0).",
        )


def _check_mocap(sys: System) -> None:
    for link in sys.joints.links:
        if sys.links.mocap[link]:
            raise ValueError(
                f"Mocap link {sys.links.names[link]!r} has a joint. Remove the joint, or "
                "set Links.mocap to False there."
            )


def _breaks_triangle(inertia: np.ndarray) -> np.ndarray:
    largest, total = np.max(inertia, axis=-1), np.sum(inertia, axis=-1)
    return largest > (total - largest) * (1 + 1e-4)


def _check_moving_mass(sys: System) -> None:
    """Check that every joint moves its own armature, or a link with mass."""
    links, joints = sys.links, sys.joints
    mass, inertia = known(links.mass), known(links.inertia)
    armature = known(joints.armature)
    if mass is None or inertia is None or armature is None:
        return
    mass, inertia = mass.copy(), inertia.sum(axis=-1)
    for link in reversed(range(sys.nlink)):
        parent = links.parents[link]
        if parent != -1:
            mass[..., parent] += mass[..., link]
            inertia[..., parent] += inertia[..., link]
    for joint, (link, start, kind) in enumerate(
        zip(joints.links, joints.v_starts, joints.kinds, strict=True)
    ):
        own = np.min(armature[..., start : start + kind.nv], axis=-1)
        turns = kind in (JointKind.REVOLUTE, JointKind.SPHERICAL)
        moved = np.maximum(mass[..., link], inertia[..., link] if turns else 0)
        if np.any((moved <= 0) & (own <= 0)):
            raise ValueError(
                f"Link {links.names[link]!r} moves but has no mass. Give it a mass "
                f"and an inertia, or give joint {joints.names[joint]!r} an armature."
            )


def _check_joints(sys: System) -> None:
    joints = sys.joints
    limited = np.asarray(joints.limited, bool)
    # A limit of 0 locks a ball joint.
    ball = np.asarray([kind is JointKind.SPHERICAL for kind in joints.kinds], bool)
    reject(
        joints.range,
        lambda x: (
            np.where(ball, x[..., 0] > x[..., 1], x[..., 0] >= x[..., 1]) & limited
        ),
        joints.names,
        "Joint {name!r} is limited to {value}. The first number must be the smaller "
        "one.",
    )
    hinged = np.asarray([kind.nq == 1 for kind in joints.kinds], bool)
    reject(
        joints.axis,
        lambda axis: ~np.any(axis, axis=-1) & hinged,
        joints.names,
        "Joint {name!r} has a zero axis. Give it a unit vector.",
    )
    dofs = tuple(
        name for name, kind in zip(joints.names, joints.kinds) for _ in range(kind.nv)
    )
    without = ~np.asarray(joints.has_friction, bool)
    reject(
        joints.frictionloss,
        lambda loss: (loss != 0) & without,
        dofs,
        "Joint {name!r} has frictionloss {value}, but Joints.has_friction is False "
        "there, so it is not simulated. Set has_friction to True.",
    )
    for field, value in (
        ("damping", joints.damping),
        ("frictionloss", joints.frictionloss),
        ("armature", joints.armature),
    ):
        reject(
            value,
            lambda x: x < 0,
            dofs,
            f"Joint {{name!r}} has {field} {{value}}. It must not be negative.",
        )
    check_solimp(joints.limit_solimp, joints.names, "Joint {name!r}", "limit_solimp")
    check_solimp(joints.friction_solimp, dofs, "Joint {name!r}", "friction_solimp")
    for field, value in (("ref", joints.ref), ("spring_ref", joints.spring_ref)):
        value = known(value)
        for name, quat in () if value is None else joint_quaternions(sys, value):
            if np.any(~np.any(quat, axis=-1)):
                raise ValueError(
                    f"Joints.{field} of {name!r} is a zero quaternion, which is no "
                    "orientation. Use (1, 0, 0, 0)."
                )


def _check_contacts(sys: System) -> None:
    names, kinds, own = sys.geoms.names, sys.geoms.kinds, sys.geoms.condim
    pairs = candidate_array(sys)  # There may be millions.
    one, two, explicit = pairs.T
    numbers = np.array([kind.value for kind in kinds], int)
    firsts = [
        entry.first
        for entry in kinds_of_pairs(pairs, numbers)
        if not has_collider(kinds[one[entry.first]], kinds[two[entry.first]])
    ]
    accepted = np.isin(own, _CONDIMS)
    of_pairs = np.array([*np.isin(sys.pairs.condim, _CONDIMS), True], bool)
    if not (np.all(accepted) and np.all(of_pairs)):
        of_shapes = accepted[one] & accepted[two]
        wrong = ~np.where(explicit < 0, of_shapes, of_pairs[explicit])
        firsts += [int(np.argmax(wrong))] if np.any(wrong) else []
    if not firsts:
        return
    a, b, entry = pairs[min(firsts)].tolist()
    condims = (own[a], own[b]) if entry < 0 else (sys.pairs.condim[entry],)
    for which, condim in enumerate(condims):
        if condim not in _CONDIMS:
            pair = f"Pair {names[a]!r} with {names[b]!r}"
            who = pair if entry >= 0 else f"Shape {names[(a, b)[which]]!r}"
            raise ValueError(
                f"{who} has condim {condim}. Use 1 (no friction), 3 (sliding "
                "friction), 4 (also torsional) or 6 (also rolling friction)."
            )
    words = " and ".join(kinds[k].name.lower() for k in (a, b))
    raise ValueError(
        f"Shapes {names[a]!r} and {names[b]!r} may touch, but contacts of "
        f"{words} are not supported. Exclude the pair, or use other shapes."
    )


def _check_geoms(sys: System) -> None:
    geoms, pairs = sys.geoms, sys.pairs
    pair_names = tuple(
        f"{geoms.names[a]} with {geoms.names[b]}" for a, b in pairs.geoms
    )
    reject(
        geoms.quat,
        lambda quat: ~np.any(quat, axis=-1),
        geoms.names,
        "Geoms.quat of {name!r} is zero, which is no orientation. Use (1, 0, 0, 0).",
    )
    for field, value, names in (
        ("size", geoms.size, geoms.names),
        ("friction", geoms.friction, geoms.names),
        ("friction", pairs.friction, pair_names),
    ):
        reject(
            value,
            lambda x: np.any(x < 0, axis=-1),
            names,
            f"Shape {{name!r}} has {field} {{value}}. It must not be negative.",
        )
    check_solimp(geoms.solimp, geoms.names, "Shape {name!r}", "solimp")
    check_solimp(pairs.solimp, pair_names, "Pair {name!r}", "solimp")


def _check_height_fields(sys: System) -> None:
    fields = sys.height_fields
    reject(
        fields.size,
        lambda size: np.any(size <= 0, axis=-1),
        fields.names,
        "Height field {name!r} has size {value}. All of it must be positive.",
    )
    base = known(fields.size)
    for field, name in enumerate(fields.names):
        first, last = fields.span(field)
        heights = known(fields.heights[..., first:last])
        if heights is None or base is None:
            continue
        low, bottom = np.min(heights, axis=-1), -base[..., field, 2]
        if np.any(low <= bottom):
            raise ValueError(
                f"Height field {name!r} has a height of {np.min(low):.4g} m, but its bottom is "
                f"at {np.max(bottom):.4g} m. Raise the heights, or increase the base "
                "(HeightFields.size)."
            )
