"""Shapes without extent, coincident centers, level ends, deep ellipsoids, small shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision.test_pairs import CATEGORIES, COMPILED, draw, name, points, shapes
from scipy.spatial.transform import Rotation

from eqsim.collision import Shape
from eqsim.kinematics.link_motion import Pose
from eqsim.model import GeomKind
from eqsim.spatial import Mat3, Vec3


K = GeomKind
FLAT = (
    (K.PLANE, K.ELLIPSOID),
    (K.SPHERE, K.CYLINDER),
    (K.CAPSULE, K.CAPSULE),
    (K.CAPSULE, K.BOX),
    (K.CAPSULE, K.CYLINDER),
    (K.BOX, K.BOX),
)


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
@pytest.mark.quick_cases("sphere-cylinder", "capsule-capsule")
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
    expected = COMPILED((K.SPHERE, K.CAPSULE), ball, long)
    for one, two, sign in ((long, ball, -1.0), (ball, long, 1.0)):
        dist, pos, normal, valid = COMPILED((K.CAPSULE, K.CAPSULE), one, two)
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
    dist, pos, _, valid = COMPILED(kinds, *both)
    reach = np.linalg.norm(size, axis=-1).sum(axis=1)
    assert np.all(np.abs(dist) < 2.0 * reach + 0.2)
    assert np.all(np.linalg.norm(pos, axis=-1) < 2.0 * reach + 0.2)
    assert np.all(np.where(valid, -dist, 0.0) < reach)


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
    dist = np.asarray(COMPILED((K.ELLIPSOID, K.ELLIPSOID), *both)[0])[0]
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
        return jnp.sum(points(kinds, *both)[1][..., 2])

    fn, eps = jax.jit(middle), 1e-6
    zero = jnp.zeros(())
    sides = [(fn(zero + x) - fn(zero)) / x for x in (eps, -eps)]
    np.testing.assert_allclose(*sides, rtol=1e-6)
    for derivative in (jax.grad(fn)(zero), jax.jvp(fn, (zero,), (zero + 1.0,))[1]):
        np.testing.assert_allclose(derivative, sides[0], rtol=1e-6)


SMALL = (
    (K.PLANE, K.CYLINDER),
    (K.CAPSULE, K.CYLINDER),
    (K.ELLIPSOID, K.BOX),
    (K.CYLINDER, K.BOX),
)


@pytest.mark.parametrize("kinds", SMALL, ids=name)
@pytest.mark.quick_cases("plane-cylinder")
def test_points_of_small_shapes(kinds):
    """In single precision too, shapes of a few millimeters have the points of large ones:
    scaled by a power of two, all numbers are."""
    scale, single = np.float32(2.0**-7), lambda x: x.astype(jnp.float32)
    for category in CATEGORIES[2:]:
        large = draw(kinds, category, 100)
        small = large._replace(pos=scale * large.pos, size=scale * large.size)
        one, two = (
            [*map(np.asarray, COMPILED(kinds, *jax.tree.map(single, shapes(x))))]
            for x in (large, small)
        )
        near = one[3] & (one[0] < 0.1)
        assert np.any(near) and two[0].dtype == np.float32
        for k, factor in enumerate((scale, scale, 1)):
            np.testing.assert_array_equal(two[k][near], factor * one[k][near])
        np.testing.assert_array_equal(two[3], one[3])
