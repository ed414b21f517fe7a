"""Several points of boxes, capsules, cylinders and meshes, beside those of MuJoCo C.

Sets of points are compared. Where they may differ, or MuJoCo is known to err:

- Of more than four corners, rounding decides between quadrilaterals of equal area. The
  faces of cylinders are regular polygons, so that many are.
- MuJoCo's search for the nearest points ends early in one of some hundred configurations.
- Where a face of a cylinder touches a vertex or a rim, and a side that is parallel to the
  axis is there too, MuJoCo takes any line of the lateral surface as an edge.
- Normals at cylinders are exact in MuJoCo to some 1e-5.
"""

import functools as ft

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from eqsim._batching import batch_last
from eqsim.collision.points import Hulls, polygons_of, Shape
from eqsim.kinematics.link_motion import Pose
from eqsim.model import GeomKind
from eqsim.model.pairs import collider_of
from eqsim.spatial import Mat3, Vec3
from eqsim.spatial.vectors import stack


def box(x, y, z):
    return np.array([[a, b, c] for a in (-x, x) for b in (-y, y) for c in (-z, z)])


def prism(number, radius, half):
    angle = np.arange(number) * 2 * np.pi / number
    ring = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    level = lambda z: np.concatenate([ring, np.full((number, 1), z)], axis=1)
    return np.concatenate([level(-half), level(half)])


def ball(number, seed):
    points = np.random.default_rng(seed).normal(size=(number, 3))
    return points / np.linalg.norm(points, axis=1)[:, None] * [0.3, 0.2, 0.25]


def skew_box():
    """A box of which one corner is a little higher, so that two sides are not planar."""
    points = box(0.1, 0.15, 0.2)
    points[-1] += [0.0, 3e-5, 3e-5]
    return points


def coin():
    """A disk whose corners are at irregular distances around an ellipse."""
    angle = np.sort(np.random.default_rng(3).uniform(0.0, 2 * np.pi, 11))
    ring = np.stack([0.2 * np.cos(angle), 0.08 * np.sin(angle)], axis=1)
    level = lambda z: np.concatenate([ring, np.full((len(ring), 1), z)], axis=1)
    return np.concatenate([level(-0.04), level(0.04)])


MESHES = {
    "box": box(0.1, 0.15, 0.2),
    "skew": skew_box(),
    "coin": coin(),
    "prism": prism(6, 0.2, 0.12),
    "wedge": prism(3, 0.2, 0.1),
    "pentagon": prism(5, 0.15, 0.1),
    "ball": ball(20, 0),
    "stone": ball(14, 1),
}
PAIRS = (
    ("box", "mesh"),
    ("mesh", "mesh"),
    ("capsule", "mesh"),
    ("plane", "mesh"),
    ("capsule", "cylinder"),
    ("cylinder", "cylinder"),
    ("cylinder", "box"),
    ("cylinder", "mesh"),
)
SIZES = {
    "plane": "1 1 1",
    "capsule": ".08 .15",
    "cylinder": ".1 .15",
    "box": ".2 .1 .15",
}


def model_of(pair, meshes, margin):
    """Two shapes that float; all meshes are in the model, in the same order."""
    text = lambda points: " ".join(map(repr, map(float, points.ravel())))
    assets = (
        f'<mesh name="{name}" maxhullvert="-1" vertex="{text(points)}"/>'
        for name, points in MESHES.items()
    )

    def geom(kind, mesh):
        what = f'mesh="{mesh}"' if kind == "mesh" else f'size="{SIZES[kind]}"'
        joint = "" if kind == "plane" else "<freejoint/>"
        geom = f'<geom type="{kind}" {what} margin="{margin / 2}"/>'
        return f"<body>{joint}{geom}</body>"

    bodies = "".join(map(geom, pair, meshes))
    return mujoco.MjModel.from_xml_string(
        '<mujoco><option ccd_tolerance="1e-12" ccd_iterations="500"/>'
        f"<asset>{''.join(assets)}</asset><worldbody>{bodies}</worldbody></mujoco>"
    )


