"""Checks of parameters when a robot is loaded or built, never in a step.

First the checks of actuators, sites, tendons and sensors; then `validate`, which calls them
and checks the other parts, and `check_finite`.
"""

import jax
import numpy as np

from ._checks import check_shapes, check_solimp, joint_quaternions, known, reject
from ._system import System
from .distance_fields import AbstractDistanceField
from .kinds import GeomKind, JointKind, WrapKind
from .pairs import candidate_array, has_collider, kinds_of_pairs
from .sensor_kinds import SensorKind, SensorObject, Sensors


# Actuators.


def check_actuators(sys: System) -> None:
    actuators = sys.actuators
    names = actuators.names
    for field, value, limited, owners in (
        (
            "ctrl_range",
            actuators.ctrl_range,
            actuators.ctrl_limited,
            actuators.ctrl_names,
        ),
        ("force_range", actuators.force_range, actuators.force_limited, names),
        ("act_range", actuators.act_range, actuators.act_limited, names),
    ):
        marks = np.asarray(limited, bool)
        reject(
            value,
            lambda x: (x[..., 0] > x[..., 1]) & marks,
            owners,
            f"Actuator {{name!r}} has {field} {{value}}. The first number must be the "
            "smaller one.",
        )
    without = ~np.asarray(actuators.has_velocity_gain, bool)
    for field, value in (("gain", actuators.gain), ("bias", actuators.bias)):
        reject(
            value,
            lambda x: (x[..., 2] != 0) & without,
            names,
            f"Actuator {{name!r}} has {field} {{value}}, but Actuators.has_velocity_gain "
            "is False there. Set it to True.",
        )
    for field, value in (
        ("damping", actuators.damping),
        ("armature", actuators.armature),
    ):
        if value is not None:
            reject(
                value,
                lambda x: x < 0,
                names,
                f"Actuator {{name!r}} has {field} {{value}}. It must not be negative.",
            )


def check_independent_slides(sys: System) -> None:
    """Check that slides of one link move it in independent directions, or have
    armature. Otherwise, the joint-space inertia is singular."""
    joints = sys.joints
    axes, armature = known(joints.axis), known(joints.armature)
    if axes is None or armature is None or sys.actuators.armature is not None:
        return
    slides: dict[int, list[int]] = {}
    has_armature = np.all(armature > 0, axis=tuple(range(armature.ndim - 1))).tolist()
    for joint, (kind, link, dof) in enumerate(
        zip(joints.kinds, joints.links, joints.v_starts)
    ):
        if kind is JointKind.PRISMATIC and not has_armature[dof]:
            slides.setdefault(link, []).append(joint)
    for count in {len(own) for own in slides.values()} - {1}:
        links = [link for link, own in slides.items() if len(own) == count]
        own = np.array([slides[link] for link in links])
        ranks = np.linalg.matrix_rank(axes[..., own, :], tol=1e-6)
        wrong = np.flatnonzero(np.any(ranks < count, axis=tuple(range(ranks.ndim - 1))))
        if len(wrong):
            link = links[wrong[0]]
            names = ", ".join(repr(joints.names[j]) for j in slides[link])
            raise ValueError(
                f"Joints {names} of link {sys.links.names[link]!r} slide along axes that "
                "are linearly dependent, so their inertia matrix is singular. Give one of "
                "them an armature, or remove one."
            )


# Sites and tendons.


def check_sites(sys: System) -> None:
    """Raise `ValueError` if a site has an invalid orientation."""
    sites = sys.sites
    reject(
        sites.quat,
        lambda quat: ~np.any(quat, axis=-1),
        sites.names,
        "Sites.quat of {name!r} is zero, which is no orientation. Use (1, 0, 0, 0).",
    )


def check_tendons(sys: System) -> None:
    """Raise `ValueError` if a path or a parameter of a tendon is invalid or
    unsupported."""
    if not sys.ntendon:
        return
    _check_paths(sys)
    _check_flags(sys)
    _check_bounds(sys)
    tendons = sys.tendons
    who = "Tendon {name!r}"
    check_solimp(tendons.limit_solimp, tendons.names, who, "limit_solimp")
    check_solimp(tendons.friction_solimp, tendons.names, who, "friction_solimp")


