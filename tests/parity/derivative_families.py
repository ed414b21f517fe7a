"""Families of the derivative matrix: robots, situations, and arrays to tabulate."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.random as jr
import jax.tree_util as jtu
import mujoco
import numpy as np

import eqsim
from eqsim import AbstractPipeline, actuators, Generalized, System
from eqsim.pipelines import inactive_parameters

from . import derivative_models as models
from .derivatives import (
    Derivatives,
    Found,
    sensor_values,
    states,
)


EVERY = "generalized", "spring", "positional"
INPUTS = {
    "[1][0]": "`q`",
    "[1][1]": "`qd`",
    "[1][2]": "activation",
    "[1][3]": "action",
    "[1][4]": "external force",
}


@dataclasses.dataclass(frozen=True)
class Family:
    """One or several robots, with a table for each pipeline.

    - `title`, `about`: heading, and description of the robot.
    - `cases`: robots as MJCF, by name. If there are several, they are the columns of
        the table; otherwise the situations are.
    - `situations`: coordinates and velocities by name, and the scale of the controls if
        it is not one.
    - `parts`: path prefixes of the arrays that have a row each.
    - `split`: arrays that have a row for each element of the robot.
    - `pipelines`: the pipelines that are differentiated.
    - `sensors`: true to differentiate sensor values, each of which then has a row;
        arrays are the columns.
    - `by_case`: true if each robot has a row and each array a column.
    - `change`: function that changes each robot after it was loaded.
    - `eps`: steps of the finite differences.
    """

    title: str
    about: str
    cases: dict[str, str]
    situations: Callable[[mujoco.MjModel], dict[str, tuple]]
    parts: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ("generalized",)
    sensors: bool = False
    by_case: bool = False
    change: Callable[[System], System] = lambda sys: sys
    eps: tuple[float, float] = (1e-6, 4e-6)


class Table(NamedTuple):
    """Rows of a table, arrays without influence, and all results."""

    rows: list[dict[str, Any]]
    without: list[str]
    found: list[Found]


def tabulate(family: Family, pipeline: AbstractPipeline) -> Table:
    """Differentiate every robot of a family in every situation."""
    columns: dict[str, list[Found]] = {}
    for case, text in family.cases.items():
        sys = family.change(eqsim.load_mjcf(text))
        places = family.situations(mujoco.MjModel.from_xml_string(text))
        elements = _elements_of(sys, family, isinstance(pipeline, Generalized))
        output = sensor_values if family.sensors else None
        step = Derivatives(sys, states(sys, places), pipeline, output)
        found = step.compare(eps=family.eps, elements=elements)[0]
        # Programs of finished robots only take memory.
        jax.clear_caches()
        for x in found:
            column = x.state if len(family.cases) == 1 else case
            columns.setdefault(column, []).append(x)
    every = [x for column in columns.values() for x in column]
    if family.sensors:
        outputs: dict[str, list[Found]] = {}
        for x in every:
            outputs.setdefault(x.output, []).append(x)
        return Table(_rows_of(outputs, "sensor", family.parts), [], every)
    if family.by_case:
        return Table(_rows_of(columns, "", family.parts), [], every)
    groups: dict[str, None] = dict.fromkeys(_label(x, family.parts) for x in every)
    rows, without = [], []
    for label in groups:
        cells = {
            title: cell([x for x in column if _label(x, family.parts) == label])
            for title, column in columns.items()
        }
        if set(cells.values()) == {"0"} and label not in INPUTS.values():
            without.append(label)
        else:
            rows.append({"with respect to": label} | cells)
    first = list(INPUTS.values())
    order = lambda label: (label not in first, label == OTHERS)
    rows.sort(key=lambda row: order(row["with respect to"]))
    return Table(rows, without, every)


OTHERS = "all other parameters"


def _label(x: Found, parts: tuple[str, ...]) -> str:
    if x.name in INPUTS:
        return INPUTS[x.name]
    path = x.name.removeprefix("[0].")
    if not path.startswith(parts):
        return OTHERS
    return f"`{path}`: {x.element}" if x.element else f"`{path}`"


def cell(found: list[Found]) -> float | str:
    """Format an entry of a table: the largest error; `0`; `kink`."""
    smooth = [x for x in found if x.smooth]
    bent = len(found) - len(smooth)
    if bent and len({x.name for x in found}) == 1:
        return "kink"
    kinks = f"{bent} kink{'s' * (bent > 1)}"
    if all(x.size == x.forward == x.reverse == 0.0 for x in smooth):
        return kinks if bent else "0"
    error = max(x.error for x in smooth)
    return f"{error:.1e}, {kinks}" if bent else error


def _rows_of(
    groups: dict[str, list[Found]], title: str, parts: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return a row for each group, with arrays as columns."""
    order = [*INPUTS.values(), *(f"`{part}`" for part in parts), OTHERS]
    rows = []
    for name, found in groups.items():
        row: dict[str, list[Found]] = {}
        for x in found:
            part = next((p for p in parts if x.name.startswith(f"[0].{p}")), OTHERS)
            column = INPUTS.get(x.name, part if part == OTHERS else f"`{part}`")
            row.setdefault(column, []).append(x)
        cells = {key: cell(row[key]) if key in row else "0" for key in order}
        rows.append({title: name} | cells)
    used = [title, *(key for key in order if any(row[key] != "0" for row in rows))]
    return [{key: row[key] for key in used} for row in rows]


