"""Machine code of programs: each is compiled once per process and layout of the batch."""

import dataclasses
import functools
import logging
import math
import re
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from . import (  # noqa: F401  (their rules register themselves)
    _arrays as arrays,
    _callees,
    _elementwise,
    _indexing,
    _list_sums,
    _loops,
    _movement,
    _reductions,
    _reverse_rules,
)
from ._arrays import Value
from ._assumptions import pattern_of
from ._callees import cost_of, link, SYMBOL
from ._compile import CompileError, key_of, Loaded, object_code, store, stored
from ._emit import Emitter, Leaf
from ._fingerprint import fingerprint
from ._forward import Forward
from ._graph import Graph
from ._reverse import reverse_mode
from ._scalarize import dtype_of, Translation


_LOG = logging.getLogger("eqsim.kernels")
_LOCK = threading.Lock()
_LOADED: dict[str, Loaded] = {}


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
        reverse, active = reverse_mode(walk), [k in self.pulled for k in range(count)]
        _, live, pull = reverse.closed(self.closed, values[:count], active)
        pairs = zip(values[count:], live, strict=True)
        found = pull([value if on else None for value, on in pairs])
        return reverse.filled(self.results, [found[k] for k in self.pulled])


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of one environment, and how a batch maps over it.

    **Arguments:**

    - `name`: used in messages.
    - `trace`: returns the function without batch axes.
    - `shapes`: shape and type of each argument without batch axes.
    - `key`: hashable; equal for programs whose functions are equal.
    - `patterns`: assumptions about each argument, valid if the batch shares it.
    """

    name: str
    trace: Callable[[], Function]
    shapes: tuple[tuple[tuple[int, ...], Any], ...]
    key: Any
    patterns: tuple[bytes | None, ...] = ()


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


def loaded(program: Program, layout: Layout) -> tuple[str, tuple[bool, ...]]:
    """Return the name under which XLA finds the kernel of a program, and flags of the
    arguments that it has."""
    function = program.trace()
    key = key_of(function.fingerprint, repr(layout))
    target = f"eqsim_{key}"
    with _LOCK:
        if target not in _LOADED:
            kernel = _load(key, lambda: module(function, layout))
            if any(x and read for x, read in zip(layout.assumed, function.reads)):
                kernel.otherwise(_without_assumptions(program, layout))
            _LOADED[target] = kernel
            pointer = jax.ffi.pycapsule(kernel.pointer)
            jax.ffi.register_ffi_target(target, pointer, platform="cpu")
    return target, function.reads


def _without_assumptions(program: Program, layout: Layout) -> Callable[[], int]:
    """Return a function that compiles the same kernel without assumptions and returns
    its address, or zero if that fails. XLA's threads call it."""
    general = dataclasses.replace(layout, assumed=(None,) * len(layout.assumed))
    double = bool(jax.config.read("jax_enable_x64"))

    def make() -> int:
        try:
            with jax.enable_x64(double):
                return _LOADED[loaded(program, general)[0]].address
        except Exception:
            _LOG.exception("eqsim: `%s` cannot be compiled.", program.name)
            return 0

    return make


def _load(key: str, text: Callable[[], str]) -> Loaded:
    """Return the machine code under a key: from the cache, or compiled now."""
    code = stored(key)
    if code is not None:
        try:
            return _linked(code)
        except CompileError:
            code = None
    code = object_code(text())
    store(key, code)
    return _linked(code)


def _linked(code: bytes) -> Loaded:
    link({name.decode() for name in re.findall(SYMBOL, code)})
    return Loaded(code)


def module(function: Function, layout: Layout) -> str:
    """Return the LLVM IR of a function of one environment."""
    graph = Graph(layout.width)
    inputs, sources, results = _translated(
        graph, function, layout.arguments, layout.assumed
    )
    outputs, nodes = [], []
    for k, (aval, value) in enumerate(zip(function.results, results, strict=True)):
        rows = math.prod(aval.shape)
        if not rows:
            continue
        dtype = dtype_of(aval)
        outputs.append(Leaf(rows, dtype, layout.results[k], layout.summed[k]))
        nodes.append(_elements(graph, value))
    emitter = Emitter(graph, inputs, sources, outputs, nodes, layout.nest, layout.width)
    calls = [node for node in emitter.schedule.live if graph.op[node] == "call"]
    emitter.costs = {
        callee: cost_of(callee) for callee in map(graph.aux.__getitem__, sorted(calls))
    }
    return emitter.module()


def _translated(graph: Graph, function: Function, deps, assumed):
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
        node = graph.source("input", dtype, dep, len(sources), rows)
        inputs.append(Leaf(rows, dtype, dep, assumed=pattern))
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


def _elements(graph: Graph, value) -> list[int]:
    return [arrays.read(graph, value, i) for i in np.ndindex(*value.shape)]


def assumed(program: Program, shared) -> tuple[bytes | None, ...]:
    """Return the assumptions about each argument; `shared` is true for arguments that the
    batch shares."""
    patterns = program.patterns or (None,) * len(program.shapes)
    found = []
    for pattern, (shape, _), one in zip(patterns, program.shapes, shared, strict=True):
        fits = pattern is not None and len(pattern) == math.prod(shape)
        found.append(pattern if fits and one else None)
    return tuple(found)


def resulting_patterns(program: Program) -> tuple[bytes | None, ...]:
    """Derive patterns of the results of a program from those of its arguments.

    **Raises:** `Unsupported` if there is no kernel for it.
    """
    function, graph = program.trace(), Graph()
    known = assumed(program, [True] * len(program.shapes))
    *_, results = _translated(graph, function, (0,) * len(known), known)
    found = []
    for aval, value in zip(function.results, results, strict=True):
        numbers = [graph.value.get(node, np.nan) for node in _elements(graph, value)]
        floats = dtype_of(aval)[0] == "f"
        found.append(pattern_of(np.array(numbers, np.float64)) if floats else None)
    return tuple(found)