def turned(rng, kind):
    """A rotation: any, nearly by right angles, or about one axis after that."""
    if kind == 0:
        return Rotation.random(random_state=rng)
    angles = rng.integers(0, 4, 3) * 90 + rng.normal(size=3) * 10 ** rng.uniform(
        -4, 0.6
    )
    square = Rotation.from_euler("xyz", angles, degrees=True)
    if kind == 1:
        return square
    axis = "xyz"[rng.integers(3)]
    return square * Rotation.from_euler(axis, rng.uniform(0, 360), degrees=True)


def configurations(model, number, seed):
    """Random poses, and what MuJoCo finds: distances, positions and normals."""
    rng, data = np.random.default_rng(seed), mujoco.MjData(model)
    found = []
    for k in range(number):
        for body in range(1, model.nbody):
            if model.body_dofnum[body] == 0:
                continue
            start = model.jnt_qposadr[model.body_jntadr[body]]
            direction = rng.normal(size=3)
            direction += 3 * np.eye(3)[rng.integers(3)] * rng.choice([-1, 1]) * (k % 3)
            direction *= rng.uniform(0.1, 0.45) / np.linalg.norm(direction)
            data.qpos[start : start + 3] = direction if body == 2 else 0.0
            own = np.zeros(4)
            mujoco.mju_negQuat(own, model.geom_quat[body - 1])
            pose = turned(rng, k % 3) * Rotation.from_quat(own, scalar_first=True)
            data.qpos[start + 3 : start + 7] = pose.as_quat(scalar_first=True)
        mujoco.mj_forward(model, data)
        points = [np.concatenate([[c.dist], c.pos, c.frame[:3]]) for c in data.contact]
        found.append((data.geom_xpos.copy(), data.geom_xmat.copy(), points))
    pos, rot, points = zip(*found, strict=True)
    return np.array(pos), np.array(rot), points


def hulls_of(model):
    """Vertices and polygons of all meshes."""
    ends = lambda starts, counts: [*starts, starts[-1] + counts[-1]]
    polygons = polygons_of(
        ends(model.mesh_vertadr, model.mesh_vertnum),
        ends(model.mesh_polyadr, model.mesh_polynum),
        ends(model.mesh_polyvertadr, model.mesh_polyvertnum),
        model.mesh_polyvert,
    )
    return np.array(model.mesh_vert, float), polygons


def shapes_of(pair, polygons, pos, rot, size, vertices, spans):
    vector = lambda x: Vec3(*(x[k][None] for k in range(3)))
    points = Vec3(*(vertices[:, k] for k in range(3)))
    for k, kind in enumerate(pair):
        matrix = Mat3(*(rot[k, j][None] for j in range(9)))
        start, count = spans[k, 0][None], spans[k, 1][None]
        hulls = Hulls(points, start, count, polygons) if kind == "mesh" else None
        yield Shape(Pose(matrix, vector(pos[k])), vector(size[k]), hulls)


def points_of(pair, polygons, pos, rot, size, vertices, spans, margin):
    """Distance, position, normal, `(point, 7)`, and which points exist."""
    one, two = shapes_of(pair, polygons, pos, rot, size, vertices, spans)
    kinds = GeomKind[pair[0].upper()], GeomKind[pair[1].upper()]
    found = collider_of(*kinds).find(one, two, margin[None])
    rows = [
        jnp.concatenate([p.dist, stack(p.pos)[0], stack(p.normal)[0]]) for p in found
    ]
    return jnp.stack(rows), jnp.stack([p.valid[0] for p in found])


def spans_of(model):
    """First vertex and number of vertices of the mesh of each shape."""
    ids = np.maximum(model.geom_dataid[:2], 0)
    return np.stack([model.mesh_vertadr[ids], model.mesh_vertnum[ids]], axis=1)


@ft.lru_cache(maxsize=8)
def compiled(pair):
    # The vertices of all meshes are in all models, if there is a mesh.
    model = model_of(pair, ("box", "box"), 0.0)
    vertices, polygons = hulls_of(model)
    fn = batch_last(lambda *args: points_of(pair, polygons, *args))
    return jax.jit(jax.vmap(fn, (0, 0, None, None, None, None))), fn, vertices


