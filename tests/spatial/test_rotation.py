"""Rotations against SciPy, and their derivatives, also where angles vanish."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import check_gradients
from scipy.spatial.transform import Rotation

from eqsim.spatial import (
    exponential,
    integrate,
    logarithm,
    multiply,
    quaternion_matrix,
    safe_sqrt,
    Vec3,
)
from eqsim.spatial.rotations import axis_angle_matrix, normalize4, rotation_rate


RNG = np.random.default_rng(0)
ANGLES = (0.0, 1e-12, 1e-6, 1e-4, 1e-2, 1.0, 3.0)
AXIS = np.array([2.0, -1.0, 2.0]) / 3
VECTORS = np.array(ANGLES)[:, None] * AXIS


def columns(array):
    return tuple(jnp.asarray(np.asarray(array)[:, k]) for k in range(array.shape[1]))


def rows(components):
    return np.stack(components, axis=-1)


def rotation(quat):
    return Rotation.from_quat(rows(quat), scalar_first=True)


def test_exponential():
    quat = rows(exponential(Vec3(*columns(VECTORS))))
    expected = Rotation.from_rotvec(VECTORS).as_quat(scalar_first=True)
    assert np.allclose(quat, expected, rtol=1e-14, atol=1e-15)


def test_logarithm_inverts_exponential():
    back = rows(logarithm(exponential(Vec3(*columns(VECTORS)))))
    assert np.allclose(back, VECTORS, rtol=1e-12, atol=1e-15)


def test_logarithm_takes_the_shorter_way():
    quat = columns(RNG.normal(size=(20, 4)))
    vector = rows(logarithm(normalize4(quat)))
    assert np.allclose(vector, rotation(quat).as_rotvec())
    assert np.all(np.linalg.norm(vector, axis=-1) <= np.pi)


def test_products_and_matrices():
    p, q = (normalize4(columns(RNG.normal(size=(5, 4)))) for _ in range(2))
    product = rotation(multiply(p, q)).as_matrix()
    assert np.allclose(product, (rotation(p) * rotation(q)).as_matrix())
    matrix = rows(quaternion_matrix(p)).reshape(-1, 3, 3)
    assert np.allclose(matrix, rotation(p).as_matrix())
    axis = Vec3(*columns(np.tile(AXIS, (len(ANGLES), 1))))
    matrix = rows(axis_angle_matrix(axis, jnp.array(ANGLES))).reshape(-1, 3, 3)
    assert np.allclose(matrix, Rotation.from_rotvec(VECTORS).as_matrix())


def test_integrate():
    quat, ang = columns(RNG.normal(size=(5, 4))), RNG.normal(size=(5, 3))
    out = integrate(quat, Vec3(*columns(ang)), 0.1)
    expected = (rotation(quat) * Rotation.from_rotvec(0.1 * ang)).as_matrix()
    assert np.allclose(rotation(out).as_matrix(), expected)
    assert np.allclose(np.linalg.norm(rows(out), axis=-1), 1)


def test_rotation_rate():
    """The derivative of a rotation vector along a path of rotations."""
    ang = Vec3(*columns(RNG.normal(size=(len(ANGLES), 3))))
    start = Vec3(*columns(VECTORS))
    along = lambda t: logarithm(integrate(exponential(start), ang, t))
    _, rate = jax.jvp(along, (jnp.array(0.0),), (jnp.array(1.0),))
    assert np.allclose(rows(rotation_rate(start, ang)), rows(rate), rtol=1e-9)


def test_zero():
    assert normalize4([0.0 * x for x in jnp.ones((4, 1))])[0] == 1.0
    assert jax.grad(safe_sqrt)(0.0) == 0.0 and safe_sqrt(4.0) == 2.0


@pytest.mark.parametrize("angle", ANGLES[::2])
@pytest.mark.quick_cases("0.01")
def test_gradients(angle):
    """First and second derivatives; neutral poses are where others have NaN."""

    def there(v):
        return jnp.stack(exponential(Vec3(*v)))

    def back(v, w):
        turned = multiply(exponential(Vec3(*v)), exponential(Vec3(*w)))
        return jnp.stack(logarithm(turned))

    v, w = jnp.asarray(angle * AXIS), jnp.asarray([0.0, 0.1 * angle, 0.0])
    check_gradients(there, v, order=2, atol=1e-6)
    check_gradients(back, v, w, atol=1e-6)


def test_second_derivatives_at_the_identity():
    energy = lambda v: jnp.sum(jnp.stack(logarithm(exponential(Vec3(*v)))) ** 2)
    both = lambda v: (jax.hessian(energy)(v), jax.jacrev(jax.grad(energy))(v))
    np.testing.assert_allclose(jax.jit(both)(jnp.zeros(3)), [2 * np.eye(3)] * 2)
