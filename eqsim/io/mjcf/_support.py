"""Supported and unsupported features of MJCF: the table, and what uses it.

First the features that are simulated; then those without effect and those that are
refused, each with a function that finds the elements of a model that use it; then the
loader's errors and notes, and the page of the documentation.
"""

import difflib
import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._errors import listed
from ...model import AbstractDistanceField, GeomKind, Integrator
from ...model.pairs import touching_values
from ._read_actuators import (
    idle_actuators,
    ignores_delay,
    pid_plugin_problem,
    pid_plugins,
)
from ._read_bodies import Contacts, is_field, overrides
from ._read_elements import hidden_shapes, problems, simulated_equalities
from ._table import attribute_list
from .mujoco_names import described, engine, Flags, kind_names


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
    - `kind`: kind of the elements that may use the feature, such as `"joint"`. Empty if
        `uses` returns texts.
    - `uses`: function of a `mujoco.MjModel`, its flags and its contacts that returns true
        for each element that uses the feature, or a list of texts. None: nothing to
        report.
    - `key`: name of a refused feature in `load_mjcf(..., ignore=(key,))`. None if it
        cannot be ignored.
    """

    name: str
    status: Status
    advice: str
    kind: str = ""
    uses: Callable[[Any, Flags, Contacts], Any] | None = None
    key: str | None = None

    def __reduce__(self):
        # Functions without a name cannot be pickled.
        return _feature, (FEATURES.index(self),)

    @property
    def remedy(self) -> str:
        """Return the advice, and how to leave out the feature if possible."""
        if self.key is None:
            return self.advice
        return f'{self.advice} Or leave it out: `ignore=("{self.key}",)`.'

    def find(self, model: Any, flags: Flags, contacts: Contacts) -> list[str]:
        """Return the elements that use the feature, ready to print."""
        found = [] if self.uses is None else self.uses(model, flags, contacts)
        return _named(model, self.kind, found) if self.kind else list(found)


def _feature(index: int) -> Feature:
    return FEATURES[index]


def _named(model: Any, kind: str, marks: Any) -> list[str]:
    if not np.any(marks):
        return []
    names = described(model, kind)
    chosen = np.flatnonzero(np.broadcast_to(marks, len(names)))
    return [names[index] for index in chosen]


class UnsupportedMJCF(ValueError):
    """A file uses unsupported features. The message lists all of them.

    `problems` contains `(feature, elements)` for each feature.
    """

    def __init__(
        self, message: str, problems: tuple[tuple[Feature, list[str]], ...] = ()
    ):
        ValueError.__init__(self, message)
        self.problems = problems


# Features whose detection takes more than a line. Each function returns true for the
# elements that use it, or texts.


def _branching_tendons(m: Any, flags: Flags, contacts: Contacts) -> np.ndarray:
    """Find tendons with armature that span joints in different branches of the tree."""
    marks = np.zeros(m.ntendon, bool)
    for tendon in np.flatnonzero(m.tendon_armature):
        start = m.ten_J_rowadr[tendon]
        dofs = m.ten_J_colind[start : start + m.ten_J_rownnz[tendon]].tolist()
        chain, dof = set(), max(dofs, default=-1)
        while dof >= 0:
            chain.add(dof)
            dof = int(m.dof_parentid[dof])
        marks[tendon] = not chain.issuperset(dofs)
    return marks


def _user_laws(m: Any, flags: Flags, contacts: Contacts) -> np.ndarray:
    """Find actuators whose forces callbacks compute."""
    gain, bias, dynamics = _laws(m)
    user = (gain == "user") | (bias == "user")
    return user & (dynamics != "user") & (m.actuator_plugin < 0)


def _user_dynamics(m: Any, flags: Flags, contacts: Contacts) -> np.ndarray:
    """Find actuators with callbacks for activations."""
    return (_laws(m)[2] == "user") & ~pid_plugins(m)


def _other_plugins(m: Any, flags: Flags, contacts: Contacts) -> np.ndarray:
    """Find actuators with other plugins than `mujoco.pid`."""
    return (m.actuator_plugin >= 0) & ~pid_plugins(m)


def _other_pids(m: Any, flags: Flags, contacts: Contacts) -> list[str]:
    names, plugins = described(m, "actuator"), np.flatnonzero(pid_plugins(m)).tolist()
    rows = [(names[k], pid_plugin_problem(m, flags, k)) for k in plugins]
    return [f"{name} ({reason})" for name, reason in rows if reason]


def _other_delays(m: Any, flags: Flags, contacts: Contacts) -> np.ndarray:
    """Find delays of several controls."""
    delayed = (m.actuator_delay > 0) & ~idle_actuators(m, flags)
    return delayed & (m.actuator_ctrlnum != 1)


def _mixed_motors(m: Any, flags: Flags, contacts: Contacts) -> np.ndarray:
    """Find actuators with parts of a DC motor but not its gain, or with other dynamics."""
    gain, bias, dynamics = _laws(m)
    others = (bias == "dcmotor") | (dynamics == "dcmotor")
    possible = np.isin(dynamics, ["dcmotor", "none"])
    return np.where(gain == "dcmotor", ~possible, others)


def _laws(m: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        kind_names("mjtGain", m.actuator_gaintype),
        kind_names("mjtBias", m.actuator_biastype),
        kind_names("mjtDyn", m.actuator_dyntype),
    )


def _other_shapes(m: Any, flags: Flags, contacts: Contacts) -> list[str]:
    """Describe pairs of kinds of shapes that have no collider."""
    supported = touching_values()
    others = [each for each in contacts.kinds if each.kinds not in supported]
    names = described(m, "geom") if others else ()
    texts = []
    for kinds, number, first in others:
        shapes = " with ".join(kind_names("mjtGeom", kinds))
        one, two, _ = contacts.pairs[first]
        pairs = "1 pair" if number == 1 else f"{number} pairs"
        example = f"for instance {names[one]} with {names[two]}"
        texts.append(f"{shapes} ({pairs}, {example})")
    return texts


def _other_fields(m: Any, flags: Flags, contacts: Contacts) -> np.ndarray:
    """Find distance fields of meshes and of unknown plugins that can touch something."""
    fields = m.geom_type == AbstractDistanceField.value
    return fields & contacts.touching & ~is_field(m, contacts)


def _mixed_solrefs(m: Any, flags: Flags, contacts: Contacts) -> list[str]:
    """Name joints, geoms and pairs of which one number of `solref` is positive."""

    def mixed(solref):
        return (solref[:, 0] > 0) != (solref[:, 1] > 0)

    losses = mixed(m.dof_solref) & (m.dof_frictionloss > 0) & flags.frictionloss
    with_loss = np.isin(np.arange(m.njnt), m.dof_jntid[losses])
    limited = m.jnt_limited.astype(bool) & flags.limit
    return [
        *_named(m, "joint", mixed(m.jnt_solref) & limited),
        *_named(m, "joint", with_loss),
        *_named(m, "geom", mixed(m.geom_solref) & contacts.touching),
        *_named(m, "pair", mixed(m.pair_solref) & flags.contact),
    ]


def _other_sensors(m: Any, flags: Flags, contacts: Contacts) -> list[str]:
    rows = zip(described(m, "sensor"), problems(m, contacts))
    return [f"{name} ({reason})" for name, reason in rows if reason]


def _other_integrators(m: Any, flags: Flags, contacts: Contacts) -> list[str]:
    (name,) = kind_names("mjtIntegrator", [m.opt.integrator])
    known = [kind.value.lower() for kind in Integrator]
    return [] if name in known else [f'"{name}"']


def _solver_settings(m: Any, flags: Flags, contacts: Contacts) -> list[str]:
    default = engine().MjOption()
    names = ("solver", "iterations", "tolerance", "ls_iterations", "ls_tolerance")
    names += ("noslip_iterations", "noslip_tolerance")
    return [name for name in names if getattr(m.opt, name) != getattr(default, name)]


def _enabled(m: Any, *names: str) -> list[str]:
    """Return those of MuJoCo's flags that are enabled, as text."""
    bits = engine().mjtEnableBit.__members__
    number = lambda name: int(bits[f"mjENBL_{name.upper()}"])
    return [f'{x}="enable"' for x in names if m.opt.enableflags & number(x)]


