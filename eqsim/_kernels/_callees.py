"""Functions with machine code of their own, which kernels call: the primitive of
`eqsim/_separate.py`, and its forward and reverse mode.

A call is a node of the graph, an array of all results. The function has the C type

    void f(ptr flags, ptr floats, ptr integers, ptr work, ptr results, ptr table, ...)

where each argument but the last ones is an array of vectors of lanes: which lanes need the
results, the numbers that the function takes, the work of the lanes (see `_grouping.py`), and
its results, with booleans as 0 or 1. Tables are read where they lie.
"""

import concurrent.futures
import dataclasses
import json
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import ShapedArray

from . import _algebra as algebra, _arrays as arrays
from ._arrays import Value
from ._compile import (
    CompileError,
    define,
    key_of,
    Loaded,
    object_code_apart,
    store,
    stored,
)
from ._derivatives import is_float
from ._emit import Emitter, Leaf
from ._forward import Forward, forward_rule
from ._graph import Graph, LANE
from ._loops import materialized, union
from ._reverse import Cotangents, Reverse, reverse_rule
from ._scalarize import dtype_of, rule, Translation, Unsupported


SYMBOL = rb"eqsim_f[0-9a-f]{40}"
"""Names of functions, as they occur in the objects of kernels that call them."""


@dataclasses.dataclass(frozen=True)
class Callee:
    """A function that kernels call.

    - `part`: function of `eqsim/_separate.py`, or a derivative.
    - `width`: lanes of a vector.
    - `by_lane`: flags of the tables of which each lane has its own.
    - `double`: true if JAX traces in double precision.
    """

    part: Any
    width: int
    by_lane: tuple[bool, ...]
    double: bool

    @property
    def symbol(self) -> str:
        """Name of the machine code, a digest of all that it depends on."""
        part = self.part
        own = type(part).__name__, part.moving, self.width, self.by_lane, self.double
        return f"eqsim_f{key_of(part.call.identity, repr(own))}"


@rule("separate")
def _separate(walk: Translation, eqn, *operands):
    avals = [var.aval for var in eqn.outvars]
    return _called(walk, eqn.params["part"], list(operands), avals)


@forward_rule("separate")
def _separate_forward(forward: Forward, eqn, operands, tangents, *_):
    walk, part = forward.walk, eqn.params["part"]
    moving = [k for k, rate in enumerate(tangents) if rate is not None]
    push = part.pushed(moving)
    if push is None:
        return None
    floats = [var.aval for var in eqn.outvars if is_float(var.aval)]
    given = [*operands, *(tangents[k] for k in moving)]
    found = iter(_called(walk, push, given, floats))
    rates = [next(found) if is_float(var.aval) else None for var in eqn.outvars]
    return walk.apply(eqn, operands), rates


@reverse_rule("separate")
def _separate_back(reverse: Reverse, eqn, operands, active, *_):
    walk, part = reverse.walk, eqn.params["part"]
    moving = [k for k, on in enumerate(active) if on]
    pulled = part.pulled(moving)
    if pulled is None:
        return None
    results = walk.apply(eqn, operands)
    floats = [var.aval for var in eqn.outvars if is_float(var.aval)]
    avals = [eqn.invars[k].aval for k in moving]

    def pull(cotangents: Cotangents) -> Cotangents:
        pairs = zip(eqn.outvars, cotangents, strict=True)
        given = [ct for var, ct in pairs if is_float(var.aval)]
        full = reverse.filled(floats, given)
        primals = reverse.kept(operands)[: part.call.num_arguments]
        found = iter(_called(walk, pulled, [*primals, *full], avals))
        return [next(found) if on else None for on in active]

    return results, pull


def _called(walk: Translation, part, operands: list[Value], avals) -> list[Value]:
    """Return the results of a call, of given shapes and types."""
    wide, last = part.widened(), part.call.num_arguments
    if wide.moving == part.moving:
        return _called_as_is(walk, part, operands, avals)
    shapes = [ShapedArray(*part.call.own[k]) for k in wide.moving]
    if not part.has_tangents:
        found = _called_as_is(walk, wide, operands, shapes)
        return [found[wide.moving.index(k)] for k in part.moving]
    rates = dict(zip(part.moving, operands[last:], strict=True))
    zero = lambda aval: np.zeros(aval.shape, aval.dtype)
    full = [
        rates[k] if k in rates else walk.constant(zero(aval))
        for k, aval in zip(wide.moving, shapes, strict=True)
    ]
    return _called_as_is(walk, wide, [*operands[:last], *full], avals)