def _check_paths(sys: System) -> None:
    sizes = {
        WrapKind.JOINT: ("joint", sys.njoint),
        WrapKind.SITE: ("site", sys.nsite),
        WrapKind.GEOM: ("geom", sys.ngeom),
    }
    pulleys: list[str] = []
    coefs = 0
    for name, path in zip(sys.tendons.names, sys.tendons.paths):
        for point in path:
            if point.kind is WrapKind.PULLEY:
                pulleys.append(name)
                continue
            word, size = sizes[point.kind]
            if not 0 <= point.target < size or not -1 <= point.side_site < sys.nsite:
                raise ValueError(
                    f"Tendon {name!r} names {word} {point.target} with side site "
                    f"{point.side_site}, but this system has {size} {word}s and "
                    f"{sys.nsite} sites."
                )
            if point.kind is WrapKind.JOINT:
                coefs += 1
                if sys.joints.kinds[point.target].nv > 1:
                    raise ValueError(
                        f"Tendon {name!r} names joint "
                        f"{sys.joints.names[point.target]!r}, which is neither hinge nor "
                        "slide. A fixed tendon couples hinges and slides only."
                    )
            if point.kind is WrapKind.GEOM:
                kind = sys.geoms.kinds[point.target]
                if kind not in (GeomKind.SPHERE, GeomKind.CYLINDER):
                    raise ValueError(
                        f"Tendon {name!r} wraps around shape "
                        f"{sys.geoms.names[point.target]!r}, a {kind.name.lower()}. Use a "
                        "sphere or a cylinder."
                    )
    counts = sys.tendons.coef.shape[-1], sys.tendons.divisor.shape[-1]
    if counts != (coefs, len(pulleys)):
        raise ValueError(
            f"Tendons have {counts[0]} coefficients and {counts[1]} divisors, but their "
            f"paths have {coefs} joints and {len(pulleys)} pulleys."
        )
    reject(
        sys.tendons.divisor,
        lambda divisor: divisor <= 0,
        tuple(pulleys),
        "Tendon {name!r} has a pulley with divisor {value}. It must be positive.",
    )


def _check_flags(sys: System) -> None:
    tendons = sys.tendons
    for flag, marks, fields in (
        ("has_spring", tendons.has_spring, ("stiffness", "stiffness_poly")),
        ("has_damping", tendons.has_damping, ("damping", "damping_poly")),
        ("has_friction", tendons.has_friction, ("frictionloss",)),
        ("has_armature", tendons.has_armature, ("armature",)),
    ):
        without = ~np.asarray(marks, bool)
        for field in fields:
            value = vars(tendons)[field]
            poly = field.endswith("poly")
            reject(
                value,
                lambda x: (np.any(x != 0, axis=-1) if poly else x != 0) & without,
                tendons.names,
                f"Tendon {{name!r}} has {field} {{value}}, but Tendons.{flag} is False "
                f"there, so it is not simulated. Set {flag} to True.",
            )
    for field in ("frictionloss", "armature"):
        reject(
            vars(tendons)[field],
            lambda x: x < 0,
            tendons.names,
            f"Tendon {{name!r}} has {field} {{value}}. It must not be negative.",
        )


def _check_bounds(sys: System) -> None:
    tendons = sys.tendons
    manual = tuple(not automatic for automatic in tendons.rests_at_reference)
    for field, marks, strict in (
        ("range", tendons.limited, True),
        ("spring_length", manual, False),
        ("actuator_force_range", tendons.actuator_force_limited, True),
    ):
        enforced = np.asarray(marks, bool)
        reject(
            vars(tendons)[field],
            lambda x: (
                (x[..., 0] >= x[..., 1] if strict else x[..., 0] > x[..., 1]) & enforced
            ),
            tendons.names,
            f"Tendon {{name!r}} has {field} {{value}}. The first number must be the "
            "smaller one.",
        )


# Sensors.


_FRAMES = (
    SensorObject.LINK,
    SensorObject.INERTIA,
    SensorObject.GEOM,
    SensorObject.SITE,
)
_PARTS = (*_FRAMES, SensorObject.NONE)
_ALONE = (SensorKind.POTENTIAL_ENERGY, SensorKind.KINETIC_ENERGY, SensorKind.CLOCK)
_DISTANCES = (SensorKind.DISTANCE, SensorKind.NORMAL, SensorKind.FROM_TO)
_BALLS = (SensorKind.BALL_QUATERNION, SensorKind.BALL_VELOCITY)
_SINGLE = (
    SensorKind.JOINT_POSITION,
    SensorKind.JOINT_VELOCITY,
    SensorKind.JOINT_ACTUATOR_FORCE,
)


def check_sensors(sys: System) -> None:
    """Raise `ValueError` if a sensor refers to a missing or unsuitable object, or has
    an invalid cutoff."""
    sensors = sys.sensors
    _check_lengths(sensors)
    _check_names(sensors)
    spans = {
        SensorObject.LINK: (-1, sys.nlink),
        SensorObject.INERTIA: (-1, sys.nlink),
        SensorObject.GEOM: (0, sys.ngeom),
        SensorObject.SITE: (0, sys.nsite),
        SensorObject.JOINT: (0, sys.njoint),
        SensorObject.TENDON: (0, sys.ntendon),
        SensorObject.ACTUATOR: (0, sys.nactuator),
    }
    for index, kind in enumerate(sensors.kinds):
        who = f"Sensor {sensors.names[index]!r} ({kind.value}) is"
        for text, (sort, target), allowed in (
            (f"{who} attached to", sensors.objects[index], _objects(kind)),
            (f"{who} measured against", sensors.references[index], _references(kind)),
        ):
            _check_end(text, sort, target, allowed, spans.get(sort, (-1, 0)))
        _check_joint(sys, index)
    _check_rays(sys)
    if SensorKind.MAGNETOMETER in sensors.kinds and sensors.magnetic is None:
        raise ValueError(
            "There are magnetometers, but Sensors.magnetic is None. Give it the magnetic "
            "flux in the world."
        )
    limited = np.asarray(sensors.limited, bool)
    text = "Sensor {name!r} has cutoff {value}, which must be positive."
    reject(sensors.cutoff, lambda x: (x <= 0) & limited, sensors.names, text)


