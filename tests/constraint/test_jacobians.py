"""Sparse Jacobians beside dense ones."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from eqsim.constraint import DenseJacobian, rows, sparse_jacobian
from eqsim.constraint.rows import total
from eqsim.dynamics.joint_space import symmetric_matrix
from eqsim.spatial import Motion, Vec3


NV, ROWS = 7, 6
DOFS = (0, 3), (1,), (), (2, 3, 6), (0, 3), (3, 5)


@pytest.fixture(scope="module")
def pair():
    full = jr.normal(jr.key(0), (ROWS, NV, 2))
    mask = np.array([[dof in own for dof in range(NV)] for own in DOFS], float)
    full = full * mask[..., None]
    return sparse_jacobian(full, DOFS), DenseJacobian((full,))


def matrix(terms):
    parts = [symmetric_matrix(values, places, NV) for values, places in terms.entries]
    return sum(parts, jnp.zeros((NV, NV, 2)))


def test_products(pair):
    zero = Vec3(*3 * [jnp.zeros((1, 2))])
    still, qdd = Motion(zero, zero), jr.normal(jr.key(1), (NV, 2))
    force = (jr.normal(jr.key(2), (ROWS, 2)),)
    times = [each.times(still, qdd)[0] for each in pair]
    np.testing.assert_allclose(*times, rtol=1e-12, atol=1e-14)
    found, expected = (total(each.transpose(force).dofs, NV) for each in pair)
    assert found is not None and expected is not None
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("most", (1024, 12, 1))
def test_stiffness(pair, most, monkeypatch):
    """As one array, or several of at most so many products."""
    monkeypatch.setattr(rows, "_MOST_PRODUCTS", most)
    weights = ((jr.uniform(jr.key(3), (ROWS, 2)),),)
    sparse, dense = (each.weigh(weights) for each in pair)
    np.testing.assert_allclose(matrix(sparse), matrix(dense), rtol=1e-12, atol=1e-14)
    for _, places in sparse.entries:
        assert len(set(places)) == len(places)


def test_many_rows_on_one_dof():
    """More rows than are padded together."""
    full = jnp.asarray(np.random.default_rng(0).normal(size=(9, NV, 2)))
    only = (np.arange(NV) == 4).astype(float)
    full = full * only[None, :, None]
    sparse, dense = sparse_jacobian(full, [(4,)] * 9), DenseJacobian((full,))
    weights = ((jnp.ones((9, 2)),),)
    found, expected = (matrix(each.weigh(weights)) for each in (sparse, dense))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