def _elements_of(sys: System, family: Family, skip_inactive: bool):
    """Return groups of entries of arrays that are split: one for each element, without
    entries that cannot influence the motion."""
    marks, values = jtu.tree_leaves(inactive_parameters(sys).mask), jtu.tree_leaves(sys)
    paths = [jtu.keystr(path) for path, _ in jtu.tree_leaves_with_path(sys)]
    inactive = dict(zip(paths, marks, strict=True))
    shapes = {path: np.shape(x) for path, x in zip(paths, values, strict=True)}

    def elements(name: str) -> dict[str, Any]:
        path = name.removeprefix("[0]")
        if not path.startswith(tuple(f".{x}" for x in family.split)):
            return {"": 1.0}
        shape, groups = shapes[path], {}
        owners = _owners(sys, path.split(".")[1], shape[0])
        for owner in dict.fromkeys(owners):
            mask = np.zeros(shape)
            mask[[k for k, other in enumerate(owners) if other == owner]] = 1.0
            if not skip_inactive or np.any(mask * ~inactive[path]):
                groups[owner] = mask
        return groups

    return elements


def _owners(sys: System, part: str, count: int) -> list[str]:
    """Return the element that each row of an array belongs to."""
    names = vars(vars(sys)[part])["names"]
    if count == len(names):
        return list(names)
    sizes = {
        "joints": [[k.nv for k in sys.joints.kinds], [k.nq for k in sys.joints.kinds]]
    }
    inputs = [len(row) for row in sys.actuators.inputs]
    sizes["actuators"] = [list(sys.actuators.num_outputs), inputs]
    repeats = next(row for row in sizes[part] if sum(row) == count)
    return [name for name, n in zip(names, repeats) for _ in range(n)]


def _with_models(sys: System) -> System:
    """Attach one actuator model of each kind, with parameters away from kinks."""
    key, features = jr.key(0), (("error", "velocity"), (1.0, 5.0))
    perceptron = actuators.MLPActuator(*features, (4,), history=1, key=key)
    unit = actuators.GRUActuator(*features, 3, key=key)
    given = {
        "one": (actuators.Delay(0.0061, 4), actuators.StribeckFriction(0.3, 0.5, 0.2)),
        "two": (actuators.ControlFilter(0.03), actuators.TorqueLag(0.02)),
        "three": (actuators.Backlash(0.2), actuators.TorqueSpeedLimit(0.05, 9.0)),
        "four": (jax.tree.map(lambda x: x + 0.3, perceptron),),
        "five": (
            actuators.PDServo(2.0, 0.3, 0.4),
            jax.tree.map(lambda x: x + 0.3, unit),
        ),
    }
    for name, own in given.items():
        for model in own:
            sys = sys.with_actuator_model(name, model)
    return sys


