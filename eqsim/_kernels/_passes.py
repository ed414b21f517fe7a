"""The passes of the compiler, in order: from a function of one environment to a module of
LLVM IR.

`KERNEL_PASSES` and `CALLEE_PASSES` are the lists. `TRANSLATIONS`, `FORWARD_MODE` and
`REVERSE_MODE` are the modules that hold the rules of JAX's primitives for the first pass.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from . import (
    _arrays as arrays,
    _callees as callees,
    _control_flow as control_flow,
    _forward as forward_mode,
    _jax_primitives as primitives,
    _reductions as reductions,
    _reverse as reverse_mode,
    _reverse_rules as reverse_rules,
)
from ._arrays import Value
from ._assumptions import LARGEST
from ._callees import Callee
from ._compile import fingerprint
from ._emit import Emitter
from ._forward import Forward
from ._graph import Graph, LANE
from ._llvm import LLVMModule
from ._operations import convert
from ._reverse import Reverse
from ._runtime import runtime
from ._schedule import allocate, Interface, Leaf, Schedule, Scratch
from ._translation import dtype_of, Translation


TRANSLATIONS = (primitives, reductions, control_flow, callees)
FORWARD_MODE = (forward_mode, reductions, callees)
REVERSE_MODE = (reverse_mode, reverse_rules, reductions, callees)


# What is compiled.


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of one environment: a jaxpr, or its Jacobian-vector or vector-Jacobian
    product.

    - `pulled`: numbers of the arguments whose cotangents are the results; the arguments
        are those of the jaxpr and a cotangent for each of its results.
    - `pushed`: numbers of the arguments with tangents, which follow the arguments of the
        jaxpr; the results are the tangents of its results.
    """

    closed: ClosedJaxpr
    pulled: tuple[int, ...] | None = None
    pushed: tuple[int, ...] | None = None

    @property
    def arguments(self) -> list[Any]:
        """Shapes and types of the arguments."""
        more = list(self.closed.out_avals) if self.pulled is not None else []
        more += self._chosen(self.pushed or ())
        return [*self.closed.in_avals, *more]

    @property
    def results(self) -> list[Any]:
        """Shapes and types of the results."""
        if self.pulled is None:
            return list(self.closed.out_avals)
        return self._chosen(self.pulled)

    def _chosen(self, numbers: tuple[int, ...]) -> list[Any]:
        return [self.closed.in_avals[k] for k in numbers]

    @functools.cached_property
    def reads(self) -> tuple[bool, ...]:
        """Flags of the arguments that the function reads. Kernels do not have the others,
        such as the vertices of meshes that are only drawn, which they would copy."""
        jaxpr = self.closed.jaxpr
        atoms = [*jaxpr.outvars, *(x for eqn in jaxpr.eqns for x in eqn.invars)]
        used = {atom for atom in atoms if not isinstance(atom, Literal)}
        rest = len(self.arguments) - len(jaxpr.invars)
        return (*(var in used for var in jaxpr.invars), *(True,) * rest)

    @property
    def fingerprint(self) -> str:
        """A name that is the same in every process."""
        return f"{fingerprint(self.closed)} {self.pulled} {self.pushed}"

    def translated(self, walk: Translation, values: list[Value]) -> list[Value]:
        """Return the results, from the arguments."""
        count = len(self.closed.in_avals)
        if self.pushed is not None:
            forward, rates = Forward(walk), dict(zip(self.pushed, values[count:]))
            tangents = [rates.get(k) for k in range(count)]
            _, found = forward.closed(self.closed, values[:count], tangents)
            return forward.filled(self.results, found)
        if self.pulled is None:
            return walk.closed(self.closed, values)
        reverse, active = Reverse(walk), [k in self.pulled for k in range(count)]
        _, live, pull = reverse.closed(self.closed, values[:count], active)
        pairs = zip(values[count:], live, strict=True)
        found = pull([value if on else None for value, on in pairs])
        return reverse.filled(self.results, [found[k] for k in self.pulled])


@dataclasses.dataclass(frozen=True)
class Layout:
    """The kernel of a batch: its loops, and which axes each argument and result has.

    - `nest`: axes of the batch from the outermost loop on.
    - `width`: lanes of a vector.
    - `arguments`, `results`: `Graph.dep` of each.
    - `summed`: true for each result that is added up over the batch.
    - `assumed`: assumptions about each argument.
    """

    nest: tuple[int, ...]
    width: int
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    summed: tuple[bool, ...]
    assumed: tuple[bytes | None, ...]


# The passes.


@dataclasses.dataclass
class Build:
    """A module in the making: each pass sets what the next ones read.

    - `cost_of`: returns the number of operations of a callee.
    """

    function: Function
    cost_of: Callable[[Callee], int]
    layout: Layout | None = None
    callee: Callee | None = None
    graph: Graph = dataclasses.field(default_factory=Graph)
    interface: Interface = Interface([], [], [], [], ())
    schedule: Schedule = dataclasses.field(init=False)
    scratch: Scratch = dataclasses.field(init=False)
    emitter: Emitter = dataclasses.field(init=False)
    module: LLVMModule = dataclasses.field(init=False)


def translate(build: Build) -> None:
    """Translate the jaxpr to a graph of scalars. Operations are simplified as they are
    made (`_operations.py`)."""
    layout, function = build.layout, build.function
    assert layout is not None, "kernels have a layout"
    graph = build.graph = Graph(layout.width)
    inputs, sources, found = translated(
        graph, function, layout.arguments, layout.assumed
    )
    outputs, results = [], []
    for k, (aval, value) in enumerate(zip(function.results, found, strict=True)):
        rows = math.prod(aval.shape)
        if rows:
            leaf = Leaf(rows, dtype_of(aval), layout.results[k], layout.summed[k])
            outputs.append(leaf)
            results.append(elements(graph, value))
    build.interface = Interface(inputs, sources, outputs, results, layout.nest)


