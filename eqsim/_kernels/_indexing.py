"""Primitives that read and write at indices, which may be computed."""

import math

import numpy as np

from . import _algebra as algebra, _arrays as arrays
from ._arrays import is_large, pull, Pulled, Value
from ._graph import LANE
from ._indices import (
    as_index,
    clamped,
    counted,
    flat,
    Index,
    minus,
    plus,
    unflat,
    within,
)
from ._scalarize import dtype_of, rule, Translation, Unsupported


@rule("dynamic_slice")
def _dynamic_slice(walk, eqn, x, *starts):
    graph, sizes = walk.graph, eqn.params["slice_sizes"]
    x = arrays.settled(graph, x)
    first = _starts(walk, eqn.invars[0].aval.shape, sizes, starts)

    def at(index):
        place = tuple(plus(graph, i, s) for i, s in zip(index, first, strict=True))
        return arrays.read(graph, x, place)

    return _computed(walk, eqn, at, arrays.dependence(graph, x, *starts))


def _starts(walk: Translation, shape, sizes, starts) -> list:
    """Start of a slice, clamped as XLA does."""
    first = []
    for size, length, start in zip(shape, sizes, starts, strict=True):
        (node,) = start.reshape(-1).tolist()
        index = as_index(walk.graph, node)
        first.append(clamped(walk.graph, index, size - length))
    return first


def _computed(walk: Translation, eqn, at, dep: int) -> list[Value]:
    """Return the array of elements `at` all indices."""
    graph, aval = walk.graph, eqn.outvars[0].aval
    if is_large(aval.shape):
        return [arrays.waiting(graph, aval.shape, dtype_of(aval), at, dep)]
    found = Pulled(aval.shape, dtype_of(aval), at, dep)
    return [arrays.materialized(graph, found)]


@rule("gather")
def _gather(walk, eqn, x, indices):
    graph, params = walk.graph, eqn.params
    x, indices = arrays.settled(graph, x), arrays.settled(graph, indices)
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    shape, fills = eqn.invars[0].aval.shape, "FILL" in str(params["mode"])
    dtype = dtype_of(eqn.outvars[0].aval)
    fill = graph.constant(_fill_value(params["fill_value"], dtype), dtype)
    offset = numbers.offset_dims
    batching = numbers.operand_batching_dims
    window = window_of(eqn)

    def at(index):
        batch = [i for k, i in enumerate(index) if k not in offset]
        place: list[int | Index] = [0] * len(shape)
        inside = graph.constant(True, "b1")
        for k, axis in enumerate(numbers.start_index_map):
            node = arrays.read(graph, indices, (*batch, k))
            start, last = as_index(graph, node), shape[axis] - sizes[axis]
            if fills:
                own = within(graph, start, last + 1)
                inside = algebra.apply(graph, "and", (inside, own), "b1")
            place[axis] = clamped(graph, start, last)
        pairs = zip(batching, numbers.start_indices_batching_dims, strict=True)
        for axis, own in pairs:
            place[axis] = batch[own]
        for axis, k in zip(window, offset, strict=True):
            place[axis] = plus(graph, place[axis], index[k])
        return algebra.select(graph, inside, fill, arrays.read(graph, x, tuple(place)))

    if isinstance(x, np.ndarray) and isinstance(indices, np.ndarray):
        if are_known(graph, indices) and not batching:
            found = gathered(graph, eqn, x, indices, window)
            return [np.where(found < 0, fill, found) if fills else found]
    return _computed(walk, eqn, at, arrays.dependence(graph, x, indices))


def window_of(eqn) -> list[int]:
    """Return the axes along which `gather` takes slices."""
    numbers = eqn.params["dimension_numbers"]
    others = *numbers.collapsed_slice_dims, *numbers.operand_batching_dims
    return [k for k in range(len(eqn.invars[0].aval.shape)) if k not in others]


def are_known(graph, indices: np.ndarray) -> bool:
    return all(node in graph.value for node in indices.reshape(-1).tolist())


