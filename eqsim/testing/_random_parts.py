"""Links, joints, shapes, meshes and keyframes of a random robot."""

import copy
import dataclasses
from typing import NamedTuple

import numpy as np

from ..model import (
    Actuators,
    GeomKind,
    Geoms,
    HeightFields,
    HullGraph,
    JointKind,
    Joints,
    Keyframes,
    Links,
    Meshes,
    MeshSurfaces,
    Pairs,
    System,
)
from ..model.kinds import AnyKind
from ..model.meshes import reference_vertices
from ..model.pairs import touching_kinds


class Plan(NamedTuple):
    """Structure of a random robot: parents, kinds of the joints of each link, and
    sliding links."""

    parents: tuple[int, ...]
    kinds: tuple[tuple[JointKind, ...], ...]
    sliding: tuple[bool, ...]

    def flat(self) -> list[tuple[int, JointKind]]:
        """Return link and kind of every joint."""
        return [(link, kind) for link, row in enumerate(self.kinds) for kind in row]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def _apart(rng: np.random.Generator) -> np.random.Generator:
    """Return a separate random generator, so that other draws of a seed do not
    change."""
    return np.random.default_rng(copy.deepcopy(rng).integers(2**63))


def quaternions(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw unit quaternions."""
    quats = rng.normal(size=(count, 4))
    return quats / np.linalg.norm(quats, axis=-1, keepdims=True)


def solrefs(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw `solref`: mostly time constant and damping ratio, sometimes stiffness and
    damping."""
    soft = np.stack([rng.uniform(0.01, 0.05, count), rng.uniform(0.7, 1.3, count)], -1)
    direct = np.stack(
        [rng.uniform(-900, -300, count), rng.uniform(-60, -20, count)], -1
    )
    return np.where(rng.random((count, 1)) < 0.85, soft, direct)


def solimps(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw impedances of constraints."""
    low = rng.uniform(0.5, 0.9, count)
    high = rng.uniform(0.9, 0.98, count)
    width, middle = rng.uniform(0.001, 0.02, count), rng.uniform(0.3, 0.7, count)
    power = rng.choice([1.0, 2.0, 3.0], count)
    return np.stack([low, high, width, middle, power], -1)


def random_plan(
    rng: np.random.Generator, nlink: int, joints: tuple[JointKind, ...], num_roots: int
) -> Plan:
    roots = {0, *rng.choice(np.arange(1, nlink), num_roots - 1, replace=False).tolist()}
    parents: list[int] = []
    path: list[int] = []
    for link in range(nlink):
        # A parent on the path to the last link keeps the depth-first order.
        depth = 0 if link in roots else int(rng.integers(1, len(path) + 1))
        path = path[:depth]
        parents.append(path[-1] if path else -1)
        path.append(link)
    kinds = []
    sliding = []
    for link, parent in enumerate(parents):
        slides = JointKind.PRISMATIC in joints and parent == -1 and link not in parents
        slides = slides and bool(rng.random() < 0.2)
        sliding.append(slides)
        if slides:
            kinds.append((JointKind.PRISMATIC,) * int(rng.integers(1, 4)))
        else:
            kinds.append(_joint_kinds(rng, joints, parent == -1))
    if not any(kinds):
        kinds[0] = _joint_kinds(rng, joints, is_root=True, fixed=0.0)
    return Plan(tuple(parents), tuple(kinds), tuple(sliding))


def _joint_kinds(
    rng: np.random.Generator,
    joints: tuple[JointKind, ...],
    is_root: bool,
    fixed: float = 0.12,
) -> tuple[JointKind, ...]:
    if rng.random() < fixed:
        return ()
    allowed = [kind for kind in joints if is_root or kind is not JointKind.FREE]
    if not allowed:
        return ()
    first = allowed[rng.integers(len(allowed))]
    if first is JointKind.FREE:
        return (first,)
    slide = JointKind.PRISMATIC
    if first is JointKind.SPHERICAL:
        also_slides = slide in joints and rng.random() < 0.2
        return (slide, first) if also_slides else (first,)
    scalar = [kind for kind in (slide, JointKind.REVOLUTE) if kind in joints]
    more = int(rng.choice([0, 1, 2], p=[0.6, 0.25, 0.15]))
    return (first, *(scalar[rng.integers(len(scalar))] for _ in range(more)))


def random_links(rng: np.random.Generator, plan: Plan) -> Links:
    count = len(plan.parents)
    mass = rng.uniform(0.3, 2.0, count)
    # The inertia of a set of points satisfies the triangle inequality.
    spread = rng.uniform(0.03, 0.15, (count, 3)) ** 2 * mass[:, None]
    inertia = np.sum(spread, -1, keepdims=True) - spread
    com = rng.uniform(-0.1, 0.1, (count, 3))
    quat, inertia_quat = quaternions(rng, count), quaternions(rng, count)
    pos = rng.uniform(-0.3, 0.3, (count, 3))
    for link, parent in enumerate(plan.parents):
        if parent == -1:
            pos[link, 2] = rng.uniform(0.1, 1.0)
        if plan.sliding[link]:
            com[link], quat[link] = 0, [1, 0, 0, 0]
            inertia_quat[link] = [1, 0, 0, 0]
        elif not plan.kinds[link] and rng.random() < 0.3:
            mass[link], inertia[link], com[link] = 0, 0, 0
            inertia_quat[link] = [1, 0, 0, 0]
    carried = np.where(rng.random(count) < 0.2, rng.uniform(0, 1.2, count), 0.0)
    return Links(
        names=tuple(f"link{link}" for link in range(count)),
        parents=plan.parents,
        translating=plan.sliding,
        mocap=_mocap(rng, plan),
        pos=pos,
        quat=quat,
        mass=mass,
        com=com,
        inertia=inertia,
        inertia_quat=inertia_quat,
        gravity_compensation=carried,
    )


def _mocap(rng: np.random.Generator, plan: Plan) -> tuple[bool, ...]:
    """Turn some of the links that are fixed to the world into mocap links."""
    draws = _apart(rng).random(len(plan.parents))
    return tuple(
        parent == -1 and not kinds and bool(draw < 0.5)
        for parent, kinds, draw in zip(plan.parents, plan.kinds, draws)
    )


def random_joints(
    rng: np.random.Generator,
    plan: Plan,
    links: Links,
    with_limits: bool,
    with_friction: bool,
) -> Joints:
    flat = plan.flat()
    count = len(flat)
    kinds = tuple(kind for _, kind in flat)
    free = np.asarray([kind is JointKind.FREE for kind in kinds], bool)
    stacked = np.asarray([len(plan.kinds[link]) > 1 for link, _ in flat], bool)
    repeats = [kind.nv for kind in kinds]
    ref, spring_ref = _references(rng, flat, links)
    armature = np.where(rng.random(count) < 0.5, rng.uniform(0.01, 0.2, count), 0.0)
    # Stacked joints may be parallel: keep their mass matrix well conditioned.
    armature = np.where(stacked, np.maximum(armature, 0.05), armature)
    loss = np.where(rng.random(count) < 0.3, rng.uniform(0.1, 2.0, count), 0.0)
    loss = loss * (with_friction & ~free)
    damping = rng.uniform(0, 1, count) * (rng.random(count) < 0.6)
    stiffness = rng.uniform(0, 10, count) * (rng.random(count) < 0.4)
    limited = (rng.random(count) < 0.5) & with_limits & ~free
    anchor, axis = _frames(rng, plan, flat)
    return Joints(
        names=tuple(f"joint{joint}" for joint in range(count)),
        kinds=kinds,
        links=tuple(link for link, _ in flat),
        limited=tuple(bool(mark) for mark in limited),
        has_friction=tuple(bool(mark) for mark in np.repeat(loss > 0, repeats)),
        force_limited=(False,) * count,
        actuator_gravity=(False,) * count,
        anchor=anchor,
        axis=axis,
        range=_ranges(rng, kinds, ref),
        limit_margin=rng.uniform(0, 0.05, count),
        limit_solref=solrefs(rng, count),
        limit_solimp=solimps(rng, count),
        stiffness=stiffness,
        ref=ref,
        spring_ref=spring_ref,
        damping=np.repeat(damping, repeats),
        armature=np.repeat(armature, repeats),
        frictionloss=np.repeat(loss, repeats),
        friction_solref=np.repeat(solrefs(rng, count), repeats, axis=0),
        friction_solimp=np.repeat(solimps(rng, count), repeats, axis=0),
    )


def _references(
    rng: np.random.Generator, flat: list[tuple[int, JointKind]], links: Links
) -> tuple[np.ndarray, np.ndarray]:
    ref: list[float] = []
    spring_ref: list[float] = []
    for link, kind in flat:
        if kind is JointKind.FREE:
            frame = [*np.asarray(links.pos[link]), *np.asarray(links.quat[link])]
            pair = (frame, frame)
        elif kind is JointKind.SPHERICAL:
            pair = ([1, 0, 0, 0], [1, 0, 0, 0])
        else:
            pair = ([rng.uniform(-0.3, 0.3)], [rng.uniform(-0.3, 0.3)])
        ref += pair[0]
        spring_ref += pair[1]
    return np.asarray(ref, float), np.asarray(spring_ref, float)


def _frames(
    rng: np.random.Generator, plan: Plan, flat: list[tuple[int, JointKind]]
) -> tuple[np.ndarray, np.ndarray]:
    anchor = rng.uniform(-0.1, 0.1, (len(flat), 3))
    axis = rng.normal(size=(len(flat), 3))
    axis /= np.linalg.norm(axis, axis=-1, keepdims=True)
    seen = dict.fromkeys(range(len(plan.parents)), 0)
    for joint, (link, kind) in enumerate(flat):
        if kind in (JointKind.FREE, JointKind.SPHERICAL):
            axis[joint] = [0, 0, 1]
        if kind is JointKind.FREE:
            anchor[joint] = 0
        if plan.sliding[link]:
            anchor[joint], axis[joint] = 0, np.eye(3)[seen[link]]
            seen[link] += 1
    return anchor, axis


def _ranges(
    rng: np.random.Generator, kinds: tuple[JointKind, ...], ref: np.ndarray
) -> np.ndarray:
    ranges = np.zeros((len(kinds), 2))
    start = 0
    for joint, kind in enumerate(kinds):
        if kind is JointKind.SPHERICAL:
            ranges[joint, 1] = rng.uniform(0.5, 2.0)
        elif kind.nq == 1:
            width = 1.0 if kind is JointKind.REVOLUTE else 0.3
            ranges[joint] = ref[start] + width * rng.uniform([-1, 0.2], [-0.2, 1])
        start += kind.nq
    return ranges


# Bit 1: touches the ground. Bit 2: spheres and capsules. Bit 4: cylinders with
# capsules. Higher bits: see `collision_masks`.
_MASKS: dict[AnyKind, tuple[int, int]] = {
    GeomKind.PLANE: (1, 0),
    GeomKind.SPHERE: (2, 3),
    GeomKind.CAPSULE: (2, 7),
    GeomKind.CYLINDER: (4, 1),
    GeomKind.BOX: (0, 1),
    GeomKind.ELLIPSOID: (0, 1),
    GeomKind.MESH: (0, 1),
}
_DRAWN = (GeomKind.SPHERE, GeomKind.CAPSULE, GeomKind.CYLINDER, GeomKind.BOX)


def collision_masks(kind: AnyKind, wide: bool) -> tuple[int, int]:
    """Return `contype` and `conaffinity`; shapes that are `wide` touch all kinds with a
    collider."""
    bit = lambda kind: 8 << kind.value
    contype, conaffinity = _MASKS.get(kind, (0, 0))
    if wide and kind is not GeomKind.PLANE:
        pairs = [pair for pair in touching_kinds() if GeomKind.PLANE not in pair]
        for one, two in pairs:
            if kind in (one, two):
                conaffinity |= bit(two if kind is one else one)
    return contype | bit(kind), conaffinity


def random_geoms(
    rng: np.random.Generator,
    nlink: int | None,
    condims: tuple[int, ...],
    with_fluid: bool,
) -> Geoms:
    """Draw a ground, and shapes for the world and each link; None draws no shapes."""
    own = _apart(rng)
    kinds, links = ([], []) if nlink is None else ([GeomKind.PLANE], [-1])
    for link in () if nlink is None else range(-1, nlink):
        for _ in range(int(rng.choice([0, 1, 2], p=[0.3, 0.5, 0.2]))):
            kinds.append(_DRAWN[rng.integers(4)])
            links.append(link)
    count = len(kinds)
    size = rng.uniform(0.05, 0.15, (count, 3))
    sizes = {GeomKind.SPHERE: 1, GeomKind.CAPSULE: 2, GeomKind.CYLINDER: 2}
    for geom, kind in enumerate(kinds):
        size[geom, sizes.get(kind, 3) :] = 0
    pos = rng.uniform(-0.2, 0.2, (count, 3))
    quat = quaternions(rng, count)
    alive = rng.random(count) < 0.9
    for ground in range(min(count, 1)):
        size[ground], pos[ground] = [1, 1, 1], [0, 0, rng.uniform(-0.2, 0.1)]
        quat[ground] = unit(np.array([1, 0, 0, 0]) + 0.05 * rng.normal(size=4))
        alive[ground] = True
    fluid = (own.random(count) < 0.4) & (np.array(links, int) >= 0) & with_fluid
    fluid_coefficients = own.uniform(0.1, 2.0, (count, 5)) * fluid[:, None]
    friction = rng.uniform([0.2, 0.001, 0.0001], [1.2, 0.01, 0.001], (count, 3))
    round_, wide = own.random(count) < 0.3, own.random(count) < 0.15
    kinds = [
        GeomKind.ELLIPSOID if kind is GeomKind.BOX and smooth else kind
        for kind, smooth in zip(kinds, round_)
    ]
    masks = [
        collision_masks(kind, bool(far)) if on else (0, 0)
        for kind, far, on in zip(kinds, wide, alive)
    ]
    return Geoms(
        names=tuple(f"shape{geom}" for geom in range(count)),
        kinds=tuple(kinds),
        links=tuple(links),
        condim=_condims(rng, count, condims),
        priority=tuple(int(rank) for rank in rng.choice([0, 1], count, p=[0.8, 0.2])),
        contype=tuple(mask[0] for mask in masks),
        conaffinity=tuple(mask[1] for mask in masks),
        pos=pos,
        quat=quat,
        size=size,
        friction=friction,
        solref=solrefs(rng, count),
        solimp=solimps(rng, count),
        solmix=rng.uniform(0.5, 2, count),
        margin=rng.uniform(0, 0.02, count) * (rng.random(count) < 0.5),
        fluid=tuple(bool(mark) for mark in fluid),
        fluid_coefficients=fluid_coefficients,
    )


def _condims(
    rng: np.random.Generator, count: int, condims: tuple[int, ...]
) -> tuple[int, ...]:
    rest = len(condims) - 1
    odds = [0.3] + [0.7 / rest] * rest if rest else [1.0]
    return tuple(int(condim) for condim in rng.choice(condims, count, p=odds))


def random_exceptions(
    rng: np.random.Generator, plan: Plan, geoms: Geoms, condims: tuple[int, ...]
) -> tuple[Pairs, tuple[tuple[int, int], ...]]:
    """Draw, for some seeds, an explicit pair with the ground and an excluded pair of
    links."""
    nlink = len(plan.parents)
    named = [
        (0, geom)
        for geom, kind in enumerate(geoms.kinds)
        if kind is not GeomKind.PLANE and geoms.links[geom] >= 0 and rng.random() < 0.15
    ]
    # MuJoCo sorts pairs by their links; shapes are ordered by their links.
    count = len(named)
    own = _apart(rng)
    tangential = np.where(own.random((count, 1)) < 0.5, solrefs(own, count), 0.0)
    sliding = rng.uniform(0.2, 1.2, (count, 2))
    pairs = Pairs(
        geoms=tuple(named),
        condim=tuple(int(condim) for condim in rng.choice(condims, count)),
        friction=np.concatenate([sliding, np.full((count, 3), 0.001)], -1),
        solref=solrefs(rng, count),
        solref_friction=tangential,
        solimp=solimps(rng, count),
        margin=rng.uniform(0, 0.02, count),
    )
    excluded = nlink > 1 and rng.random() < 0.4
    if not excluded:
        return pairs, ()
    a, b = sorted(rng.choice(nlink, 2, replace=False).tolist())
    return pairs, ((a, b),)


# Keyframes.


def random_keyframes(
    rng: np.random.Generator, joints: Joints, actuators: Actuators
) -> Keyframes:
    """Draw up to two keyframes."""
    count, num_act = int(rng.integers(3)), sum(map(len, actuators.states))
    q = rng.normal(size=(count, len(joints.ref)))
    for kind, start in zip(joints.kinds, joints.q_starts):
        if kind.nq > 1:
            quat = slice(start + kind.nq - 4, start + kind.nq)
            quats = rng.normal(size=(count, 4))
            q[:, quat] = quats / np.linalg.norm(quats, axis=-1, keepdims=True)
    return Keyframes(
        names=tuple(f"keyframe{index}" for index in range(count)),
        q=q,
        qd=rng.normal(size=(count, len(joints.damping))),
        act=rng.normal(size=(count, num_act)),
        ctrl=rng.normal(size=(count, sum(map(len, actuators.inputs)))),
    )


# Meshes and height fields.


def add_meshes(rng: np.random.Generator, sys: System) -> System:
    """Replace boxes by octahedra, and those of the world by height fields."""
    geoms, pairs = sys.geoms, sys.pairs
    named = {geom for pair in pairs.geoms for geom in pair}
    boxes = [
        geom
        for geom, kind in enumerate(geoms.kinds)
        if kind is GeomKind.BOX and geom not in named
    ]
    kinds, data, size = list(geoms.kinds), [-1] * sys.ngeom, np.array(geoms.size)
    solid, flat = [], []
    for geom in boxes:
        group = solid if geoms.links[geom] >= 0 else flat
        kinds[geom] = GeomKind.MESH if group is solid else GeomKind.HFIELD
        data[geom] = len(group)
        group.append(geom)
        # MuJoCo sorts the axes of a mesh by its moments of inertia.
        size[geom] = np.sort(size[geom]) if group is solid else 0.0
    height_fields = _height_fields(rng, len(flat))
    masks = list(zip(geoms.contype, geoms.conaffinity, strict=True))
    for geom in boxes:
        if any(masks[geom]):
            masks[geom] = collision_masks(kinds[geom], bool(rng.random() < 0.4))
    contype, conaffinity = zip(*masks, strict=True) if masks else ((), ())
    drawn = dataclasses.replace(
        geoms,
        kinds=tuple(kinds),
        data=tuple(data) if boxes else (),
        size=size,
        contype=contype,
        conaffinity=conaffinity,
    )
    colliding = [any(masks[geom]) for geom in solid]
    return dataclasses.replace(
        sys,
        geoms=drawn,
        meshes=_octahedra([size[geom] for geom in solid], colliding),
        height_fields=height_fields,
    )


_POINTS = np.array(
    [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]]
)
# Counterclockwise seen from outside: one triangle for each octant.
_FACES = np.array(
    [
        (x, y, z) if (x + y + z) % 2 == 0 else (x, z, y)
        for x in (0, 1)
        for y in (2, 3)
        for z in (4, 5)
    ]
)


# Vertices on the other axes.
_NEIGHBORS = np.array([[v for v in range(6) if v // 2 != k // 2] for k in range(6)])


def _octahedra(sizes: list[np.ndarray], colliding: list[bool]) -> Meshes:
    """Return octahedra with given semiaxes; those that collide have hulls."""
    if not sizes:
        return Meshes.none()
    count, solid = len(sizes), np.array(colliding)
    starts = lambda each: np.append(0, np.cumsum(each))
    hulls = int(np.sum(solid))
    points = np.stack([_POINTS * size for size in sizes])
    return Meshes(
        names=tuple(f"mesh{k}" for k in range(count)),
        hulls=HullGraph(
            vertex_starts=starts(6 * solid),
            neighbor_starts=4 * np.arange(6 * hulls + 1),
            neighbors=np.tile(_NEIGHBORS.ravel(), hulls),
            polygon_starts=starts(8 * solid),
            corner_starts=3 * np.arange(8 * hulls + 1),
            corners=np.tile(_FACES.ravel(), hulls),
            reference=np.concatenate(
                [np.zeros((0, 3)), *map(reference_vertices, points[solid])]
            ),
        ),
        surfaces=MeshSurfaces(
            other_starts=starts(6 * ~solid),
            face_starts=8 * np.arange(count + 1),
            faces=np.tile(_FACES, (count, 1)),
            order=np.tile(np.arange(6), count),
        ),
        vertices=points[solid].reshape(-1, 3),
        other_vertices=points[~solid].reshape(-1, 3),
    )


def _height_fields(rng: np.random.Generator, count: int) -> HeightFields:
    grids = rng.uniform(0.0, 0.2, (count, 3, 4))
    # MuJoCo's heights start at zero.
    grids -= grids.min(axis=(1, 2), keepdims=True)
    return HeightFields(
        names=tuple(f"field{k}" for k in range(count)),
        rows=(3,) * count,
        columns=(4,) * count,
        heights=grids.ravel(),
        size=rng.uniform([0.2, 0.2, 0.05], [0.5, 0.5, 0.2], (count, 3)),
        capacity=(16,) * count,
    )
