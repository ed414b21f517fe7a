"""Machine code of programs: each is compiled once per process and layout of the batch."""

import dataclasses
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from . import (  # noqa: F401  (their rules register themselves)
    _arrays as arrays,
    _control,
    _elementwise,
    _indexing,
    _movement,
    _reductions,
)
from ._assumptions import pattern_of
from ._compile import CompileError, key_of, Loaded, object_code, store, stored
from ._emit import Emitter, Leaf
from ._fingerprint import fingerprint
from ._graph import Graph
from ._scalarize import dtype_of, Translation


_LOG = logging.getLogger("eqsim.kernels")
_LOCK = threading.Lock()
_LOADED: dict[str, Loaded] = {}


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of one environment, and how a batch maps over it.

    **Arguments:**

    - `name`: used in messages.
    - `trace`: returns the jaxpr of the function without batch axes.
    - `shapes`: shape and type of each argument without batch axes.
    - `key`: hashable; equal for programs whose functions are equal.
    - `patterns`: what may be assumed of each argument where the batch shares it.
    """

    name: str
    trace: Callable[[], ClosedJaxpr]
    shapes: tuple[tuple[tuple[int, ...], Any], ...]
    key: Any
    patterns: tuple[bytes | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Layout:
    """The kernel of a batch: its loops, and which axes each argument and result has.

    - `nest`: axes of the batch from the outermost loop on.
    - `width`: lanes of a vector.
    - `arguments`, `results`: `Graph.dep` of each.
    - `summed`: of each result, whether it is added up over the batch.
    - `assumed`: of each argument, what is assumed of it.
    """

    nest: tuple[int, ...]
    width: int
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    summed: tuple[bool, ...]
    assumed: tuple[bytes | None, ...]


def loaded(program: Program, layout: Layout) -> str:
    """The name under which XLA finds the kernel of a program."""
    closed = program.trace()
    key = key_of(fingerprint(closed), repr(layout))
    target = f"eqsim_{key}"
    with _LOCK:
        if target not in _LOADED:
            kernel = _load(key, lambda: module(closed, layout))
            if any(layout.assumed):
                kernel.otherwise(_without_assumptions(program, layout))
            _LOADED[target] = kernel
            pointer = jax.ffi.pycapsule(kernel.pointer)
            jax.ffi.register_ffi_target(target, pointer, platform="cpu")
    return target


def _without_assumptions(program: Program, layout: Layout) -> Callable[[], int]:
    """A function that compiles the same kernel without assumptions, and returns its
    address, or zero if that fails. XLA's threads call it."""
    general = dataclasses.replace(layout, assumed=(None,) * len(layout.assumed))
    double = bool(jax.config.read("jax_enable_x64"))

    def make() -> int:
        try:
            with jax.enable_x64(double):
                return _LOADED[loaded(program, general)].address
        except Exception:
            _LOG.exception("eqsim: `%s` cannot be compiled.", program.name)
            return 0

    return make


def _load(key: str, text: Callable[[], str]) -> Loaded:
    """The machine code under a key: from the store, or compiled now."""
    code = stored(key)
    if code is not None:
        try:
            return Loaded(code)
        except CompileError:
            code = None
    code = object_code(text())
    store(key, code)
    return Loaded(code)


def module(closed: ClosedJaxpr, layout: Layout) -> str:
    """The LLVM IR of a jaxpr of one environment."""
    graph = Graph()
    inputs, sources, results = _translated(
        graph, closed, layout.arguments, layout.assumed
    )
    outputs, nodes = [], []
    for k, (atom, value) in enumerate(zip(closed.jaxpr.outvars, results, strict=True)):
        rows = math.prod(atom.aval.shape)
        if not rows:
            continue
        dtype = dtype_of(atom.aval)
        outputs.append(Leaf(rows, dtype, layout.results[k], layout.summed[k]))
        nodes.append(_elements(graph, value))
    emitter = Emitter(graph, inputs, sources, outputs, nodes, layout.nest, layout.width)
    return emitter.module()


def _translated(graph: Graph, closed: ClosedJaxpr, deps, assumed):
    """Puts a jaxpr into a graph; returns its arguments, their nodes, and the results."""
    inputs, sources, values = [], [], []
    leaves = zip(closed.jaxpr.invars, deps, assumed, strict=True)
    for var, dep, pattern in leaves:
        shape, dtype = tuple(var.aval.shape), dtype_of(var.aval)
        rows = math.prod(shape)
        if not rows:
            values.append(arrays.nodes([], shape))
            continue
        node = graph.source("input", dtype, dep, len(sources), rows)
        inputs.append(Leaf(rows, dtype, dep, assumed=pattern))
        if pattern is not None:
            graph.assumed[node] = pattern
        sources.append(node)
        values.append(arrays.stored(node, shape, dtype, graph))
    with np.errstate(all="ignore"):
        results = Translation(graph).closed(closed, values)
        results = [arrays.settled(graph, value) for value in results]
    return inputs, sources, results


def _elements(graph: Graph, value) -> list[int]:
    return [arrays.read(graph, value, i) for i in np.ndindex(*value.shape)]


def assumed(program: Program, shared) -> tuple[bytes | None, ...]:
    """What is assumed of each argument; `shared` says of each whether the batch shares
    it."""
    patterns = program.patterns or (None,) * len(program.shapes)
    found = []
    for pattern, (shape, _), one in zip(patterns, program.shapes, shared, strict=True):
        fits = pattern is not None and len(pattern) == math.prod(shape)
        found.append(pattern if fits and one else None)
    return tuple(found)


def resulting_patterns(program: Program) -> tuple[bytes | None, ...]:
    """What follows for the results of a program from what is assumed of its arguments.

    **Raises:** `Unsupported` if there is no kernel for it.
    """
    closed, graph = program.trace(), Graph()
    known = assumed(program, [True] * len(program.shapes))
    *_, results = _translated(graph, closed, (0,) * len(known), known)
    found = []
    for atom, value in zip(closed.jaxpr.outvars, results, strict=True):
        numbers = [graph.value.get(node, np.nan) for node in _elements(graph, value)]
        floats = dtype_of(atom.aval)[0] == "f"
        found.append(pattern_of(np.array(numbers, np.float64)) if floats else None)
    return tuple(found)
