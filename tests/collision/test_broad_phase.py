"""Bounds of shapes, planes between them, and the farthest vertices of hulls."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import solids
from hypothesis import given, strategies as st

import eqsim
from eqsim import load_mjcf
from eqsim.collision._bounds import (
    bounding_radius,
    hull_changes,
    shape_boxes,
    shape_extents,
    UNBOUNDED,
)
from eqsim.collision._convex_shapes import Core, Corner
from eqsim.collision._direction_tables import (
    CELLS,
    corner_directions,
    direction_tables,
    outer_point,
    TABLE_SIZE,
)
from eqsim.collision._polytope_distance import ConvexBound, find_plane
from eqsim.collision.points import hull_tables, Hulls, Shape
from eqsim.kinematics.link_motion import Pose
from eqsim.model import GeomKind
from eqsim.spatial import Mat3, Vec3
from eqsim.spatial.vectors import vec3


SHAPES = """
<mujoco><asset>{meshes}</asset><worldbody>
  <geom type="plane" size="1 1 1" pos="0 0 -9"/>
  <geom type="sphere" size=".3" {apart}/><geom type="capsule" size=".3 .4" {apart}/>
  <geom type="ellipsoid" size=".3 .5 .4" {apart}/><geom type="box" size=".3 .4 .5" {apart}/>
  <geom type="cylinder" size=".3 .4" {apart}/>
  <geom type="mesh" mesh="corner" {apart}/><geom type="mesh" mesh="cube"/>
</worldbody></mujoco>"""


def test_bounds():
    meshes = solids.mesh("corner", *solids.corner()) + solids.mesh("cube", solids.CUBE)
    text = SHAPES.format(meshes=meshes, apart=solids.APART)
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    radius = jax.jit(bounding_radius)(sys)
    half = np.stack(jax.jit(shape_extents)(sys), axis=-1)
    assert radius[0] == UNBOUNDED and np.all(half[0] == UNBOUNDED)
    np.testing.assert_allclose(radius[1:6], model.geom_rbound[1:6])
    for geom, own in ((6, sys.mesh("corner")), (7, sys.mesh("cube"))):
        parts = sys.meshes.hull(own.index), sys.meshes.others(own.index)
        points = np.concatenate([np.asarray(x) for x in parts])
        farthest = np.max(np.linalg.norm(points, axis=1))
        np.testing.assert_allclose(radius[geom], farthest, rtol=1e-12)
        np.testing.assert_allclose(half[geom], np.max(np.abs(points), axis=0))
    boxes = [
        [0.3] * 3,
        [0.3, 0.3, 0.7],
        [0.3, 0.5, 0.4],
        [0.3, 0.4, 0.5],
        [0.3, 0.3, 0.4],
    ]
    np.testing.assert_allclose(half[1:6], boxes)
    zero = jax.grad(lambda s: bounding_radius(s).sum())(sys)
    assert not any(np.any(x) for x in jax.tree.leaves(zero))


def robot():
    """Return a robot with two hulls: a long ellipsoid of 60 points, and a wedge."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 3))
    points = points / np.linalg.norm(points, axis=1, keepdims=True) * [1.0, 0.4, 0.2]
    wedge = "0 0 0  1 0 0  0 1 0  1 1 0  0 0.5 0.4  1 0.5 0.4"
    text = " ".join(f"{x:.6f}" for x in points.ravel())
    body = '<body><freejoint/><geom type="mesh" mesh="{}"/></body>'
    return eqsim.load_mjcf(
        f'<mujoco><asset><mesh name="a" vertex="{text}"/><mesh name="b" vertex="{wedge}"/>'
        f"</asset><worldbody>{body.format('a')}{body.format('b')}</worldbody></mujoco>"
    )


SYS = robot()
TABLES = direction_tables(SYS.meshes.hulls)


def changed(how):
    """Return the robot with other vertices than those that were read."""
    vertices = np.asarray(SYS.meshes.vertices)
    noise = np.random.default_rng(1).normal(size=vertices.shape)
    new = {
        "same": vertices,
        "scaled": 1.7 * vertices,
        "stretched": vertices * np.array([1.0, 1.3, 0.8]),
        "moved": vertices + 0.01 * noise,
    }[how]
    new = jnp.asarray(new)
    return eqx.tree_at(lambda s: s.meshes.vertices, SYS, new)


def changes(sys):
    return hull_changes(sys, (0, 1), *shape_boxes(sys, (0, 1)))


