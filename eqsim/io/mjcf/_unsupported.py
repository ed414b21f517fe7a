"""What of MJCF is simulated: one table, read by the loader's error and by the docs."""

import enum
from collections.abc import Callable
from typing import NamedTuple

from . import _detect as detect


class Status(enum.Enum):
    """What becomes of a feature."""

    SUPPORTED = "supported"
    NO_EFFECT = "accepted, no effect"
    REFUSED = "refused"


class Feature(NamedTuple):
    """One row of the table.

    **Arguments:**

    - `name`: what it is, in the singular.
    - `status`: what becomes of it.
    - `advice`: what to do instead, or why it changes nothing, or what is covered.
    - `find`: returns the elements that use it. None: nothing to report.
    """

    name: str
    status: Status
    advice: str
    find: Callable[[detect.Source], list[str]] | None = None


class UnsupportedMJCF(ValueError):
    """The file uses features that are not simulated. The message lists every one.

    `problems` holds `(feature, elements)` for each.
    """

    def __init__(
        self, message: str, problems: tuple[tuple[Feature, list[str]], ...] = ()
    ):
        ValueError.__init__(self, message)
        self.problems = problems


def check_supported(label: str, source: detect.Source) -> tuple[str, ...]:
    """Refuses what cannot be simulated, and notes what is accepted without effect.

    **Arguments:**

    - `label`: how messages call the file.
    - `source`: the compiled model.

    **Returns:** one note per feature that was accepted without effect.

    **Raises:** `UnsupportedMJCF`, listing every feature that is refused.
    """
    found = [
        (feature, feature.find(source))
        for feature in FEATURES
        if feature.find is not None
    ]
    problems = tuple(
        (feature, elements)
        for feature, elements in found
        if elements and feature.status is Status.REFUSED
    )
    if problems:
        count = "1 feature" if len(problems) == 1 else f"{len(problems)} features"
        lines = [f"{label} uses {count} that eqsim does not simulate:"]
        for feature, elements in problems:
            lines.append(f"  - {feature.name} {_listed(elements)}: {feature.advice}")
        raise UnsupportedMJCF("\n".join(lines), problems)
    return tuple(
        f"{feature.name} {_listed(elements)}: {feature.advice}"
        for feature, elements in found
        if elements
    )


def support_table() -> str:
    """The table of what is supported, as a Markdown page."""
    lines = [
        "# MJCF support",
        "",
        "`eqsim.load_mjcf` reads a file with MuJoCo's own compiler, so defaults, "
        "classes,",
        "includes, frames, `fromto`, inertia from shapes and all `compiler` settings "
        "mean",
        "what they mean in MuJoCo. Every feature below is simulated as MuJoCo "
        "simulates",
        "it, or accepted because it does not change the motion (and mentioned in",
        "`System.notes`), or refused. One error lists everything that is refused, by "
        "name.",
    ]
    headings = {
        Status.SUPPORTED: ("Supported", "What is covered"),
        Status.NO_EFFECT: ("Accepted, without effect", "Why"),
        Status.REFUSED: ("Refused", "What to do"),
    }
    for status, (heading, column) in headings.items():
        lines += ["", f"## {heading}", "", f"| Feature | {column} |", "|---|---|"]
        lines += [
            f"| {feature.name} | {feature.advice} |"
            for feature in FEATURES
            if feature.status is status
        ]
    return "\n".join(lines) + "\n"


