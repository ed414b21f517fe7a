"""Loops over rows of arrays that do not depend on each other."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax


MAX_GROUP_SIZE = 32
"""Maximum number of rows per vectorized group; bounds the memory."""

_TOGETHER = contextvars.ContextVar("rows_together", default=False)


@contextlib.contextmanager
def rows_together(together: bool = True) -> Iterator[None]:
    """Choose whether `each_row` vectorizes over rows, within a context."""
    before = _TOGETHER.set(together)
    try:
        yield
    finally:
        _TOGETHER.reset(before)


def rows_per_pass(capacity: int) -> int:
    """Return the number of rows of a list that a loop visits together."""
    return min(MAX_GROUP_SIZE, capacity) if _TOGETHER.get() else 1


def each_row(visit: Callable, rows: Any) -> Any:
    """Map `visit` over the first axis of `rows`.

    By default a scan: the program is small, branches are skipped, and the data of a row
    stay in the cache of a CPU. Within `rows_together`, `jax.vmap` over groups of at most
    `MAX_GROUP_SIZE` rows, which needs fewer kernel launches on a GPU; both sides of a
    branch are then computed. Reverse mode recomputes a row or group instead of storing
    its values.
    """
    count = jtu.tree_leaves(rows)[0].shape[0]
    if not _TOGETHER.get() or count < 2:
        return _scanned(visit, rows)
    passes = -(-count // MAX_GROUP_SIZE)
    if passes == 1:
        return jax.checkpoint(jax.vmap(visit))(rows)
    groups = jtu.tree_map(lambda x: _split(x, passes, -(-count // passes)), rows)
    found = _scanned(jax.vmap(visit), groups)
    return jtu.tree_map(lambda x: x.reshape(-1, *x.shape[2:])[:count], found)


def _scanned(visit: Callable, rows: Any) -> Any:
    once = jax.checkpoint(lambda _, row: (None, visit(row)), prevent_cse=False)
    return lax.scan(once, None, rows)[1]


def _split(x: Any, passes: int, size: int) -> Any:
    """Divide rows into groups; the last row is repeated to fill the last group."""
    missing = passes * size - x.shape[0]
    if missing:
        x = jnp.pad(x, [(0, missing), *((0, 0) for _ in x.shape[1:])], mode="edge")
    return x.reshape(passes, size, *x.shape[1:])
