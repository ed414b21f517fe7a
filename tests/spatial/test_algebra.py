"""Components against NumPy's matrices and vectors."""

import jax.numpy as jnp
import numpy as np

from eqsim.spatial import Force, Mat3, Motion, Vec3
from eqsim.spatial.vectors import (
    ArticulatedInertia,
    cholesky_factor,
    cholesky_solve,
    congruence,
    diagonal,
    force_at,
    free_factor,
    free_solve,
    matrix_from_columns,
    point_stiffness,
    rigid_inertia,
    skew,
    stack,
    Sym3,
    vec3,
)


N = 3
RNG = np.random.default_rng(0)


def vectors():
    return vec3(jnp.asarray(RNG.normal(size=(N, 3))))


def symmetric():
    root = RNG.normal(size=(N, 3, 3))
    full = root @ root.swapaxes(1, 2) + 0.5 * np.eye(3)
    places = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    return Sym3(*(jnp.asarray(full[:, i, j]) for i, j in places))


def matrices():
    return Mat3(*jnp.asarray(RNG.normal(size=(9, N))))


def dense(value):
    """Components as NumPy's arrays, `(N, 3)`, `(N, 3, 3)`, `(N, 6)` or `(N, 6, 6)`."""
    if isinstance(value, Vec3):
        return np.stack(value, axis=-1)
    if isinstance(value, Sym3):
        return dense(value.full())
    if isinstance(value, Mat3):
        return np.stack(value, axis=-1).reshape(-1, 3, 3)
    if isinstance(value, Motion | Force):
        return np.concatenate([dense(value.ang), dense(value.lin)], axis=-1)
    if isinstance(value, ArticulatedInertia):
        a, c, l = (dense(part) for part in value)
        return np.block([[a, c], [c.swapaxes(1, 2), l]])
    return np.asarray(value)


def times(matrix, vector):
    return np.einsum("nij,nj->ni", dense(matrix), dense(vector))


def cross(v):
    """The matrix of the cross product with a `Vec3`."""
    x, y, z = dense(v).T
    zero = 0 * x
    rows = [[zero, -z, y], [z, zero, -x], [-y, x, zero]]
    return np.moveaxis(np.array(rows), -1, 0)


def close(x, y):
    return np.allclose(dense(x), dense(y), rtol=1e-12, atol=1e-12)


def test_vectors():
    a, b, s = vectors(), vectors(), jnp.arange(1.0, 1.0 + N)
    assert close(a + b, dense(a) + dense(b)) and close(a - b, dense(a) - dense(b))
    assert close(-a, -dense(a)) and close(a * s, dense(a) * np.asarray(s)[:, None])
    assert close(a.dot(b), np.sum(dense(a) * dense(b), axis=-1))
    assert close(a.cross(b), np.cross(dense(a), dense(b)))
    assert close(a.outer(b), dense(a)[:, :, None] * dense(b)[:, None])
    assert close(Sym3.of(a.outer(a)), dense(a.outer(a)))
    assert close(vec3(stack(a)), a)


def test_matrices():
    a, b, s, t, v = matrices(), matrices(), symmetric(), symmetric(), vectors()
    assert close(a @ b, dense(a) @ dense(b)) and close(a @ s, dense(a) @ dense(s))
    assert close(a @ v, times(a, v)) and close(s @ v, times(s, v))
    assert close(a.T, dense(a).swapaxes(1, 2)) and close(
        matrix_from_columns(*a.columns), a
    )
    assert close(a + b, dense(a) + dense(b)) and close(a - b, dense(a) - dense(b))
    assert close(s + t, dense(s) + dense(t)) and close(s - t, dense(s) - dense(t))
    assert close(s * 2.0, 2 * dense(s)) and close(skew(v), cross(v))
    assert close(diagonal(*v), np.eye(3) * dense(v)[:, None])
    assert close(congruence(a, s), dense(a) @ dense(s) @ dense(a).swapaxes(1, 2))


def test_solve():
    s, v = symmetric(), vectors()
    expected = np.linalg.solve(dense(s), dense(v)[..., None])[..., 0]
    assert close(cholesky_solve(cholesky_factor(s), v), expected)


def test_motions_and_forces():
    v, m = Motion(vectors(), vectors()), Motion(vectors(), vectors())
    f, point = Force(vectors(), vectors()), vectors()
    zero = np.zeros((N, 3, 3))
    matrix = np.block([[cross(v.ang), zero], [cross(v.lin), cross(v.ang)]])
    assert close(v.cross(m), times(matrix, m))
    assert close(v.cross_dual(f), times(-matrix.swapaxes(1, 2), f))
    assert close(v.dot(f), np.sum(dense(v) * dense(f), axis=-1))
    # The power of a force at a point is its product with the velocity there.
    assert close(v.dot(force_at(point, f.lin)), v.at(point).dot(f.lin))
    for kind in (Motion, Force):
        one, two = (kind(vectors(), vectors()) for _ in range(2))
        assert close(one + two, dense(one) + dense(two))
        assert close(one - two, dense(one) - dense(two))
        assert close(one * 3.0, 3.0 * dense(one))
    assert close(-f, -dense(f))


def inertia():
    mass, com, rotational = jnp.arange(1.0, 1.0 + N), vectors(), symmetric()
    return rigid_inertia(mass, com, rotational), (mass, com, rotational)


def test_rigid_inertia():
    body, (mass, com, rotational) = inertia()
    m, c = np.asarray(mass)[:, None, None], cross(com)
    top = dense(rotational) + m * c @ c.swapaxes(1, 2)
    full = np.block([[top, m * c], [m * c.swapaxes(1, 2), m * np.eye(3)]])
    v = Motion(vectors(), vectors())
    assert close(body.articulated(), full)
    assert close(body @ v, times(full, v)) and close(body.articulated() @ v, body @ v)


def test_articulated_inertia():
    body, u, d = (
        inertia()[0].articulated(),
        Force(vectors(), vectors()),
        1.0 / vectors().x,
    )
    expected = dense(body) - np.asarray(d)[:, None, None] * (
        dense(u)[:, :, None] * dense(u)[:, None]
    )
    assert close(body.downdate(u, d), expected)
    point, k = vectors(), symmetric()
    arm = np.concatenate([cross(point), np.tile(np.eye(3), (N, 1, 1))], axis=1)
    stiff = point_stiffness(point, k)
    assert close(stiff, arm @ dense(k) @ arm.swapaxes(1, 2))
    both = body + stiff
    assert close(both, dense(body) + dense(stiff))
    expected = np.linalg.solve(dense(both), dense(u)[..., None])[..., 0]
    assert close(free_solve(free_factor(both), u), expected)


def test_batches_trail():
    """The same code on arrays with any number of axes behind that of the links."""
    array = jnp.asarray(RNG.normal(size=(N, 3, 4, 2)))
    norm = vec3(array).dot(vec3(array))
    assert norm.shape == (N, 4, 2)
    assert np.allclose(norm, np.sum(np.asarray(array) ** 2, axis=1))
