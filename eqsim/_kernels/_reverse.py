"""Reverse mode: the vector-Jacobian product of a jaxpr, straight into the lane graph.

Each equation is translated once, and its rule returns how cotangents of its results
become cotangents of its operands; these functions run in reverse order. JAX would trace
and transpose every equation on its own, which takes longer than all that follows.

An operand is *active* if it depends on what is differentiated. The cotangent of what is
not active, or of what no result needs, is None. An equation without a rule here is
linearized by JAX.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from . import _arrays as arrays
from ._arrays import (
    as_index,
    element,
    flat,
    INDEX,
    Index,
    nodes,
    plus,
    Pulled,
    times,
    Value,
)
from ._derivatives import (
    AbstractWalk,
    CALLS,
    Derivatives,
    is_flat,
    is_float,
    restricted,
    shapes_of,
    Vectors,
    wanted_variables,
)
from ._graph import Graph, Loop
from ._jax_primitives import elementwise
from ._operations import apply, convert, OPERATIONS, select
from ._translation import called, dtype_of, Translation


# Passes.


def _is_cheap(op: str) -> bool:
    """Return whether an operation is computed again in passes that go back."""
    row = OPERATIONS.get(op)
    return op in ("select", "convert") or (row is not None and row.is_cheap)


class Passes:
    """Nodes of the passes of a finished loop.

    **Arguments:**

    - `control`: the loop; its body was made of the nodes `first` to `last - 1`.
    - `place`: node of the number of the pass.
    - `outer`: the same for the loop around it, if that goes back through passes, too.
    """

    def __init__(
        self,
        graph: Graph,
        control: int,
        first: int,
        last: int,
        place: int,
        outer: "Passes | None",
    ):
        self.graph, self.control, self.outer = graph, control, outer
        self.loop: Loop = graph.aux[control]
        self.first, self.last = first, last
        self._known: dict[int, int] = {}
        self._arrays: dict[int, tuple[int, int]] = {}
        if self.loop.index is not None:
            self._known[self.loop.index] = place
        self._place = place

    def _owns(self, node: int) -> bool:
        inside = self.first <= node < self.last
        return inside and self.graph.depth[node] >= self.loop.depth

    def node(self, node: int) -> int:
        """Return the node of a value of the pass."""
        stack = [node]
        while stack:
            now = stack[-1]
            if now in self._known:
                stack.pop()
                continue
            waits = [x for x in self._needs(now) if x not in self._known]
            if waits:
                stack += waits
                continue
            self._known[now] = self._made(stack.pop())
        return self._known[node]

    def _needs(self, node: int) -> tuple[int, ...]:
        """Return the values from which a node is recomputed."""
        graph = self.graph
        if not self._owns(node):
            return ()
        if _is_cheap(graph.op[node]):
            return graph.args[node]
        return graph.args[node][1:] if self._reads_outside(node) else ()

    def _reads_outside(self, node: int) -> bool:
        """Return whether a node is an element of an array that is not part of the loop."""
        graph = self.graph
        return graph.op[node] == "load" and not self._has(graph.args[node][0])

    def _made(self, node: int) -> int:
        graph = self.graph
        if node in graph.value:
            return node
        if not self._owns(node):
            return node if self.outer is None else self.outer.node(node)
        op, dtype = graph.op[node], graph.dtype[node]
        if self._reads_outside(node):
            array, index = graph.args[node]
            where = self._known[index]
            return graph.pure("load", (self._array_outside(array), where), dtype)
        if not _is_cheap(op):
            return self._stored(node)
        args = tuple(self._known[x] for x in graph.args[node])
        if op == "select":
            return select(graph, *args)
        if op == "convert":
            return convert(graph, args[0], dtype)
        return apply(graph, op, args, dtype)

    def _stored(self, node: int) -> int:
        """Return an element of an array in which the loop stores a value in each pass."""
        graph, loop = self.graph, self.loop
        number = len(loop.params) + len(loop.stacked)
        loop.stacked.append([node])
        assert loop.length is not None, "the number of passes is known"
        dtype = graph.dtype[node]
        array = graph.get(self.control, number, dtype, graph.dep[node], loop.length)
        array = self._array_outside(array)
        return graph.pure("load", (array, self._place), dtype)

    # Arrays.

    def value(self, value: Value) -> Value:
        """Return an array of the pass."""
        if isinstance(value, np.ndarray):
            found = [self.node(n) for n in value.reshape(-1).tolist()]
            return nodes(found, value.shape)
        array, shape = value.array, value.shape
        if array is None:
            return value
        if not self._has(array):
            if self.outer is None:
                return value
            return self.outer.value(value)
        at, dep = self._elements(array), self.graph.dep[array]
        read = lambda index: at(flat(self.graph, index, shape))
        return Pulled(shape, value.dtype, read, dep)

    def _elements(self, array: int) -> Callable[[int | Index], int]:
        """Store an array in each pass, and return a function from the number of an
        element to its node."""
        if array not in self._arrays:
            graph, loop, dtype = self.graph, self.loop, self.graph.dtype[array]
            rows = graph.rows[array]
            index = [graph.constant(k, INDEX) for k in range(rows)]
            loads = [graph.pure("load", (array, k), dtype) for k in index]
            number = len(loop.params) + len(loop.stacked)
            loop.stacked.append(loads)
            assert loop.length is not None, "the number of passes is known"
            size = loop.length * rows
            whole = graph.get(self.control, number, dtype, graph.dep[array], size)
            self._arrays[array] = self._array_outside(whole), rows
        whole, rows = self._arrays[array]
        place = as_index(self.graph, self._place)

        def at(number: int | Index) -> int:
            start = times(self.graph, place, rows)
            return element(self.graph, whole, plus(self.graph, start, number))

        return at

    def _has(self, array: int) -> bool:
        """Return whether an array belongs to the loop. An array that an inner loop
        stores may be younger than the loop."""
        if self._owns(array):
            return True
        graph = self.graph
        return graph.op[array] == "get" and self._owns(graph.args[array][0])

    def _array_outside(self, array: int) -> int:
        return array if self.outer is None else self.outer.array(array)

    def array(self, array: int) -> int:
        """Return an array in memory of the pass."""
        if not self._has(array):
            return self._array_outside(array)
        graph, at, rows = self.graph, self._elements(array), self.graph.rows[array]
        entries = tuple(map(at, range(rows)))
        return graph.pure("pack", entries, graph.dtype[array], None, rows)

    def close(self) -> None:
        """End the use, when everything that the loop stores is known."""
        self.graph.recapture(self.control)


# Reverse mode.


Cotangents = Vectors
Pull = Callable[[Cotangents], Cotangents]
"""From cotangents of all results to cotangents of all operands."""

REVERSE: dict[str, Callable[..., tuple[list[Value], Pull] | None]] = {}


def reverse_rule(*names: str):
    """Register the reverse mode of primitives: a function `(reverse, eqn, operands,
    active, wanted) -> results, pull`, or None where JAX must linearize the equation."""

    def register(function):
        for name in names:
            REVERSE[name] = function
        return function

    return register


class Reverse(AbstractWalk):
    """One walk over a jaxpr, forward and backward.

    **Arguments:**

    - `walk`: translates the equations.

    **Attributes:**

    - `loops`: number of loops around what is translated, to which passes go back.
    - `passes`: values of the pass that pull-backs go back through; None outside loops.
    - `at_zero`: true if what is translated is linear in the active arguments, which are
        zero.
    """

    def __init__(self, walk: Translation):
        AbstractWalk.__init__(self, walk)
        self.passes: Passes | None = None
        self.loops = 0
        self.at_zero = False

    def closed(
        self,
        closed: ClosedJaxpr,
        args: list[Value],
        active: Sequence[bool],
        wanted: Sequence[bool] | None = None,
    ) -> tuple[list[Value], list[bool], Pull]:
        """Return the results of a jaxpr, flags of the active ones, and their pull-back.

        **Arguments:**

        - `active`: true for arguments to differentiate by.
        - `wanted`: results that may have cotangents; None for all floats.
        """
        jaxpr, consts = closed.jaxpr, closed.consts
        if wanted is None:
            wanted = [True] * len(jaxpr.outvars)
        env: dict[Any, Value] = {}
        on = {var for var, flag in zip(jaxpr.invars, active, strict=True) if flag}
        wants = wanted_variables(jaxpr, tuple(wanted))
        tape: list[tuple[Any, Pull]] = []

        def read(atom) -> Value:
            if isinstance(atom, Literal):
                return self.walk.constant(np.asarray(atom.val, dtype_of(atom.aval)))
            return env[atom]

        is_on = lambda atom: not isinstance(atom, Literal) and atom in on
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            env[var] = self.walk.constant(const)
        env.update(zip(jaxpr.invars, args, strict=True))
        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            flags = [is_on(atom) for atom in eqn.invars]
            own = [var in wants for var in eqn.outvars]
            if not any(flags) or not any(own) or is_flat(eqn):
                results = self.walk.apply(eqn, operands, jaxpr)
            else:
                results, pull = self._equation(eqn, operands, flags, own)
                on.update(var for var in eqn.outvars if is_float(var.aval))
                tape.append((eqn, pull))
            if self.loops:
                # Passes can go back to arrays in memory only.
                results = [arrays.materialized(self.graph, x) for x in results]
            env.update(zip(eqn.outvars, results, strict=True))
        outs = [read(atom) for atom in jaxpr.outvars]
        pull = lambda cotangents: self._pull(jaxpr, tape, on, cotangents)
        return outs, [is_on(atom) for atom in jaxpr.outvars], pull

    def linear(
        self, closed: ClosedJaxpr, args: list[Value], active: Sequence[bool]
    ) -> Pull:
        """Return the pull-back of a jaxpr that is linear in its active arguments, which
        are zero."""
        outer, self.at_zero = self.at_zero, True
        try:
            return self.closed(closed, args, active)[2]
        finally:
            self.at_zero = outer

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Translate what is pulled back through in the same pass of a loop."""
        outer = self.passes, self.loops, self.at_zero
        self.passes, self.loops, self.at_zero = None, 0, False
        try:
            yield
        finally:
            self.passes, self.loops, self.at_zero = outer

    def _equation(self, eqn, operands, flags, wanted) -> tuple[list[Value], Pull]:
        rule, args = REVERSE.get(eqn.primitive.name), (eqn, operands, flags, wanted)
        found = None if rule is None else rule(self, *args)
        return _by_jax(self, *args) if found is None else found

    def _pull(self, jaxpr: Jaxpr, tape, on, cotangents: Cotangents) -> Cotangents:
        found: dict[Any, Value] = {}

        def add(atom, cotangent: Value | None) -> None:
            if cotangent is not None and not isinstance(atom, Literal) and atom in on:
                old = found.get(atom)
                found[atom] = (
                    cotangent if old is None else self.plus(atom.aval, old, cotangent)
                )

        for atom, cotangent in zip(jaxpr.outvars, cotangents, strict=True):
            add(atom, cotangent)
        for eqn, pull in reversed(tape):
            given = [found.pop(var, None) for var in eqn.outvars]
            if all(cotangent is None for cotangent in given):
                continue
            for atom, cotangent in zip(eqn.invars, pull(given), strict=True):
                add(atom, cotangent)
        return [found.get(var) for var in jaxpr.invars]

    def minus(self, aval, x: Value) -> Value:
        """Return a cotangent with the opposite sign."""
        graph, dtype = self.graph, dtype_of(aval)
        turn = lambda node: apply(graph, "neg", (node,), dtype)
        return elementwise(self.walk, aval.shape, dtype, (x,), turn)

    def kept(self, values: Sequence[Value]) -> list[Value]:
        """Return values of the forward walk for use in a pull-back. In a loop that runs
        backward through the passes of another loop, these are not the same nodes."""
        if self.passes is None:
            return list(values)
        return [self.passes.value(value) for value in values]


