"""Indices of elements, Python integers where they are known and nodes elsewhere, and loops of
a known length over them, which rules of primitives make."""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ._assumptions import number
from ._graph import Graph, Loop
from ._operations import apply, convert, select


INDEX = "i4"


class Index(NamedTuple):
    """An index that is computed."""

    node: int


def index_node(graph: Graph, index: int | Index) -> int:
    """Return the node of an index."""
    return graph.constant(index, INDEX) if isinstance(index, int) else index.node


def as_index(graph: Graph, node: int) -> int | Index:
    """Return an integer node as an index."""
    if node in graph.value:
        return int(graph.value[node])
    dtype = graph.dtype[node]
    if dtype in ("i8", "u4", "u8"):
        # Conversion wraps around; an index far outside must stay outside.
        last = graph.constant(np.iinfo(INDEX).max, dtype)
        node = apply(graph, "min", (node, last), dtype)
    if dtype == "i8":
        first = graph.constant(np.iinfo(INDEX).min, dtype)
        node = apply(graph, "max", (node, first), dtype)
    return Index(convert(graph, node, INDEX))


def _arithmetic(op: str, fold: Callable[[int, int], int]):
    def compute(graph: Graph, x: int | Index, y: int | Index) -> int | Index:
        if isinstance(x, int) and isinstance(y, int):
            return fold(x, y)
        args = index_node(graph, x), index_node(graph, y)
        return as_index(graph, apply(graph, op, args, INDEX))

    return compute


