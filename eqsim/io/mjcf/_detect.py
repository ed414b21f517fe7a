"""Detection of the elements of a model that use a feature, for `_unsupported`.

Every function takes a `Source` and returns the names of the elements, ready to print.
An empty list means that the feature is absent or has no effect.
"""

from typing import Any, NamedTuple

import numpy as np

from ...model import GeomKind
from ...model.pairs import touching_kinds
from ._actuators import idle_actuators
from ._equalities import simulated_equalities
from ._flags import Flags
from ._geoms import Contacts
from ._mujoco import engine
from ._names import described
from ._sensors import hidden_shapes, problems


class Source(NamedTuple):
    """A compiled model and derived information.

    **Arguments:**

    - `model`: a `mujoco.MjModel`.
    - `flags`: enabled parts of the simulation.
    - `contacts`: pairs that can touch.
    """

    model: Any
    flags: Flags
    contacts: Contacts


def _named(source: Source, kind: str, marks: Any) -> list[str]:
    chosen = np.flatnonzero(marks)
    if not len(chosen):
        return []
    names = described(source.model, kind)
    return [names[index] for index in chosen]


def _joints_of_dofs(source: Source, marks: Any) -> list[str]:
    joints = np.zeros(source.model.njnt, bool)
    joints[source.model.dof_jntid[np.asarray(marks, bool)]] = True
    return _named(source, "joint", joints)


def other_equalities(source: Source) -> list[str]:
    other = ~simulated_equalities(source.model)
    return _named(source, "equality", other & source.flags.equality)


def disabled_equalities(source: Source) -> list[str]:
    marks = np.ones(source.model.neq, bool)
    return _named(source, "equality", marks & (not source.flags.equality))


def plastic_tendons(source: Source) -> list[str]:
    return _named(source, "tendon", source.model.tendon_plasticadr >= 0)


def coupled_branches(source: Source) -> list[str]:
    """Return tendons with armature that span joints in different branches of the
    tree."""
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


def adhesion_gaps(source: Source) -> list[str]:
    """Return actuators on links, if shapes or pairs have a gap, in which adhesion
    acts."""
    mujoco = engine()
    m = source.model
    on_link = m.actuator_trntype == int(mujoco.mjtTrn.mjTRN_BODY)
    return _named(source, "actuator", on_link & source.contacts.has_gaps)


def user_laws(source: Source) -> list[str]:
    """Return actuators with user-defined laws: callbacks, and plugins, which are marked
    alike."""
    mujoco = engine()
    m = source.model
    user = (
        (m.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_USER))
        | (m.actuator_biastype == int(mujoco.mjtBias.mjBIAS_USER))
        | (m.actuator_dyntype == int(mujoco.mjtDyn.mjDYN_USER))
        | (m.actuator_plugin >= 0)
    )
    return _named(source, "actuator", user)


def mixed_motors(source: Source) -> list[str]:
    """Return actuators with parts of a DC motor but not its gain, or with other
    dynamics."""
    mujoco = engine()
    m, kind = source.model, mujoco.mjtDyn
    gain = m.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_DCMOTOR)
    bias = m.actuator_biastype == int(mujoco.mjtBias.mjBIAS_DCMOTOR)
    dynamic = m.actuator_dyntype == int(kind.mjDYN_DCMOTOR)
    still = m.actuator_dyntype == int(kind.mjDYN_NONE)
    marks = (gain & ~dynamic & ~still) | (~gain & (bias | dynamic))
    return _named(source, "actuator", marks)


def delayed_actuators(source: Source) -> list[str]:
    return _named(source, "actuator", source.model.actuator_delay > 0)


def idle(source: Source) -> list[str]:
    return _named(source, "actuator", idle_actuators(source.model, source.flags))


def plastic_springs(source: Source) -> list[str]:
    return _named(source, "joint", source.model.jnt_plasticadr >= 0)


def other_shapes(source: Source) -> list[str]:
    supported = {(a.value, b.value) for a, b in touching_kinds()}
    others = [x for x in source.contacts.kinds if x.kinds not in supported]
    if not others:
        return []
    names, texts = described(source.model, "geom"), []
    for kinds, number, first in others:
        one, two, _ = source.contacts.pairs[first]
        pairs = "1 pair" if number == 1 else f"{number} pairs"
        shapes = f"{_shape(kinds[0])} with {_shape(kinds[1])}"
        example = f"{names[one]} with {names[two]}"
        texts.append(f"{shapes} ({pairs}, for instance {example})")
    return texts


