"""Supported and unsupported features of MJCF: detection, the table, and the error.

First one function per feature that finds the elements that use it; then the table of
features; then what the loader, its notes and the documentation take from it.
"""

import difflib
import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...model import GeomKind
from ...model.pairs import touching_kinds
from ._read_actuators import idle_actuators
from ._read_bodies import Contacts
from ._read_elements import hidden_shapes, problems, simulated_equalities
from .mujoco_names import described, engine, Flags


# Detection of the elements of a model that use a feature, for `_unsupported`.
#
# Every function takes a `Source` and returns the names of the elements, ready to print.
# An empty list means that the feature is absent or has no effect.


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


# Support status of MJCF features, and the error for unsupported ones.


class Status(enum.Enum):
    """Support status of a feature."""

    SUPPORTED = "supported"
    NO_EFFECT = "accepted, no effect"
    REFUSED = "refused"


class Feature(NamedTuple):
    """A row of the feature table.

    **Arguments:**

    - `name`: name of the feature, in the singular.
    - `status`: support status.
    - `advice`: remedy if refused, reason if without effect, or the supported parts.
    - `find`: function that returns the elements that use the feature. None: nothing to
        report.
    - `key`: name of a refused feature in `load_mjcf(..., ignore=(key,))`. None if it
        cannot be ignored.
    """

    name: str
    status: Status
    advice: str
    find: Callable[[Source], list[str]] | None = None
    key: str | None = None

    @property
    def remedy(self) -> str:
        """Return the advice, and how to leave out the feature if possible."""
        if self.key is None:
            return self.advice
        return f'{self.advice} Or leave it out: `ignore=("{self.key}",)`.'


class UnsupportedMJCF(ValueError):
    """A file uses unsupported features. The message lists all of them.

    `problems` contains `(feature, elements)` for each feature.
    """

    def __init__(
        self, message: str, problems: tuple[tuple[Feature, list[str]], ...] = ()
    ):
        ValueError.__init__(self, message)
        self.problems = problems


# Table of supported and unsupported MJCF features, for the loader's errors and the
# documentation.


_YES, _IDLE, _NO = Status.SUPPORTED, Status.NO_EFFECT, Status.REFUSED

