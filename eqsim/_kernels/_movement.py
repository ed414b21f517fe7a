"""Primitives that move elements without computing: they cost nothing when unrolled."""

import numpy as np

from . import _algebra as algebra, _arrays as arrays
from ._arrays import flat, Index, is_large, plus, pull, Pulled, Value
from ._scalarize import dtype_of, rule, Translation


def moved(walk: Translation, eqn, whole, at) -> list[Value]:
    """The result of moving elements: `whole()` on unrolled arrays, `at(index)` on the
    elements of pulled ones."""
    aval = eqn.outvars[0].aval
    if is_large(aval.shape):
        return [Pulled(aval.shape, dtype_of(aval), at)]
    return [np.broadcast_to(whole(), aval.shape)]


def _from(walk: Translation, eqn, operand: Value, source, whole) -> list[Value]:
    """A single operand moved, by the map `source` from indices of the result to indices
    of the operand."""
    aval = eqn.outvars[0].aval
    if isinstance(operand, np.ndarray) and not is_large(aval.shape):
        return [whole(operand)]
    at = pull(walk.graph, operand).at
    result = Pulled(aval.shape, dtype_of(aval), lambda index: at(source(index)))
    return [
        arrays.materialized(walk.graph, result) if not is_large(aval.shape) else result
    ]


@rule("reshape", "expand_dims", "squeeze")
def _reshape(walk, eqn, x, *_):
    graph, old, new = walk.graph, eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    source = lambda index: arrays.unflat(graph, flat(graph, index, new), old)
    return _from(walk, eqn, x, source, lambda x: x.reshape(new))


@rule("broadcast_in_dim")
def _broadcast(walk, eqn, x, *_):
    old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    axes = eqn.params.get("broadcast_dimensions", ())

    def whole(x):
        shape = [1] * len(new)
        for axis, size in zip(axes, old, strict=True):
            shape[axis] = size
        return np.broadcast_to(x.reshape(shape), new)

    def source(index):
        pairs = zip(axes, old, strict=True)
        return tuple(0 if size == 1 else index[axis] for axis, size in pairs)

    return _from(walk, eqn, x, source, whole)


@rule("transpose")
def _transpose(walk, eqn, x):
    order = eqn.params["permutation"]
    place = {axis: k for k, axis in enumerate(order)}
    source = lambda index: tuple(index[place[axis]] for axis in range(len(order)))
    return _from(walk, eqn, x, source, lambda x: np.transpose(x, order))


@rule("rev")
def _reverse(walk, eqn, x):
    axes, shape = eqn.params["dimensions"], eqn.invars[0].aval.shape
    back = lambda i, n: arrays.minus(walk.graph, n - 1, i)

    def source(index):
        return tuple(back(i, shape[k]) if k in axes else i for k, i in enumerate(index))

    return _from(walk, eqn, x, source, lambda x: np.flip(x, axes))


@rule("slice")
def _slice(walk, eqn, x):
    params, graph = eqn.params, walk.graph
    starts, stops = params["start_indices"], params["limit_indices"]
    steps = params["strides"] or (1,) * len(starts)

    def source(index):
        scaled = [arrays.times(graph, i, step) for i, step in zip(index, steps)]
        return tuple(plus(graph, i, start) for i, start in zip(scaled, starts))

    cut = tuple(map(slice, starts, stops, steps))
    return _from(walk, eqn, x, source, lambda x: x[cut])


@rule("split")
def _split(walk, eqn, x):
    axis, start, results = eqn.params["axis"], 0, []
    for var, size in zip(eqn.outvars, eqn.params["sizes"], strict=True):
        results.append(_part(walk, var.aval, x, axis, start, size))
        start += size
    return results


def _part(walk: Translation, aval, x: Value, axis: int, start: int, size: int) -> Value:
    """`size` rows of an array along an axis."""
    if isinstance(x, np.ndarray):
        return x[(slice(None),) * axis + (slice(start, start + size),)]

    def at(index):
        shifted = plus(walk.graph, index[axis], start)
        return x.at((*index[:axis], shifted, *index[axis + 1 :]))

    part = Pulled(aval.shape, dtype_of(aval), at)
    return part if is_large(aval.shape) else arrays.materialized(walk.graph, part)


@rule("unstack")
def _unstack(walk, eqn, x):
    axis, shape = eqn.params["axis"], eqn.outvars[0].aval.shape
    results = []
    for k, var in enumerate(eqn.outvars):
        if isinstance(x, np.ndarray):
            results.append(np.take(x, k, axis))
            continue
        at = lambda index, k=k: x.at((*index[:axis], k, *index[axis:]))
        part = Pulled(shape, dtype_of(var.aval), at)
        large = is_large(shape)
        results.append(part if large else arrays.materialized(walk.graph, part))
    return results