plus = _arithmetic("add", lambda x, y: x + y)
minus = _arithmetic("sub", lambda x, y: x - y)
_times = _arithmetic("mul", lambda x, y: x * y)
divided = _arithmetic("div", lambda x, y: x // y)
modulo = _arithmetic("rem", lambda x, y: x % y)
_least = _arithmetic("min", min)
_greatest = _arithmetic("max", max)


def times(graph: Graph, x: int | Index, y: int) -> int | Index:
    """Return `x * y`. The product stays an integer if a factor is the integer 0 or 1."""
    return 0 if y == 0 else x if y == 1 else _times(graph, x, y)


def clamped(graph: Graph, index: int | Index, last: int) -> int | Index:
    """Clip an index to `0, ..., last`."""
    if last <= 0:
        return 0
    return _greatest(graph, _least(graph, index, last), 0)


def within(graph: Graph, index: int | Index, size: int) -> int:
    """Return the boolean node of `0 <= index < size`."""
    if isinstance(index, int):
        return graph.constant(0 <= index < size, "b1")
    zero, end = graph.constant(0, INDEX), graph.constant(size, INDEX)
    low = apply(graph, "ge", (index.node, zero), "b1")
    high = apply(graph, "lt", (index.node, end), "b1")
    return apply(graph, "and", (low, high), "b1")


def flat(graph: Graph, index: tuple, shape: Sequence[int]) -> int | Index:
    """Convert the index of an element to its place in row-major order."""
    place: int | Index = 0
    for i, size in zip(index, shape, strict=True):
        place = plus(graph, times(graph, place, size), i)
    return place


def unflat(graph: Graph, place: int | Index, shape: Sequence[int]) -> tuple:
    """Convert the place of an element in row-major order to its index."""
    index: list[int | Index] = []
    for k, size in reversed(list(enumerate(shape))):
        if size == 1:
            index.append(0)
        elif all(n == 1 for n in shape[:k]):
            index.append(place)
        else:
            index.append(modulo(graph, place, size))
            place = divided(graph, place, size)
    return tuple(index[::-1])


# Loops over indices.


def counted(
    graph: Graph, length: int, init: list[int], body: Callable[..., list[int]]
) -> list[int]:
    """Repeat `body(index, carried) -> carried` on nodes, `length` times."""
    control, deps = _counted(graph, length, init, body, False)
    pairs = enumerate(zip(init, deps, strict=True))
    return [
        graph.get(control, k, graph.dtype[n], dep, graph.rows[n])
        for k, (n, dep) in pairs
    ]


def collected(
    graph: Graph, length: int, init: list[int], body: Callable[..., list[int]]
) -> int:
    """Repeat a body like `counted`, and return an array of the carried values after
    each pass."""
    control, deps = _counted(graph, length, init, body, True)
    size, dtype = length * len(init), graph.dtype[init[0]]
    dep = functools.reduce(operator.or_, deps)
    return graph.get(control, len(init), dtype, dep, size)


def _counted(graph: Graph, length: int, init: list[int], body, stacks: bool):
    deps = [graph.dep[node] for node in init]
    while True:
        with graph.block(branch=False) as depth:
            index = graph.source("param", INDEX, 0)
            params = [loop_param(graph, node, dep) for node, dep in zip(init, deps)]
            outs = body(Index(index), params)
        new = [dep | graph.dep[out] for dep, out in zip(deps, outs)]
        if new == deps:
            break
        deps = new
    stacked = [outs] if stacks else []
    loop = Loop(depth, index, params, outs, None, length, stacked)
    return graph.control("loop", tuple(init), loop), deps


def loop_param(graph: Graph, like: int, dep: int) -> int:
    """Return a value that a loop carries, like a node, at the start of a pass."""
    return graph.source("param", graph.dtype[like], dep, None, graph.rows[like])


LARGEST_UNROLLED = 1024
"""Arrays with more elements are computed by loops."""
LEAST_WRITTEN = 8
"""Elements from which arrays that a loop writes at computed indices stay in memory."""
_LONGEST_CHAIN = 4
"""Elements among which a computed index chooses by comparisons, not in memory."""


class Waiting:
    """A large array that the next loop over arrays of its shape computes.

    - `block`: block of the graph that it belongs to.
    - `array`: node of the array in memory, once it is computed.
    """

    def __init__(self, graph: Graph, shape, dtype: str, at, dep: int):
        self.shape, self.dtype, self.dep = tuple(shape), dtype, dep
        self.block = graph.blocks[-1]
        self.block.waiting.append(self)
        self.array: int | None = None
        self._graph, self._compute = graph, at
        self._last: tuple = None, -1

    def element(self, index: tuple) -> int:
        """Return the element at an index: read from memory, or computed here."""
        graph = self._graph
        if self.array is not None:
            return element(graph, self.array, flat(graph, index, self.shape))
        key = index, id(graph.blocks[-1])
        if self._last[0] != key:
            self._last = key, self._compute(index)
        return self._last[1]


class Pulled:
    """An array whose element at an index is computed by `at`.

    - `dep`: see `Graph.dep`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str,
        at: Callable[[tuple], int],
        dep: int,
        array: int | None = None,
        source: Waiting | None = None,
    ):
        self.shape, self.dtype, self.dep, self.at = tuple(shape), dtype, dep, at
        self._array, self._source = array, source

    @property
    def array(self) -> int | None:
        """The array in memory that holds all elements in order; None: there is none."""
        return self._array if self._source is None else self._source.array

    @property
    def waits(self) -> Waiting | None:
        """Array with the same elements that waits for a loop; None if no loop is needed."""
        own = self._source
        return own if own is not None and own.array is None else None


def waiting(graph: Graph, shape, dtype: str, at, dep: int) -> Pulled:
    """Return a large array that is computed later, together with others of its shape."""
    own = Waiting(graph, shape, dtype, at, dep)
    return Pulled(shape, dtype, own.element, dep, source=own)


Unrolled = np.ndarray
Value = Unrolled | Pulled


def is_large(shape: Sequence[int]) -> bool:
    """Return whether an array of this shape is computed by a loop."""
    return math.prod(shape) > LARGEST_UNROLLED


def nodes(values: list[int], shape: Sequence[int]) -> Unrolled:
    """Return the unrolled array of given nodes."""
    return np.array(values, np.int64).reshape(shape)


def constant(graph: Graph, array) -> Value:
    """Return an array of literal numbers."""
    array = np.asarray(array)
    dtype, data = array.dtype.str[1:], array.tobytes()
    if is_large(array.shape):
        table = graph.pure("table", (), dtype, (dtype, data), array.size)
        return stored(table, array.shape, dtype, graph)
    key = dtype, array.shape, data
    found = graph.literals.get(key)
    if found is None:
        numbers = array.reshape(-1).tolist()
        found = nodes([graph.constant(x, dtype) for x in numbers], array.shape)
        found.flags.writeable = False
        graph.literals[key] = found
    return found


def stored(array: int, shape: tuple[int, ...], dtype: str, graph: Graph) -> Value:
    """Return the elements of an array in memory, in row-major order."""
    if not is_large(shape):
        size = math.prod(shape)
        return nodes([element(graph, array, k) for k in range(size)], shape)
    at = lambda i: element(graph, array, flat(graph, i, shape))
    return Pulled(shape, dtype, at, graph.dep[array], array)


def element(graph: Graph, array: int, index: int | Index) -> int:
    """Return one element of an array in memory. A computed index must lie within the
    array."""
    if isinstance(index, int):
        if graph.op[array] == "pack":
            return graph.args[array][index]
        if graph.op[array] == "table":
            dtype, data = graph.aux[array]
            return graph.constant(np.frombuffer(data, dtype)[index], dtype)
        known = number(graph.assumed.get(array), index)
        if known is not None:
            return graph.constant(known, graph.dtype[array])
        where = graph.constant(index, INDEX)
    else:
        where = index.node
    return graph.pure("load", (array, where), graph.dtype[array])


def updated(graph: Graph, array: int, place: int | Index, value: int) -> int:
    """Replace one element of an array in memory."""
    where = index_node(graph, place)
    rows, dtype = graph.rows[array], graph.dtype[array]
    return graph.pure("update", (array, where, value), dtype, None, rows)


def in_memory(graph: Graph, value: Value) -> int:
    """Return the array node that holds a value, in row-major order."""
    if isinstance(value, np.ndarray):
        entries = tuple(value.reshape(-1).tolist())
        if not entries:
            raise ValueError("an array without elements has no memory")
        whole = _whole(graph, entries)
        if whole is not None:
            return whole
        dtype = graph.dtype[entries[0]]
        if all(node in graph.value for node in entries):
            data = np.array([graph.value[node] for node in entries], dtype)
            return graph.pure("table", (), dtype, (dtype, data.tobytes()), data.size)
        return graph.pure("pack", entries, dtype, None, len(entries))
    return _in_memory(graph, value)


def copied(graph: Graph, value: Value) -> int:
    """Copy a value to a new array in memory."""
    if isinstance(value, Pulled):
        fresh = Pulled(value.shape, value.dtype, value.at, value.dep)
        return _in_memory(graph, fresh)
    entries = tuple(value.reshape(-1).tolist())
    return graph.pure("pack", entries, graph.dtype[entries[0]], None, len(entries))


def _whole(graph: Graph, entries: tuple[int, ...]) -> int | None:
    """Return the array whose elements, in order, are `entries`; None if there is none."""
    array = next((graph.args[n][0] for n in entries if graph.op[n] == "load"), None)
    if array is None or graph.rows[array] != len(entries):
        return None
    if any(node != element(graph, array, k) for k, node in enumerate(entries)):
        return None
    return array


def carried(graph: Graph, entries: list[int]) -> int | None:
    """Return the array in memory that a loop carries and that holds exactly `entries`."""
    whole = _whole(graph, tuple(entries))
    if whole is None or graph.op[whole] not in ("param", "update", "get"):
        return None
    return whole


def dependence(graph: Graph, *values: Value) -> int:
    """Return `Graph.dep` of arrays as a whole."""
    dep = 0
    for value in values:
        if isinstance(value, Pulled):
            dep |= value.dep
            continue
        for node in value.reshape(-1).tolist():
            dep |= graph.dep[node]
    return dep


def core(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without axes of size one."""
    return tuple(n for n in shape if n != 1)


def _in_memory(graph: Graph, value: Pulled) -> int:
    waits = value.waits
    if waits is not None and waits.block is graph.blocks[-1]:
        _compute(graph, waits)
    elif value.array is None:
        waits = Waiting(graph, value.shape, value.dtype, value.at, value.dep)
        _compute(graph, waits)
        assert waits.array is not None, "what waited is in memory"
        return waits.array
    assert value.array is not None, "what waited is in memory"
    return value.array


def _compute(graph: Graph, needed: Waiting) -> None:
    """Store an array, and all that wait for the same loop, in memory."""
    shape, block = core(needed.shape), graph.blocks[-1]
    fits = lambda w: w.dep == needed.dep and core(w.shape) == shape
    group = [w for w in block.waiting if fits(w)]
    block.waiting = [w for w in block.waiting if not fits(w)]
    size = math.prod(shape)
    with graph.block(branch=False) as depth:
        index = graph.source("param", INDEX, 0)
        place = unflat(graph, Index(index), shape)
        outs = [w.element(_with_ones(place, w.shape)) for w in group]
    loop = Loop(depth, index, [], [], None, size, [[out] for out in outs])
    control = graph.control("loop", (), loop)
    for k, (each, out) in enumerate(zip(group, outs, strict=True)):
        dep = graph.dep[out] | graph.dep[control]
        each.array = graph.get(control, k, each.dtype, dep, size)


def _with_ones(place: tuple, shape: Sequence[int]) -> tuple:
    """Convert an index of the array without axes of size one to an index of the whole
    array."""
    rest = iter(place)
    return tuple(0 if n == 1 else next(rest) for n in shape)


def same_elements(value: Pulled, shape: Sequence[int]) -> Pulled:
    """Return an array with other axes of size one."""
    old = value.shape

    def at(index):
        kept = [i for i, n in zip(index, shape, strict=True) if n != 1]
        return value.at(_with_ones(tuple(kept), old))

    return Pulled(shape, value.dtype, at, value.dep, value.array, value.waits)


def settled(graph: Graph, value: Value) -> Value:
    """Return the same array, no longer waiting for a loop."""
    if isinstance(value, Pulled) and value.waits is not None:
        return materialized(graph, value)
    return value


def fusible(graph: Graph, values: Sequence[Value], shape: Sequence[int]) -> list[Value]:
    """Return the same arrays. Only arrays that a loop over one shape can read at its
    own index still wait."""
    dep, block = dependence(graph, *values), graph.blocks[-1]

    def fits(value: Value) -> bool:
        if not isinstance(value, Pulled) or value.waits is None:
            return True
        own = value.waits
        same_loop = own.dep == dep and own.block is block
        return same_loop and core(value.shape) == core(shape)

    return [x if fits(x) else materialized(graph, x) for x in values]


def materialized(graph: Graph, value: Value) -> Value:
    """Return the same array, computed, so that repeated reads of an element read
    memory."""
    if isinstance(value, np.ndarray):
        return value
    if not is_large(value.shape):
        indices = np.ndindex(*value.shape)
        return nodes([value.at(i) for i in indices], value.shape)
    array = _in_memory(graph, value)
    return stored(array, value.shape, value.dtype, graph)


def pull(graph: Graph, value: Value) -> Pulled:
    """Return a value as a function of the index."""
    if isinstance(value, Pulled):
        return value
    dtype = graph.dtype[value.reshape(-1)[0]] if value.size else "f4"
    at = lambda i: read(graph, value, i)
    return Pulled(value.shape, dtype, at, dependence(graph, value))


def read(graph: Graph, value: Value, index: tuple) -> int:
    """Return the element of an array at an index whose entries may be computed."""
    if isinstance(value, Pulled):
        return value.at(index)
    if all(isinstance(i, int) for i in index):
        return int(value[index])
    fixed = tuple(i if isinstance(i, int) else slice(None) for i in index)
    part = value[fixed]
    moving = tuple(i for i in index if not isinstance(i, int))
    entries = part.reshape(-1).tolist()
    if len(set(entries)) == 1:
        return entries[0]
    place = flat(graph, moving, part.shape)
    if isinstance(place, int):
        return entries[place]
    if len(entries) <= _LONGEST_CHAIN:
        return _choose(graph, entries, place)
    whole = _whole(graph, tuple(value.reshape(-1).tolist()))
    if whole is not None:
        return element(graph, whole, flat(graph, index, value.shape))
    return element(graph, in_memory(graph, part), place)


def _choose(graph: Graph, entries: list[int], place: Index) -> int:
    found = entries[-1]
    for k in reversed(range(len(entries) - 1)):
        here = apply(graph, "eq", (place.node, graph.constant(k, INDEX)), "b1")
        found = select(graph, here, found, entries[k])
    return found
