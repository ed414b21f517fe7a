"""Static gathers and sums over the leading axis, in the form that XLA runs fastest.

Gathers and scatters are slow and stop fusion; slices, broadcasts, reductions and pads
are not. So a static index is split into *runs*, each an arithmetic progression of rows
of which every row occurs equally often in a row.
"""

import functools as ft
import math
from typing import NamedTuple

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax


_MOST_RUNS = 12
_MOST_ADDS = 16
_LARGEST_PRODUCT = 256


class _Run(NamedTuple):
    """Rows `start, start + step, ...`, `length` of them, each `repeats` times in a
    row."""

    start: int
    step: int
    length: int
    repeats: int

    @property
    def stop(self) -> int:
        return self.start + (self.length - 1) * self.step + 1

    @property
    def size(self) -> int:
        return self.length * self.repeats


@ft.lru_cache(maxsize=4096)
def _runs(index: tuple[int, ...]) -> tuple[_Run, ...]:
    repeats: list[tuple[int, int]] = []
    for value in index:
        if repeats and repeats[-1][0] == value:
            repeats[-1] = (value, repeats[-1][1] + 1)
        else:
            repeats.append((value, 1))
    runs: list[_Run] = []
    for value, count in repeats:
        last = runs[-1] if runs else None
        if last is not None and last.repeats == count:
            step = value - last.start if last.length == 1 else last.step
            if step > 0 and value == last.start + last.length * step:
                runs[-1] = _Run(last.start, step, last.length + 1, count)
                continue
        runs.append(_Run(value, 1, 1, count))
    return tuple(runs)


def take(tree, index):
    """`x[index]` for every array of a tree, with a static index into axis 0."""
    index = tuple(int(i) for i in index)
    return jtu.tree_map(lambda x: _take(x, index), tree)


def _take(x, index):
    if not index:
        return x[:0]
    runs = _runs(index)
    if len(runs) > _MOST_RUNS:
        return _select(x, index)
    parts = [_read(x, run) for run in runs]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _select(x, index: tuple[int, ...]):
    """Rows in any order. On the CPU a gather goes number by number; a product with a
    matrix of zeros and ones is far faster, and exact for finite numbers."""
    if not jnp.issubdtype(x.dtype, jnp.inexact) or x.shape[0] > _LARGEST_PRODUCT:
        return x[np.asarray(index)]
    matrix = np.zeros((len(index), x.shape[0]), x.dtype)
    matrix[np.arange(len(index)), np.asarray(index)] = 1.0
    return _product(matrix, x)


def take_difference(tree, index, minus):
    """`x[index] - x[minus]` for every array of a tree, with static indices."""
    rows = np.arange(len(index))

    def one(x):
        if len(index) * x.shape[0] == 0 or x.shape[0] > _LARGEST_PRODUCT:
            return _take(x, tuple(index)) - _take(x, tuple(minus))
        matrix = np.zeros((len(index), x.shape[0]), x.dtype)
        np.add.at(matrix, (rows, np.asarray(index)), 1.0)
        np.add.at(matrix, (rows, np.asarray(minus)), -1.0)
        return _product(matrix, x)

    return jtu.tree_map(one, tree)


def _product(matrix: np.ndarray, x):
    columns = x.reshape(x.shape[0], math.prod(x.shape[1:]))
    # The highest precision: on other devices the default rounds what it multiplies.
    out = jnp.matmul(jnp.asarray(matrix), columns, precision=lax.Precision.HIGHEST)
    return out.reshape(matrix.shape[0], *x.shape[1:])


def _read(x, run: _Run):
    if run.size == x.shape[0] and run.repeats == 1:
        return x
    rows = lax.slice_in_dim(x, run.start, run.stop, run.step)
    if run.repeats == 1:
        return rows
    shape = (run.length, run.repeats, *x.shape[1:])
    return jnp.broadcast_to(rows[:, None], shape).reshape(run.size, *x.shape[1:])