@rule("concatenate")
def _concatenate(walk, eqn, *parts):
    axis = eqn.params["dimension"]
    if not is_large(eqn.outvars[0].aval.shape):
        return [np.concatenate(parts, axis)]
    return [_joined(walk, eqn, parts, axis, [x.shape[axis] for x in parts], False)]


@rule("stack")
def _stack(walk, eqn, *parts):
    axis = eqn.params["axis"]
    if not is_large(eqn.outvars[0].aval.shape):
        return [np.stack(parts, axis)]
    return [_joined(walk, eqn, parts, axis, [1] * len(parts), True)]


def _joined(walk: Translation, eqn, parts, axis: int, sizes, stacked: bool) -> Value:
    """Large arrays one after the other along an axis."""
    graph, aval = walk.graph, eqn.outvars[0].aval
    pulled = [pull(graph, arrays.materialized(graph, part)) for part in parts]

    def at(index):
        found, start = None, sum(sizes)
        for part, size in zip(pulled[::-1], sizes[::-1], strict=True):
            start -= size
            inner = arrays.minus(graph, index[axis], start)
            here = arrays.within(graph, inner, size)
            inner = arrays.clamped(graph, inner, size - 1)
            own = (*index[:axis], *(() if stacked else (inner,)), *index[axis + 1 :])
            value = part.at(own)
            found = (
                value if found is None else algebra.select(graph, here, found, value)
            )
        return found

    return arrays.materialized(graph, Pulled(aval.shape, dtype_of(aval), at))


@rule("pad")
def _pad(walk, eqn, x, padding):
    graph, aval = walk.graph, eqn.outvars[0].aval
    config, old = eqn.params["padding_config"], eqn.invars[0].aval.shape
    (fill,) = padding.reshape(-1).tolist()
    if isinstance(x, np.ndarray) and not is_large(aval.shape):
        return [_pad_unrolled(x, fill, config, aval.shape)]
    source = pull(graph, arrays.materialized(graph, x))

    def at(index):
        inside, inner = graph.constant(True, "b1"), []
        for i, n, (low, _, gap) in zip(index, old, config, strict=True):
            place = arrays.minus(graph, i, low)
            if gap:
                rest = arrays.modulo(graph, place, gap + 1)
                aligned = arrays.within(graph, rest, 1)
                inside = algebra.apply(graph, "and", (inside, aligned), "b1")
                place = arrays.divided(graph, place, gap + 1)
            own = arrays.within(graph, place, n)
            inside = algebra.apply(graph, "and", (inside, own), "b1")
            inner.append(arrays.clamped(graph, place, n - 1))
        return algebra.select(graph, inside, fill, source.at(tuple(inner)))

    return [arrays.materialized(graph, Pulled(aval.shape, dtype_of(aval), at))]


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


# Computed indices.


@rule("dynamic_slice")
def _dynamic_slice(walk, eqn, x, *starts):
    graph, sizes = walk.graph, eqn.params["slice_sizes"]
    first = _starts(walk, eqn.invars[0].aval.shape, sizes, starts)
    source = _readable(walk, x, first)

    def at(index):
        place = tuple(plus(graph, i, s) for i, s in zip(index, first, strict=True))
        return arrays.read(graph, source, place)

    return _computed(walk, eqn, at)


def _readable(walk: Translation, x: Value, index) -> Value:
    """An array of which single elements will be read."""
    if isinstance(x, Pulled) or all(isinstance(i, int) for i in index):
        return x
    return x


def _starts(walk: Translation, shape, sizes, starts) -> list:
    """Where a slice begins, moved inside as XLA does."""
    first = []
    for size, length, start in zip(shape, sizes, starts, strict=True):
        (node,) = start.reshape(-1).tolist()
        index = arrays.as_index(walk.graph, node)
        first.append(arrays.clamped(walk.graph, index, size - length))
    return first


def _computed(walk: Translation, eqn, at) -> list[Value]:
    """The array of elements `at` all indices."""
    aval = eqn.outvars[0].aval
    return [arrays.materialized(walk.graph, Pulled(aval.shape, dtype_of(aval), at))]