# Calls.


@reverse_rule(*CALLS)
def _call(reverse: Reverse, eqn, operands, active, wanted):
    inner = called(eqn)
    if inner is None:
        return None
    results, _, pull = reverse.closed(inner, operands, active, wanted)
    return results, pull


# By JAX.


@dataclasses.dataclass(frozen=True)
class _Split:
    """An equation in two parts: `forward` computes the results and what `backward` needs
    beside the cotangents of those that are floats."""

    forward: ClosedJaxpr
    backward: ClosedJaxpr


def _new_split(eqn, active: tuple[bool, ...]) -> _Split:
    structure: list[Any] = []

    def forward(*xs):
        fn, chosen = restricted(eqn, xs, active)
        out, pull = jax.vjp(fn, *chosen)
        leaves, treedef = jax.tree.flatten(pull)
        structure.append(treedef)
        return [*out, *leaves]

    first = jax.make_jaxpr(forward)(*shapes_of(eqn.invars))
    number = len(eqn.outvars)

    def backward(leaves, cotangents):
        own = iter(cotangents)
        each = [
            next(own) if is_float(v.aval) else np.zeros(v.aval.shape, jax.dtypes.float0)
            for v in eqn.outvars
        ]
        return structure[0].unflatten(leaves)(each)

    kept = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in first.out_avals[number:]]
    floats = [v for v in eqn.outvars if is_float(v.aval)]
    return _Split(first, jax.make_jaxpr(backward)(kept, shapes_of(floats)))


