"""Arrays of the lane graph: unrolled into nodes, or elements computed on demand.

Small arrays are *unrolled*: a NumPy array of nodes, on which slicing, transposing and
concatenating cost nothing. Large arrays, and arrays that are read at computed indices,
are *pulled*: a function from an index to a node. What is computed for a large array is
stored by a loop, so that the size of the code does not grow with the size of the array.

An index is a Python integer where it is known, else an `Index` that holds a node.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from . import _algebra as algebra
from ._assumptions import number
from ._graph import Graph, Loop


LARGEST_UNROLLED = 1024
"""Arrays with more elements are computed by loops."""
_LONGEST_CHAIN = 4
"""Elements among which a computed index chooses by comparisons, not in memory."""

INDEX = "i4"


class Index(NamedTuple):
    """An index that is computed."""

    node: int


class Pulled(NamedTuple):
    """An array whose element at an index is computed by `at`; `array` is the node of the
    array in memory that holds all of them in order, if there is one."""

    shape: tuple[int, ...]
    dtype: str
    at: Callable[[tuple], int]
    array: int | None = None


Unrolled = np.ndarray
Value = Unrolled | Pulled


def is_large(shape: Sequence[int]) -> bool:
    """Whether an array of this shape is computed by a loop."""
    return math.prod(shape) > LARGEST_UNROLLED


def nodes(values: list[int], shape: Sequence[int]) -> Unrolled:
    """The unrolled array of given nodes."""
    return np.array(values, np.int64).reshape(shape)


def constant(graph: Graph, array) -> Value:
    """An array of literal numbers."""
    array = np.asarray(array)
    dtype = array.dtype.str[1:]
    flat = array.reshape(-1)
    if not is_large(array.shape):
        return nodes([graph.constant(x, dtype) for x in flat], array.shape)
    key = dtype, flat.tobytes()
    data = graph.pure("table", (), dtype, key, flat.size)
    return stored(data, array.shape, dtype, graph)


def stored(array: int, shape: tuple[int, ...], dtype: str, graph: Graph) -> Value:
    """The elements of an array in memory, in row-major order."""
    if not is_large(shape):
        size = math.prod(shape)
        return nodes([element(graph, array, k) for k in range(size)], shape)
    at = lambda i: element(graph, array, flat(graph, i, shape))
    return Pulled(shape, dtype, at, array)


def element(graph: Graph, array: int, index: int | Index) -> int:
    """One element of an array in memory. A computed index must lie within it."""
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


def in_memory(graph: Graph, value: Value) -> int:
    """The array node that holds a value, in row-major order."""
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
    return _materialize(graph, value)


def copied(graph: Graph, value: Value) -> int:
    """An array in memory of its own that holds a value."""
    if isinstance(value, Pulled):
        return _materialize(graph, value._replace(array=None))
    entries = tuple(value.reshape(-1).tolist())
    return graph.pure("pack", entries, graph.dtype[entries[0]], None, len(entries))


def _whole(graph: Graph, entries: tuple[int, ...]) -> int | None:
    """The array of which `entries` are all elements in order, if there is one."""
    array = next((graph.args[n][0] for n in entries if graph.op[n] == "load"), None)
    if array is None or graph.rows[array] != len(entries):
        return None
    if any(node != element(graph, array, k) for k, node in enumerate(entries)):
        return None
    return array


def carried(graph: Graph, entries: list[int]) -> int | None:
    """The array in memory, of those that loops carry, that holds exactly `entries`."""
    whole = _whole(graph, tuple(entries))
    if whole is None or graph.op[whole] not in ("param", "update", "get"):
        return None
    return whole


def _materialize(graph: Graph, value: Pulled) -> int:
    if value.array is not None:
        return value.array
    size = math.prod(value.shape)
    with graph.block(branch=False) as depth:
        index = graph.source("param", INDEX, 0)
        out = value.at(unflat(graph, Index(index), value.shape))
    dep = graph.dep[out]
    loop = Loop(depth, index, [], [], None, size, [[out]])
    control = graph.control("loop", (), loop)
    return graph.get(control, 0, value.dtype, dep | graph.dep[control], size)


def materialized(graph: Graph, value: Value) -> Value:
    """The same array, computed: what reads an element several times reads memory."""
    if isinstance(value, np.ndarray):
        return value
    if not is_large(value.shape):
        indices = np.ndindex(*value.shape)
        return nodes([value.at(i) for i in indices], value.shape)
    array = _materialize(graph, value)
    return stored(array, value.shape, value.dtype, graph)


def pull(graph: Graph, value: Value) -> Pulled:
    """A value as a function of the index."""
    if isinstance(value, Pulled):
        return value
    dtype = graph.dtype[value.reshape(-1)[0]] if value.size else "f4"
    return Pulled(value.shape, dtype, lambda i: read(graph, value, i))


def read(graph: Graph, value: Value, index: tuple) -> int:
    """The element of an array at an index whose entries may be computed."""
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
        here = algebra.apply(graph, "eq", (place.node, graph.constant(k, INDEX)), "b1")
        found = algebra.select(graph, here, found, entries[k])
    return found


# Arithmetic on indices.


def index_node(graph: Graph, index: int | Index) -> int:
    """The node of an index."""
    return graph.constant(index, INDEX) if isinstance(index, int) else index.node


def as_index(graph: Graph, node: int) -> int | Index:
    """An integer node as an index."""
    if node in graph.value:
        return int(graph.value[node])
    dtype = graph.dtype[node]
    if dtype in ("i8", "u4", "u8"):
        # Conversion wraps around; an index far outside must stay outside.
        last = graph.constant(np.iinfo(INDEX).max, dtype)
        node = algebra.apply(graph, "min", (node, last), dtype)
    if dtype == "i8":
        first = graph.constant(np.iinfo(INDEX).min, dtype)
        node = algebra.apply(graph, "max", (node, first), dtype)
    return Index(algebra.convert(graph, node, INDEX))


def _arithmetic(op: str, fold: Callable[[int, int], int]):
    def compute(graph: Graph, x: int | Index, y: int | Index) -> int | Index:
        if isinstance(x, int) and isinstance(y, int):
            return fold(x, y)
        args = index_node(graph, x), index_node(graph, y)
        return as_index(graph, algebra.apply(graph, op, args, INDEX))

    return compute


plus = _arithmetic("add", lambda x, y: x + y)
minus = _arithmetic("sub", lambda x, y: x - y)
_times = _arithmetic("mul", lambda x, y: x * y)
divided = _arithmetic("div", lambda x, y: x // y)
modulo = _arithmetic("rem", lambda x, y: x % y)
_least = _arithmetic("min", min)
_greatest = _arithmetic("max", max)


def times(graph: Graph, x: int | Index, y: int) -> int | Index:
    """`x * y`, of integers that stay integers where one is 0 or 1."""
    return 0 if y == 0 else x if y == 1 else _times(graph, x, y)


def clamped(graph: Graph, index: int | Index, last: int) -> int | Index:
    """An index moved into `0, ..., last`."""
    if last <= 0:
        return 0
    return _greatest(graph, _least(graph, index, last), 0)


def within(graph: Graph, index: int | Index, size: int) -> int:
    """The boolean node of `0 <= index < size`."""
    if isinstance(index, int):
        return graph.constant(0 <= index < size, "b1")
    zero, end = graph.constant(0, INDEX), graph.constant(size, INDEX)
    low = algebra.apply(graph, "ge", (index.node, zero), "b1")
    high = algebra.apply(graph, "lt", (index.node, end), "b1")
    return algebra.apply(graph, "and", (low, high), "b1")


def flat(graph: Graph, index: tuple, shape: Sequence[int]) -> int | Index:
    """The place of an element in row-major order."""
    place: int | Index = 0
    for i, size in zip(index, shape, strict=True):
        place = plus(graph, times(graph, place, size), i)
    return place


def unflat(graph: Graph, place: int | Index, shape: Sequence[int]) -> tuple:
    """The index of an element, of its place in row-major order."""
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