FEATURES: tuple[Feature, ...] = (
    Feature(
        "joint",
        _YES,
        "free, ball, slide, hinge; several in one body; `ref`, `springref`, "
        "`armature`, `stiffness` and `damping` with their polynomials, "
        "`actuatorfrcrange`, `actuatorgravcomp`.",
    ),
    Feature(
        "joint limit", _YES, "slide, hinge and ball; `margin`, `solref`, `solimp`."
    ),
    Feature("dry friction", _YES, "`frictionloss` of joints, `solref`, `solimp`."),
    Feature(
        "equality constraint",
        _YES,
        "`connect` and `weld` of bodies and sites, `joint`, `tendon`; `active`, `solref`, "
        "`solimp`, `torquescale`, `relpose`, `polycoef`.",
    ),
    Feature(
        "body",
        _YES,
        "any tree, several roots, fixed bodies, inertia given or from shapes, "
        "`gravcomp`.",
    ),
    Feature(
        "mocap body", _YES, "its pose is an input; see `set_mocap` and `System.links`."
    ),
    Feature(
        "contact",
        _YES,
        "plane, sphere, capsule, ellipsoid, cylinder, box, mesh (its convex hull) with each "
        "other; `condim` 1, 3, 4, 6; `contype`, `conaffinity`, `priority`, `solmix`, "
        "`solref`, `solreffriction`, `solimp`, `margin`; `pair`, `exclude`; pyramidal and "
        "elliptic cone, `impratio`. Exception: where the face of a cylinder touches another "
        "face, MuJoCo keeps four of up to 16 corners; rounding chooses between equally good "
        "ones.",
    ),
    Feature(
        "actuator",
        _YES,
        "all elements, on joints, tendons, sites (with `refsite`), slider-cranks and bodies "
        "(adhesion); gain, bias and dynamics of motors, "
        "servos, muscles, DC motors, `pid` and `orientation`, alone and combined in "
        "`general`; several inputs; `gear`, `ctrlrange`, `forcerange`, `actrange`, "
        "`actearly`, `damping`, `armature`, `group`.",
    ),
    Feature(
        "mesh",
        _YES,
        "files and inline data, `scale`, `refpos`, `refquat`, `inertia`, `maxhullvert`; drawn, "
        "written by `write_mjcf`, and hit by rays of rangefinders; hulls collide. Textures and "
        "normals are left out.",
    ),
    Feature(
        "height field",
        _YES,
        "files and inline data; drawn, written by `write_mjcf`, hit by rays of rangefinders, "
        "and touched by spheres, capsules, ellipsoids, cylinders, boxes and meshes, in up to "
        "`load_mjcf(..., height_field_contacts=16)` points each. Exceptions: a ray that starts "
        "inside a terrain does not hit the plane z = 0 of its frame; the penetration of "
        "boxes and meshes is exact (MuJoCo: too small if their `margin` is zero).",
    ),
    Feature("site", _YES, "any shape; a mesh becomes its box."),
    Feature(
        "tendon",
        _YES,
        "fixed and spatial, pulleys, wrapping around spheres and cylinders with and "
        "without side sites; `stiffness` and `damping` with polynomials, "
        "`springlength`, `armature`, limits, `frictionloss`, `actuatorfrcrange`. "
        "Exception: where a tendon passes through the inside of a shape, the point of "
        "contact is exact (MuJoCo: to 1e-6).",
    ),
    Feature(
        "integrator",
        _YES,
        "Euler (with implicit joint damping), RK4, implicit and implicitfast (with the "
        "gyroscopic derivatives of free bodies).",
    ),
    Feature(
        "sensor",
        _YES,
        "all elements but `user`, `plugin`, `tactile` and `camprojection`; `cutoff`; `noise` is "
        "not added, as in MuJoCo. See [sensors](sensors.md).",
    ),
    Feature(
        "medium",
        _YES,
        "`density`, `viscosity`, `wind`, on inertia boxes and on ellipsoids "
        "(`fluidshape`, `fluidcoef`).",
    ),
    Feature(
        "flag",
        _YES,
        "`constraint`, `equality`, `frictionloss`, `limit`, `contact`, `spring`, "
        "`damper`, `gravity`, `clampctrl`, `filterparent`, `actuation`, `refsafe`, "
        "`eulerdamp`; `actuatorgroupdisable`.",
    ),
    Feature(
        "keyframe",
        _YES,
        "`qpos`, `qvel`, `act`, `ctrl`, by name: `sys.keyframe(name)`, "
        "`pipeline.init_keyframe(sys, name)`.",
    ),
    Feature(
        "inertia that couples branches, armature of tendon",
        _IDLE,
        "MuJoCo neglects the coupling of joints in different branches; eqsim simulates "
        "it.",
        coupled_branches,
    ),
    Feature(
        "equality constraint that is disabled by a flag",
        _IDLE,
        "it is left out.",
        disabled_equalities,
    ),
    Feature(
        "switched-off actuator",
        _IDLE,
        "it exerts no force.",
        idle,
    ),
    Feature(
        "shape that touches nothing",
        _IDLE,
        "a distance field without a partner is left out.",
        untouched_shapes,
    ),
    Feature(
        "impedance above 1 of geom",
        _IDLE,
        "the first two numbers of `solimp` count as at most 0.9999, as in MuJoCo.",
        saturated_impedances,
    ),
    Feature(
        "contact gap of geom",
        _IDLE,
        "a gap reports contacts but exerts no force.",
        gaps,
    ),
    Feature(
        "contact gap of pair",
        _IDLE,
        "a gap reports contacts but exerts no force.",
        pair_gaps,
    ),
    Feature(
        "unsupported sensor",
        _IDLE,
        "it is left out, which does not change the motion: plugins, `user`, `tactile`, cameras, "
        "`delay` and `interval`, distances of shapes without a collider and of meshes that "
        "collide with nothing, shapes that are left out, contact sensors with contact gaps.",
        other_sensors,
    ),
    Feature(
        "shape that rays of rangefinders pass through",
        _IDLE,
        "a distance field is not part of the system.",
        shapes_without_rays,
    ),
    Feature("skin", _IDLE, "skins are only drawn.", skins),
    Feature(
        "flag for sleeping bodies",
        _IDLE,
        "all bodies are simulated in every step, also those that MuJoCo lets sleep.",
        sleep_flag,
    ),
    Feature(
        "solver setting",
        _IDLE,
        "the solver iterates until it has converged (at most 50 steps).",
        solver_settings,
    ),
    Feature(
        "camera, light, material, texture, custom data, visual, statistic, size",
        _IDLE,
        "not part of the dynamics; not listed in the notes.",
    ),
    Feature(
        "flag `warmstart`, `midphase`, `island`, `autoreset`, `sensor`, `energy`, "
        "`fwdinv`, `invdiscrete`",
        _IDLE,
        "they affect MuJoCo's algorithms, not the motion; not listed in the notes.",
    ),
    Feature(
        "equality constraint of flexes",
        _NO,
        "remove it.",
        other_equalities,
    ),
    Feature(
        "springyield of tendon",
        _NO,
        "remove it: springs are elastic.",
        plastic_tendons,
        key="springyield",
    ),
    Feature(
        "adhesion with a contact gap in actuator",
        _NO,
        "set `gap` to 0 and raise `margin`.",
        adhesion_gaps,
    ),
    Feature(
        "user-defined law in actuator",
        _NO,
        "use one of MuJoCo's own `gaintype`, `biastype` and `dyntype`.",
        user_laws,
    ),
    Feature(
        "part of a DC motor in actuator",
        _NO,
        "use the element `dcmotor`, or a `gaintype`, `biastype` and `dyntype` that belong "
        "together.",
        mixed_motors,
    ),
    Feature(
        "delay in actuator",
        _NO,
        "remove `delay` and delay the control outside the simulator.",
        delayed_actuators,
        key="delay",
    ),
    Feature(
        "springyield in joint",
        _NO,
        "remove it: springs are elastic.",
        plastic_springs,
        key="springyield",
    ),
    Feature(
        "contact between shapes",
        _NO,
        "replace a shape (by capsules, say), or keep the two apart with `contype` and "
        "`conaffinity` or an `exclude`.",
        other_shapes,
    ),
    Feature(
        "surfacevel of geom",
        _NO,
        "move the shape with a slide or hinge joint instead.",
        surface_velocities,
        key="surfacevel",
    ),
    Feature("adhesion of geom", _NO, "remove it.", adhesive_shapes, key="adhesion"),
    Feature("adhesion of pair", _NO, "remove it.", adhesive_pairs, key="adhesion"),
    Feature(
        "solref of mixed sign in element",
        _NO,
        "make both numbers positive, or neither.",
        mixed_solrefs,
    ),
    Feature("flex", _NO, "remove it: bodies are rigid.", flexes),
    Feature(
        "plugin of actuator",
        _NO,
        "replace it by an actuator without plugin, or compute its force outside.",
        actuator_plugins,
    ),
    Feature(
        "plugin of body",
        _NO,
        "remove it; for elasticity, use joints with `stiffness` and `damping`.",
        body_plugins,
    ),
    Feature(
        "plugin of geom",
        _NO,
        "replace the signed distance field by other shapes.",
        geom_plugins,
    ),
    Feature("integrator", _NO, "set it to implicitfast.", other_integrators),
    Feature(
        "noslip solver",
        _NO,
        "remove it; raise `impratio` to slow down slip.",
        noslip,
        key="noslip",
    ),
    Feature("flag", _NO, "leave it at its default.", refused_flags),
    Feature(
        "flag for the collision of convex shapes",
        _NO,
        "leave it at its default.",
        other_detectors,
        key="nativeccd",
    ),
)
"""All features of MJCF with their support status."""


