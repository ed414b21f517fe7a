"""Entries of symmetric matrices: sums of outer products of rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dynamics._sparse import Places
from ..model._gather import accumulate, take


_MOST_PADDED = 4
"""Summands of entries that are summed together, with zeros for those that are missing."""


def add_products(
    values,
    places: Places,
    jac: Sequence[Any],
    weights: tuple[tuple[Any, ...], ...],
):
    """Add $J^T W J$ to entries of its lower triangle.

    **Arguments:**

    - `values`: the entries `places`, `(k, *batch)`.
    - `jac`: rows of $J$, `(n, *batch)` each.
    - `weights`: entries `(1, *batch)` of the lower triangle of $W$; None stands for zero.
    """
    rows, columns = np.divmod(np.array(places, int), jac[0].shape[0])
    for i, right in enumerate(jac):
        parts = [
            other * weights[max(i, k)][min(i, k)]
            for k, other in enumerate(jac)
            if weights[max(i, k)][min(i, k)] is not None
        ]
        left = sum(parts[1:], parts[0])
        values = values + take(left, rows) * take(right, columns)
    return values


def summed(values, index: Sequence[int]) -> tuple[tuple[Any, tuple[int, ...]], ...]:
    """Sum the rows that have the same entry in `index`; rows with -1 are dropped.

    **Returns:** sums and their entries, which are distinct. Entries with few and with many
    rows are apart, as the former are padded to the same number.
    """
    counts = Counter(k for k in index if k >= 0)
    parts = []
    for many in (False, True):
        own = sorted(k for k, n in counts.items() if (n > _MOST_PADDED) == many)
        if own:
            row = {k: number for number, k in enumerate(own)}
            rows = [row.get(k, -1) for k in index]
            parts.append((accumulate(values, rows, len(own)), tuple(own)))
    return tuple(parts)
