"""Sparse linear systems beside NumPy's dense ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import check_gradients

from eqsim.dynamics.joint_space import _elimination, linear_solver


def chain(size: int, parents) -> list[int]:
    """Entries of the joint-space matrix of a tree."""
    places = []
    for k in range(size):
        j = k
        while j >= 0:
            places.append(size * k + j)
            j = parents[j]
    return places


TREE = -1, 0, 1, 0, 3, 0, 5, -1, 7
DIAGONAL = [9 * k + k for k in range(9)]
PATTERNS = {
    "tree": chain(9, TREE),
    "coupled": sorted({*chain(9, TREE), 9 * 4 + 2, 9 * 8 + 2, 9 * 8 + 4}),
    "dense": [9 * i + j for i in range(9) for j in range(i + 1)],
}


def lower(matrix, places):
    return matrix[np.array(places) // 9, np.array(places) % 9]


def definite(places, seed: int, batch: int):
    """Symmetric positive definite matrices with given entries, `(n, n, *batch)`."""
    matrix = np.zeros((9, 9, batch))
    values = np.random.default_rng(seed).normal(size=(len(places), batch))
    for place, value in zip(places, values, strict=True):
        i, j = divmod(place, 9)
        matrix[i, j] = matrix[j, i] = value
    return matrix + 10.0 * np.eye(9)[..., None]


@pytest.mark.parametrize("name", PATTERNS)
def test_solves(name):
    """Whatever the entries are, and however they are split into parts."""
    places = PATTERNS[name]
    matrix = definite(places, 0, 3)
    right = np.random.default_rng(1).normal(size=(9, 3))
    expected = np.linalg.solve(np.moveaxis(matrix, 2, 0), right.T[..., None])[..., 0].T
    for pieces, share in (
        ([places], 1.0),
        ([places[::2], places[1::2]], 1.0),
        ([places, places], 0.5),
    ):
        parts = [(jnp.asarray(share * lower(matrix, p)), tuple(p)) for p in pieces]
        found = jax.jit(lambda b, p=parts: linear_solver(9, p)(b))(jnp.asarray(right))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_derivatives():
    places = tuple(PATTERNS["coupled"])
    values = jnp.asarray(lower(definite(places, 2, 1), places))
    right = jnp.asarray(np.random.default_rng(3).normal(size=(9, 1)))
    solve = jax.jit(lambda v, b: linear_solver(9, [(v, places)])(b))
    check_gradients(solve, values, right)


def test_no_zero_of_a_tree_fills():
    """Leaves first: Featherstone's order for the joint-space matrix."""
    places = tuple(sorted(chain(9, TREE)))
    assert sorted(_elimination(9, places).places) == list(places)


def test_a_hub_comes_last():
    """An object that all fingers touch is eliminated after them, and nothing fills."""
    places = tuple(sorted({*DIAGONAL, *(9 * k for k in range(9))}))
    plan = _elimination(9, places)
    assert sorted(plan.places) == list(places)
    assert plan.back[0] >= 7
