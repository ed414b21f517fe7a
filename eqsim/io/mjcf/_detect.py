"""Finders: which elements of a model use a feature. `_unsupported` lists them.

Every finder takes a `Source` and returns the offending elements, ready to print. An
empty list means that the feature is absent or changes nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from ...model import GeomKind
from ...model._pairs import SUPPORTED_PAIRS
from ._actuators import idle_actuators
from ._flags import Flags
from ._geoms import Contacts
from ._mujoco import engine
from ._names import element_names


class Source(NamedTuple):
    """A compiled model and what was derived from it.

    **Arguments:**

    - `model`: a `mujoco.MjModel`.
    - `flags`: what is switched on.
    - `contacts`: what can touch.
    """

    model: Any
    flags: Flags
    contacts: Contacts


def _named(source: Source, kind: str, marks: Any) -> list[str]:
    names = element_names(source.model, kind)
    return [f'"{names[index]}"' for index in np.flatnonzero(marks)]


def _joints_of_dofs(source: Source, marks: Any) -> list[str]:
    joints = np.zeros(source.model.njnt, bool)
    joints[source.model.dof_jntid[np.asarray(marks, bool)]] = True
    return _named(source, "joint", joints)


def active_equalities(source: Source) -> list[str]:
    return _named(source, "equality", _equality_marks(source))


def inactive_equalities(source: Source) -> list[str]:
    return _named(source, "equality", ~_equality_marks(source))


def _equality_marks(source: Source) -> np.ndarray:
    mujoco = engine()
    bits = mujoco.mjtDisableBit
    off = int(bits.mjDSBL_EQUALITY) | int(bits.mjDSBL_CONSTRAINT)
    disabled = bool(source.model.opt.disableflags & off)
    return source.model.eq_active0.astype(bool) & (not disabled)


def mocap_bodies(source: Source) -> list[str]:
    return _named(source, "body", source.model.body_mocapid >= 0)


def tendon_limits(source: Source) -> list[str]:
    limited = source.model.tendon_limited.astype(bool)
    return _named(source, "tendon", limited & source.flags.limit)


def tendon_frictions(source: Source) -> list[str]:
    has = source.model.tendon_frictionloss > 0
    return _named(source, "tendon", has & source.flags.frictionloss)


def tendon_armatures(source: Source) -> list[str]:
    return _named(source, "tendon", source.model.tendon_armature != 0)


def plastic_tendons(source: Source) -> list[str]:
    return _named(source, "tendon", source.model.tendon_plasticadr >= 0)


def coupled_branches(source: Source) -> list[str]:
    """Tendons with armature that span joints of which neither moves the other."""
    m = source.model
    marks = np.zeros(m.ntendon, bool)
    for tendon in np.flatnonzero(m.tendon_armature):
        start = m.ten_J_rowadr[tendon]
        dofs = m.ten_J_colind[start : start + m.ten_J_rownnz[tendon]].tolist()
        chain, dof = set(), max(dofs, default=-1)
        while dof >= 0:
            chain.add(dof)
            dof = int(m.dof_parentid[dof])
        marks[tendon] = not chain.issuperset(dofs)
    return _named(source, "tendon", marks)


def other_transmissions(source: Source) -> list[str]:
    return _named(source, "actuator", ~_on_joint(source.model))


def _on_joint(model: Any) -> np.ndarray:
    mujoco = engine()
    trn = mujoco.mjtTrn
    return np.isin(
        model.actuator_trntype, [int(trn.mjTRN_JOINT), int(trn.mjTRN_JOINTINPARENT)]
    )


def other_activations(source: Source) -> list[str]:
    mujoco = engine()
    first_other = int(mujoco.mjtDyn.mjDYN_MUSCLE)
    return _named(source, "actuator", source.model.actuator_dyntype >= first_other)


def other_force_laws(source: Source) -> list[str]:
    mujoco = engine()
    m = source.model
    gain = m.actuator_gaintype > int(mujoco.mjtGain.mjGAIN_AFFINE)
    bias = m.actuator_biastype > int(mujoco.mjtBias.mjBIAS_AFFINE)
    return _named(source, "actuator", gain | bias)


def several_inputs(source: Source) -> list[str]:
    m = source.model
    states = (m.actuator_actadr >= 0) & (m.actuator_actnum > 1)
    many = (m.actuator_ctrlnum != 1) | (m.actuator_outnum != 1) | states
    return _named(source, "actuator", many)


def delayed_actuators(source: Source) -> list[str]:
    return _named(source, "actuator", source.model.actuator_delay > 0)


def actuator_passive(source: Source) -> list[str]:
    m = source.model
    marks = (
        (m.actuator_armature != 0)
        | (m.actuator_damping != 0)
        | np.any(m.actuator_dampingpoly != 0, axis=-1)
    )
    return _named(source, "actuator", marks)


def ball_servos(source: Source) -> list[str]:
    mujoco = engine()
    m = source.model
    if not m.njnt:
        return []
    # MuJoCo wraps the setpoint of exactly these servos to within half a turn.
    on_joint = _on_joint(m)
    joint = np.where(on_joint, m.actuator_trnid[:, 0], 0)
    servo = (
        (m.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_FIXED))
        & (m.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE))
        & (m.actuator_gainprm[:, 0] != 0)
        & (m.actuator_gainprm[:, 0] == -m.actuator_biasprm[:, 1])
    )
    on_ball = on_joint & (m.jnt_type[joint] == int(mujoco.mjtJoint.mjJNT_BALL))
    return _named(
        source, "actuator", on_ball & servo & ~idle_actuators(m, source.flags)
    )


def idle(source: Source) -> list[str]:
    return _named(source, "actuator", idle_actuators(source.model, source.flags))


def stiffness_polynomials(source: Source) -> list[str]:
    marks = np.any(source.model.jnt_stiffnesspoly != 0, axis=-1)
    return _named(source, "joint", marks & source.flags.spring)


def damping_polynomials(source: Source) -> list[str]:
    marks = np.any(source.model.dof_dampingpoly != 0, axis=-1)
    return _joints_of_dofs(source, marks & source.flags.damper)


def plastic_springs(source: Source) -> list[str]:
    return _named(source, "joint", source.model.jnt_plasticadr >= 0)


def joint_force_ranges(source: Source) -> list[str]:
    mujoco = engine()
    m = source.model
    driven = np.zeros(m.njnt, bool)
    driven[m.actuator_trnid[_on_joint(m), 0]] = True
    driven |= m.jnt_actgravcomp.astype(bool) & bool(np.any(m.body_gravcomp))
    scalar = m.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)
    return _named(source, "joint", m.jnt_actfrclimited.astype(bool) & driven & scalar)


def unpowered_compensation(source: Source) -> list[str]:
    m, flags = source.model, source.flags
    lost = not flags.actuation and flags.passive and bool(np.any(m.body_gravcomp))
    return _named(source, "joint", m.jnt_actgravcomp.astype(bool) & lost)


def other_condims(source: Source) -> list[str]:
    contacts = source.contacts
    return _paired(
        source,
        [
            pair[:2]
            for pair, condim in zip(contacts.pairs, contacts.condims)
            if condim not in (1, 3)
        ],
    )


def other_shapes(source: Source) -> list[str]:
    kinds = source.model.geom_type
    supported = {(a.value, b.value) for a, b in SUPPORTED_PAIRS}
    return _paired(
        source,
        [
            (a, b)
            for a, b, _ in source.contacts.pairs
            if (int(kinds[a]), int(kinds[b])) not in supported
        ],
    )


def untouched_shapes(source: Source) -> list[str]:
    dropped = list(source.contacts.dropped)
    return _named(source, "geom", np.isin(np.arange(source.model.ngeom), dropped))


def _paired(source: Source, pairs: list[tuple[int, int]]) -> list[str]:
    mujoco = engine()
    names = element_names(source.model, "geom")
    kinds = [mujoco.mjtGeom(kind).name[7:].lower() for kind in source.model.geom_type]
    return [
        f'"{names[a]}" ({kinds[a]}) with "{names[b]}" ({kinds[b]})' for a, b in pairs
    ]


def _touching(source: Source) -> np.ndarray:
    return np.isin(np.arange(source.model.ngeom), list(source.contacts.geoms))


def surface_velocities(source: Source) -> list[str]:
    moving = np.any(source.model.geom_surfacevel != 0, axis=-1)
    return _named(source, "geom", moving & _touching(source))


def adhesive_shapes(source: Source) -> list[str]:
    return _named(source, "geom", (source.model.geom_adhesion != 0) & _touching(source))


def adhesive_pairs(source: Source) -> list[str]:
    marks = (source.model.pair_adhesion != 0) & source.flags.contact
    return _named(source, "pair", marks)


def gaps(source: Source) -> list[str]:
    return _named(source, "geom", (source.model.geom_gap != 0) & _touching(source))


def pair_gaps(source: Source) -> list[str]:
    return _named(source, "pair", source.model.pair_gap != 0)


def fluid_shapes(source: Source) -> list[str]:
    m = source.model
    medium = (m.opt.density > 0 or m.opt.viscosity > 0) and source.flags.passive
    return _named(source, "geom", (m.geom_fluid[:, 0] > 0) & medium)


def mixed_solrefs(source: Source) -> list[str]:
    m = source.model

    def mixed(solref):
        return (solref[:, 0] > 0) != (solref[:, 1] > 0)

    limits = m.jnt_limited.astype(bool) & source.flags.limit
    losses = (m.dof_frictionloss > 0) & source.flags.frictionloss
    explicit = np.full(m.npair, source.flags.contact)
    return [
        *_named(source, "joint", mixed(m.jnt_solref) & limits),
        *_joints_of_dofs(source, mixed(m.dof_solref) & losses),
        *_named(source, "geom", mixed(m.geom_solref) & _touching(source)),
        *_named(source, "pair", mixed(m.pair_solref) & explicit),
    ]


def flexes(source: Source) -> list[str]:
    mujoco = engine()
    flex = mujoco.mjtObj.mjOBJ_FLEX
    return [
        f'"{mujoco.mj_id2name(source.model, flex, index) or f"flex{index}"}"'
        for index in range(source.model.nflex)
    ]


def plugins(source: Source) -> list[str]:
    return _named(source, "plugin", np.ones(source.model.nplugin, bool))


def skins(source: Source) -> list[str]:
    return _named(source, "skin", np.ones(source.model.nskin, bool))


def sensors(source: Source) -> list[str]:
    return _named(source, "sensor", np.ones(source.model.nsensor, bool))


def keyframes(source: Source) -> list[str]:
    return _named(source, "key", np.ones(source.model.nkey, bool))


def other_integrators(source: Source) -> list[str]:
    mujoco = engine()
    integrator = mujoco.mjtIntegrator(source.model.opt.integrator)
    if integrator.value <= mujoco.mjtIntegrator.mjINT_RK4.value:
        return []
    return [f'"{integrator.name.removeprefix("mjINT_").lower()}"']


def elliptic_cone(source: Source) -> list[str]:
    mujoco = engine()
    elliptic = source.model.opt.cone == int(mujoco.mjtCone.mjCONE_ELLIPTIC)
    rubbing = any(condim > 1 for condim in source.contacts.condims)
    return ['"elliptic"'] if elliptic and rubbing else []


def noslip(source: Source) -> list[str]:
    count = source.model.opt.noslip_iterations
    return [f"noslip_iterations={count}"] if count > 0 else []


def solver_settings(source: Source) -> list[str]:
    mujoco = engine()
    default = mujoco.MjOption()
    names = ("solver", "iterations", "tolerance", "ls_iterations", "ls_tolerance")
    option = source.model.opt
    return [name for name in names if getattr(option, name) != getattr(default, name)]


def refused_flags(source: Source) -> list[str]:
    mujoco = engine()
    bits = mujoco.mjtEnableBit
    refused = {
        "override": bits.mjENBL_OVERRIDE,
        "sleep": bits.mjENBL_SLEEP,
        "diagexact": bits.mjENBL_DIAGEXACT,
        "ipc": bits.mjENBL_IPC,
        "speculative": bits.mjENBL_SPECULATIVE,
    }
    flags = source.model.opt.enableflags
    return [f'{name}="enable"' for name, bit in refused.items() if flags & int(bit)]


def other_detectors(source: Source) -> list[str]:
    mujoco = engine()
    bits = mujoco.mjtDisableBit
    flags = {"nativeccd": bits.mjDSBL_NATIVECCD}
    kinds = source.model.geom_type
    general = (GeomKind.CAPSULE.value, GeomKind.CYLINDER.value)
    if not any((kinds[a], kinds[b]) == general for a, b, _ in source.contacts.pairs):
        return []
    off = source.model.opt.disableflags
    return [f'{name}="disable"' for name, bit in flags.items() if off & int(bit)]
