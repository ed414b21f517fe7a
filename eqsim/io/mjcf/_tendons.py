"""Conversion of MuJoCo's sites and tendons."""

from typing import Any

import numpy as np

from ...model import GeomKind, PathPoint, Sites, Tendons, WrapKind
from ._flags import Flags
from ._geoms import Contacts
from ._mujoco import engine
from ._names import element_names


def read_sites(model: Any) -> Sites:
    """Convert the sites of a `mujoco.MjModel`."""
    box = GeomKind.BOX
    known = {kind.value: kind for kind in GeomKind if kind is not GeomKind.MESH}
    return Sites(
        names=element_names(model, "site"),
        # A mesh, whose shape is used only by touch sensors, becomes its box.
        kinds=tuple(known.get(int(kind), box) for kind in model.site_type),
        links=tuple(int(body) - 1 for body in model.site_bodyid),
        pos=model.site_pos,
        quat=model.site_quat,
        size=model.site_size,
    )


def read_tendons(model: Any, flags: Flags, contacts: Contacts) -> Tendons:
    """Convert the tendons of a `mujoco.MjModel`."""
    stiffness = model.tendon_stiffness * flags.spring
    stiffness_poly = model.tendon_stiffnesspoly * flags.spring
    damping = model.tendon_damping * flags.damper
    damping_poly = model.tendon_dampingpoly * flags.damper
    frictionloss = model.tendon_frictionloss * flags.frictionloss
    damps, has_armature = passive_actuators(model, flags)
    has_damping = (damping != 0) | np.any(damping_poly != 0, axis=-1) | damps
    automatic = _rests_at_reference(model)
    kinds = engine().mjtWrap
    joint, pulley = int(kinds.mjWRAP_JOINT), int(kinds.mjWRAP_PULLEY)
    return Tendons(
        names=element_names(model, "tendon"),
        paths=_paths(model, contacts),
        limited=_bools(model.tendon_limited.astype(bool) & flags.limit),
        has_spring=_bools((stiffness != 0) | np.any(stiffness_poly != 0, axis=-1)),
        has_damping=_bools(has_damping),
        has_friction=_bools(frictionloss > 0),
        has_armature=_bools((model.tendon_armature != 0) | has_armature),
        rests_at_reference=_bools(automatic),
        actuator_force_limited=_bools(model.tendon_actfrclimited),
        coef=model.wrap_prm[model.wrap_type == joint],
        divisor=model.wrap_prm[model.wrap_type == pulley],
        range=model.tendon_range,
        limit_margin=model.tendon_margin,
        limit_solref=model.tendon_solref_lim,
        limit_solimp=model.tendon_solimp_lim,
        stiffness=stiffness,
        stiffness_poly=stiffness_poly,
        damping=damping,
        damping_poly=damping_poly,
        spring_length=np.where(automatic[:, None], 0.0, model.tendon_lengthspring),
        armature=model.tendon_armature,
        frictionloss=frictionloss,
        friction_solref=model.tendon_solref_fri,
        friction_solimp=model.tendon_solimp_fri,
        actuator_force_range=model.tendon_actfrcrange,
    )


def passive_actuators(model: Any, flags: Flags) -> tuple[np.ndarray, np.ndarray]:
    """Return true for tendons with damping, or armature, of actuators."""
    on_tendon = model.actuator_trntype == int(engine().mjtTrn.mjTRN_TENDON)
    poly = np.any(model.actuator_dampingpoly != 0, axis=-1)
    damps = ((model.actuator_damping != 0) | poly) & flags.damper
    marks = []
    for has in (damps, model.actuator_armature != 0):
        mark = np.zeros(model.ntendon, bool)
        mark[model.actuator_trnid[on_tendon & has, 0]] = True
        marks.append(mark)
    return marks[0], marks[1]


def _rests_at_reference(model: Any) -> np.ndarray:
    """Return true for tendons whose spring is at rest at `qpos_spring`, which MuJoCo's
    compiler assumes if the file gives no length."""
    if not model.ntendon:
        return np.zeros(0, bool)
    mujoco = engine()
    data = mujoco.MjData(model)
    data.qpos[:] = model.qpos_spring
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_tendon(model, data)
    return np.all(model.tendon_lengthspring == data.ten_length[:, None], axis=-1)


def _paths(model: Any, contacts: Contacts) -> tuple[tuple[PathPoint, ...], ...]:
    wraps = engine().mjtWrap
    kinds = {
        int(wraps.mjWRAP_JOINT): WrapKind.JOINT,
        int(wraps.mjWRAP_SITE): WrapKind.SITE,
        int(wraps.mjWRAP_PULLEY): WrapKind.PULLEY,
    }

    objects, types = model.wrap_objid.tolist(), model.wrap_type.tolist()

    def point(k: int) -> PathPoint:
        index, kind = objects[k], kinds.get(types[k], WrapKind.GEOM)
        if kind is WrapKind.PULLEY:
            return PathPoint(kind)
        if kind is WrapKind.GEOM:
            return PathPoint(
                kind, int(contacts.places[index]), round(model.wrap_prm[k])
            )
        return PathPoint(kind, index)

    ends = zip(model.tendon_adr.tolist(), model.tendon_num.tolist())
    return tuple(tuple(point(k) for k in range(a, a + n)) for a, n in ends)


def _bools(values: Any) -> tuple[bool, ...]:
    return tuple(bool(value) for value in values)