_split = Derivatives(_new_split)


def _by_jax(reverse: Reverse, eqn, operands, active, *_):
    """Pull back through equations without a rule, by JAX."""
    split, walk = _split(eqn, tuple(active)), reverse.walk
    found = walk.closed(split.forward, operands)
    if reverse.loops:
        found = [arrays.materialized(walk.graph, x) for x in found]
    number, floats = len(eqn.outvars), [is_float(v.aval) for v in eqn.outvars]

    def pull(cotangents: Cotangents) -> Cotangents:
        avals = [v.aval for v, flag in zip(eqn.outvars, floats) if flag]
        own = [ct for ct, flag in zip(cotangents, floats) if flag]
        given = [*reverse.kept(found[number:]), *reverse.filled(avals, own)]
        back = iter(walk.closed(split.backward, given))
        return [next(back) if on else None for on in active]

    return found[:number], pull


# Custom derivatives.


@reverse_rule("custom_jvp_call")
def _custom_jvp(reverse: Reverse, eqn, operands, active, *_):
    """Pull back through the custom rule, a linear function of tangents, taken at zero."""
    results = reverse.walk.apply(eqn, operands)
    chosen = [v for v, on in zip(eqn.invars, active, strict=True) if on]

    def push(xs, tangents):
        fn, at = restricted(eqn, xs, active)
        return jax.jvp(fn, at, list(tangents))[1]

    def pull(cotangents: Cotangents) -> Cotangents:
        closed = jax.make_jaxpr(push)(shapes_of(eqn.invars), shapes_of(chosen))
        given = [*reverse.kept(operands), *(reverse.zeros(v.aval) for v in chosen)]
        flags = [False] * len(operands) + [True] * len(chosen)
        back = reverse.linear(closed, given, flags)
        found = iter(back(cotangents)[len(operands) :])
        return [next(found) if on else None for on in active]

    return results, pull


