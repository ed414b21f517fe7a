"""Sites, tendons and equality constraints of a random robot; the latter are nearly satisfied
at the reference coordinates."""

import dataclasses
from typing import NamedTuple

import numpy as np

from ._random_parts import quaternions, solimps, solrefs
from ._system import System
from .kinds import EqualityKind, GeomKind, JointKind, WrapKind
from .parts import Equalities, Geoms, Joints, Links, Path, PathPoint, Sites, Tendons


class TendonOptions(NamedTuple):
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
    rng: np.random.Generator, sys: System, options: TendonOptions
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


def _fixed_path(rng: np.random.Generator, sys: System) -> Path:
    scalar = [k for k, kind in enumerate(sys.joints.kinds) if kind.nv == 1]
    if not scalar:
        return ()
    count = int(rng.integers(1, min(3, len(scalar)) + 1))
    chosen = rng.choice(scalar, count, replace=False).tolist()
    return tuple(PathPoint(WrapKind.JOINT, joint) for joint in chosen)


def _spatial_path(rng: np.random.Generator, sys: System) -> Path:
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


def _chain_path(rng: np.random.Generator, sys: System) -> Path:
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
    paths: list[Path],
    has_armature: list[bool],
    options: TendonOptions,
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


# Equality constraints.


def random_equalities(
    rng: np.random.Generator, links: Links, joints: Joints, nsite: int, ntendon: int
) -> Equalities:
    """Draw two constraints of each kind that the parts of a robot allow."""
    frames = reference_frames(links, joints)
    scalar = [j for j, kind in enumerate(joints.kinds) if kind.nv == 1]
    rows = []
    for kind in (EqualityKind.CONNECT, EqualityKind.WELD):
        if len(links.names) > 1:
            rows += [(kind, _two(rng, len(links.names)), False)]
        rows += [(kind, (int(rng.integers(len(links.names))), -1), False)]
        if nsite > 1:
            rows += [(kind, _two(rng, nsite), True)]
    for kind, objects in (
        (EqualityKind.JOINT, scalar),
        (EqualityKind.TENDON, list(range(ntendon))),
    ):
        if len(objects) > 1:
            one, two = _two(rng, len(objects))
            rows += [(kind, (objects[one], objects[two]), False)]
        if objects:
            rows += [(kind, (objects[int(rng.integers(len(objects)))], -1), False)]
    return _equalities(rng, rows, frames)


def _two(rng: np.random.Generator, count: int) -> tuple[int, int]:
    one, two = rng.choice(count, 2, replace=False).tolist()
    return one, two


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
            quat = _quaternion(rot1.T @ rot2) + 0.05 * rng.normal(size=4)
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
        frames.append((above[0] + above[1] @ pos, above[1] @ _rotation(quat)))
    return [*frames, world]


def _rotation(quat: np.ndarray) -> np.ndarray:
    w, x, y, z = quat / np.linalg.norm(quat)
    v = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * w * v + 2 * v @ v


def _quaternion(rot: np.ndarray) -> np.ndarray:
    """Return the quaternion of a rotation matrix: each row below is a multiple of it."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = rot
    wx, wy, wz = zy - yz, xz - zx, yx - xy
    rows = np.array(
        [
            [1 + xx + yy + zz, wx, wy, wz],
            [wx, 1 + xx - yy - zz, xy + yx, xz + zx],
            [wy, xy + yx, 1 - xx + yy - zz, yz + zy],
            [wz, xz + zx, yz + zy, 1 - xx - yy + zz],
        ]
    )
    best = rows[np.argmax(np.diag(rows))]
    return best / np.linalg.norm(best)