def _listed(elements: list[str], limit: int = 20) -> str:
    text = ", ".join(elements[:limit])
    left = len(elements) - limit
    return f"{text} and {left} more" if left > 0 else text


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
        "plane with sphere, capsule, cylinder, box; spheres and capsules among "
        "themselves; capsule with cylinder; `condim` 1, 3, 4, 6; `contype`, "
        "`conaffinity`, `priority`, `solmix`, `solref`, `solreffriction`, `solimp`, "
        "`margin`; `pair`, `exclude`; pyramidal and elliptic cone, `impratio`. "
        "Exceptions: exactly parallel capsules touch in one point (MuJoCo: two), and so "
        "does a capsule that lies flat on a cylinder (MuJoCo: several, unless "
        "`multiccd` is disabled).",
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
    Feature("site", _YES, "any shape; a mesh becomes its box."),
    Feature(
        "tendon",
        _YES,
        "fixed and spatial, pulleys, wrapping around spheres and cylinders with and "
        "without side sites; `stiffness` and `damping` with polynomials, "
        "`springlength`. Exception: where a tendon passes through the inside of a "
        "shape, the point of contact is exact (MuJoCo: to 1e-6).",
    ),
    Feature(
        "integrator",
        _YES,
        "Euler (with implicit joint damping), RK4, implicit and implicitfast (with the "
        "gyroscopic derivatives of free bodies).",
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
        "inertia that couples branches, armature of tendon",
        _IDLE,
        "MuJoCo leaves out the coupling of joints of which neither moves the other; "
        "here it is simulated.",
        detect.coupled_branches,
    ),
    Feature(
        "equality constraint that is disabled by a flag",
        _IDLE,
        "it is left out.",
        detect.disabled_equalities,
    ),
    Feature(
        "switched-off actuator",
        _IDLE,
        "it exerts no force.",
        detect.idle,
    ),
    Feature(
        "shape that touches nothing",
        _IDLE,
        "a mesh, height field, ellipsoid or distance field without a partner is left "
        "out.",
        detect.untouched_shapes,
    ),
    Feature(
        "contact gap of geom",
        _IDLE,
        "a gap reports contacts but exerts no force.",
        detect.gaps,
    ),
    Feature(
        "contact gap of pair",
        _IDLE,
        "a gap reports contacts but exerts no force.",
        detect.pair_gaps,
    ),
    Feature("sensor", _IDLE, "sensors do not change the motion.", detect.sensors),
    Feature(
        "keyframe",
        _IDLE,
        "read it from the file and pass its numbers to `pipeline.init`.",
        detect.keyframes,
    ),
    Feature("skin", _IDLE, "skins are only drawn.", detect.skins),
    Feature(
        "solver setting",
        _IDLE,
        "the solver iterates until it has converged (at most 50 steps).",
        detect.solver_settings,
    ),
    Feature(
        "camera, light, material, texture, custom data, visual, statistic, size",
        _IDLE,
        "not part of the dynamics; not mentioned in the notes.",
    ),
    Feature(
        "flag `warmstart`, `midphase`, `island`, `autoreset`, `sensor`, `energy`, "
        "`fwdinv`, `invdiscrete`",
        _IDLE,
        "they change how MuJoCo computes, not what; not mentioned in the notes.",
    ),
    Feature(
        "equality constraint of flexes",
        _NO,
        "remove it.",
        detect.other_equalities,
    ),
    Feature(
        "springyield of tendon",
        _NO,
        "remove it: springs are elastic.",
        detect.plastic_tendons,
    ),
    Feature(
        "adhesion with a contact gap in actuator",
        _NO,
        "set `gap` to 0 and raise `margin`.",
        detect.adhesion_gaps,
    ),
    Feature(
        "user-defined law in actuator",
        _NO,
        "use one of MuJoCo's own `gaintype`, `biastype` and `dyntype`.",
        detect.user_laws,
    ),
    Feature(
        "part of a DC motor in actuator",
        _NO,
        "use the element `dcmotor`, or a `gaintype`, `biastype` and `dyntype` that belong "
        "together.",
        detect.mixed_motors,
    ),
    Feature(
        "delay in actuator",
        _NO,
        "remove `delay` and delay the control outside the simulator.",
        detect.delayed_actuators,
    ),
    Feature(
        "springyield in joint",
        _NO,
        "remove it: springs are elastic.",
        detect.plastic_springs,
    ),
    Feature(
        "contact between shapes",
        _NO,
        "replace a shape (by capsules, say), or keep the two apart with `contype` and "
        "`conaffinity` or an `exclude`.",
        detect.other_shapes,
    ),
    Feature(
        "surfacevel of geom",
        _NO,
        "move the shape with a slide or hinge joint instead.",
        detect.surface_velocities,
    ),
    Feature("adhesion of geom", _NO, "remove it.", detect.adhesive_shapes),
    Feature("adhesion of pair", _NO, "remove it.", detect.adhesive_pairs),
    Feature(
        "solref of mixed sign in element",
        _NO,
        "make both numbers positive, or neither.",
        detect.mixed_solrefs,
    ),
    Feature("flex", _NO, "remove it: bodies are rigid.", detect.flexes),
    Feature("plugin", _NO, "remove it.", detect.plugins),
    Feature("integrator", _NO, "set it to implicitfast.", detect.other_integrators),
    Feature(
        "noslip solver",
        _NO,
        "remove it; raise `impratio` to slow down slip.",
        detect.noslip,
    ),
    Feature("flag", _NO, "leave it at its default.", detect.refused_flags),
    Feature(
        "flag for contacts of capsule with cylinder",
        _NO,
        "leave it at its default.",
        detect.other_detectors,
    ),
)
"""Everything that MJCF can say, and what becomes of it."""