def _called_as_is(walk: Translation, part, operands, avals) -> list[Value]:
    graph, first, last = walk.graph, len(part.call.own), part.call.num_arguments
    operands = materialized(walk, operands)
    tables = [arrays.in_memory(graph, table) for table in operands[first:last]]
    own = [*operands[:first], *operands[last:]]
    entries = [node for x in own for node in np.asarray(x).reshape(-1).tolist()]
    floats = [node for node in entries if graph.dtype[node][0] == "f"]
    integers = [node for node in entries if graph.dtype[node] == "i4"]
    if len(floats) + len(integers) != len(entries):
        raise Unsupported("arguments of other types than floats and 32-bit integers")
    kinds = floats, integers
    mask = graph.constant(True, "b1") if walk.mask is None else walk.mask
    lane = union(graph, [*entries, mask, *tables]) & LANE
    flags = _frame(graph, [mask], lane)
    frames = [_frame(graph, nodes, lane) if nodes else flags for nodes in kinds]
    callee = Callee(
        part,
        graph.width if lane else 1,
        tuple(bool(graph.dep[table] & LANE) for table in tables),
        bool(jax.config.read("jax_enable_x64")),
    )
    dtype, sizes = graph.dtype[floats[0]], [int(np.prod(x.shape)) for x in avals]
    args = flags, *frames, *tables
    whole = graph.pure("call", args, dtype, callee, sum(sizes))
    found, start = [], 0
    for aval, size in zip(avals, sizes, strict=True):
        nodes = [arrays.element(graph, whole, start + k) for k in range(size)]
        if dtype_of(aval) == "b1":
            zero = graph.constant(0, dtype)
            nodes = [algebra.apply(graph, "ne", (x, zero), "b1") for x in nodes]
        found.append(arrays.nodes(nodes, aval.shape))
        start += size
    return found


def _frame(graph: Graph, entries: list[int], lane: int) -> int:
    """Return an array of vectors of lanes, if `lane` is set."""
    dtype = graph.dtype[entries[0]]
    node = graph.pure("pack", tuple(entries), dtype, ("frame", lane), len(entries))
    graph.dep[node] |= lane
    return node


# Machine code.


class Cost(NamedTuple):
    """Operations of a function.

    - `whole`: all of them, those of loops twice.
    - `largest`: those of the largest body of a loop.
    """

    whole: int
    largest: int


@dataclasses.dataclass
class _Code:
    """A function of this process; `code` ends with its objects."""

    cost: Cost
    code: concurrent.futures.Future[bytes]
    loaded: Loaded | None = None


_LOCK = threading.RLock()
_KNOWN: dict[str, _Code] = {}
_COMPILERS = concurrent.futures.ThreadPoolExecutor(2, "eqsim-callees")


def cost_of(callee: Callee) -> Cost:
    """Return the cost of a function, whose machine code is made in the background."""
    symbol = callee.symbol
    with _LOCK:
        found = _KNOWN.get(symbol) or _from_disk(symbol)
        if found is None:
            text, cost = _emitted(callee)
            found = _Code(cost, _COMPILERS.submit(_compiled, symbol, text, cost))
        _KNOWN[symbol] = found
    return found.cost


def link(symbols: Iterable[str]) -> None:
    """Let kernels find functions.

    **Raises:** `CompileError` if a function is neither known nor on disk.
    """
    with _LOCK:
        for symbol in symbols:
            found = _KNOWN.get(symbol) or _from_disk(symbol)
            if found is None:
                raise CompileError(f"the function {symbol} is not known")
            if found.loaded is None:
                code = found.code.result()
                found.loaded = Loaded(code[code.index(b"\n") + 1 :], symbol)
                define(symbol, found.loaded.address)
            _KNOWN[symbol] = found


def _from_disk(symbol: str) -> _Code | None:
    code = stored(symbol)
    if code is None:
        return None
    done = concurrent.futures.Future()
    done.set_result(code)
    return _Code(Cost(*json.loads(code[: code.index(b"\n")])), done)