def outer(sys, mesh, direction):
    scale, slack = (x[mesh] for x in changes(sys))
    unit = direction / jnp.linalg.norm(direction)
    heights = jnp.asarray(TABLES.heights)
    start = jnp.full((1,), mesh * TABLE_SIZE)
    point = outer_point(heights, start, Vec3(*unit[:, None]))
    return (scale * jnp.stack(point)[:, 0] + slack * unit) @ unit


@pytest.mark.parametrize("how", ("same", "scaled", "stretched", "moved"))
def test_tables_bound_hulls_from_outside(how):
    """No vertex lies beyond the table, which is close to the hull where that is as it was
    read."""
    sys = changed(how)
    rng = np.random.default_rng(2)
    directions = np.concatenate([rng.normal(size=(400, 3)), corner_directions()[::11]])
    for mesh in (0, 1):
        hull = np.asarray(sys.meshes.hull(mesh))
        unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        height = (unit @ hull.T).max(axis=1)
        find = jax.jit(jax.vmap(lambda d, mesh=mesh: outer(sys, mesh, d)))
        outside = np.asarray(find(jnp.asarray(directions)))
        assert np.all(outside >= height - 1e-12)
        if how in ("same", "scaled"):
            # Where two vertices at distance l are equally far, interpolation over a cell
            # of width w is at most sqrt(2) w l / 4 too large.
            length = np.max(np.linalg.norm(hull[:, None] - hull[None], axis=2))
            assert (
                np.max(outside - height) < np.sqrt(2.0) * (2.0 / CELLS) * length / 4.0
            )


def bound(sys, kind, mesh, pose, size):
    found = ConvexBound(Shape(pose, size), pose.pos)
    if kind is not GeomKind.MESH:
        return found
    scale, slack = (x[mesh : mesh + 1] for x in changes(sys))
    return found._replace(
        heights=jnp.asarray(TABLES.heights),
        start=jnp.full((1,), mesh * TABLE_SIZE),
        scale=scale,
        slack=slack,
    )


def samples(sys, kind, mesh, pose, size, count=4000):
    """Return points on the surface of a shape, in the world."""
    rng = np.random.default_rng(3)
    unit = rng.normal(size=(count, 3))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    if kind is GeomKind.MESH:
        hull = np.asarray(sys.meshes.hull(mesh))
        weights = rng.dirichlet(np.full(len(hull), 0.2), count)
        points = np.concatenate([hull, weights @ hull])
    elif kind is GeomKind.BOX:
        points = size * unit / np.abs(unit).max(axis=1, keepdims=True)
    elif kind is GeomKind.ELLIPSOID:
        points = size * unit
    else:
        points = size[0] * unit
        if kind is GeomKind.CAPSULE:
            points[:, 2] += size[1] * np.sign(points[:, 2])
    rot, pos = pose
    return points @ rot.T + pos


def rotation(rng):
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q if np.linalg.det(q) > 0 else -q


KINDS = [
    (GeomKind.MESH, GeomKind.MESH),
    (GeomKind.CAPSULE, GeomKind.MESH),
    (GeomKind.ELLIPSOID, GeomKind.BOX),
]
SIZE, GAP, COUNT = np.array([0.5, 0.3, 0.2]), 0.05, 8


@pytest.mark.parametrize("kinds", KINDS, ids=lambda x: "-".join(k.name for k in x))
def test_shapes_with_a_plane_are_apart(kinds):
    """Where a plane is found, no points of the shapes are nearer than the margin; where
    spheres about the shapes are apart, a plane is found."""

    @jax.jit
    @jax.vmap
    def find(vertices, rot, pos):
        sys = eqx.tree_at(lambda s: s.meshes.vertices, SYS, vertices)
        size = vec3(jnp.asarray(SIZE)[None])
        shapes = []
        for mesh, kind in enumerate(kinds):
            turn = Mat3(*rot[mesh].reshape(9, 1))
            pose = Pose(turn, Vec3(*pos[mesh][:, None]))
            shapes.append(bound(sys, kind, mesh, pose, size))
        always = jnp.ones((1,), bool)
        return find_plane(kinds, *shapes, jnp.full((1,), GAP), always)[0]

    rng = np.random.default_rng(0)
    changes = [("same", "scaled", "moved")[k % 3] for k in range(COUNT)]
    robots = [changed(how) for how in changes]
    far = np.linspace(0.2, 4.0, COUNT)
    toward = rng.normal(size=(COUNT, 3))
    toward *= (far / np.linalg.norm(toward, axis=1))[:, None]
    pos = np.stack([np.zeros((COUNT, 3)), toward], axis=1)
    rot = np.array([[rotation(rng), rotation(rng)] for _ in range(COUNT)])
    vertices = jnp.stack([sys.meshes.vertices for sys in robots])
    found = np.ravel(find(vertices, jnp.asarray(rot), jnp.asarray(pos)))
    for k, sys in enumerate(robots):
        one, two = (
            samples(sys, kind, mesh, (rot[k, mesh], pos[k, mesh]), SIZE, 1000)
            for mesh, kind in enumerate(kinds)
        )
        least = np.min(np.linalg.norm(one[:, None] - two[None], axis=2))
        assert least > GAP or not found[k]
        ends = zip((one, two), pos[k])
        reach = sum(np.max(np.linalg.norm(x - center, axis=1)) for x, center in ends)
        if far[k] > 1.1 * reach + GAP and changes[k] != "moved":
            assert found[k]
    assert np.any(found) and not np.all(found)


