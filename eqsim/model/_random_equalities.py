"""Random equality constraints, nearly satisfied at the reference coordinates."""

import numpy as np

from ._equalities import Equalities
from ._joints import Joints
from ._kinds import EqualityKind, JointKind
from ._links import Links


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
