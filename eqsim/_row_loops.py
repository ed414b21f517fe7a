"""Loops over rows of arrays that do not depend on each other."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax


MOST_TOGETHER = 32
"""Largest number of rows that are computed together, which bounds the memory."""

_TOGETHER = contextvars.ContextVar("rows_together", default=False)


@contextlib.contextmanager
def rows_together() -> Iterator[None]:
    """Let `each_row` compute rows together, within a context."""
    before = _TOGETHER.set(True)
    try:
        yield
    finally:
        _TOGETHER.reset(before)


def each_row(visit: Callable, rows: Any) -> Any:
    """Return the results of `visit` for all rows, along a first axis.

    One row after another is visited by default: the program is small, and a CPU keeps
    the data of a row in its cache. Within `rows_together`, up to `MOST_TOGETHER` rows
    are computed together: a GPU would spend its time on launches otherwise. Reverse mode
    visits rows again instead of storing what each computes.
    """
    count = jtu.tree_leaves(rows)[0].shape[0]
    if not _TOGETHER.get() or count < 2:
        single = jax.checkpoint(lambda _, row: (None, visit(row)), prevent_cse=False)
        return lax.scan(single, None, rows)[1]
    together = jax.checkpoint(jax.vmap(visit), prevent_cse=False)
    passes = -(-count // MOST_TOGETHER)
    if passes == 1:
        return together(rows)
    size = -(-count // passes)
    found = lax.scan(lambda _, x: (None, together(x)), None, _split(rows, passes, size))
    return jtu.tree_map(lambda x: x.reshape(-1, *x.shape[2:])[:count], found[1])


def _split(rows: Any, passes: int, size: int) -> Any:
    """Divide rows into groups; the last row is repeated to fill the last group."""

    def split(x):
        numbers = jnp.minimum(jnp.arange(passes * size), x.shape[0] - 1)
        return x[numbers].reshape(passes, size, *x.shape[1:])

    return jtu.tree_map(split, rows)
