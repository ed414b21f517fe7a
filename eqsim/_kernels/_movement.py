"""Primitives that move elements without computing: they cost nothing when unrolled."""

import math
from typing import Any

import numpy as np

from . import _algebra as algebra, _arrays as arrays
from ._arrays import is_large, pull, Pulled, Value
from ._indices import clamped, divided, flat, minus, modulo, plus, times, unflat, within
from ._scalarize import dtype_of, rule, Translation


def _from(walk: Translation, eqn, operand: Value, source, whole) -> list[Value]:
    """Move the elements of a single operand; `source` maps indices of the result to
    indices of the operand."""
    graph, aval = walk.graph, eqn.outvars[0].aval
    if isinstance(operand, np.ndarray) and not is_large(aval.shape):
        return [whole(operand)]
    base = pull(graph, arrays.settled(graph, operand))
    at = lambda index: base.at(source(index))
    result = Pulled(aval.shape, dtype_of(aval), at, base.dep)
    return [result if is_large(aval.shape) else arrays.materialized(graph, result)]


def _moves_nothing(operand: Value, shape) -> bool:
    """Return whether only axes of size one are added or removed."""
    if not isinstance(operand, Pulled) or not is_large(shape):
        return False
    return arrays.core(operand.shape) == arrays.core(shape)


@rule("reshape", "expand_dims", "squeeze")
def _reshape(walk, eqn, x, *_):
    graph, old, new = walk.graph, eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    if _moves_nothing(x, new):
        return [arrays.same_elements(x, new)]
    if isinstance(x, Pulled) and x.array is not None:
        return [arrays.stored(x.array, tuple(new), x.dtype, graph)]
    source = lambda index: unflat(graph, flat(graph, index, new), old)
    return _from(walk, eqn, x, source, lambda x: x.reshape(new))


@rule("broadcast_in_dim")
def _broadcast(walk, eqn, x, *_):
    old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    axes = eqn.params.get("broadcast_dimensions", ())
    if _moves_nothing(x, new):
        return [arrays.same_elements(x, new)]

    def whole(x):
        shape = [1] * len(new)
        for axis, size in zip(axes, old, strict=True):
            shape[axis] = size
        return np.broadcast_to(x.reshape(shape), new)

    def source(index):
        pairs = zip(axes, old, strict=True)
        return tuple(0 if size == 1 else index[axis] for axis, size in pairs)

    return _from(walk, eqn, x, source, whole)


@rule("tile")
def _tile(walk, eqn, x):
    graph, old = walk.graph, eqn.invars[0].aval.shape
    repeats = eqn.params["reps"]
    inner = lambda i, n: 0 if n == 1 else modulo(graph, i, n)
    source = lambda index: tuple(inner(i, n) for i, n in zip(index, old, strict=True))
    return _from(walk, eqn, x, source, lambda x: np.tile(x, repeats))


@rule("transpose")
def _transpose(walk, eqn, x):
    order = eqn.params["permutation"]
    place = {axis: k for k, axis in enumerate(order)}
    source = lambda index: tuple(index[place[axis]] for axis in range(len(order)))
    return _from(walk, eqn, x, source, lambda x: np.transpose(x, order))


@rule("rev")
def _reverse(walk, eqn, x):
    axes, shape = eqn.params["dimensions"], eqn.invars[0].aval.shape
    back = lambda i, n: minus(walk.graph, n - 1, i)

    def source(index):
        return tuple(back(i, shape[k]) if k in axes else i for k, i in enumerate(index))

    return _from(walk, eqn, x, source, lambda x: np.flip(x, axes))


@rule("slice")
def _slice(walk, eqn, x):
    params, graph = eqn.params, walk.graph
    starts = tuple(map(int, params["start_indices"]))
    stops, steps = params["limit_indices"], params["strides"] or (1,) * len(starts)

    def source(index):
        scaled = [times(graph, i, step) for i, step in zip(index, steps)]
        return tuple(plus(graph, i, start) for i, start in zip(scaled, starts))

    cut = tuple(map(slice, starts, stops, steps))
    return _from(walk, eqn, x, source, lambda x: x[cut])


@rule("split")
def _split(walk, eqn, x):
    axis, start, results = eqn.params["axis"], 0, []
    for var, size in zip(eqn.outvars, map(int, eqn.params["sizes"]), strict=True):
        results.append(_part(walk, var.aval, x, axis, start, size))
        start += size
    return results


