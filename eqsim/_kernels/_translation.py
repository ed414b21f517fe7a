"""From a jaxpr of one environment to the lane graph."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from . import _arrays as arrays
from ._arrays import Value
from ._graph import Graph


class Unsupported(Exception):
    """Program that the compiler does not support; the caller falls back to XLA."""


RULES: dict[str, Callable[..., list[Value]]] = {}


def rule(*names: str):
    """Register the translation of primitives: a function `(translation, eqn, *operands)
    -> results` on unrolled and pulled arrays."""

    def register(function):
        for name in names:
            RULES[name] = function
        return function

    return register


LARGEST = 2_000_000
"""Nodes of a graph; what would have more is left to XLA."""

_TYPES = frozenset("b1 i1 i2 i4 i8 u1 u2 u4 u8 f4 f8".split())


class Translation:
    """One walk over a jaxpr.

    **Arguments:**

    - `graph`: receives the nodes.
    - `mask`: boolean node, which lanes of the tile still count inside loops and branches
        that lanes take separately; None if all do.
    - `around`: the jaxpr of the equation that is translated; None if it is not known.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.mask: int | None = None
        self.around: Jaxpr | None = None

    def run(self, jaxpr: Jaxpr, consts, args: list[Value]) -> list[Value]:
        """Return the results of a jaxpr; `consts` are arrays, `args` values."""
        env: dict[Any, Value] = {}

        def read(atom) -> Value:
            if isinstance(atom, Literal):
                return self.constant(np.asarray(atom.val, dtype_of(atom.aval)))
            return env[atom]

        for var, const in zip(jaxpr.constvars, consts, strict=True):
            env[var] = self.constant(const)
        env.update(zip(jaxpr.invars, args, strict=True))
        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            results = self.apply(eqn, operands, jaxpr)
            env.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def closed(self, closed: ClosedJaxpr, args: list[Value]) -> list[Value]:
        """Return the results of a closed jaxpr."""
        return self.run(closed.jaxpr, closed.consts, args)

    def apply(
        self, eqn, operands: list[Value], jaxpr: Jaxpr | None = None
    ) -> list[Value]:
        """Return the results of one equation; `jaxpr` is the one that it belongs to."""
        name = eqn.primitive.name
        for var in eqn.outvars:
            dtype_of(var.aval)
        if name not in RULES:
            raise Unsupported(f"the primitive `{name}` has no rule")
        if len(self.graph.op) > LARGEST:
            raise Unsupported(f"the program has more than {LARGEST} nodes")
        self.around = jaxpr
        return RULES[name](self, eqn, *operands)

    def constant(self, array) -> Value:
        """Return a literal array."""
        if isinstance(array, jax.Array):
            array = np.asarray(array)
        array = np.asarray(array)
        if array.dtype.str[1:] not in _TYPES:
            raise Unsupported(f"constants of type {array.dtype} are not supported")
        return arrays.constant(self.graph, array)


def dtype_of(aval) -> str:
    """Return the type of an array in the graph."""
    if not isinstance(aval, ShapedArray):
        raise Unsupported(f"values of type {aval} are not supported")
    name = _type_name(aval.dtype)
    if name is None:
        raise Unsupported(f"arrays of type {aval} are not supported")
    return name


@functools.cache
def _type_name(dtype) -> str | None:
    if dtype == jax.dtypes.float0:
        return "b1"
    name = np.dtype(dtype).str[1:]
    return name if name in _TYPES else None


# Which axes of the batch the results of a jaxpr depend on.


def dependence(jaxpr: Jaxpr, given: list[int]) -> list[int]:
    """Return an upper bound of `Graph.dep` for the results, from that of the arguments."""
    return list(_dependence(jaxpr, tuple(given)))


# Loops ask again and again, and those inside of loops as often for each time.
@functools.lru_cache(maxsize=8192)
def _dependence(jaxpr: Jaxpr, given: tuple[int, ...]) -> tuple[int, ...]:
    env: dict[Any, int] = dict(zip(jaxpr.invars, given, strict=True))
    read = lambda atom: 0 if isinstance(atom, Literal) else env.get(atom, 0)
    for eqn in jaxpr.eqns:
        deps = [read(atom) for atom in eqn.invars]
        env.update(zip(eqn.outvars, _equation(eqn, deps, jaxpr), strict=True))
    return tuple(read(atom) for atom in jaxpr.outvars)


def _equation(eqn, deps: list[int], jaxpr: Jaxpr) -> list[int]:
    name, params = eqn.primitive.name, eqn.params
    if name == "while":
        return while_dependence(eqn, deps, jaxpr)
    if name == "scan":
        return scan_dependence(params, deps)
    if name == "cond":
        each = [dependence(branch.jaxpr, deps[1:]) for branch in params["branches"]]
        return [deps[0] | _union(found) for found in zip(*each, strict=True)]
    inner = called(eqn)
    if inner is not None:
        return dependence(inner.jaxpr, deps)
    return [_union(deps)] * len(eqn.outvars)