def _mocap_keys(m: Any, flags: Flags, contacts: Contacts) -> np.ndarray:
    """Find keyframes with other poses of mocap bodies than the bodies themselves."""
    bodies = [m.body_mocapid.tolist().index(k) for k in range(m.nmocap)]
    given = np.concatenate([m.key_mpos, m.key_mquat], axis=1)
    own = np.append(m.body_pos[bodies], m.body_quat[bodies])
    return np.any(np.abs(given - own) > 1e-9, axis=1)


def _other_flags(m: Any, flags: Flags, contacts: Contacts) -> list[str]:
    """Find enabled flags without support, and overriding friction of shapes, which have one
    coefficient for both tangents and one for rolling, with several."""
    found = _enabled(m, "diagexact", "ipc", "speculative")
    several = np.any(m.opt.o_friction[[0, 3]] != m.opt.o_friction[[1, 4]])
    if overrides(m) and several and np.any(contacts.pairs[:, 2] < 0):
        found.append('override="enable" with unequal numbers of `o_friction`')
    return found


def _other_detectors(m: Any, flags: Flags, contacts: Contacts) -> list[str]:
    """Find disabled flags of collisions that change contacts of the model.

    Without `nativeccd`, MuJoCo estimates depths, by up to centimeters, of all pairs without
    a closed form; without `multiccd`, it keeps one point of faces, which is not unique."""
    bits = engine().mjtDisableBit
    numbers = lambda *names: {GeomKind[name].value for name in names}
    solids = numbers("CAPSULE", "CYLINDER", "BOX", "MESH")
    hulls, curved = numbers("CYLINDER", "MESH"), numbers("HFIELD", "MESH", "ELLIPSOID")
    every = [set(entry.kinds) for entry in contacts.kinds]
    pairs = [pair for pair in every if not pair & numbers("PLANE")]
    several = any(solids >= pair and hulls & pair for pair in pairs)
    others = any(curved & pair for pair in pairs)
    off, out = m.opt.disableflags, []
    if off & int(bits.mjDSBL_NATIVECCD) and (several or others):
        out.append('nativeccd="disable"')
    if off & int(bits.mjDSBL_MULTICCD) and several:
        out.append('multiccd="disable"')
    return out


