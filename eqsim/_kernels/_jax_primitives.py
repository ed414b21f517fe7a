"""Element-wise primitives."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _arrays as arrays
from ._arrays import (
    as_index,
    clamped,
    counted,
    divided,
    flat,
    Index,
    index_node,
    is_large,
    LEAST_WRITTEN,
    minus,
    modulo,
    nodes,
    plus,
    pull,
    Pulled,
    times,
    unflat,
    Value,
    waiting,
    within,
)
from ._graph import LANE
from ._operations import apply, COMPOSITES, convert, Element, OPERATIONS, select
from ._translation import dtype_of, rule, Translation, Unsupported


def mapped(
    walk: Translation, eqn, operands: tuple[Value, ...], function: Callable[..., int]
) -> list[Value]:
    """Apply a function of nodes to all elements. Axes of size one, and scalars, are
    broadcast."""
    aval = eqn.outvars[0].aval
    return [elementwise(walk, aval.shape, dtype_of(aval), operands, function)]


def elementwise(
    walk: Translation,
    shape: Sequence[int],
    dtype: str,
    operands: Sequence[Any],
    function: Callable[..., int],
) -> Value:
    """Apply a function like `mapped`, for a result of given shape and type."""
    graph = walk.graph
    if is_large(shape):
        found = arrays.fusible(graph, operands, shape)
        pulled = [pull(graph, operand) for operand in found]

        def at(index):
            return function(*(x.at(_within(index, x.shape)) for x in pulled))

        dep = arrays.dependence(graph, *found)
        return waiting(graph, shape, dtype, at, dep)
    columns = []
    for operand in operands:
        assert isinstance(operand, np.ndarray), "small arrays are unrolled"
        whole = operand if operand.shape == shape else np.broadcast_to(operand, shape)
        columns.append(whole.reshape(-1).tolist())
    return nodes([function(*entries) for entries in zip(*columns)], shape)


def _within(index: tuple, shape: tuple[int, ...]) -> tuple:
    """Return the index of an operand that is broadcast."""
    own = index[len(index) - len(shape) :]
    return tuple(0 if n == 1 else i for i, n in zip(own, shape, strict=True))


@rule(*OPERATIONS)
def _scalar_operation(walk, eqn, *operands):
    op, dtype = eqn.primitive.name, dtype_of(eqn.outvars[0].aval)
    return mapped(walk, eqn, operands, lambda *xs: apply(walk.graph, op, xs, dtype))


@rule(*COMPOSITES)
def _composite(walk, eqn, *operands):
    dtype, value = dtype_of(eqn.outvars[0].aval), COMPOSITES[eqn.primitive.name].value
    element = Element(walk.graph, dtype, eqn.params)
    return mapped(walk, eqn, operands, lambda *xs: value(element, *xs))


@rule("convert_element_type")
def _convert(walk, eqn, x):
    dtype = dtype_of(eqn.outvars[0].aval)
    return mapped(walk, eqn, (x,), lambda x: convert(walk.graph, x, dtype))


@rule(
    "copy",
    "copy_p",
    "stop_gradient",
    "optimization_barrier",
    "once",
    "name",
    "reshard",
    "mesh_cast",
    "sharding_constraint",
    "pvary",
)
def _identity(walk, eqn, *operands):
    return list(operands)


@rule("select_n")
def _select(walk, eqn, which, *cases):
    graph = walk.graph
    if dtype_of(eqn.invars[0].aval) == "b1":
        choose = lambda which, *xs: select(graph, which, *xs)
        return mapped(walk, eqn, (which, *cases), choose)

    def among(which, *xs):
        found = xs[-1]
        for k in reversed(range(len(xs) - 1)):
            number = graph.constant(k, graph.dtype[which])
            here = apply(graph, "eq", (which, number), "b1")
            found = select(graph, here, found, xs[k])
        return found

    return mapped(walk, eqn, (which, *cases), among)


@rule("empty", "empty2")
def _empty(walk, eqn):
    """Return an array without values: the start of a list that a loop fills, or a
    placeholder for what the other branch of a `cond` stores for its derivative."""
    aval, graph = eqn.outvars[0].aval, walk.graph
    size, dtype = math.prod(aval.shape), dtype_of(aval)
    short = len(aval.shape) != 1 or size < LEAST_WRITTEN
    if short and not graph.keeps_blanks:
        return [arrays.constant(graph, np.zeros(aval.shape, aval.dtype))]
    # Arrays of different sizes are different nodes.
    blank = graph.pure("blank", (), dtype, size, size)
    return [arrays.stored(blank, aval.shape, dtype, graph)]


@rule("iota")
def _iota(walk, eqn):
    params, graph = eqn.params, walk.graph
    dtype = dtype_of(eqn.outvars[0].aval)
    shape, axis = params["shape"], params["dimension"]
    if is_large(shape):
        at = lambda i: convert(graph, index_node(graph, i[axis]), dtype)
        return [Pulled(shape, dtype, at, 0)]
    counts = [graph.constant(k, dtype) for k in range(shape[axis])]
    column = np.array(counts, np.int64)
    column = column.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return [np.broadcast_to(column, shape)]


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
            found = value if found is None else select(graph, here, found, value)
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
                inside = apply(graph, "and", (inside, aligned), "b1")
                place = divided(graph, place, gap + 1)
            own = within(graph, place, n)
            inside = apply(graph, "and", (inside, own), "b1")
            inner.append(clamped(graph, place, n - 1))
        return select(graph, inside, fill, source.at(tuple(inner)))

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
                inside = apply(graph, "and", (inside, own), "b1")
            place[axis] = clamped(graph, start, last)
        pairs = zip(batching, numbers.start_indices_batching_dims, strict=True)
        for axis, own in pairs:
            place[axis] = batch[own]
        for axis, k in zip(window, offset, strict=True):
            place[axis] = plus(graph, place[axis], index[k])
        return select(graph, inside, fill, arrays.read(graph, x, tuple(place)))

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
                inside = apply(graph, "and", (inside, own), "b1")
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
        value = new if op is None else apply(graph, op, (old, new), dtype)
        return select(graph, inside, old, value)

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
            own = apply(graph, "and", (inside, same), "b1")
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
        inside = apply(graph, "and", (mask, inside), "b1")
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
        total = apply(graph, "add", (old, new), dtype)
        return select(graph, inside, old, total)

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