# Uses of the feature table: refusals, notes, and the page of the documentation.


def check_ignored(ignore: Sequence[str]) -> frozenset[str]:
    """Check that features can be ignored.

    **Raises:** `ValueError` that lists the names that can be ignored.
    """
    known = sorted({feature.key for feature in FEATURES if feature.key is not None})
    names = [ignore] if isinstance(ignore, str) else list(ignore)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"`ignore` contains {name!r}, which cannot be ignored.{hint} Accepted: "
                f"{', '.join(known)}."
            )
    return frozenset(names)


def check_supported(
    label: str, source: Source, ignore: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Reject unsupported features, and note features that have no effect.

    **Arguments:**

    - `label`: name of the file in messages.
    - `source`: the compiled model.
    - `ignore`: keys of unsupported features to leave out.

    **Returns:** one note per feature that has no effect or is ignored.

    **Raises:** `UnsupportedMJCF`, which lists all unsupported features.
    """
    found = [
        (feature, elements)
        for feature in FEATURES
        if feature.find is not None and (elements := feature.find(source))
    ]
    problems = tuple(
        (feature, elements)
        for feature, elements in found
        if feature.status is Status.REFUSED and feature.key not in ignore
    )
    if problems:
        count = "1 feature" if len(problems) == 1 else f"{len(problems)} features"
        lines = [f"{label} uses {count} that eqsim does not simulate:"]
        for feature, elements in problems:
            lines.append(f"  - {feature.name} {_listed(elements)}: {feature.remedy}")
        raise UnsupportedMJCF("\n".join(lines), problems)
    return tuple(_note(feature, elements) for feature, elements in found)


def _note(feature: Feature, elements: list[str]) -> str:
    if feature.status is Status.REFUSED:
        advice = f'not simulated, because of `ignore=("{feature.key}",)`.'
        return f"{feature.name} {_listed(elements)}: {advice}"
    return f"{feature.name} {_listed(elements)}: {feature.advice}"


def support_table() -> str:
    """Return the page of supported features, in Markdown."""
    lines = [
        "# MJCF support",
        "",
        "`eqsim.load_mjcf` reads MJCF files with MuJoCo's own compiler, so defaults, "
        "classes,",
        "includes, frames, `fromto`, inertia from shapes and all `compiler` settings "
        "have the",
        "same meaning as in MuJoCo. A feature is either simulated as in MuJoCo, or "
        "accepted",
        "because it does not affect the motion (and listed in `System.notes`), or "
        "refused.",
        "One error lists all refused features of a file by name.",
        "",
        "```python",
        'sys = eqsim.load_mjcf("robot.xml")',
        'sys = eqsim.load_mjcf(text, {"mesh.stl": data, "parts.xml": other_text})',
        "sys = eqsim.load_mjcf(spec)  # mujoco.MjSpec or mujoco.MjModel",
        'sys = eqsim.load_mjcf("robot.xml", ignore=("noslip",))',
        "",
        'state = pipeline.init_keyframe(sys, "home")  # with the activations',
        'ctrl = sys.keyframe("home").ctrl',
        'angle = state.q[sys.joint("knee").q]',
        'speed = state.qd[sys.joint("knee").qd]',
        'mass = sys.links.mass[sys.link("torso").index]',
        "```",
        "",
        "`ignore` lists features to leave out instead of refusing the file. The table "
        "*Refused*",
        "contains their names. The robot is then simulated as if the file did not use them.",
    ]
    headings = {
        Status.SUPPORTED: ("Supported", "What is covered"),
        Status.NO_EFFECT: ("Accepted, without effect", "Why"),
        Status.REFUSED: ("Refused", "What to do"),
    }
    for status, (heading, column) in headings.items():
        lines += ["", f"## {heading}", "", f"| Feature | {column} |", "|---|---|"]
        lines += [
            f"| {feature.name} | {feature.remedy} |"
            for feature in FEATURES
            if feature.status is status
        ]
    return "\n".join(lines) + "\n"


def _listed(elements: list[str], limit: int = 10) -> str:
    text = ", ".join(elements[:limit])
    left = len(elements) - limit
    return f"{text} and {left} more" if left > 0 else text