_ELASTIC = "remove it: springs are elastic."
_GAP = "without adhesion and adhesion actuators, a gap exerts no force."
_DEFAULT = "leave it at its default."

_SUPPORTED: dict[str, str] = {
    "joint": (
        "free, ball, slide, hinge; several in one body; `ref`, `springref`, "
        f"{attribute_list('joint')}."
    ),
    "equality constraint": (
        "`connect` and `weld` of bodies and sites, `joint`, `tendon`; `active`, "
        f"`torquescale`, `relpose`, `polycoef`, {attribute_list('equality')}."
    ),
    "body": (
        "any tree, several roots, fixed bodies, inertia given or from shapes; "
        f"{attribute_list('body', 'inertial')}."
    ),
    "mocap body": "its pose is an input; see `set_mocap` and `System.links`.",
    "contact": (
        "plane, sphere, capsule, ellipsoid, cylinder, box, mesh (its convex hull) with each "
        "other; the plugins `mujoco.sdf.bolt`, `bowl`, `gear`, `nut` and `torus` with each "
        "other and all of them but meshes, `sdf_iterations`, `sdf_initpoints`; `pair`, "
        f"`exclude`; {attribute_list('geom', 'pair')}; pyramidal and elliptic cone, "
        "`impratio`, noslip solver. Exceptions: where the face of a cylinder touches another "
        "face, MuJoCo keeps four of up to 16 corners; rounding chooses between equally good "
        "ones. Where a distance field touches a plane, MuJoCo uses a mesh of the field."
    ),
    "actuator": (
        "all elements, on joints, tendons, sites (with `refsite`), slider-cranks and bodies "
        "(adhesion); gain, bias and dynamics of motors, servos, muscles, DC motors, `pid` "
        "and `orientation`, alone and combined in `general`; the plugin `mujoco.pid`; several "
        "inputs; `gear`, "
        f"`ctrlrange`, `group`, `delay`, `nsample`, `interp`, {attribute_list('actuator')}."
    ),
    "mesh": (
        "files and inline data, `scale`, `refpos`, `refquat`, `inertia`, `maxhullvert`; drawn, "
        "written by `write_mjcf`, and hit by rays of rangefinders; hulls collide. Textures and "
        "normals are left out."
    ),
    "height field": (
        "files and inline data; drawn, written by `write_mjcf`, hit by rays of rangefinders, "
        "and touched by spheres, capsules, ellipsoids, cylinders, boxes and meshes, in up to "
        "`load_mjcf(..., height_field_contacts=16)` points each. Exceptions: a ray that starts "
        "inside a terrain does not hit the plane z = 0 of its frame; the penetration of "
        "boxes and meshes is exact (MuJoCo: too small if their `margin` is zero)."
    ),
    "site": "any shape; a mesh becomes its box.",
    "tendon": (
        "fixed and spatial, pulleys, wrapping around spheres and cylinders with and "
        f"without side sites; `springlength`, {attribute_list('tendon')}. "
        "Exception: where a tendon passes through the inside of a shape, the point of "
        "contact is exact (MuJoCo: to 1e-6)."
    ),
    "integrator": (
        "Euler (with implicit joint damping), RK4, implicit and implicitfast (with the "
        "gyroscopic derivatives of free bodies)."
    ),
    "sensor": (
        "all elements but `user`, `plugin`, `tactile` and `camprojection`; `cutoff`; `noise` is "
        "not added, as in MuJoCo. See [sensors](sensors.md)."
    ),
    "medium": (
        "`density`, `viscosity`, `wind`, on inertia boxes and on ellipsoids "
        "(`fluidshape`, `fluidcoef`)."
    ),
    "flag": (
        f"`constraint`, {', '.join(f'`{name}`' for name in Flags._fields)}; "
        "`actuatorgroupdisable`; `override` with `o_margin`, `o_solref`, `o_solimp`, "
        "`o_friction`, which become parameters of shapes and pairs."
    ),
    "keyframe": (
        f"{attribute_list('key')}, by name: `sys.keyframe(name)`, "
        "`pipeline.init_keyframe(sys, name)`."
    ),
}