def put(tree, index, size: int):
    """Arrays of leading size `size` with `tree` at the distinct places `index`, else
    zero."""
    index = [int(i) for i in index]
    order = sorted(range(len(index)), key=index.__getitem__)
    runs = _runs(tuple(index[k] for k in order))

    def one(x):
        x = _take(x, tuple(order))
        parts, done = [], 0
        for run in runs:
            rows = x[done : done + run.length]
            done += run.length
            parts.append((run, rows))
        if len(parts) == 1:
            return _pad(parts[0][1], parts[0][0], size)
        return _interleave(parts, x, size)

    return jtu.tree_map(one, tree)


def _pad(rows, run: _Run, size: int):
    if run.length == size:
        return rows
    step = run.step if run.length > 1 else 1
    first = (run.start, size - run.stop, step - 1)
    rest = [(0, 0, 0)] * (rows.ndim - 1)
    return lax.pad(rows, jnp.zeros((), rows.dtype), [first, *rest])


def _interleave(parts, x, size: int):
    """Concatenates runs and zeros; runs with a stride are taken apart."""
    pieces, at = [], 0
    zeros = lambda n: jnp.zeros((n, *x.shape[1:]), x.dtype)
    single = []
    for run, rows in parts:
        if run.step == 1 or run.length == 1:
            single.append((run.start, rows))
        else:
            single += [
                (run.start + k * run.step, rows[k : k + 1]) for k in range(run.length)
            ]
    for start, rows in single:
        if start > at:
            pieces.append(zeros(start - at))
        pieces.append(rows)
        at = start + rows.shape[0]
    if at < size:
        pieces.append(zeros(size - at))
    return jnp.concatenate(pieces)


def accumulate(tree, index, size: int):
    """Sums the rows of `tree` that have the same entry in `index`; -1 is dropped."""
    index = tuple(int(i) for i in index)
    kept = [k for k, i in enumerate(index) if i >= 0]
    if len(kept) < len(index):
        return accumulate(take(tree, kept), [index[k] for k in kept], size)
    runs, done = [], 0
    for run in _runs(index):
        runs.append((run, done))
        done += run.size
    if not runs:
        return jtu.tree_map(lambda x: jnp.zeros((size, *x.shape[1:]), x.dtype), tree)
    if len(runs) > _MOST_RUNS and len(index) <= _LARGEST_PRODUCT:
        matrix = np.array(index) == np.arange(size)[:, None]
        return jtu.tree_map(lambda x: _product(matrix.astype(x.dtype), x), tree)
    return jtu.tree_map(lambda x: _sum_runs(x, runs, size), tree)


def _sum_runs(x, runs, size: int):
    parts = []
    for run, at in runs:
        rows = x if run.size == x.shape[0] else x[at : at + run.size]
        if run.repeats > _MOST_ADDS:
            rows = rows.reshape(run.length, run.repeats, *x.shape[1:])
            rows = jnp.sum(rows, axis=1)
        elif run.repeats > 1:
            # Additions fuse with what comes before and after; a reduction does not.
            end, step = rows.shape[0], run.repeats
            each = [lax.slice_in_dim(rows, k, end, step) for k in range(step)]
            rows = sum(each[1:], each[0])
        parts.append((run, rows))
    starts = [run.start for run, _ in parts]
    stops = [run.stop for run, _ in parts]
    if all(a <= b for a, b in zip(stops, starts[1:])) and len(parts) > 1:
        return _interleave(parts, x, size)
    total = [_pad(rows, run, size) for run, rows in parts]
    return sum(total[1:], total[0])


def concatenate(trees):
    """Joins trees along axis 0; batch axes of size one are broadcast."""
    trees = [t for t in trees if jtu.tree_leaves(t)[0].shape[0]] or trees[:1]
    if len(trees) == 1:
        return trees[0]

    def join(*xs):
        batch = jnp.broadcast_shapes(*(x.shape[1:] for x in xs))
        return jnp.concatenate([jnp.broadcast_to(x, (x.shape[0], *batch)) for x in xs])

    return jtu.tree_map(join, *trees)