def same(mine, theirs, atol):
    """Whether two sets of points are equal."""
    left = list(theirs)
    for point in mine:
        near = [k for k, p in enumerate(left) if np.abs(point - p).max() < atol]
        if not near:
            return False
        left.pop(near[0])
    return not left


def compare(pair, meshes, margin, number, seed=0):
    """Count configurations by the number of points, and those that agree."""
    model = model_of(pair, meshes, margin)
    pos, rot, theirs = configurations(model, number, seed)
    compute, _, vertices = compiled(pair)
    args = pos, rot, model.geom_size[:2], vertices, spans_of(model)
    mine, valid = compute(*args, jnp.asarray(margin))
    mine, valid = np.asarray(mine), np.asarray(valid)
    valid = valid & (mine[:, :, 0] < margin)
    assert np.all(np.isfinite(mine))
    counts = np.array([len(points) for points in theirs])
    # MuJoCo rounds vertices to single precision after it computes normals.
    atol = 1e-4 if "cylinder" in pair else 1e-6
    agree = [same(mine[k][valid[k]], theirs[k], atol) for k in range(number)]
    return counts, valid.sum(axis=1) == counts, np.array(agree)


NO_MESHES = (("box", "box"),)
MESH_PAIRS = {
    "cylinder": (("box", "box"), ("box", "pentagon"), ("box", "ball")),
    "box": (("box", "box"), ("box", "prism"), ("box", "ball")),
    "mesh": (("box", "box"), ("wedge", "prism"), ("ball", "stone")),
    "capsule": (("box", "box"), ("box", "pentagon"), ("box", "ball")),
    "plane": (("box", "box"), ("box", "pentagon"), ("box", "ball")),
}


def meshes_of(pair):
    return MESH_PAIRS[pair[0]] if "mesh" in pair else NO_MESHES


@pytest.mark.parametrize("margin", (0.0, 0.05))
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.quick_cases(
    "mesh-mesh-0.05",
    "capsule-mesh-0.0",
    "plane-mesh-0.0",
    "capsule-cylinder-0.0",
)
def test_points(pair, margin):
    for meshes in meshes_of(pair):
        counts, same_count, agree = compare(pair, meshes, margin, 200)
        # Some with several points, some with one or none.
        assert np.sum(counts > 1) > 8 and np.sum(counts < 2) > 5
        assert np.mean(same_count) >= 0.98
        assert np.mean(agree) >= 0.95


def test_faces_that_are_not_planar():
    """MuJoCo merges triangles whose normals nearly agree. Distances of points on such a
    face are those of its corners and sides, not of a plane."""
    model = model_of(("mesh", "mesh"), ("skew", "skew"), 0.0)
    mesh = model.geom_dataid[0]
    assert model.mesh_polynum[mesh] == 6
    counts, _, agree = compare(("mesh", "mesh"), ("skew", "skew"), 0.0, 200)
    assert np.sum(counts > 1) > 50 and np.mean(agree) >= 0.98