# Advice, kind of the elements, their detection, and key of `ignore`, as in `Feature`.
_NO_EFFECT: dict[str, tuple] = {
    "inertia that couples branches, armature of tendon": (
        "MuJoCo neglects the coupling of joints in different branches; eqsim simulates "
        "it.",
        "tendon",
        _branching_tendons,
    ),
    "equality constraint that is disabled by a flag": (
        "it is left out.",
        "equality",
        lambda m, flags, contacts: not flags.equality,
    ),
    "switched-off actuator": (
        "it exerts no force.",
        "actuator",
        lambda m, flags, contacts: idle_actuators(m, flags),
    ),
    "pose of mocap bodies in key": (
        "it is an input: pass it to `set_mocap`.",
        "key",
        _mocap_keys,
    ),
    "delay of actuator with `mujoco.pid`": (
        "the plugin reads the control without delay, unless there is an activation.",
        "actuator",
        lambda m, flags, contacts: ignores_delay(m) & (m.actuator_delay > 0),
    ),
    "shape that touches nothing": (
        "a distance field without a partner is left out.",
        "geom",
        lambda m, flags, contacts: contacts.places < 0,
    ),
    "impedance above 1 of geom": (
        "the first two numbers of `solimp` count as at most 0.9999, as in MuJoCo.",
        "geom",
        lambda m, flags, contacts: (
            np.any(m.geom_solimp[:, :2] > 1.0, axis=1) & contacts.touching
        ),
    ),
    "contact gap of geom": (
        _GAP,
        "geom",
        lambda m, flags, contacts: (
            (m.geom_gap != 0) & contacts.touching & (not contacts.uses_gaps)
        ),
    ),
    "contact gap of pair": (
        _GAP,
        "pair",
        lambda m, flags, contacts: (m.pair_gap != 0) & (not contacts.uses_gaps),
    ),
    "unsupported sensor": (
        "it is left out, which does not change the motion: plugins, `user`, `tactile`, cameras, "
        "`delay` and `interval`, distances of shapes without a collider and of meshes that "
        "collide with nothing, shapes that are left out, contact sensors with contact gaps.",
        "",
        _other_sensors,
    ),
    "shape that rays of rangefinders pass through": (
        "rays pass through distance fields.",
        "geom",
        lambda m, flags, contacts: hidden_shapes(m, contacts),
    ),
    "skin": ("skins are only drawn.", "skin", lambda *source: True),
    "flag for sleeping bodies": (
        "all bodies are simulated in every step, also those that MuJoCo lets sleep.",
        "",
        lambda m, flags, contacts: _enabled(m, "sleep"),
    ),
    "solver setting": (
        "the value has no effect: the solver iterates until it has converged, at most 50 "
        "steps. Any `noslip_iterations` > 0 enables friction without slip, which is solved to "
        "convergence, too.",
        "",
        _solver_settings,
    ),
    "camera, light, material, texture, custom data, visual, statistic, size": (
        "not part of the dynamics; not listed in the notes.",
    ),
    (
        "flag `warmstart`, `midphase`, `island`, `autoreset`, `sensor`, `energy`, "
        "`fwdinv`, `invdiscrete`"
    ): ("they affect MuJoCo's algorithms, not the motion; not listed in the notes.",),
}