_INTEGRATORS = {
    name: models.INTEGRATORS.format(name)
    for name in ("Euler", "RK4", "implicit", "implicitfast")
}
_CONTACT_PARTS = "geoms.", "pairs.", "impratio"
_ABOUT_CONTACTS = (
    "A free body with spheres of condim 1, 3, 4 and 6 above a plane; the sphere with condim "
    "6 also touches through an explicit pair."
)
FAMILIES = (
    {
        f"contacts-{cone}": Family(
            f"Contacts: {cone} cone",
            _ABOUT_CONTACTS,
            {cone: models.CONTACTS.format(cone)},
            models.touching,
            _CONTACT_PARTS,
        )
        for cone in ("pyramidal", "elliptic")
    }
    | {
        f"adhesion-{cone}": Family(
            f"Contacts: adhesion and moving surfaces, {cone} cone",
            "The same spheres and a floor with `surfacevel`, `adhesion` and `gap`; the explicit "
            "pair adheres as well.",
            {cone: models.ADHESION.format(cone)},
            models.adhering,
            _CONTACT_PARTS,
        )
        for cone in ("pyramidal", "elliptic")
    }
    | {
        f"noslip-{cone}": Family(
            f"Contacts: friction without slip, {cone} cone",
            "Balls with condim 3, 4 and 6 above a plane, and a joint and a tendon with dry "
            "friction, with the noslip solver.",
            {cone: models.NOSLIP.format(cone)},
            models.held,
            (*_CONTACT_PARTS, "joints.frictionloss", "tendons.frictionloss"),
            # Friction is stiff, so results are rounded to about 1e-10.
            eps=(2e-5, 8e-5),
        )
        for cone in ("pyramidal", "elliptic")
    }
    | {
        "contact-pairs": Family(
            "Contacts: pairs",
            "The same body with condim 1 and 3 only.",
            {
                "": models.CONTACTS.format("pyramidal")
                .replace('"4"', '"3"')
                .replace('"6"', '"3"')
            },
            models.touching,
            _CONTACT_PARTS,
            pipelines=EVERY[1:],
        ),
        "shapes": Family(
            "Contacts: shapes",
            "A free shape and a fixed shape, for each pair of kinds. Largest error over three "
            "states: apart but within the margin, touching, and deep penetration.",
            models.shapes(),
            models.meeting,
            ("geoms.pos", "geoms.quat", "geoms.size", "meshes.", "height_fields."),
            by_case=True,
        ),
        "joints": Family(
            "Joints: limits, dry friction, springs",
            "A ball joint, a hinge and a slide with limits, dry friction, polynomial springs "
            "and dampers, and ranges of actuator forces.",
            {"": models.JOINTS},
            models.limits,
            ("joints.",),
            ("joints.",),
            EVERY,
        ),
        "equality": Family(
            "Equality constraints",
            "Welds, connects, and couplings of joints and tendons; a mocap body holds a box.",
            {"": models.EQUALITY},
            models.coupled,
            ("equalities.", "sites.", "links.pos", "links.quat", "tendons.coef"),
            ("equalities.", "links.pos", "links.quat"),
        ),
        "tendons": Family(
            "Tendons",
            "Fixed tendons, and spatial tendons that wrap around spheres and cylinders, also on "
            "a given side and inside; with pulleys, springs, dampers, armature, limits and dry "
            "friction.",
            {"": models.TENDONS},
            models.strung,
            ("tendons.", "sites.", "geoms."),
            (
                "tendons.stiffness",
                "tendons.spring",
                "tendons.armature",
                "tendons.range",
            ),
        ),
        "tendon-springs": Family(
            "Tendons: springs",
            "Springs and dampers of a fixed tendon and of a spatial tendon with a pulley.",
            {"": models.TENDON_SPRINGS},
            models.moving,
            ("tendons.", "sites.", "geoms."),
            pipelines=EVERY[1:],
        ),
        "transmissions": Family(
            "Actuators: transmissions",
            "One actuator per kind of transmission, on three links, one of which touches a "
            "plane.",
            {"": models.TRANSMISSIONS},
            models.driven,
            ("actuators.", "sites."),
            ("actuators.gear", "actuators.damping", "actuators.armature"),
        ),
        "laws": Family(
            "Actuators: laws",
            "Affine laws, filters, integrators, muscles, DC motors and both kinds of PID servos, "
            "with ranges of controls, activations and forces.",
            {"": models.LAWS},
            models.driven,
            ("actuators.",),
        ),
        "joint-actuators": Family(
            "Actuators on joints",
            "Several laws on a hinge and a ball joint.",
            {"": models.JOINT_ACTUATORS},
            models.driven,
            ("actuators.", "joints.force_range"),
            pipelines=EVERY[1:],
        ),
        "actuator-models": Family(
            "Actuators: attached models",
            "Delay, filter, backlash, friction, lag, torque-speed limit, servo and networks, on "
            "motors of two hinges, with the integrator `implicitfast`.",
            {"": models.ATTACHED},
            models.moving,
            ("actuator_models",),
            change=_with_models,
        ),
        "integrators": Family(
            "Integrators",
            "A free body, and a chain with actuators, a limit and a tendon, in a fluid. Largest "
            "error over four states, at rest and moving.",
            _INTEGRATORS,
            models.moving,
            (
                *(
                    "links.mass",
                    "links.inertia",
                    "joints.",
                    "actuators.",
                    "tendons.damping",
                ),
                *("tendons.armature", "density", "viscosity", "wind", "gravity", "dt"),
            ),
        ),
        "sensors": Family(
            "Sensors",
            "Values of one sensor of each kind, on a floating robot that touches a plane and "
            "exceeds a joint limit and a tendon limit. Largest error over three states.",
            {"": models.sensors()},
            models.sensed,
            (
                "links.",
                "joints.",
                "geoms.",
                "sites.",
                "tendons.",
                "actuators.",
                "sensors.",
            ),
            sensors=True,
        ),
        "medium": Family(
            "Medium",
            "Ellipsoids and an inertia box in a moving fluid.",
            {"": models.MEDIUM},
            models.moving,
            (
                "density",
                "viscosity",
                "wind",
                "geoms.fluid",
                "geoms.size",
                "geoms.pos",
                "links.",
            ),
            pipelines=EVERY,
        ),
    }
)
