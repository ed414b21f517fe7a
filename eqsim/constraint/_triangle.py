"""Lower triangles of symmetric matrices, row by row: sums of outer products."""

import functools as ft
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..model import take


class _Triangle(NamedTuple):
    """Rows and columns of the entries, and the entry at each place of the full matrix."""

    rows: np.ndarray
    columns: np.ndarray
    entries: np.ndarray


@ft.lru_cache(maxsize=256)
def _triangle(n: int) -> _Triangle:
    rows, columns = np.tril_indices(n)
    entries = np.zeros((n, n), int)
    entries[rows, columns] = entries[columns, rows] = np.arange(len(rows))
    return _Triangle(rows, columns, entries)


def full_matrix(triangle, n: int):
    """Return the symmetric matrix `(n, n, *batch)` with a given lower triangle."""
    entries = take(triangle, _triangle(n).entries.ravel())
    return entries.reshape(n, n, *triangle.shape[1:])


def zero_triangle(like):
    """Return a triangle of zeros, for matrices of the size of `like`, `(n, *batch)`."""
    size = len(_triangle(like.shape[0]).rows)
    return jnp.zeros((size, *like.shape[1:]), like.dtype)


def add_products(triangle, jac: Sequence[Any], weights: tuple[tuple[Any, ...], ...]):
    """Add the lower triangle of $J^T W J$.

    **Arguments:**

    - `jac`: rows of $J$, `(n, *batch)` each.
    - `weights`: entries `(1, *batch)` of the lower triangle of $W$; None stands for zero.
    """
    rows, columns, _ = _triangle(jac[0].shape[0])
    for i, right in enumerate(jac):
        parts = [
            other * weights[max(i, k)][min(i, k)]
            for k, other in enumerate(jac)
            if weights[max(i, k)][min(i, k)] is not None
        ]
        left = sum(parts[1:], parts[0])
        triangle = triangle + take(left, rows) * take(right, columns)
    return triangle