def _check_lengths(sensors: Sensors) -> None:
    fields = ("kinds", "objects", "references", "limited", "contact_data")
    fields += ("contact_reductions", "contact_slots", "ray_data")
    for field in fields:
        count = len(vars(sensors)[field])
        if count != len(sensors.names):
            raise ValueError(
                f"Sensors.{field} has {count} entries for {len(sensors.names)} sensors. "
                "Give one per sensor."
            )


def _check_names(sensors: Sensors) -> None:
    taken: set[str] = set()
    for name in sensors.names:
        if name in taken:
            raise ValueError(f"Two sensors have the name {name!r}. Rename one of them.")
        taken.add(name)


def _objects(kind: SensorKind) -> tuple[SensorObject, ...]:
    if kind in _ALONE:
        return (SensorObject.NONE,)
    if kind is SensorKind.CONTACT:
        return _PARTS
    if kind in _DISTANCES:
        return SensorObject.GEOM, SensorObject.INERTIA
    if kind.value.startswith("frame") or kind is SensorKind.INSIDE_SITE:
        return _FRAMES
    if kind.value.startswith("subtree"):
        return (SensorObject.INERTIA,)
    for words, sort in (
        (("joint", "ball"), SensorObject.JOINT),
        (("tendon",), SensorObject.TENDON),
        (("actuator",), SensorObject.ACTUATOR),
    ):
        if kind.value.startswith(words):
            return (sort,)
    return (SensorObject.SITE,)


def _references(kind: SensorKind) -> tuple[SensorObject, ...]:
    if kind is SensorKind.INSIDE_SITE:
        return (SensorObject.SITE,)
    if kind in _DISTANCES:
        return SensorObject.GEOM, SensorObject.INERTIA
    if kind is SensorKind.CONTACT:
        return tuple(sort for sort in _PARTS if sort is not SensorObject.SITE)
    if kind.value.startswith("frame") and not kind.value.endswith("acc"):
        return _PARTS
    return (SensorObject.NONE,)


def _check_end(
    text: str,
    sort: SensorObject,
    target: int,
    allowed: tuple[SensorObject, ...],
    span: tuple[int, int],
) -> None:
    if sort not in allowed:
        words = ", ".join(each.value for each in allowed)
        raise ValueError(f"{text} {sort.value!r}. Accepted: {words}.")
    low, count = span
    if not low <= target < count:
        raise ValueError(
            f"{text} {sort.value} {target}, which does not exist: this robot has "
            f"{count}, numbered from 0."
        )


def _check_joint(sys: System, index: int) -> None:
    kind, (_, joint) = sys.sensors.kinds[index], sys.sensors.objects[index]
    if kind not in (*_BALLS, *_SINGLE):
        return
    ball = sys.joints.kinds[joint] is JointKind.SPHERICAL
    fits = ball if kind in _BALLS else sys.joints.kinds[joint].nv == 1
    if not fits:
        need = "ball joint" if kind in _BALLS else "hinge or slide"
        raise ValueError(
            f"Sensor {sys.sensors.names[index]!r} ({kind.value}) is attached to joint "
            f"{sys.joints.names[joint]!r}, which is no {need}."
        )


def _check_rays(sys: System) -> None:
    wrong = [geom for geom in sys.sensors.ray_geoms if not 0 <= geom < sys.ngeom]
    if wrong:
        raise ValueError(
            f"Sensors.ray_geoms has shape {wrong[0]}, which does not exist: this robot "
            f"has {sys.ngeom}, numbered from 0."
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
        ("friction", geoms.friction, geoms.names),
        ("friction", pairs.friction, pair_names),
    ):
        reject(
            value,
            lambda x: np.any(x < 0, axis=-1),
            names,
            f"Shape {{name!r}} has {field} {{value}}. It must not be negative.",
        )
    # Sizes of distance fields may be negative, such as the height of a bowl.
    signed = np.array([isinstance(x, AbstractDistanceField) for x in geoms.kinds], bool)
    reject(
        geoms.size,
        lambda x: np.any(np.where(signed[:, None], np.isinf(x), x < 0), axis=-1),
        geoms.names,
        "Shape {name!r} has size {value}. It must not be negative, and that of a distance "
        "field must be finite.",
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
