"""Cholesky factors of small matrices."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from eqsim.control._backward_pass import cholesky, cholesky_solve, LARGEST_UNROLLED


@pytest.mark.parametrize("n", (1, 2, 5, LARGEST_UNROLLED, LARGEST_UNROLLED + 1))
@pytest.mark.parametrize("columns", ((), (1,), (3,)))
@pytest.mark.quick_cases("columns0-1", "columns1-5", "columns2-7")
def test_solves(n, columns, getkey):
    root = jr.normal(getkey(), (n, n))
    H = root @ root.T + jnp.eye(n)
    b = jr.normal(getkey(), (n, *columns))
    L = cholesky(H)
    np.testing.assert_allclose(L, np.linalg.cholesky(H), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(H @ cholesky_solve(L, b), b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("least", (0.0, -1.0))
@pytest.mark.parametrize("n", (1, 3, LARGEST_UNROLLED + 1))
def test_is_nan_where_it_does_not_exist(n, least):
    H = jnp.diag(jnp.ones(n).at[-1].set(least))
    assert not np.all(np.isfinite(cholesky(H)))