_REFUSED: dict[str, tuple] = {
    "equality constraint of flexes": (
        "remove it.",
        "equality",
        lambda m, flags, contacts: ~simulated_equalities(m) & flags.equality,
    ),
    "springyield of tendon": (
        _ELASTIC,
        "tendon",
        lambda m, flags, contacts: m.tendon_plasticadr >= 0,
        "springyield",
    ),
    "user-defined law in actuator": (
        "leave the law out and attach a model of your own with "
        "`System.with_actuator_model`.",
        "actuator",
        _user_laws,
        "user",
    ),
    "user-defined activation in actuator": (
        "use one of MuJoCo's own `dyntype`, or none and a model with state variables.",
        "actuator",
        _user_dynamics,
    ),
    "part of a DC motor in actuator": (
        "use the element `dcmotor`, or a `gaintype`, `biastype` and `dyntype` that belong "
        "together.",
        "actuator",
        _mixed_motors,
    ),
    "delay in actuator with several controls": (
        "delay the controls outside the simulator.",
        "actuator",
        _other_delays,
        "delay",
    ),
    "springyield in joint": (
        _ELASTIC,
        "joint",
        lambda m, flags, contacts: m.jnt_plasticadr >= 0,
        "springyield",
    ),
    "contact between shapes": (
        "replace a shape (by capsules, say), or keep the two apart with `contype` and "
        "`conaffinity` or an `exclude`.",
        "",
        _other_shapes,
    ),
    "adhesion without passive forces": (
        "enable springs or dampers, with which MuJoCo disables the pull.",
        "",
        lambda m, flags, contacts: (
            ['spring="disable"', 'damper="disable"']
            if contacts.adheres and not flags.passive
            else []
        ),
    ),
    "solref of mixed sign in element": (
        "make both numbers positive, or neither.",
        "",
        _mixed_solrefs,
    ),
    "flex": ("remove it: bodies are rigid.", "flex", lambda *source: True),
    "plugin of actuator": (
        "of all plugins, `mujoco.pid` is simulated; replace others by an actuator model "
        "(`System.with_actuator_model`).",
        "actuator",
        _other_plugins,
    ),
    "setting of `mujoco.pid` in actuator": (
        "use finite numbers, `dyntype` none, integrator, filter or filterexact, a default "
        "class without law, enabled groups, and list such actuators first, because the plugin "
        "counts actuators, not controls.",
        "",
        _other_pids,
    ),
    "plugin of body": (
        "remove it; for elasticity, use joints with `stiffness` and `damping`.",
        "body",
        lambda m, flags, contacts: m.body_plugin >= 0,
    ),
    "distance field of geom": (
        "use one of MuJoCo's plugins `mujoco.sdf.bolt`, `bowl`, `gear`, `nut` and `torus`, or "
        "another shape, which `replace_shape` can replace by an `AbstractDistanceField`.",
        "geom",
        _other_fields,
    ),
    "fluid forces on distance field": (
        "remove `fluidshape`.",
        "geom",
        lambda m, flags, contacts: is_field(m, contacts) & contacts.fluid,
    ),
    "integrator": ("set it to implicitfast.", "", _other_integrators),
    "flag": (_DEFAULT, "", _other_flags),
    "flag for the collision of convex shapes": (
        "leave it at its default; `nativeccd` and `multiccd` matter unless all pairs have a "
        "closed form.",
        "",
        _other_detectors,
        "nativeccd",
    ),
}

