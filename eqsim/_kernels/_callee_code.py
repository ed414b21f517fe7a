"""Machine code of the functions of `_callees.py`: made once per process, kept on disk."""

import concurrent.futures
import dataclasses
import json
import threading
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from . import _algebra as algebra, _arrays as arrays
from ._callees import Callee
from ._compile import CompileError, define, Loaded, object_code_apart, store, stored
from ._emit import Emitter, Leaf
from ._graph import Graph, LANE
from ._scalarize import dtype_of, Translation


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
