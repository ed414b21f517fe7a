"""Conversion of MuJoCo's bodies and joints to links and joints."""

from typing import Any

import numpy as np

from ...model import JointKind, Joints, Links
from ._flags import Flags
from ._names import element_names, link_names


_KINDS = (
    JointKind.FREE,
    JointKind.SPHERICAL,
    JointKind.PRISMATIC,
    JointKind.REVOLUTE,
)


def read_links(model: Any, flags: Flags) -> Links:
    """Convert the bodies of a `mujoco.MjModel`; the world is not a link."""
    body = slice(1, None)
    # MuJoCo's flag 2: a diagonal mass matrix, only slides.
    translating = (model.body_simple[body] == 2) & (model.body_dofnum[body] > 0)
    gravcomp = model.body_gravcomp[body]
    return Links(
        names=link_names(model),
        parents=tuple(int(parent) - 1 for parent in model.body_parentid[body]),
        translating=tuple(bool(mark) for mark in translating),
        mocap=tuple(bool(mark) for mark in model.body_mocapid[body] >= 0),
        pos=model.body_pos[body],
        quat=model.body_quat[body],
        mass=model.body_mass[body],
        com=model.body_ipos[body],
        inertia=model.body_inertia[body],
        inertia_quat=model.body_iquat[body],
        gravity_compensation=gravcomp if flags.passive else np.zeros_like(gravcomp),
    )


def read_joints(model: Any, flags: Flags) -> Joints:
    """Convert the joints of a `mujoco.MjModel`."""
    kinds = tuple(_KINDS[kind] for kind in model.jnt_type)
    limited = tuple(
        bool(limited) and flags.limit and kind is not JointKind.FREE
        for limited, kind in zip(model.jnt_limited, kinds)
    )
    # MuJoCo limits actuator forces only on hinges and slides.
    force_limited = tuple(
        bool(limited) and kind.nv == 1
        for limited, kind in zip(model.jnt_actfrclimited, kinds)
    )
    lifted = flags.passive and bool(np.any(model.body_gravcomp))
    frictionloss = model.dof_frictionloss * flags.frictionloss
    return Joints(
        names=element_names(model, "joint"),
        kinds=kinds,
        links=tuple(int(body) - 1 for body in model.jnt_bodyid),
        limited=limited,
        has_friction=tuple(bool(loss > 0) for loss in frictionloss),
        force_limited=force_limited,
        actuator_gravity=tuple(bool(mark) and lifted for mark in model.jnt_actgravcomp),
        anchor=model.jnt_pos,
        axis=model.jnt_axis,
        range=model.jnt_range,
        limit_margin=model.jnt_margin,
        limit_solref=model.jnt_solref,
        limit_solimp=model.jnt_solimp,
        stiffness=model.jnt_stiffness * flags.spring,
        ref=model.qpos0,
        spring_ref=model.qpos_spring,
        damping=model.dof_damping * flags.damper,
        armature=model.dof_armature,
        frictionloss=frictionloss,
        friction_solref=model.dof_solref,
        friction_solimp=model.dof_solimp,
        stiffness_poly=_or_none(model.jnt_stiffnesspoly * flags.spring),
        damping_poly=_or_none(model.dof_dampingpoly * flags.damper),
        force_range=model.jnt_actfrcrange if any(force_limited) else None,
    )


def _or_none(values: np.ndarray) -> np.ndarray | None:
    """Return the values, or None if all are zero."""
    return values if np.any(values) else None