def translate_callee(build: Build) -> None:
    """Translate the jaxpr of a function that kernels call."""
    callee = build.callee
    assert callee is not None, "there is a callee"
    lane = LANE if callee.width > 1 else 0
    graph = build.graph = Graph(callee.width)
    sources, results = _translated_callee(graph, build.function, callee, lane)
    # Addresses of the arguments and of the results.
    inputs, outputs = [Leaf(1, "i8", 0)] * len(sources), [Leaf(1, "i8", 0)]
    nest = (LANE,) if lane else ()
    build.interface = Interface(inputs, sources, outputs, [results], nest)


def order(build: Build) -> None:
    """Find the nodes that the results need, and their order (`_schedule.py`)."""
    build.schedule = Schedule(build.graph, build.interface)
    for node in sorted(build.schedule.live):
        if build.graph.op[node] == "call":
            # Callees are compiled in the background meanwhile.
            build.cost_of(build.graph.aux[node])


def place(build: Build) -> None:
    """Assign places in scratch memory to the values (`_schedule.py`)."""
    build.scratch = allocate(build.schedule)


def emit(build: Build) -> None:
    """Make the functions of LLVM IR (`_emit.py`), and the runtime around them
    (`_runtime.py`)."""
    # The order of summands, and so their rounding, must not depend on earlier calls.
    summed = any(leaf.summed for leaf in build.interface.outputs)
    sorts = build.interface.nest == (LANE,) and build.graph.width > 1 and not summed
    emitter = Emitter(build.schedule, build.scratch, build.cost_of, tallies=sorts)
    text = runtime(emitter, emitter.regions(), emitter.packs())
    build.emitter, build.module = emitter, emitter.module(text)


def emit_callee(build: Build) -> None:
    """Make the functions of LLVM IR of a function that kernels call."""
    callee = build.callee
    assert callee is not None, "there is a callee"
    emitter = Emitter(build.schedule, build.scratch, build.cost_of)
    lines = [line for region in emitter.regions() for line in region]
    lines += emitter.packs(pointed=True)
    tables = [f"%table{k}" for k in range(len(callee.by_lane))]
    names = ["%flags", "%floats", "%integers", *tables, "%results"]
    places = [build.schedule.place[node] for node in build.interface.sources]
    body = [f"  %S = alloca i8, i64 {build.scratch.size}, align 64"]
    for k, (name, offset) in enumerate(
        zip(names, [*places, *build.scratch.packed], strict=True)
    ):
        body.append(f"  %at{k} = getelementptr i8, ptr %S, i64 {offset}")
        body.append(f"  store ptr {name}, ptr %at{k}, align 8")
    arguments = ", ".join(f"ptr {x}" for x in (*names[:3], "%results", *tables))
    head = f"define void @{callee.symbol}({arguments}) nounwind {{"
    text = "\n".join([head, *body, *lines, "  ret void", "}"])
    build.emitter, build.module = emitter, emitter.module(text)


KERNEL_PASSES = (translate, order, place, emit)
CALLEE_PASSES = (translate_callee, order, place, emit_callee)


def kernel_module(
    function: Function, layout: Layout, cost_of: Callable[[Callee], int]
) -> LLVMModule:
    """Return the module of a function of one environment."""
    build = Build(function, cost_of, layout=layout)
    for run in KERNEL_PASSES:
        run(build)
    return build.module


def callee_module(
    callee: Callee, cost_of: Callable[[Callee], int]
) -> tuple[LLVMModule, int]:
    """Return the module of a function that kernels call, and its number of
    operations."""
    build = Build(callee.part.program(), cost_of, callee=callee)
    for run in CALLEE_PASSES:
        run(build)
    return build.module, build.emitter.cost


# The first pass.


def translated(graph: Graph, function: Function, deps, assumed):
    """Translate a function into a graph; return its arguments, their nodes, and the
    results."""
    inputs, sources, values = [], [], []
    leaves = zip(function.arguments, deps, assumed, function.reads, strict=True)
    for aval, dep, pattern, read in leaves:
        shape, dtype = tuple(aval.shape), dtype_of(aval)
        rows = math.prod(shape)
        if not rows:
            values.append(arrays.nodes([], shape))
            continue
        if not read:
            values.append(arrays.constant(graph, np.broadcast_to(_zero(dtype), shape)))
            continue
        # Tables that the batch shares are not worth a copy.
        pointed = rows > LARGEST and not dep
        kind = "pointer" if pointed else "input"
        node = graph.source(kind, dtype, dep, len(sources), rows)
        inputs.append(Leaf(rows, dtype, dep, assumed=pattern, pointed=pointed))
        if pattern is not None:
            graph.assumed[node] = pattern
        sources.append(node)
        values.append(arrays.stored(node, shape, dtype, graph))
    with np.errstate(all="ignore"):
        results = function.translated(Translation(graph), values)
        results = [arrays.settled(graph, value) for value in results]
    return inputs, sources, results


def _zero(dtype: str) -> np.ndarray:
    return np.zeros((), dtype if dtype != "b1" else "?")


def elements(graph: Graph, value) -> list[int]:
    return [arrays.read(graph, value, i) for i in np.ndindex(*value.shape)]


def _translated_callee(graph: Graph, function: Function, callee: Callee, lane: int):
    """Translate a function; return the nodes of its arguments and of its results."""
    call = callee.part.call
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
            nodes.append(convert(graph, node, dtype) if flag else node)
    return sources, nodes