@rule("gather")
def _gather(walk, eqn, x, indices):
    graph, params = walk.graph, eqn.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    shape, fills = eqn.invars[0].aval.shape, "FILL" in str(params["mode"])
    dtype = dtype_of(eqn.outvars[0].aval)
    fill = graph.constant(_fill_value(params["fill_value"], dtype), dtype)
    offset = numbers.offset_dims
    batching = numbers.operand_batching_dims
    window = [
        k
        for k in range(len(shape))
        if k not in numbers.collapsed_slice_dims and k not in batching
    ]

    def at(index):
        batch = [i for k, i in enumerate(index) if k not in offset]
        place: list[int | Index] = [0] * len(shape)
        inside = graph.constant(True, "b1")
        for k, axis in enumerate(numbers.start_index_map):
            node = arrays.read(graph, indices, (*batch, k))
            start, last = arrays.as_index(graph, node), shape[axis] - sizes[axis]
            if fills:
                own = arrays.within(graph, start, last + 1)
                inside = algebra.apply(graph, "and", (inside, own), "b1")
            place[axis] = arrays.clamped(graph, start, last)
        pairs = zip(batching, numbers.start_indices_batching_dims, strict=True)
        for axis, own in pairs:
            place[axis] = batch[own]
        for axis, k in zip(window, offset, strict=True):
            place[axis] = plus(graph, place[axis], index[k])
        return algebra.select(graph, inside, fill, arrays.read(graph, x, tuple(place)))

    return _computed(walk, eqn, at)


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
        """Where an update goes, and whether it does."""
        batch = [i for k, i in enumerate(index) if k not in window_axes]
        place: list[int | Index] = [0] * len(shape)
        inside = graph.constant(True, "b1")
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            node = arrays.read(graph, indices, (*batch, k))
            start = arrays.as_index(graph, node)
            last = shape[axis] - length.get(axis, 1)
            own = arrays.within(graph, start, last + 1)
            if drops:
                inside = algebra.apply(graph, "and", (inside, own), "b1")
            place[axis] = arrays.clamped(graph, start, last)
        pairs = zip(batching, numbers.scatter_indices_batching_dims, strict=True)
        for axis, own in pairs:
            place[axis] = batch[own]
        for axis, k in zip(window, window_axes, strict=True):
            place[axis] = plus(graph, place[axis], index[k])
        return tuple(place), inside

    op = _COMBINE[eqn.primitive.name]
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
    """`x` with updates of shape `each` combined into it by `op`, or put."""
    graph, aval = walk.graph, eqn.outvars[0].aval
    dtype = dtype_of(aval)

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
                _put(graph, out, place, value, inside, combined)
        return out
    return _updated_in_memory(walk, aval, x, each, updates, target, combined)


def _put(graph, out, place, value: int, inside: int, combined) -> None:
    """Combines a value into an unrolled array at a computed place."""
    fixed = tuple(i if isinstance(i, int) else slice(None) for i in place)
    part = np.array(out[fixed])
    moving = tuple(i for i in place if not isinstance(i, int))
    number = flat(graph, moving, part.shape)
    entries = part.reshape(-1).tolist()
    if isinstance(number, int) or len(entries) <= _LONGEST_SELECTION:
        for k, old in enumerate(entries):
            same = arrays.within(graph, arrays.minus(graph, number, k), 1)
            own = algebra.apply(graph, "and", (inside, same), "b1")
            entries[k] = combined(old, value, own)
    else:
        assert isinstance(number, Index)
        array = arrays.in_memory(graph, part)
        old = arrays.element(graph, array, number)
        new = combined(old, value, inside)
        array = _update(graph, array, number, new)
        entries = [arrays.element(graph, array, k) for k in range(len(entries))]
    out[fixed] = np.array(entries, np.int64).reshape(part.shape)


def _update(graph, array: int, place: int | Index, value: int) -> int:
    """An array in memory with one element replaced."""
    where = arrays.index_node(graph, place)
    rows, dtype = graph.rows[array], graph.dtype[array]
    return graph.pure("update", (array, where, value), dtype, None, rows)


def _updated_in_memory(walk, aval, x, each, updates, target, combined) -> Value:
    """As `_updated`, by a loop over the updates."""
    from ._control import counted

    graph = walk.graph
    size, updates = int(np.prod(each)), pull(graph, arrays.materialized(graph, updates))

    def body(number, carried):
        (array,) = carried
        index = arrays.unflat(graph, number, each)
        place, inside = target(index)
        where = flat(graph, place, aval.shape)
        old = arrays.element(graph, array, where)
        new = combined(old, updates.at(index), inside)
        return [_update(graph, array, where, new)]

    (array,) = counted(graph, size, [arrays.in_memory(graph, x)], body)
    return arrays.stored(array, aval.shape, dtype_of(aval), graph)
