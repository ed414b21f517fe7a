"""Functions with machine code of their own, which kernels call: the primitive of
`eqsim/_separate.py`, and its forward and reverse mode.

A call is a node of the graph, an array of all results. The function has the C type

    void f(ptr flags, ptr floats, ptr integers, ptr results, ptr table, ...)

where each argument but the last ones is an array of vectors of lanes: which lanes need the
results, the numbers that the function takes, and its results, with booleans as 0 or 1.
Tables are read where they lie. The passes of `_passes.py` compile it, `_programs.py` keeps
and loads its machine code.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray

from . import _arrays as arrays
from ._arrays import Value
from ._compile import key_of
from ._control_flow import materialized, union
from ._derivatives import is_float
from ._forward import Forward, forward_rule
from ._graph import Graph, LANE
from ._operations import apply
from ._reverse import Cotangents, Reverse, reverse_rule
from ._translation import dtype_of, rule, Translation, Unsupported


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
            nodes = [apply(graph, "ne", (x, zero), "b1") for x in nodes]
        found.append(arrays.nodes(nodes, aval.shape))
        start += size
    return found


def _frame(graph: Graph, entries: list[int], lane: int) -> int:
    """Return an array of vectors of lanes, if `lane` is set."""
    dtype = graph.dtype[entries[0]]
    node = graph.pure("pack", tuple(entries), dtype, ("frame", lane), len(entries))
    graph.dep[node] |= lane
    return node