def untouched_shapes(source: Source) -> list[str]:
    return _named(source, "geom", source.contacts.places < 0)


def _shape(kind: Any) -> str:
    return engine().mjtGeom(kind).name.removeprefix("mjGEOM_").lower()


def surface_velocities(source: Source) -> list[str]:
    moving = np.any(source.model.geom_surfacevel != 0, axis=-1)
    return _named(source, "geom", moving & source.contacts.touching)


def adhesive_shapes(source: Source) -> list[str]:
    return _named(
        source, "geom", (source.model.geom_adhesion != 0) & source.contacts.touching
    )


def adhesive_pairs(source: Source) -> list[str]:
    marks = (source.model.pair_adhesion != 0) & source.flags.contact
    return _named(source, "pair", marks)


def saturated_impedances(source: Source) -> list[str]:
    above = np.any(source.model.geom_solimp[:, :2] > 1.0, axis=1)
    return _named(source, "geom", above & source.contacts.touching)


def gaps(source: Source) -> list[str]:
    return _named(
        source, "geom", (source.model.geom_gap != 0) & source.contacts.touching
    )


def pair_gaps(source: Source) -> list[str]:
    return _named(source, "pair", source.model.pair_gap != 0)


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
        *_named(source, "geom", mixed(m.geom_solref) & source.contacts.touching),
        *_named(source, "pair", mixed(m.pair_solref) & explicit),
    ]


def flexes(source: Source) -> list[str]:
    return _named(source, "flex", np.ones(source.model.nflex, bool))


def actuator_plugins(source: Source) -> list[str]:
    return _named(source, "actuator", source.model.actuator_plugin >= 0)


def body_plugins(source: Source) -> list[str]:
    return _named(source, "body", source.model.body_plugin >= 0)


def geom_plugins(source: Source) -> list[str]:
    return _named(source, "geom", source.model.geom_plugin >= 0)


def skins(source: Source) -> list[str]:
    return _named(source, "skin", np.ones(source.model.nskin, bool))


def other_sensors(source: Source) -> list[str]:
    reasons = problems(source.model, source.contacts)
    if not any(reasons):
        return []
    names = described(source.model, "sensor")
    return [f"{name} ({reason})" for name, reason in zip(names, reasons) if reason]


def shapes_without_rays(source: Source) -> list[str]:
    marks = np.zeros(source.model.ngeom, bool)
    marks[hidden_shapes(source.model, source.contacts)] = True
    return _named(source, "geom", marks)


def other_integrators(source: Source) -> list[str]:
    mujoco = engine()
    integrator = mujoco.mjtIntegrator(source.model.opt.integrator)
    if integrator.value <= mujoco.mjtIntegrator.mjINT_IMPLICITFAST.value:
        return []
    return [f'"{integrator.name.removeprefix("mjINT_").lower()}"']


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
        "diagexact": bits.mjENBL_DIAGEXACT,
        "ipc": bits.mjENBL_IPC,
        "speculative": bits.mjENBL_SPECULATIVE,
    }
    flags = source.model.opt.enableflags
    return [f'{name}="enable"' for name, bit in refused.items() if flags & int(bit)]


def sleep_flag(source: Source) -> list[str]:
    bit = int(engine().mjtEnableBit.mjENBL_SLEEP)
    return ['sleep="enable"'] if source.model.opt.enableflags & bit else []


def other_detectors(source: Source) -> list[str]:
    mujoco = engine()
    bits = mujoco.mjtDisableBit
    pairs = {entry.kinds for entry in source.contacts.kinds}
    solids = (GeomKind.CAPSULE, GeomKind.CYLINDER, GeomKind.BOX, GeomKind.MESH)
    solids = {kind.value for kind in solids}
    hulls = {GeomKind.CYLINDER.value, GeomKind.MESH.value}
    several = {pair for pair in pairs if solids >= set(pair) and hulls & set(pair)}
    others = {
        pair
        for pair in pairs
        if {GeomKind.MESH.value, GeomKind.ELLIPSOID.value} & set(pair)
    }
    flags = {
        "nativeccd": (bits.mjDSBL_NATIVECCD, several | others),
        "multiccd": (bits.mjDSBL_MULTICCD, several),
    }
    off = source.model.opt.disableflags
    return [
        f'{name}="disable"'
        for name, (bit, concerned) in flags.items()
        if off & int(bit) and pairs & concerned
    ]