@reverse_rule("custom_linear_solve")
def _linear_solve(reverse: Reverse, eqn, operands, active, *_):
    r"""Pull back through $A x = b$: the cotangent of $b$ is $w$ with $A^T w = \bar x$,
    and that of the parameters of $A$ is that of $-w^T A x$."""
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    if jaxprs.transpose_solve is None:
        return None
    results = reverse.walk.apply(eqn, operands)
    first = lengths.matvec
    last = first + lengths.vecmat + lengths.solve + lengths.transpose_solve
    consts, transposed = (
        operands[:first],
        operands[last - lengths.transpose_solve : last],
    )
    avals = [var.aval for var in eqn.outvars]

    def pull(cotangents: Cotangents) -> Cotangents:
        full = reverse.filled(avals, cotangents)
        given = [*reverse.kept(transposed), *full]
        right = reverse.walk.closed(jaxprs.transpose_solve, given)
        found: Cotangents = [None] * first
        if any(active[:first]):
            flags = [*active[:first], *(False for _ in results)]
            at = reverse.kept([*consts, *results])
            *_, back = reverse.closed(jaxprs.matvec, at, flags)
            turned: Cotangents = [reverse.minus(a, w) for a, w in zip(avals, right)]
            found = back(turned)[:first]
        rest: Cotangents = [None] * (last - first)
        return [*found, *rest, *right]

    return results, pull