def _union(deps) -> int:
    total = 0
    for dep in deps:
        total |= dep
    return total


def while_dependence(eqn, deps: list[int], jaxpr: Jaxpr | None) -> list[int]:
    """Return the dependence of the values that a `while` loop carries.

    **Arguments:**

    - `jaxpr`: jaxpr of the loop; None if something else may read what it carries.
    """
    params = eqn.params
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    cut = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    of_test, of_body, carry = deps[: cut[0]], deps[cut[0] : cut[1]], deps[cut[1] :]
    counters = _counters(eqn, jaxpr)
    while True:
        (open_,) = dependence(test.jaxpr, [*of_test, *carry])
        new = dependence(body.jaxpr, [*of_body, *carry])
        new = [
            a | b | (0 if counts else open_)
            for a, b, counts in zip(carry, new, counters, strict=True)
        ]
        if new == carry:
            return carry
        carry = new


def _counters(eqn, jaxpr: Jaxpr | None) -> list[bool]:
    """Return which of the values that a `while` loop carries count its passes: integers to
    which each pass adds a literal, and that nothing reads after the loop. Lanes that have
    ended do not need them, so they are the same in all lanes if they start so."""
    body = eqn.params["body_jaxpr"].jaxpr
    if jaxpr is None:
        return [False] * len(body.outvars)
    read_later = _variables_read(jaxpr)
    made = {out: own for own in body.eqns for out in own.outvars}
    carry = body.invars[eqn.params["body_nconsts"] :]

    def counts(old, new, result) -> bool:
        own = None if isinstance(new, Literal) else made.get(new)
        return (
            result not in read_later
            and own is not None
            and own.primitive.name == "add"
            and own.invars[0] is old
            and isinstance(own.invars[1], Literal)
            and np.issubdtype(old.aval.dtype, np.integer)
        )

    return list(map(counts, carry, body.outvars, eqn.outvars))


@functools.lru_cache(maxsize=8192)
def _variables_read(jaxpr: Jaxpr) -> frozenset:
    """Return the variables that equations or the end of a jaxpr read."""
    atoms = [*jaxpr.outvars, *(x for eqn in jaxpr.eqns for x in eqn.invars)]
    return frozenset(x for x in atoms if not isinstance(x, Literal))


def scan_sizes(params) -> tuple[int, int]:
    """Return the number of constants of a `scan`, and the number of values it carries."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    if "ft_in" in params:  # jax 0.12
        consts, carry, _ = params["ft_in"].unpack()
        return len(consts), len(carry)
    raise Unsupported("a `scan` of this version of JAX")


def scan_dependence(params, deps: list[int]) -> list[int]:
    """Return the dependence of the values that a `scan` carries and stacks."""
    start, count = scan_sizes(params)
    stop = start + count
    consts, carry, xs = deps[:start], deps[start:stop], deps[stop:]
    while True:
        out = dependence(params["jaxpr"].jaxpr, [*consts, *carry, *xs])
        new = [a | b for a, b in zip(carry, out)]
        if new == carry:
            return [*carry, *out[len(carry) :]]
        carry = new


def called(eqn) -> ClosedJaxpr | None:
    """Return the jaxpr that an equation calls, if it is a mere call."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name not in eqn.params:
            continue
        inner = eqn.params[name]
        if isinstance(inner, ClosedJaxpr):
            return inner
        if isinstance(inner, Jaxpr):
            return ClosedJaxpr(inner, ())
    return None


# Which arrays a jaxpr writes at computed indices.


_WRITES = ("scatter", "scatter-add", "scatter_add", "dynamic_update_slice")


def _is_vector(aval) -> bool:
    return isinstance(aval, ShapedArray) and aval.ndim == 1


@functools.lru_cache(maxsize=8192)
def written_arguments(jaxpr: Jaxpr) -> tuple[bool, ...]:
    """Return, for each argument, whether elements of it are replaced at computed
    indices."""
    found: set[Any] = set()
    for eqn in jaxpr.eqns:
        name, params = eqn.primitive.name, eqn.params
        if name in _WRITES and _is_vector(eqn.outvars[0].aval):
            own = [(eqn.invars[0], True)]
        elif name == "while":
            start = params["cond_nconsts"]
            inner = written_arguments(params["body_jaxpr"].jaxpr)
            own = list(zip(eqn.invars[start:], inner, strict=True))
        elif name == "scan":
            inner = written_arguments(params["jaxpr"].jaxpr)
            own = list(zip(eqn.invars, inner, strict=True))
        else:
            inner = called(eqn)
            if inner is None:
                continue
            own = list(zip(eqn.invars, written_arguments(inner.jaxpr), strict=True))
        found |= {
            x for x, is_written in own if is_written and not isinstance(x, Literal)
        }
    return tuple(x in found for x in jaxpr.invars)