def test_no_plane_for_numbers_that_are_not_finite():
    """Poses that are not finite have no plane, and the search ends."""
    rot, sizes = Mat3(*jnp.asarray(np.eye(3)).reshape(9, 1)), vec3(jnp.ones((1, 3)))
    kinds = GeomKind.MESH, GeomKind.MESH

    @jax.jit
    def find(value):
        poses = [Pose(rot, Vec3(*jnp.full((3, 1), x))) for x in (0.0, value)]
        shapes = [bound(SYS, GeomKind.MESH, k, poses[k], sizes) for k in (0, 1)]
        return find_plane(kinds, *shapes, jnp.zeros((1,)), jnp.ones((1,), bool))[0]

    assert not find(np.nan) and not find(np.inf)


def hulls(kind):
    """Return a robot with one mesh of many vertices."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    if kind == "slab":
        # Two large polygons with many corners, and vertices within.
        points = np.concatenate([points[:, :2], points[:, :2]])
        height = np.repeat([-0.1, 0.1], 200)
        points = np.column_stack([points, height])
    if kind == "needle":
        points = points * [1.0, 0.01, 0.01]
    text = " ".join(f"{x:.6f}" for x in points.ravel())
    return eqsim.load_mjcf(
        f'<mujoco><asset><mesh name="m" vertex="{text}"/></asset><worldbody><body>'
        '<freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>'
    )


def support(sys, direction, near=None):
    points, polygons = hull_tables(sys)
    start, end = sys.meshes.hulls.span(0)
    column = lambda number: jnp.array([number], jnp.int32)
    own = Hulls(points, column(start), column(end - start), polygons, column(0))
    core = Core(GeomKind.MESH, vec3(jnp.ones((1, 3))), own)
    corner = core.support(Vec3(*(x[None] for x in direction)), near)
    return corner.number[0]


@pytest.mark.parametrize("kind", ("ball", "slab", "needle"))
@pytest.mark.quick_cases("slab")
def test_farthest(kind):
    """No vertex lies farther than the one that is found, whichever the search begins with."""
    sys = hulls(kind)
    vertices = np.asarray(sys.meshes.vertices)
    assert hull_tables(sys)[1].most_vertices > 24
    directions = np.random.default_rng(1).normal(size=(300, 3))
    corners = corner_directions()[::7]
    directions = np.concatenate([directions, np.eye(3), -np.eye(3), corners])
    heights = directions @ vertices.T
    for first in (None, 0, 5, len(vertices) - 1):
        near = first if first is None else Corner(jnp.array([first], jnp.int32), None)
        search = lambda d, near=near: support(sys, d, near)
        found = np.asarray(jax.jit(jax.vmap(search))(jnp.asarray(directions)))
        own = np.take_along_axis(heights, found[:, None], 1)[:, 0]
        np.testing.assert_allclose(own, heights.max(axis=1), rtol=0, atol=1e-12)


@given(
    st.sampled_from([0.0, np.nan, np.inf, -np.inf, 1e-300, 1e300]), st.integers(0, 2)
)
@pytest.mark.slow
def test_ends(value, axis):
    """Directions that are zero or not finite lead to some vertex."""
    sys = hulls("ball")
    direction = jnp.zeros(3).at[axis].set(value)
    number = int(jax.jit(lambda d: support(sys, d))(direction))
    assert 0 <= number < len(sys.meshes.vertices)