def _part(walk: Translation, aval, x: Value, axis: int, start: int, size: int) -> Value:
    """Return `size` rows of an array along an axis."""
    if isinstance(x, np.ndarray):
        return x[(slice(None),) * axis + (slice(start, start + size),)]
    x = pull(walk.graph, arrays.settled(walk.graph, x))

    def at(index):
        shifted = plus(walk.graph, index[axis], start)
        return x.at((*index[:axis], shifted, *index[axis + 1 :]))

    part = Pulled(aval.shape, dtype_of(aval), at, x.dep)
    return part if is_large(aval.shape) else arrays.materialized(walk.graph, part)


@rule("unstack")
def _unstack(walk, eqn, x):
    axis, shape = eqn.params["axis"], eqn.outvars[0].aval.shape
    x, results = arrays.settled(walk.graph, x), []
    for k, var in enumerate(eqn.outvars):
        if isinstance(x, np.ndarray):
            results.append(np.take(x, k, axis))
            continue
        at = lambda index, k=k: x.at((*index[:axis], k, *index[axis:]))
        part = Pulled(shape, dtype_of(var.aval), at, x.dep)
        large = is_large(shape)
        results.append(part if large else arrays.materialized(walk.graph, part))
    return results


@rule("concatenate")
def _concatenate(walk, eqn, *parts):
    axis = eqn.params["dimension"]
    if not is_large(eqn.outvars[0].aval.shape):
        return [np.concatenate(parts, axis)]
    parts = [x for x in parts if x.shape[axis]]
    return [_joined(walk, eqn, parts, axis, [x.shape[axis] for x in parts], False)]


@rule("stack")
def _stack(walk, eqn, *parts):
    axis = eqn.params["axis"]
    if not is_large(eqn.outvars[0].aval.shape):
        return [np.stack(parts, axis)]
    return [_joined(walk, eqn, parts, axis, [1] * len(parts), True)]


def _joined(walk: Translation, eqn, parts, axis: int, sizes, stacked: bool) -> Value:
    """Concatenate large arrays along an axis."""
    graph, aval = walk.graph, eqn.outvars[0].aval
    shape, dtype = aval.shape, dtype_of(aval)
    if math.prod(shape[:axis]) == 1:
        each = tuple(arrays.in_memory(graph, part) for part in parts)
        array = graph.pure("join", each, dtype, None, math.prod(shape))
        return arrays.stored(array, shape, dtype, graph)
    pulled = [pull(graph, arrays.settled(graph, part)) for part in parts]

    def at(index):
        found: Any = None
        start = sum(map(int, sizes))
        for part, size in zip(pulled[::-1], map(int, sizes[::-1]), strict=True):
            start -= size
            inner = minus(graph, index[axis], start)
            here = within(graph, inner, size)
            inner = clamped(graph, inner, size - 1)
            own = (*index[:axis], *(() if stacked else (inner,)), *index[axis + 1 :])
            value = part.at(own)
            found = (
                value if found is None else algebra.select(graph, here, found, value)
            )
        return found

    return arrays.waiting(graph, shape, dtype, at, arrays.dependence(graph, *pulled))


@rule("pad")
def _pad(walk, eqn, x, padding):
    graph, aval = walk.graph, eqn.outvars[0].aval
    config = [tuple(map(int, entry)) for entry in eqn.params["padding_config"]]
    old = eqn.invars[0].aval.shape
    (fill,) = padding.reshape(-1).tolist()
    if isinstance(x, np.ndarray) and not is_large(aval.shape):
        return [_pad_unrolled(x, fill, config, aval.shape)]
    if 0 in old:
        return [Pulled(aval.shape, dtype_of(aval), lambda _: fill, graph.dep[fill])]
    source = pull(graph, arrays.materialized(graph, x))

    def at(index):
        inside, inner = graph.constant(True, "b1"), []
        for i, n, (low, _, gap) in zip(index, old, config, strict=True):
            place = minus(graph, i, low)
            if gap:
                rest = modulo(graph, place, gap + 1)
                aligned = within(graph, rest, 1)
                inside = algebra.apply(graph, "and", (inside, aligned), "b1")
                place = divided(graph, place, gap + 1)
            own = within(graph, place, n)
            inside = algebra.apply(graph, "and", (inside, own), "b1")
            inner.append(clamped(graph, place, n - 1))
        return algebra.select(graph, inside, fill, source.at(tuple(inner)))

    dep = source.dep | graph.dep[fill]
    return [arrays.waiting(graph, aval.shape, dtype_of(aval), at, dep)]


def _pad_unrolled(x, fill: int, config, shape):
    out = np.full(shape, fill, np.int64)
    target, own = [], []
    for size, n, (low, _, gap) in zip(shape, x.shape, config, strict=True):
        places = low + (gap + 1) * np.arange(n)
        kept = np.nonzero((places >= 0) & (places < size))[0]
        target.append(places[kept])
        own.append(kept)
    out[np.ix_(*target)] = x[np.ix_(*own)]
    return out
