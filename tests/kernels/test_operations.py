"""The table of scalar operations: in each row, value on constants, instruction and partial
derivatives agree. Nothing but the kernels is compiled."""

import functools as ft
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from kernels.harness import Kernel

from eqsim._kernels._graph import Graph, LANE, show
from eqsim._kernels._operations import (
    apply,
    Element,
    OPERATIONS,
    PARTIALS,
    SMOOTH,
)


FLOATS = [name for name, row in OPERATIONS.items() if row.floats is not None]
INTEGERS = [name for name, row in OPERATIONS.items() if row.integers is not None]
# Operations that primitives have under other names.
ROUND = {
    "round_even": lax.RoundingMethod.TO_NEAREST_EVEN,
    "round_away": lax.RoundingMethod.AWAY_FROM_ZERO,
}
LAX = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
LAX |= {"not": "bitwise_not"}
# Units in the last place by which the C library and NumPy may differ.
UNITS = 16


def primitive(name: str):
    """Return the function of JAX for an operation."""
    if name in ROUND:
        return lambda x: lax.round(x, ROUND[name])
    return getattr(lax, LAX.get(name, name))


def arity(name: str) -> int:
    """Return the number of operands of an operation."""
    for count in (1, 2):
        try:
            jax.eval_shape(primitive(name), *([np.float64(0.5)] * count))
            return count
        except TypeError:
            pass
    for count in (1, 2):
        try:
            jax.eval_shape(primitive(name), *([np.int32(1)] * count))
            return count
        except TypeError:
            pass
    raise AssertionError(f"`{name}` takes more operands")


def floats() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of numbers, with borders of the operations."""
    special = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.0, 2.5, 7.0, 1e4, 1e6, np.inf]
    special = np.array([*special, -np.inf, np.nan, 0.3, -0.7, 30.0])
    x, y = np.repeat(special, len(special)), np.tile(special, len(special))
    more = np.random.default_rng(0).normal(size=(2, 100))
    return np.concatenate([x, more[0]]), np.concatenate([y, more[1]])


def integers() -> tuple[np.ndarray, np.ndarray]:
    info = np.iinfo(np.int32)
    own = np.array([info.min, info.min + 1, -7, -1, 0, 1, 2, 7, 31, 32, 33, info.max])
    own = own.astype(np.int32)
    return np.repeat(own, len(own)), np.tile(own, len(own))


@ft.cache
def computed(names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The results of kernels, from one program for all operations."""
    args = floats() if names == tuple(FLOATS) else integers()
    counts = [arity(name) for name in names]

    def function(x, y):
        return tuple(
            primitive(name)(*(x, y)[:count])
            for name, count in zip(names, counts, strict=True)
        )

    return dict(zip(names, Kernel(function)(*args), strict=True))


def folded(name: str, *args: np.ndarray) -> np.ndarray:
    """The values on constants."""
    with np.errstate(all="ignore"):
        return np.array([OPERATIONS[name].fold(*entries) for entries in zip(*args)])


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name):
    got, args = computed(tuple(FLOATS))[name], floats()[: arity(name)]
    expected = folded(name, *args)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        return
    far = np.abs(got) > 1e300
    if name == "pow":
        # NumPy takes roots of negative infinity as NaN, the C library as infinity.
        far |= args[0] == -np.inf
        got, expected = got[~far], expected[~far]
        far = np.abs(got) > 1e300
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    bound = UNITS * np.finfo(np.float64).eps
    np.testing.assert_allclose(got[~far], expected[~far], rtol=bound, atol=bound)
    np.testing.assert_array_equal(got[far] > 0, expected[far] > 0)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    got, args = computed(tuple(INTEGERS))[name], integers()[: arity(name)]
    np.testing.assert_array_equal(got, folded(name, *args))


@pytest.mark.parametrize("name", sorted(set(SMOOTH) & set(OPERATIONS)))
def test_partial_derivatives(name):
    """Each is the difference quotient of the value."""
    x, step = [0.7, 0.4][: len(PARTIALS[name])], 1e-6
    fold = OPERATIONS[name].fold
    for k, partial in enumerate(PARTIALS[name]):
        graph = Graph()
        nodes = tuple(graph.constant(value, "f8") for value in x)
        out = apply(graph, name, nodes, "f8")
        own = Element(graph, "f8", {}, nodes, out)
        assert partial is not None, "operations differentiate by all operands"
        slope = float(graph.value[partial(own, graph.constant(2.0, "f8"))])
        move = lambda sign: fold(
            *(np.float64(v + sign * step * (j == k)) for j, v in enumerate(x))
        )
        quotient = (move(1) - move(-1)) / (2 * step)
        np.testing.assert_allclose(slope, 2 * quotient, rtol=1e-8, atol=1e-8)


@np.errstate(all="ignore")
@pytest.mark.parametrize("name", [n for n, row in OPERATIONS.items() if row.rule])
def test_simplifications(name):
    """Of an unknown and a literal, or of an operation: the value stays."""
    dtype = "f8" if OPERATIONS[name].floats else "i4"
    for number in (0, 1, -1, 2):
        for op in ("neg", "not", "sub"):
            graph = Graph()
            x = graph.source("input", dtype, 0)
            y = graph.constant(number, dtype)
            inner = (x, y) if op == "sub" else (x,)
            if (op == "not") == (dtype == "f8"):
                continue
            z = apply(graph, op, inner, dtype)
            for args in ((x, y), (y, x), (z, x), (x, z), (z, z)):
                args = args[: arity(name)]
                node = apply(graph, name, args, dtype)
                for value in (3, 2):
                    own = np.asarray(value).astype(dtype)[()]
                    plain = OPERATIONS[name].fold(
                        *(evaluated(graph, arg, x, own) for arg in args)
                    )
                    got = evaluated(graph, node, x, own)
                    np.testing.assert_allclose(got, plain, rtol=1e-15)


def evaluated(graph: Graph, node: int, x: int, value) -> Any:
    """The value of a node, with a value of `x`."""
    if node == x:
        return value
    if node in graph.value:
        return graph.value[node]
    args = [evaluated(graph, arg, x, value) for arg in graph.args[node]]
    return OPERATIONS[graph.op[node]].fold(*args)


def test_graphs_are_shown():
    """One line an operation, with literals in place."""
    graph = Graph()
    x = graph.source("input", "f4", LANE, 0, 3)
    y = graph.pure("load", (x, graph.constant(1, "i4")), "f4")
    unused = apply(graph, "sin", (y,), "f4")
    z = apply(graph, "mul", (y, graph.constant(2.5, "f4")), "f4")
    lines = show(graph, [z]).splitlines()
    assert lines[0] == f"%{x} f4[3] l = input #0"
    assert lines[1] == f"%{y} f4 l = load %{x} 1"
    assert lines[2].startswith(f"%{z} f4 l = mul ") and "2.5" in lines[2]
    assert len(lines) == 3 and f"%{unused} f4 l = sin %{y}" in str(graph)