def _compiled(symbol: str, text: str, cost: Cost) -> bytes:
    code = json.dumps(cost).encode() + b"\n" + object_code_apart(text)
    store(symbol, code)
    return code


# LLVM IR.


def _emitted(callee: Callee) -> tuple[str, Cost]:
    """Return the module of a function, and its cost."""
    lane = LANE if callee.width > 1 else 0
    graph = Graph(callee.width)
    sources, results = _translated(graph, callee, lane)
    # Addresses of the arguments and of the results.
    leaves, out = [Leaf(1, "i8", 0)] * len(sources), Leaf(1, "i8", 0)
    nest = (LANE,) if lane else ()
    emitter = Emitter(graph, leaves, sources, [out], [results], nest, callee.width)
    lines = [x for items in emitter.schedule.regions for x in emitter.program(items)]
    lines += emitter.packs(pointed=True)
    place = emitter.schedule.place
    tables = [f"%table{k}" for k in range(len(callee.by_lane))]
    names = ["%flags", "%floats", "%integers", *tables, "%results"]
    places = [*(place[node] for node in sources), emitter.packed[0]]
    body = [f"  %S = alloca i8, i64 {emitter.size}, align 64"]
    for k, (name, offset) in enumerate(zip(names, places, strict=True)):
        body.append(f"  %at{k} = getelementptr i8, ptr %S, i64 {offset}")
        body.append(f"  store ptr {name}, ptr %at{k}, align 8")
    body.append(f"  %own = getelementptr i8, ptr %S, i64 {emitter.work}")
    copy = "  call void @llvm.memcpy.p0.p0.i64(ptr {}, ptr {}, i64 {}, i1 0)".format
    if lane:
        lines.insert(0, copy("%own", "%work", 4 * callee.width))
        lines.append(copy("%work", "%own", 4 * callee.width))
        emitter.externals.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    order = [*names[:3], "%work", "%results", *tables]
    arguments = ", ".join(f"ptr {x}" for x in order)
    head = f"define void @{callee.symbol}({arguments}) nounwind {{"
    text = emitter.joined("\n".join([head, *body, *lines, "  ret void", "}"]))
    return text, Cost(emitter.cost, max(emitter.weights, default=0))


def _translated(graph: Graph, callee: Callee, lane: int):
    """Translate a function; return the nodes of its arguments and of its results."""
    call, function = callee.part.call, callee.part.program()
    avals, first, last = function.arguments, len(call.own), call.num_arguments
    kinds = [dtype_of(aval) for aval in avals]
    dtype = next(kind for kind in kinds if kind[0] == "f")
    own = [k for k in range(len(avals)) if not first <= k < last]
    size = lambda kind: sum(
        int(np.prod(avals[k].shape)) for k in own if kinds[k] == kind
    )
    rows = {"b1": 1, dtype: size(dtype), "i4": size("i4")}
    sources = [
        graph.source("pointer", kind, lane, None, count) for kind, count in rows.items()
    ]
    used = {dtype: 0, "i4": 0}
    of_kind = {dtype: sources[1], "i4": sources[2]}
    values: list = []
    for k, (aval, kind) in enumerate(zip(avals, kinds, strict=True)):
        shape, count = tuple(aval.shape), int(np.prod(aval.shape))
        if k in own and kind == "b1":
            # The cotangent of a flag.
            values.append(None)
        elif k in own:
            start = used[kind]
            nodes = range(start, start + count)
            read = [arrays.element(graph, of_kind[kind], i) for i in nodes]
            values.append(arrays.nodes(read, shape))
            used[kind] += count
        else:
            dep = LANE if callee.by_lane[k - first] else 0
            sources.append(graph.source("pointer", kind, dep, None, count))
            values.append(arrays.stored(sources[-1], shape, kind, graph))
    walk = Translation(graph)
    walk.mask = arrays.element(graph, sources[0], 0) if lane else None
    with np.errstate(all="ignore"):
        results = function.translated(walk, values)
    nodes = []
    for aval, value in zip(function.results, results, strict=True):
        flag = dtype_of(aval) == "b1"
        if flag and function.pushed is not None:
            continue
        for index in np.ndindex(*aval.shape):
            node = arrays.read(graph, value, index)
            nodes.append(algebra.convert(graph, node, dtype) if flag else node)
    return sources, nodes
