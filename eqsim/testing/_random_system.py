"""Random robots, for tests of functions that take a `System`.

`random_system` draws the parts of a robot one after the other; sites, tendons, equality
constraints and sensors are drawn below it. Links, joints and shapes are in
`_random_parts.py`, actuators in `_random_actuators.py`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.transform import Rotation

from .._errors import is_key
from .._primitive import patterned
from ..model import (
    Cone,
    ContactData,
    ContactReduction,
    Cutoff,
    Equalities,
    EqualityKind,
    GeomKind,
    Geoms,
    Integrator,
    JointKind,
    Joints,
    Links,
    PathPoint,
    RayData,
    SENSOR_FACTS,
    SensorKind,
    SensorObject,
    Sensors,
    Sites,
    System,
    Tendons,
    WrapKind,
)
from ..model.pairs import is_measured
from ._random_actuators import (
    change_transmissions,
    pick_two,
    random_actuators,
    with_actuator_laws,
    with_joint_laws,
)
from ._random_parts import (
    add_meshes,
    Plan,
    quaternions,
    random_exceptions,
    random_geoms,
    random_joints,
    random_keyframes,
    random_links,
    random_plan,
    solimps,
    solrefs,
    unit,
)


_Path = tuple[PathPoint, ...]
_Object = tuple[SensorObject, int]


def random_system(
    seed: Any,
    nlink: int = 6,
    joints: Sequence[JointKind] = tuple(JointKind),
    num_roots: int = 2,
    *,
    with_geoms: bool = True,
    with_actuators: bool = True,
    with_limits: bool = True,
    with_friction: bool = True,
    with_fluid: bool = False,
    with_laws: bool = False,
    with_equalities: bool = False,
    with_sites: bool = False,
    with_tendons: bool = False,
    with_tendon_armature: bool = True,
    with_transmissions: bool = False,
    with_meshes: bool = False,
    with_sensors: bool = False,
    most_sensors: int | None = None,
    integrator: Integrator = Integrator.EULER,
    cone: Cone = Cone.PYRAMIDAL,
    condims: Sequence[int] = (1, 3),
) -> System:
    """Draw a robot; every feature of a `System` occurs for some seed.

    Inertias are physical, and links ordered as in MuJoCo. Touching shapes have contacts.

    **Arguments:**

    - `seed`: an integer or a JAX key. The same seed gives the same robot.
    - `nlink`, `num_roots`: number of links, and number of links attached to the world.
    - `joints`: kinds of joints to draw from.
    - `with_geoms`, ..., `with_fluid`: true for shapes and a ground plane, actuators,
        joint limits, dry friction, and a fluid with wind.
    - `with_laws`: true for muscles, DC motors, PID servos and orientation servos,
        polynomial springs and dampers, and limits of actuator forces.
    - `with_equalities`: true for equality constraints of all kinds.
    - `with_sites`, `with_tendons`: true for sites, and for fixed and spatial tendons
        (which need sites), with limits and dry friction if joints may have them.
    - `with_tendon_armature`: true for tendons with armature.
    - `with_transmissions`: true to let most actuators act on other objects than joints.
    - `with_meshes`: true to replace boxes by meshes and height fields.
    - `with_sensors`: true for sensors of every possible kind (which need sites);
        `most_sensors`: largest number of sensors, None for all.
    - `integrator`, `cone`: integrator and friction cone of the system; `condims`:
        contact dimensions to draw from.

    **Raises:** `ValueError` if the counts are invalid.
    """
    if not 1 <= num_roots <= nlink or not joints:
        raise ValueError(
            f"Cannot build {nlink} links with {num_roots} roots from {len(joints)} "
            "kinds of joints. Pass 1 <= num_roots <= nlink and at least one kind."
        )
    rng = _generator(seed)
    plan = random_plan(rng, nlink, tuple(joints), num_roots)
    links = random_links(rng, plan)
    shaped = nlink if with_geoms else None
    geoms = random_geoms(rng, shaped, tuple(condims), with_fluid)
    pairs, excludes = random_exceptions(rng, plan, geoms, tuple(condims))
    medium = rng.uniform([1, 0, -1, -1, -1], [100, 0.1, 1, 1, 1]) * with_fluid
    moving = random_joints(rng, plan, links, with_limits, with_friction)
    drives = random_actuators(rng, plan if with_actuators else Plan((), (), ()))
    if with_laws:
        own = rng.spawn(1)[0]
        moving = with_joint_laws(own, moving, bool(np.any(links.gravity_compensation)))
        drives = with_actuator_laws(own, drives, moving)
    sys = System(
        links=links,
        joints=moving,
        geoms=geoms,
        pairs=pairs,
        actuators=drives,
        equalities=Equalities.none(),
        excludes=excludes,
        integrator=integrator,
        cone=cone,
        has_fluid=with_fluid,
        **_options(rng, medium),
        keyframes=random_keyframes(rng, moving, drives),
    )
    # Each feature is drawn after those above, which therefore do not depend on it.
    if with_sites or with_sensors or with_transmissions or with_tendons:
        sys = add_sites(rng, sys)
    if with_tendons:
        features = TendonFeatures(with_limits, with_friction, with_tendon_armature)
        sys = add_tendons(rng, sys, features)
    if with_transmissions:
        sys = change_transmissions(rng, sys)
    if with_equalities:
        own = rng.spawn(1)[0]
        drawn = random_equalities(own, links, moving, sys.nsite, sys.ntendon)
        sys = dataclasses.replace(sys, equalities=drawn)
    if with_meshes:
        sys = add_meshes(rng.spawn(1)[0], sys)
    if with_sensors:
        sys = add_sensors(rng, sys, most_sensors)
    return patterned(sys)


def _options(rng: np.random.Generator, medium: np.ndarray) -> dict[str, Any]:
    return {
        "filter_parent": bool(rng.random() < 0.8),
        "implicit_damping": bool(rng.random() < 0.8),
        "safe_solref": True,
        "notes": (),
        "gravity": np.array([0, 0, -9.81]) + rng.normal(size=3),
        "wind": medium[2:],
        "density": float(medium[0]),
        "viscosity": float(medium[1]),
        "impratio": float(rng.choice([1.0, 2.0])),
        "dt": float(rng.uniform(0.002, 0.008)),
    }


def random_configuration(
    seed: Any, sys: System, scale: float = 1.0
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """Draw coordinates (with unit quaternions) and velocities of a robot.

    **Arguments:**

    - `seed`: an integer or a JAX key.
    - `sys`: the robot, not a batch.
    - `scale`: scale of the deviation from the reference and of the velocities; 0 gives
        the reference at rest.

    **Returns:** `q` and `qd`.
    """
    rng = _generator(seed)
    q = np.array(sys.joints.ref, np.float64)
    for kind, start in zip(sys.joints.kinds, sys.joints.q_starts):
        if kind is JointKind.REVOLUTE:
            q[start] += scale * rng.normal()
        elif kind is JointKind.PRISMATIC:
            q[start] += 0.3 * scale * rng.normal()
        elif kind is JointKind.FREE:
            q[start : start + 3] += 0.3 * scale * rng.normal(size=3)
        if kind.nq > 1:
            quat = slice(start + kind.nq - 4, start + kind.nq)
            q[quat] = unit(q[quat] + scale * rng.normal(size=4))
    qd = scale * rng.normal(size=sys.nv)
    return _float(q), _float(qd)


def _generator(seed: Any) -> np.random.Generator:
    if isinstance(seed, jax.Array):
        data = jax.random.key_data(seed) if is_key(seed) else seed
        return np.random.default_rng([int(word) for word in np.ravel(data)])
    return np.random.default_rng(int(seed))


def _float(value: np.ndarray) -> Array:
    return jnp.asarray(value, jnp.result_type(float))


# Sites and tendons.


class TendonFeatures(NamedTuple):
    """Optional features of tendons of a random robot."""

    limits: bool
    friction: bool
    armature: bool


def add_sites(rng: np.random.Generator, sys: System) -> System:
    """Draw up to two sites for the world and each link, and at least one for the world
    and for the last link."""
    links = []
    for link in range(-1, sys.nlink):
        least = link in (-1, sys.nlink - 1)
        links += [link] * int(rng.integers(1 if least else 0, 3))
    count = len(links)
    kinds = [GeomKind.SPHERE, GeomKind.CAPSULE, GeomKind.ELLIPSOID]
    kinds += [GeomKind.CYLINDER, GeomKind.BOX]
    size = rng.uniform(0.01, 0.05, (count, 3))
    sites = Sites(
        names=tuple(f"site{site}" for site in range(count)),
        kinds=tuple(kinds[rng.integers(len(kinds))] for _ in range(count)),
        links=tuple(links),
        pos=rng.uniform(-0.4, 0.4, (count, 3)),
        quat=quaternions(rng, count),
        size=size,
    )
    return dataclasses.replace(sys, sites=sites)


def add_tendons(
    rng: np.random.Generator, sys: System, options: TendonFeatures
) -> System:
    """Draw fixed and spatial tendons for a robot with sites, and shapes that they wrap
    around."""
    sys = _with_wrap_geoms(rng, sys)
    paths = [_fixed_path(rng, sys), _fixed_path(rng, sys)]
    paths += [_spatial_path(rng, sys) for _ in range(int(rng.integers(1, 4)))]
    heavy = [_chain_path(rng, sys)] if options.armature else []
    chosen = [*filter(None, paths), *filter(None, heavy)]
    marks = [False] * sum(map(bool, paths)) + [True] * sum(map(bool, heavy))
    return dataclasses.replace(sys, tendons=_tendons(rng, chosen, marks, options))


def _with_wrap_geoms(rng: np.random.Generator, sys: System) -> System:
    """Add a sphere and a cylinder that touch nothing, among the shapes of their
    links."""
    old, links = sys.geoms, rng.integers(-1, sys.nlink, 2).tolist()
    count = len(old.names)
    kinds = (GeomKind.SPHERE, GeomKind.CYLINDER)
    size = rng.uniform(0.05, 0.2, (2, 3))
    size[0, 1:], size[1, 2] = 0, 0
    new = dict(
        names=("wrap0", "wrap1"),
        kinds=kinds,
        links=tuple(links),
        condim=(3, 3),
        priority=(0, 0),
        contype=(0, 0),
        conaffinity=(0, 0),
        fluid=(False, False),
        pos=rng.uniform(-0.2, 0.2, (2, 3)),
        quat=quaternions(rng, 2),
        size=size,
        friction=np.tile([1.0, 0.005, 0.0001], (2, 1)),
        solref=solrefs(rng, 2),
        solimp=solimps(rng, 2),
        solmix=np.ones(2),
        margin=np.zeros(2),
        fluid_coefficients=np.zeros((2, 5)),
    )
    # Shapes stay ordered by their links.
    order = sorted(range(count + 2), key=lambda k: ((*old.links, *links)[k], k))
    place = {geom: k for k, geom in enumerate(order)}
    fields = {}
    for field, value in new.items():
        before = vars(old)[field]
        if isinstance(value, tuple):
            joined = (*before, *value)
            fields[field] = tuple(joined[k] for k in order)
        else:
            fields[field] = np.concatenate([np.asarray(before), value])[order]
    pairs = tuple((place[a], place[b]) for a, b in sys.pairs.geoms)
    return dataclasses.replace(
        sys,
        geoms=Geoms(**fields),
        pairs=dataclasses.replace(sys.pairs, geoms=pairs),
    )


def _fixed_path(rng: np.random.Generator, sys: System) -> _Path:
    scalar = [k for k, kind in enumerate(sys.joints.kinds) if kind.nv == 1]
    if not scalar:
        return ()
    count = int(rng.integers(1, min(3, len(scalar)) + 1))
    chosen = rng.choice(scalar, count, replace=False).tolist()
    return tuple(PathPoint(WrapKind.JOINT, joint) for joint in chosen)


def _spatial_path(rng: np.random.Generator, sys: System) -> _Path:
    """Draw branches of sites, with a pulley before each but the first (and sometimes
    before the first), and with shapes between some sites."""
    geoms = [sys.geoms.names.index(name) for name in ("wrap0", "wrap1")]
    path: list[PathPoint] = []
    for branch in range(int(rng.integers(1, 3))):
        if branch or rng.random() < 0.2:
            path.append(PathPoint(WrapKind.PULLEY))
        count = min(int(rng.integers(2, 4)), sys.nsite)
        sites = rng.choice(sys.nsite, count, replace=False).tolist()
        for k, site in enumerate(sites):
            if k and rng.random() < 0.6:
                side = int(rng.integers(sys.nsite)) if rng.random() < 0.5 else -1
                geom = geoms[int(rng.integers(2))]
                path.append(PathPoint(WrapKind.GEOM, geom, side))
            path.append(PathPoint(WrapKind.SITE, site))
    return tuple(path)


def _chain_path(rng: np.random.Generator, sys: System) -> _Path:
    """Draw a straight tendon from the world to a link that does not only slide. MuJoCo
    supports armature of tendons only along one chain of links and without shapes."""
    links, sites = sys.links, sys.sites.links
    ground = [k for k, link in enumerate(sites) if link < 0]
    free = lambda link: link >= 0 and not links.translating[link]
    ends = [k for k, link in enumerate(sites) if free(link)]
    if not ends:
        return ()
    chosen = ground[int(rng.integers(len(ground)))], ends[int(rng.integers(len(ends)))]
    return tuple(PathPoint(WrapKind.SITE, site) for site in chosen)


def _tendons(
    rng: np.random.Generator,
    paths: list[_Path],
    has_armature: list[bool],
    options: TendonFeatures,
) -> Tendons:
    count = len(paths)
    points = [point.kind for path in paths for point in path]
    mark = lambda probability: rng.random(count) < probability
    spring, damping = mark(0.7), mark(0.7)
    friction, limited = mark(0.5) & options.friction, mark(0.5) & options.limits
    automatic = mark(0.4)
    poly = lambda on: rng.uniform(-1, 1, (count, 2)) * (on & mark(0.5))[:, None]
    low = rng.uniform(0.0, 0.4, count)
    band = np.stack([low, low + rng.uniform(0, 0.4, count) * mark(0.5)], -1)
    forced = mark(0.4)
    flags = lambda marks: tuple(bool(x) for x in marks)
    heavy = np.asarray(has_armature, bool)
    return Tendons(
        names=tuple(f"tendon{tendon}" for tendon in range(count)),
        paths=tuple(paths),
        limited=flags(limited),
        has_spring=flags(spring),
        has_damping=flags(damping),
        has_friction=flags(friction),
        has_armature=flags(heavy),
        rests_at_reference=flags(automatic),
        actuator_force_limited=flags(forced),
        coef=rng.uniform(-2, 2, points.count(WrapKind.JOINT)),
        divisor=rng.uniform(0.5, 3, points.count(WrapKind.PULLEY)),
        range=np.stack([low, low + rng.uniform(0.1, 0.5, count)], -1),
        limit_margin=rng.uniform(0, 0.05, count),
        limit_solref=solrefs(rng, count),
        limit_solimp=solimps(rng, count),
        stiffness=rng.uniform(1, 10, count) * spring,
        stiffness_poly=poly(spring),
        damping=rng.uniform(0.1, 1, count) * damping,
        damping_poly=np.abs(poly(damping)),
        spring_length=np.where(automatic[:, None], 0.0, band),
        armature=rng.uniform(0.05, 1, count) * heavy,
        frictionloss=rng.uniform(0.1, 2, count) * friction,
        friction_solref=solrefs(rng, count),
        friction_solimp=solimps(rng, count),
        actuator_force_range=rng.uniform([-3, 0.5], [-0.5, 3], (count, 2)),
    )


# Equality constraints, nearly satisfied at the reference coordinates.


def random_equalities(
    rng: np.random.Generator, links: Links, joints: Joints, nsite: int, ntendon: int
) -> Equalities:
    """Draw two constraints of each kind that the parts of a robot allow."""
    frames = reference_frames(links, joints)
    scalar = [j for j, kind in enumerate(joints.kinds) if kind.nv == 1]
    rows = []
    for kind in (EqualityKind.CONNECT, EqualityKind.WELD):
        if len(links.names) > 1:
            rows += [(kind, pick_two(rng, len(links.names)), False)]
        rows += [(kind, (int(rng.integers(len(links.names))), -1), False)]
        if nsite > 1:
            rows += [(kind, pick_two(rng, nsite), True)]
    for kind, objects in (
        (EqualityKind.JOINT, scalar),
        (EqualityKind.TENDON, list(range(ntendon))),
    ):
        if len(objects) > 1:
            one, two = pick_two(rng, len(objects))
            rows += [(kind, (objects[one], objects[two]), False)]
        if objects:
            rows += [(kind, (objects[int(rng.integers(len(objects)))], -1), False)]
    return _equalities(rng, rows, frames)


def _equalities(rng: np.random.Generator, rows: list, frames: list) -> Equalities:
    n = len(rows)
    anchors, quats = np.zeros((n, 2, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (n, 1))
    scale, coefficients = np.ones(n), np.zeros((n, 5))
    for k, (kind, (one, two), at_sites) in enumerate(rows):
        if kind in (EqualityKind.JOINT, EqualityKind.TENDON):
            coefficients[k] = rng.uniform(-0.3, 0.3, 5) * (1 if two >= 0 else 0.1)
            coefficients[k, 1:] *= two >= 0
            continue
        if kind is EqualityKind.WELD:
            scale[k] = rng.uniform(0.5, 2.0)
        if at_sites:
            continue
        (pos1, rot1), (pos2, rot2) = frames[one], frames[two]
        anchors[k, 0] = rng.uniform(-0.1, 0.1, 3)
        world = pos1 + rot1 @ anchors[k, 0]
        anchors[k, 1] = rot2.T @ (world - pos2)
        if kind is EqualityKind.WELD:
            anchors[k, 1] += 0.01 * rng.normal(size=3)
            turn = Rotation.from_matrix(rot1.T @ rot2).as_quat(scalar_first=True)
            quat = turn + 0.05 * rng.normal(size=4)
            quats[k] = quat / np.linalg.norm(quat)
    kinds = tuple(kind for kind, _, _ in rows)
    return Equalities(
        names=tuple(f"equality{k}" for k in range(n)),
        kinds=kinds,
        objects=tuple(objects for _, objects, _ in rows),
        at_sites=tuple(at_sites for _, _, at_sites in rows),
        active=(rng.random(n) < 0.8).astype(float),
        anchors=anchors,
        relative_quat=quats,
        torque_scale=scale,
        coefficients=coefficients,
        solref=np.stack([rng.uniform(0.02, 0.1, n), rng.uniform(0.5, 1.5, n)], axis=1),
        solimp=np.tile([0.8, 0.95, 0.01, 0.5, 2.0], (n, 1)),
    )


def reference_frames(links: Links, joints: Joints) -> list:
    """Return positions and rotations of the links at the reference coordinates; the last
    entry, of index -1, is the frame of the world."""
    frames = []
    world = np.zeros(3), np.eye(3)
    for link, parent in enumerate(links.parents):
        pos, quat = np.asarray(links.pos[link]), np.asarray(links.quat[link])
        for joint, owner in enumerate(joints.links):
            if owner == link and joints.kinds[joint] is JointKind.FREE:
                start = joints.q_starts[joint]
                ref = np.asarray(joints.ref)
                pos, quat = ref[start : start + 3], ref[start + 3 : start + 7]
        above = world if parent < 0 else frames[parent]
        turn = Rotation.from_quat(quat, scalar_first=True).as_matrix()
        frames.append((above[0] + above[1] @ pos, above[1] @ turn))
    return [*frames, world]


# Sensors: one of every possible kind.


_K, _O = SensorKind, SensorObject
_NONE: _Object = (_O.NONE, -1)

_AT_SITES = (_K.ACCELEROMETER, _K.VELOCIMETER, _K.GYRO, _K.MAGNETOMETER)
_AT_SITES += (_K.TOUCH, _K.RANGEFINDER)
_AT_LINKS = (_K.SUBTREE_CENTER, _K.SUBTREE_VELOCITY, _K.SUBTREE_ANGULAR_MOMENTUM)
_AT_JOINTS = (_K.JOINT_POSITION, _K.JOINT_VELOCITY, _K.JOINT_ACTUATOR_FORCE)
_AT_BALLS = (_K.BALL_QUATERNION, _K.BALL_VELOCITY)
_AT_LIMITS = (_K.JOINT_LIMIT_POSITION, _K.JOINT_LIMIT_VELOCITY, _K.JOINT_LIMIT_FORCE)
_AT_TENDONS = (_K.TENDON_POSITION, _K.TENDON_VELOCITY, _K.TENDON_ACTUATOR_FORCE)
_AT_TENDON_LIMITS = (
    _K.TENDON_LIMIT_POSITION,
    _K.TENDON_LIMIT_VELOCITY,
    _K.TENDON_LIMIT_FORCE,
)
_AT_ACTUATORS = (_K.ACTUATOR_POSITION, _K.ACTUATOR_VELOCITY, _K.ACTUATOR_FORCE)
_STILL = (_K.FRAME_ACCELERATION, _K.FRAME_ANGULAR_ACCELERATION)
_FRAMES = tuple(kind for kind in SensorKind if kind.value.startswith("frame"))
_DISTANCES = (_K.DISTANCE, _K.NORMAL, _K.FROM_TO)
_ALONE = (_K.POTENTIAL_ENERGY, _K.KINETIC_ENERGY, _K.CLOCK)


def add_sensors(
    rng: np.random.Generator, sys: System, most: int | None = None
) -> System:
    """Draw sensors for a robot with sites, up to a given number."""
    found = [(kind, own, _NONE) for kind, own in _attached(rng, sys)]
    found += [(kind, _frame(rng, sys), _reference(rng, sys, kind)) for kind in _FRAMES]
    if sys.nsite:
        found.append((_K.INSIDE_SITE, _frame(rng, sys), _site(rng, sys)))
    found += [(_K.CONTACT, *_contact_ends(rng, sys)) for _ in range(3)]
    pairs = _distance_pairs(sys)
    if pairs:
        found += [(kind, *pairs[rng.integers(len(pairs))]) for kind in _DISTANCES]
    found += [(kind, _NONE, _NONE) for kind in _ALONE]
    rng.shuffle(found)
    found = found[:most]
    return dataclasses.replace(sys, sensors=_sensors(rng, sys, found))


def _sensors(rng: np.random.Generator, sys: System, found: list) -> Sensors:
    kinds = tuple(kind for kind, _, _ in found)
    limited = rng.random(len(found)) < 0.3
    limited &= [SENSOR_FACTS[kind].cutoff is not Cutoff.NONE for kind in kinds]
    limited |= [kind in _DISTANCES for kind in kinds]
    is_contact = [kind is _K.CONTACT for kind in kinds]
    reductions = [
        tuple(ContactReduction)[rng.integers(4)] if mark else ContactReduction.FIRST
        for mark in is_contact
    ]
    data = [
        _contact_data(rng, reduction) if mark else ()
        for reduction, mark in zip(reductions, is_contact)
    ]
    rays = [_some(rng, tuple(RayData)) if k is _K.RANGEFINDER else () for k in kinds]
    return Sensors(
        names=tuple(f"sensor{k}" for k in range(len(found))),
        kinds=kinds,
        objects=tuple(one for _, one, _ in found),
        references=tuple(two for _, _, two in found),
        limited=tuple(bool(mark) for mark in limited),
        contact_data=tuple(data),
        contact_reductions=tuple(reductions),
        contact_slots=tuple(int(rng.integers(1, 4)) * mark for mark in is_contact),
        ray_data=tuple(rays),
        ray_geoms=tuple(g for g in range(sys.ngeom) if rng.random() < 0.8)
        if any(rays)
        else (),
        cutoff=rng.uniform(0.1, 2.0, len(found)) * limited,
        magnetic=rng.normal(size=3) if _K.MAGNETOMETER in kinds else None,
    )


def _attached(rng: np.random.Generator, sys: System) -> list:
    """Draw an object for every kind of sensor that is attached to one object."""
    joints, tendons = sys.joints, sys.tendons
    single = [j for j, kind in enumerate(joints.kinds) if kind.nv == 1]
    balls = [j for j, kind in enumerate(joints.kinds) if kind is JointKind.SPHERICAL]
    limits = [j for j, mark in enumerate(joints.limited) if mark]
    moving = [site for site, link in enumerate(sys.sites.links) if link >= 0]
    groups = (
        (_AT_SITES, _O.SITE, range(sys.nsite)),
        ((_K.FORCE, _K.TORQUE), _O.SITE, moving),
        (_AT_LINKS, _O.INERTIA, range(-1, sys.nlink)),
        (_AT_JOINTS, _O.JOINT, single),
        (_AT_BALLS, _O.JOINT, balls),
        (_AT_LIMITS, _O.JOINT, limits),
        (_AT_TENDONS, _O.TENDON, range(sys.ntendon)),
        (_AT_TENDON_LIMITS, _O.TENDON, np.flatnonzero(tendons.limited).tolist()),
        (_AT_ACTUATORS, _O.ACTUATOR, range(sys.nactuator)),
    )
    return [
        (kind, (sort, int(rng.choice(list(index)))))
        for kinds, sort, index in groups
        for kind in kinds
        if len(index)
    ]


def _site(rng: np.random.Generator, sys: System) -> _Object:
    return _O.SITE, int(rng.integers(sys.nsite))


def _frame(rng: np.random.Generator, sys: System) -> _Object:
    options = [(_O.LINK, k) for k in range(-1, sys.nlink)]
    options += [(_O.INERTIA, k) for k in range(sys.nlink)]
    options += [(_O.GEOM, k) for k in range(sys.ngeom)]
    options += [(_O.SITE, k) for k in range(sys.nsite)]
    return options[rng.integers(len(options))]


def _reference(rng: np.random.Generator, sys: System, kind: SensorKind) -> _Object:
    return _NONE if kind in _STILL or rng.random() < 0.3 else _frame(rng, sys)


def _contact_ends(rng: np.random.Generator, sys: System) -> tuple[_Object, _Object]:
    options = [_NONE]
    options += [(_O.LINK, k) for k in range(-1, sys.nlink)]
    options += [(_O.INERTIA, k) for k in range(-1, sys.nlink)]
    options += [(_O.GEOM, k) for k in range(sys.ngeom)]
    first = [*options, *((_O.SITE, k) for k in range(sys.nsite))]
    return first[rng.integers(len(first))], options[rng.integers(len(options))]


def _distance_pairs(sys: System) -> list[tuple[_Object, _Object]]:
    return [
        ((_O.GEOM, a), (_O.GEOM, b))
        for a in range(sys.ngeom)
        for b in range(sys.ngeom)
        if a != b and is_measured(sys, a, b)
    ]


def _some(rng: np.random.Generator, options: tuple) -> tuple:
    chosen = tuple(x for x in options if rng.random() < 0.5)
    return chosen or options[:1]


def _contact_data(rng: np.random.Generator, reduction: ContactReduction) -> tuple:
    options = tuple(ContactData)
    if reduction is ContactReduction.SUM:
        options = options[: options.index(ContactData.VELOCITY)]
    return _some(rng, options)