FEATURES: tuple[Feature, ...] = (
    *(Feature(name, Status.SUPPORTED, text) for name, text in _SUPPORTED.items()),
    *(Feature(name, Status.NO_EFFECT, *row) for name, row in _NO_EFFECT.items()),
    *(Feature(name, Status.REFUSED, *row) for name, row in _REFUSED.items()),
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
    label: str, model: Any, flags: Flags, contacts: Contacts, ignore: frozenset[str]
) -> tuple[str, ...]:
    """Reject unsupported features, and note features that have no effect.

    **Arguments:**

    - `label`: name of the file in messages.
    - `model`, `flags`, `contacts`: the compiled model, the enabled parts of its
        simulation, and its pairs of shapes that can touch.
    - `ignore`: keys of unsupported features to leave out.

    **Returns:** one note per feature that has no effect or is ignored.

    **Raises:** `UnsupportedMJCF`, which lists all unsupported features.
    """
    found = [
        (feature, elements)
        for feature in FEATURES
        if (elements := feature.find(model, flags, contacts))
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
            lines.append(f"  - {feature.name} {listed(elements)}: {feature.remedy}")
        raise UnsupportedMJCF("\n".join(lines), problems)
    return tuple(_note(feature, elements) for feature, elements in found)


def _note(feature: Feature, elements: list[str]) -> str:
    if feature.status is Status.REFUSED:
        advice = f'not simulated, because of `ignore=("{feature.key}",)`.'
        return f"{feature.name} {listed(elements)}: {advice}"
    return f"{feature.name} {listed(elements)}: {feature.advice}"


def support_table() -> str:
    """Return the page of supported features, in Markdown."""
    lines = [
        "# MJCF support",
        "",
        "A feature is either simulated as in MuJoCo, or accepted because it does not",
        "affect the motion (and listed in `System.notes`), or refused.",
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