def test_faces_of_many_corners_on_a_plane():
    """The lowest vertex is one of the four points."""
    counts, _, agree = compare(("plane", "mesh"), ("coin", "coin"), 0.05, 200)
    assert np.sum(counts == 4) > 50 and np.mean(agree) >= 0.99


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.quick_cases("capsule-cylinder")
def test_points_in_single_precision(pair):
    """Rounding must not decide between a face, an edge and a single point, also of shapes
    of a few millimeters."""
    model = model_of(pair, meshes_of(pair)[-1], 0.0)
    pos, rot, _ = configurations(model, 300, 3)
    compute, _, vertices = compiled(pair)
    args = pos, rot, model.geom_size[:2], vertices
    single = [jnp.asarray(x, jnp.float32) for x in args]
    scale = jnp.float32(2.0**-7)
    small = [x if k == 1 else scale * x for k, x in enumerate(single)]
    found = []
    for numbers, size in ((args, 1.0), (single, 1.0), (small, 2.0**-7)):
        margin = jnp.zeros((), numbers[0].dtype)
        points, valid = map(np.asarray, compute(*numbers, spans_of(model), margin))
        valid = valid & (points[:, :, 0] < 0.0)
        points = points / np.array([*4 * [size], *(points.shape[2] - 4) * [1.0]])
        found.append([p[v] for p, v in zip(points, valid)])
    for own in found[1:]:
        agree = [same(*both, 1e-3) for both in zip(found[0], own, strict=True)]
        assert np.mean(agree) >= 0.98, np.flatnonzero(~np.array(agree))


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.quick_cases("plane-mesh")
def test_gradients(pair):
    """By poses, sizes and vertices: forward mode, reverse mode and differences."""
    # Without equal faces, between which rounding would decide.
    meshes = meshes_of(pair)[-1]
    model = model_of(pair, meshes, 0.0)
    pos, rot, theirs = configurations(model, 200, 2)
    several = [k for k, points in enumerate(theirs) if len(points) > 1][:20]
    pos, rot = pos[several], rot[several]
    _, fn, vertices = compiled(pair)
    spans = spans_of(model)

    def total(pos, rot, size, vertices):
        """The same for any order of the points."""
        points, valid = fn(pos, rot, size, vertices, spans, jnp.zeros(()))
        weights = jnp.sin(1.0 + jnp.arange(7, dtype=points.dtype))
        return jnp.sum(jnp.where(valid, points @ weights, 0.0))

    args = (pos, rot, model.geom_size[:2], vertices)
    batch = (0, 0, None, None)
    rng = np.random.default_rng(0)
    tangent = tuple(rng.normal(size=x.shape) for x in args)
    forward = lambda *args: jax.jvp(total, args[:4], args[4:])[1]
    forward = jax.jit(jax.vmap(forward, batch * 2))(*args, *tangent)
    reverse = jax.jit(jax.vmap(jax.grad(total, (0, 1, 2, 3)), batch))(*args)
    along = lambda g, x: np.sum(np.asarray(g) * x, axis=tuple(range(1, g.ndim)))
    backward = sum(along(g, x) for g, x in zip(reverse, tangent, strict=True))
    assert np.all(np.isfinite(backward))
    np.testing.assert_allclose(forward, backward, rtol=1e-9, atol=1e-9)
    value, eps = jax.jit(jax.vmap(total, batch)), 1e-7
    moved = lambda sign: value(*(x + sign * eps * d for x, d in zip(args, tangent)))
    difference = np.asarray(moved(1) - moved(-1)) / (2 * eps)
    close = np.abs(forward - difference) < 1e-4 * (1 + np.abs(difference))
    # Where what touches changes between the two, differences are large.
    assert np.mean(close) >= 0.9


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.quick_cases("capsule-cylinder", "plane-mesh")
def test_aligned(pair):
    """Values and derivatives are finite where axes are parallel or features coincide."""
    model = model_of(pair, meshes_of(pair)[0], 0.0)
    _, fn, vertices = compiled(pair)
    spans, turns = spans_of(model), Rotation.create_group("O").as_matrix()[:6]
    places = [(0, 0, z) for z in (0, 0.1, 0.2, 0.25, 0.3)] + [
        (0.2, 0, 0),
        (0.1, 0.1, 0),
    ]
    second = [(place, turn) for place in places for turn in turns]
    pos = np.array([[np.zeros(3), place] for place, _ in second])
    rot = np.array([[np.eye(3).ravel(), turn.ravel()] for _, turn in second])

    def total(pos, rot, size, vertices):
        points, valid = fn(pos, rot, size, vertices, spans, jnp.zeros(()))
        return jnp.sum(jnp.where(valid[:, None], points, 0.0))

    both = jax.jit(
        jax.vmap(jax.value_and_grad(total, (0, 1, 2, 3)), (0, 0, None, None))
    )
    found = both(pos, rot, model.geom_size[:2], vertices)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found))