def gathered(graph, eqn, x: np.ndarray, indices: np.ndarray, window) -> np.ndarray:
    """Apply `gather` to unrolled arrays at known indices; -1 where the indices are out
    of bounds."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    grid = np.indices(eqn.outvars[0].aval.shape)
    batch = [i for k, i in enumerate(grid) if k not in numbers.offset_dims]
    known = [int(graph.value[node]) for node in indices.reshape(-1).tolist()]
    starts = np.array(known, np.int64).reshape(indices.shape)
    place = [np.zeros(grid.shape[1:], np.int64) for _ in x.shape]
    inside = np.ones(grid.shape[1:], bool)
    for k, axis in enumerate(numbers.start_index_map):
        start, last = starts[(*batch, k)], x.shape[axis] - sizes[axis]
        inside &= (start >= 0) & (start <= last)
        place[axis] = np.clip(start, 0, last)
    for axis, k in zip(window, numbers.offset_dims, strict=True):
        place[axis] = place[axis] + grid[k]
    found = x[tuple(place)]
    return (
        found if "FILL" not in str(eqn.params["mode"]) else np.where(inside, found, -1)
    )


def _fill_value(value, dtype: str):
    if value is not None:
        return value
    if dtype[0] == "f":
        return np.nan
    if dtype[0] == "i":
        return np.iinfo(dtype).min
    return np.iinfo(dtype).max if dtype[0] == "u" else True


_COMBINE = {
    "scatter": None,
    "scatter-add": "add",
    "scatter_add": "add",
    "scatter-mul": "mul",
    "scatter_mul": "mul",
    "scatter-min": "min",
    "scatter_min": "min",
    "scatter-max": "max",
    "scatter_max": "max",
    "scatter-sub": "sub",
    "scatter_sub": "sub",
}


@rule(*_COMBINE)
def _scatter(walk, eqn, x, indices, updates):
    graph, params = walk.graph, eqn.params
    numbers = params["dimension_numbers"]
    shape, each = eqn.invars[0].aval.shape, eqn.invars[2].aval.shape
    window_axes = numbers.update_window_dims
    batching = numbers.operand_batching_dims
    drops = "FILL" in str(params["mode"])
    window = [
        k
        for k in range(len(shape))
        if k not in numbers.inserted_window_dims and k not in batching
    ]
    length = dict(zip(window, (each[k] for k in window_axes), strict=True))

    def target(index):
        """Return the index of an update, and the condition under which it is made."""
        batch = [i for k, i in enumerate(index) if k not in window_axes]
        place: list[int | Index] = [0] * len(shape)
        inside = graph.constant(True, "b1")
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            node = arrays.read(graph, indices, (*batch, k))
            start = as_index(graph, node)
            last = shape[axis] - length.get(axis, 1)
            own = within(graph, start, last + 1)
            if drops:
                inside = algebra.apply(graph, "and", (inside, own), "b1")
            place[axis] = clamped(graph, start, last)
        pairs = zip(batching, numbers.scatter_indices_batching_dims, strict=True)
        for axis, own in pairs:
            place[axis] = batch[own]
        for axis, k in zip(window, window_axes, strict=True):
            place[axis] = plus(graph, place[axis], index[k])
        return tuple(place), inside

    op = _COMBINE[eqn.primitive.name]
    if op is None and params["update_jaxpr"] is not None:
        raise Unsupported("`scatter` with a function, as of `x.at[i].apply`,")
    return [_updated(walk, eqn, x, each, updates, target, op)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(walk, eqn, x, update, *starts):
    graph, each = walk.graph, eqn.invars[1].aval.shape
    first = _starts(walk, eqn.invars[0].aval.shape, each, starts)
    always = graph.constant(True, "b1")

    def target(index):
        pairs = zip(index, first, strict=True)
        return tuple(plus(graph, i, s) for i, s in pairs), always

    return [_updated(walk, eqn, x, each, update, target, None)]


_LONGEST_SELECTION = 64


def _updated(walk: Translation, eqn, x: Value, each, updates, target, op) -> Value:
    """Combine updates of shape `each` into `x` by `op`, or replace elements of `x`."""
    graph, aval = walk.graph, eqn.outvars[0].aval
    dtype = dtype_of(aval)
    if 0 in each:
        return x

    def combined(old: int, new: int, inside: int) -> int:
        value = new if op is None else algebra.apply(graph, op, (old, new), dtype)
        return algebra.select(graph, inside, old, value)

    if isinstance(x, np.ndarray) and not is_large(each):
        out = np.array(x)
        for index in np.ndindex(*each):
            place, inside = target(index)
            value = arrays.read(graph, updates, index)
            if all(isinstance(i, int) for i in place):
                out[place] = combined(int(out[place]), value, inside)
            else:
                _put(walk, out, place, value, inside, combined)
        return out
    whole = _replaced_entry(walk, x, each, updates, target, combined)
    if whole is not None:
        return whole
    return _updated_in_memory(walk, aval, x, each, updates, target, combined)


def _replaced_entry(walk, x: Value, each, updates, target, combined) -> Value | None:
    """Return a large array that a loop carries with one element replaced in place; None
    if it is not carried."""
    graph = walk.graph
    if math.prod(each) != 1 or not isinstance(x, Pulled) or x.array is None:
        return None
    if graph.op[x.array] not in ("param", "update", "get"):
        return None
    index = (0,) * len(each)
    place, inside = target(index)
    where = flat(graph, place, x.shape)
    if not isinstance(where, Index):
        return None
    value, every = arrays.read(graph, updates, index), graph.constant(True, "b1")
    new = combined(arrays.element(graph, x.array, where), value, every)
    array = _masked_update(walk, x.array, where, new, inside)
    return arrays.stored(array, x.shape, x.dtype, graph)


def _put(walk: Translation, out, place, value: int, inside: int, combined) -> None:
    """Combine a value into an unrolled array at a computed place."""
    graph = walk.graph
    fixed = tuple(i if isinstance(i, int) else slice(None) for i in place)
    part = np.array(out[fixed])
    moving = tuple(i for i in place if not isinstance(i, int))
    number = flat(graph, moving, part.shape)
    entries = part.reshape(-1).tolist()
    array = arrays.carried(graph, entries)
    if isinstance(number, Index) and array is not None:
        every = graph.constant(True, "b1")
        new = combined(arrays.element(graph, array, number), value, every)
        array = _masked_update(walk, array, number, new, inside)
        entries = [arrays.element(graph, array, k) for k in range(len(entries))]
    elif isinstance(number, int) or len(entries) <= _LONGEST_SELECTION:
        for k, old in enumerate(entries):
            same = within(graph, minus(graph, number, k), 1)
            own = algebra.apply(graph, "and", (inside, same), "b1")
            entries[k] = combined(old, value, own)
    else:
        assert isinstance(number, Index)
        array = arrays.in_memory(graph, part)
        old = arrays.element(graph, array, number)
        new = combined(old, value, inside)
        array = arrays.updated(graph, array, number, new)
        entries = [arrays.element(graph, array, k) for k in range(len(entries))]
    out[fixed] = np.array(entries, np.int64).reshape(part.shape)


def _masked_update(
    walk: Translation, array: int, place: Index, value: int, inside: int
) -> int:
    """Replace one element of an array in memory where `inside` holds, except in frozen
    lanes."""
    graph, dtype, rows = walk.graph, walk.graph.dtype[array], walk.graph.rows[array]
    mask = walk.mask if graph.dep[array] & LANE else None
    if mask is not None:
        inside = algebra.apply(graph, "and", (mask, inside), "b1")
    always = graph.value.get(inside)
    if always is not None and not always:
        return array
    args = array, place.node, value, inside
    new = graph.pure("update", args[:3] if always else args, dtype, None, rows)
    if mask is not None:
        graph.freeze(mask, [array], [new])
    return new


def add_element(walk: Translation, x: Value, number: int, value: int) -> Value:
    """Add a value to the element of a vector at a place that is within bounds."""
    graph, dtype = walk.graph, walk.graph.dtype[value]
    place = clamped(graph, as_index(graph, number), x.shape[0] - 1)
    always = graph.constant(True, "b1")

    def combined(old: int, new: int, inside: int) -> int:
        total = algebra.apply(graph, "add", (old, new), dtype)
        return algebra.select(graph, inside, old, total)

    if isinstance(x, np.ndarray):
        out = np.array(x)
        if isinstance(place, int):
            out[place] = combined(int(out[place]), value, always)
        else:
            _put(walk, out, (place,), value, always, combined)
        return out
    target = lambda _: ((place,), always)
    added = arrays.nodes([value], (1,))
    found = _replaced_entry(walk, x, (1,), added, target, combined)
    assert found is not None, "totals are carried by the loop"
    return found


def _updated_in_memory(walk, aval, x, each, updates, target, combined) -> Value:
    """Update an array like `_updated`, by a loop over the updates."""
    graph = walk.graph
    size, updates = int(np.prod(each)), pull(graph, arrays.materialized(graph, updates))

    def body(number, carried):
        (array,) = carried
        index = unflat(graph, number, each)
        place, inside = target(index)
        where = flat(graph, place, aval.shape)
        old = arrays.element(graph, array, where)
        new = combined(old, updates.at(index), inside)
        return [arrays.updated(graph, array, where, new)]

    (array,) = counted(graph, size, [arrays.in_memory(graph, x)], body)
    return arrays.stored(array, aval.shape, dtype_of(aval), graph)
