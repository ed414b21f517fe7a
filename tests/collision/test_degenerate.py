"""Shapes without extent, coincident centers, aligned sides, deep ellipsoids."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import eqsim
from eqsim.collision import Shape
from eqsim.kinematics.link_motion import Pose
from eqsim.model import collider_of, GeomKind
from eqsim.spatial import Mat3, Vec3
from eqsim.spatial.vectors import stack


K = GeomKind
FLAT = (
    (K.PLANE, K.ELLIPSOID),
    (K.SPHERE, K.CYLINDER),
    (K.CAPSULE, K.CAPSULE),
    (K.CAPSULE, K.BOX),
    (K.CAPSULE, K.CYLINDER),
    (K.BOX, K.BOX),
)


def points(kinds, one, two):
    """Distance, position and normal of all points, and which are valid."""
    collider, rows = collider_of(*kinds), []
    lift = lambda tree: jax.tree.map(lambda x: x[None], tree)
    one, two = lift((one, two))
    margin = (jnp.zeros_like(one.size.x),) if collider.one_by_one else ()
    for p in collider.find(one, two, *margin):
        valid = jnp.ones_like(p.dist, bool) if p.valid is None else p.valid
        rows.append((p.dist[0], stack(p.pos)[0], stack(p.normal)[0], valid[0]))
    return tuple(jnp.stack(x) for x in zip(*rows))


def name(kinds):
    return "-".join(kind.name.lower() for kind in kinds)


def vectors(rows):
    return Vec3(*(jnp.asarray(x) for x in np.asarray(rows, float).T))


def placed(pos, turns, size):
    rot = Mat3(*(jnp.asarray(x) for x in turns.as_matrix().reshape(-1, 9).T))
    return Shape(Pose(rot, vectors(pos)), vectors(size))


def without_extent():
    """Two shapes, of which either or both lack some extents."""
    rng = np.random.default_rng(0)
    gone = [[], [0], [1], [2], [0, 1], [0, 1, 2]]
    places = [(0, 0, 0), (0, 0, 0.1), (0.1, 0.1, 0.1), (0.03, -0.02, 0.05)]
    pos, size = [], []
    for place in places:
        for first in gone:
            for second in gone:
                both = np.full((2, 3), 0.1)
                both[0, first], both[1, second] = 0.0, 0.0
                pos.append(place)
                size.append(both)
    pos, size = np.repeat(pos, 2, axis=0), np.repeat(size, 2, axis=0)
    turns = Rotation.concatenate(
        [
            Rotation.identity() if k % 2 else Rotation.random(random_state=rng)
            for k in range(len(pos))
        ]
    )
    none = np.zeros_like(pos)
    return placed(none, turns, size[:, 0]), placed(pos, turns**-1, size[:, 1])


@pytest.mark.parametrize("kinds", FLAT, ids=name)
@pytest.mark.quick_cases("plane-ellipsoid", "sphere-cylinder", "capsule-capsule")
def test_shapes_without_extent(kinds):
    """Values and derivatives of all points are finite, also of those that are not valid."""
    both = without_extent()

    def total(both):
        dist, pos, normal, _ = points(kinds, *both)
        return jnp.sum(dist) + jnp.sum(pos) + jnp.sum(normal), (dist, pos, normal)

    grad, found = jax.jit(jax.grad(total, has_aux=True))(both)
    for x in jax.tree.leaves((grad, found)):
        assert np.all(np.isfinite(x))


def test_a_capsule_without_length_is_a_sphere():
    rng = np.random.default_rng(1)
    pos, turns = 0.2 * rng.normal(size=(50, 3)), Rotation.random(50, random_state=rng)
    long = placed(0 * pos, turns, np.tile([0.1, 0.2, 0.0], (50, 1)))
    ball = placed(pos, turns**-1, np.tile([0.15, 0.0, 0.0], (50, 1)))
    expected = points((K.SPHERE, K.CAPSULE), ball, long)
    for one, two, sign in ((long, ball, -1.0), (ball, long, 1.0)):
        dist, pos, normal, valid = points((K.CAPSULE, K.CAPSULE), one, two)
        assert np.all(valid[0]) and not np.any(valid[1])
        np.testing.assert_allclose(dist[0], expected[0][0], atol=1e-15)
        np.testing.assert_allclose(pos[0], expected[1][0], atol=1e-15)
        np.testing.assert_allclose(normal[0], sign * expected[2][0], atol=1e-14)


def test_points_of_boxes_that_nearly_touch():
    """None is deeper than both boxes, nor farther away, not even those that are not
    valid."""
    rng, count = np.random.default_rng(3), 4000
    kinds, none = (K.BOX, K.BOX), np.zeros((count, 3))
    turns = Rotation.random(count, random_state=rng)
    tilt = 10.0 ** rng.uniform(-12.0, -1.0, (count, 1)) * rng.normal(size=(count, 3))
    nearly = Rotation.concatenate(
        [turns[::2] * Rotation.from_rotvec(tilt[::2]), turns[1::2]]
    )
    first = Rotation.concatenate([turns[::2], Rotation.identity(count // 2)])
    size = rng.uniform(0.05, 0.15, (count, 2, 3))
    way = rng.normal(size=(count, 3))
    pos = 0.2 * way / np.linalg.norm(way, axis=1)[:, None]
    both = placed(none, first, size[:, 0]), placed(pos, nearly, size[:, 1])
    dist, pos, _, valid = jax.jit(lambda *both: points(kinds, *both))(*both)
    reach = np.linalg.norm(size, axis=-1).sum(axis=1)
    assert np.all(np.abs(dist) < 2.0 * reach + 0.2)
    assert np.all(np.linalg.norm(pos, axis=1) < 2.0 * reach + 0.2)
    assert np.all(np.where(valid, -dist, 0.0) < reach)


ELLIPSOIDS = jax.jit(lambda *both: points((K.ELLIPSOID, K.ELLIPSOID), *both)[:3])


@pytest.mark.slow
def test_deep_ellipsoids():
    """Of several ways out, the shortest is found."""
    count = 400
    rng = np.random.default_rng(2)
    turns = [Rotation.random(count, random_state=rng) for _ in range(2)]
    size = 0.15 * 3.0 ** rng.uniform(-1.0, 1.0, (count, 2, 3))
    pos = 0.03 * rng.normal(size=(count, 3))
    both = [
        placed(x, turn, size[:, k])
        for k, (x, turn) in enumerate(zip((0 * pos, pos), turns, strict=True))
    ]
    dist = np.asarray(ELLIPSOIDS(*both)[0])[0]
    k = np.arange(5000) + 0.5
    angle, z = np.pi * (1 + np.sqrt(5)) * k, 1 - k / 2500
    level = np.sqrt(1 - z * z)
    ways = np.stack([level * np.cos(angle), level * np.sin(angle), z], axis=1)
    reach = [
        np.linalg.norm(np.einsum("nji,kj->nki", turn.as_matrix(), ways) * s, axis=2)
        for turn, s in zip(turns, size.swapaxes(0, 1)[:, :, None], strict=True)
    ]
    shortest = np.min(reach[0] + reach[1] - pos @ ways.T, axis=1)
    beyond = -dist - shortest
    assert np.mean(beyond < 1e-9) > 0.99
    assert np.max(beyond) < 1e-3


STACKED = """
<mujoco><option timestep=".004"/><worldbody>
  <geom type="{0}" size="{1}"/>
  <body pos="0 0 {2}"><freejoint/><geom type="{0}" size="{3}"/></body>
