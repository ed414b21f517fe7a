"""Degenerate configurations in single precision, where rounding decides what is zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from eqsim import load_mjcf
from eqsim.collision.primitives import ball_box
from eqsim.constraint.joint_rows import ball_rotations
from eqsim.kinematics._wrapping import wrap
from eqsim.kinematics.link_motion import Pose
from eqsim.kinematics.tendon_paths import _direction
from eqsim.model import GeomKind
from eqsim.spatial import Mat3, Vec3


COUNT = 200
# Double precision shows that the law is one of MuJoCo.
EXACT = pytest.param(np.float64, marks=pytest.mark.slow)
each_dtype = pytest.mark.parametrize("dtype", (np.float32, EXACT))


def turns(count, seed):
    """Random rotation matrices."""
    quats = np.random.default_rng(seed).normal(size=(count, 4))
    return Rotation.from_quat(quats).as_matrix()


TURNS, OTHER = turns(COUNT, 0), turns(COUNT, 1)
POINTS = np.random.default_rng(2).normal(size=(3, COUNT, 3))


def vector(x):
    return Vec3(*jnp.asarray(x).T)


def turned(matrices, points):
    return np.einsum("nij,nj->ni", matrices, points)


def derivatives(function, *args):
    """Values, and derivatives by all arguments, of each row."""
    each = lambda *args: jnp.concatenate([*function(*map(vector, args))])
    values = lambda *args: (each(*args), jax.jacfwd(each, range(len(args)))(*args))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(values))(*args))


@each_dtype
def test_ball_on_the_edge_of_a_box(dtype):
    """The normal is that of a face, as in MuJoCo, and has no derivatives of 1 / rounding."""
    size = Vec3(*jnp.asarray([0.2, 0.3, 0.1], dtype))
    center = turned(TURNS, np.array([[0.2, 0.3, 0.03]])) + POINTS[0]
    local = (center.astype(dtype) - POINTS[0].astype(dtype))[:, None] @ TURNS.astype(
        dtype
    )
    contact = lambda c: ball_box(c, jnp.asarray(0.1, dtype), size)
    both = lambda c: [jnp.stack(v) for v in (contact(c).normal, contact(c).pos)]
    values, (by_center,) = derivatives(both, local[:, 0])
    assert np.all(np.sort(np.abs(values[:, :3]), axis=1) == [0, 0, 1])
    assert np.all(by_center[:, :3] == 0) and np.abs(by_center[:, 3:]).max() <= 1.0


@each_dtype
def test_tendon_between_sites_that_coincide(dtype):
    """The direction is the x axis, as in MuJoCo, with derivative zero."""
    one, two, target = POINTS
    places = []
    for rot, site in ((TURNS, one), (OTHER, two)):
        origin = (target - turned(rot, site)).astype(dtype)
        places.append(turned(rot.astype(dtype), site.astype(dtype)) + origin)
    assert np.any(places[0] != places[1])
    direction, by_ends = derivatives(
        lambda a, b: [jnp.stack(_direction(a, b)[0])], *places
    )
    assert np.all(direction == [1, 0, 0])
    assert all(np.all(x == 0) for x in by_ends)


def strings(dtype, ends, radius, rots, centers):
    """Arcs of strings around spheres, and derivatives of lengths by their ends."""

    def length(ends, rots, centers, radius):
        start, end = map(vector, ends)
        pose = Pose(Mat3(*rots.reshape(-1, 9).T), vector(centers))
        found = wrap(GeomKind.SPHERE, start, end, pose, radius, None)
        straight = (found.first - start, found.last - end)
        arc = jnp.where(found.is_wrapped, found.arc, 0.0)
        return jnp.sum(sum(jnp.sqrt(v.dot(v)) for v in straight) + arc), arc

    args = (jnp.asarray(x, dtype) for x in (np.stack(ends), rots, centers, radius))
    slopes, arc = jax.jit(jax.grad(length, has_aux=True))(*args)
    return np.asarray(arc), np.asarray(slopes)


@each_dtype
def test_string_that_touches_a_sphere(dtype):
    """Rounding at an angle of zero must not add a turn."""
    count = 20_000
    rng = np.random.default_rng(3)
    radius = np.exp(rng.uniform(np.log(0.02), np.log(0.3), count))
    axes = turns(count, 2)
    height = (radius * (1 - 10 ** rng.uniform(-9, -3, count)))[:, None] * axes[:, 0]
    ends = [
        height + side * rng.uniform(0.05, 1, (count, 1)) * axes[:, 1]
        for side in (-1, 1)
    ]
    whole = np.broadcast_to(np.eye(3), (count, 3, 3))
    arc, _ = strings(dtype, ends, radius, whole, np.zeros((count, 3)))
    # The chord is above cos(angle / 2) = 1 - 1e-3.
    assert np.mean(arc > 0) > 0.5 and np.max(arc / radius) < 0.1


@each_dtype
def test_string_through_the_center_of_a_sphere(dtype):
    """Any plane will do, but the length changes at most as fast as its ends move."""
    axis = OTHER[:, 0]
    ends = [POINTS[0] + 0.5 * axis, POINTS[0] - 0.4 * axis]
    arc, slopes = strings(dtype, ends, np.full(COUNT, 0.1), TURNS, POINTS[0])
    np.testing.assert_allclose(
        arc, 0.1 * (np.pi - np.arccos(0.2) - np.arccos(0.25)), rtol=1e-4
    )
    assert np.linalg.norm(slopes, axis=-1).max() < 1 + 1e-4


@each_dtype
def test_spherical_joint_that_has_turned_back(dtype):
    """The axis of no rotation is zero, with derivative zero."""
    sys = load_mjcf(
        '<mujoco><worldbody><body><joint type="ball" limited="true" range="0 .1"/>'
        '<geom size=".1"/></body></worldbody></mujoco>'
    )
    noise = np.finfo(dtype).eps * POINTS[0]
    q = np.concatenate([np.ones((COUNT, 1)), noise], axis=1).astype(dtype)
    axis = lambda q: jnp.concatenate(ball_rotations(sys, (0,), q)[0])
    values = jax.jit(jax.vmap(lambda q: (axis(q), jax.jacfwd(axis)(q))))(q)
    assert all(np.all(np.asarray(x) == 0) for x in values)