</worldbody></mujoco>"""
BESIDE = {
    "equal boxes": ("box", ".1 .1 .1", 0.199, ".1 .1 .1"),
    "one side aligned": ("box", ".1 .2 .1", 0.199, ".1 .1 .1"),
    "the other one longer": ("box", ".1 .05 .1", 0.199, ".1 .1 .1"),
}


@pytest.mark.parametrize("case", BESIDE)
@pytest.mark.quick_cases("equal boxes")
def test_derivative_of_aligned_boxes(case):
    """The sum of positions of the points is smooth along an aligned side."""
    sys = eqsim.load_mjcf(STACKED.format(*BESIDE[case]))
    pipeline = eqsim.Generalized()
    state = pipeline.init(sys)

    def after_a_step(shift):
        moved = eqx.tree_at(lambda s: s.q, state, state.q.at[0].add(shift))
        new = pipeline.step(sys, moved, jnp.zeros(0))
        return jnp.concatenate([new.q, new.qd]) @ jnp.linspace(1.0, 2.0, 13)

    fn, eps = jax.jit(after_a_step), 1e-6
    sides = [(fn(x) - fn(0.0)) / x for x in (eps, -eps)]
    np.testing.assert_allclose(*sides, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(fn)(0.0), sides[0], rtol=1e-5)


@pytest.mark.parametrize("first", (True, False))
def test_derivative_of_level_capsules(first):
    """The middle of both points of parallel capsules is smooth where ends are level."""
    kinds, count = (K.CAPSULE, K.CAPSULE), 1
    turns = Rotation.identity(1)
    size = np.tile([0.05, 0.2, 0.0], (count, 1))

    def middle(shift):
        pos = Vec3(jnp.full(1, 0.099), jnp.zeros(1), shift[None])
        rest = placed(np.zeros((1, 3)), turns, size)
        moved = rest._replace(pose=rest.pose._replace(pos=pos))
        both = (moved, rest) if first else (rest, moved)
        return jnp.sum(points(kinds, *both)[1][:, 2])

    fn, eps = jax.jit(middle), 1e-6
    zero = jnp.zeros(())
    sides = [(fn(zero + x) - fn(zero)) / x for x in (eps, -eps)]
    np.testing.assert_allclose(*sides, rtol=1e-6)
    for derivative in (jax.grad(fn)(zero), jax.jvp(fn, (zero,), (zero + 1.0,))[1]):
        np.testing.assert_allclose(derivative, sides[0], rtol=1e-6)


@pytest.mark.slow  # `pipelines/test_nan_rows.py` is the quick one.
def test_environments_that_are_not_numbers():
    """They do not stop a search, and leave the others as they are."""
    rng, count = np.random.default_rng(4), 400
    pos, size = (
        0.1 * rng.normal(size=(2, count, 3)),
        rng.uniform(0.1, 0.2, (2, count, 3)),
    )
    turn = Rotation.random(count, random_state=rng)
    one, two = (placed(p, turn, s) for p, s in zip(pos, size, strict=True))
    expected = ELLIPSOIDS(one, two)
    others = np.arange(count) != 3
    for value in (np.nan, np.inf):
        broken = two.pose.pos._replace(x=two.pose.pos.x.at[3].set(value))
        found = ELLIPSOIDS(one, two._replace(pose=two.pose._replace(pos=broken)))
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x[..., others], y[..., others])
