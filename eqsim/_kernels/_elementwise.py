"""Element-wise primitives."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _algebra as algebra, _arrays as arrays
from ._arrays import is_large, LEAST_WRITTEN, nodes, pull, Pulled, Value, waiting
from ._indices import index_node
from ._scalarize import dtype_of, rule, Translation


def mapped(
    walk: Translation, eqn, operands: tuple[Value, ...], function: Callable[..., int]
) -> list[Value]:
    """Apply a function of nodes to all elements. Axes of size one, and scalars, are
    broadcast."""
    aval = eqn.outvars[0].aval
    return [elementwise(walk, aval.shape, dtype_of(aval), operands, function)]


def elementwise(
    walk: Translation,
    shape: Sequence[int],
    dtype: str,
    operands: Sequence[Any],
    function: Callable[..., int],
) -> Value:
    """Apply a function like `mapped`, for a result of given shape and type."""
    graph = walk.graph
    if is_large(shape):
        found = arrays.fusible(graph, operands, shape)
        pulled = [pull(graph, operand) for operand in found]

        def at(index):
            return function(*(x.at(_within(index, x.shape)) for x in pulled))

        dep = arrays.dependence(graph, *found)
        return waiting(graph, shape, dtype, at, dep)
    columns = []
    for operand in operands:
        assert isinstance(operand, np.ndarray), "small arrays are unrolled"
        whole = operand if operand.shape == shape else np.broadcast_to(operand, shape)
        columns.append(whole.reshape(-1).tolist())
    return nodes([function(*entries) for entries in zip(*columns)], shape)


def _within(index: tuple, shape: tuple[int, ...]) -> tuple:
    """Return the index of an operand that is broadcast."""
    own = index[len(index) - len(shape) :]
    return tuple(0 if n == 1 else i for i, n in zip(own, shape, strict=True))


@rule(*algebra.FOLDS)
def _scalar_operation(walk, eqn, *operands):
    op, dtype = eqn.primitive.name, dtype_of(eqn.outvars[0].aval)
    graph, apply = walk.graph, algebra.apply
    if op in algebra.COMPARISONS:
        dtype = "b1"
    return mapped(walk, eqn, operands, lambda *xs: apply(graph, op, xs, dtype))


@rule("add_any")
def _add_any(walk, eqn, *operands):
    graph, dtype = walk.graph, dtype_of(eqn.outvars[0].aval)
    add = lambda *xs: algebra.apply(graph, "add", xs, dtype)
    return mapped(walk, eqn, operands, add)


@rule("square")
def _square(walk, eqn, x):
    graph, dtype = walk.graph, dtype_of(eqn.outvars[0].aval)
    return mapped(walk, eqn, (x,), lambda x: algebra.apply(graph, "mul", (x, x), dtype))


@rule("one_minus_square")  # jax 0.12 and newer
def _one_minus_square(walk, eqn, x):
    graph, dtype = walk.graph, dtype_of(eqn.outvars[0].aval)

    def factored(x):
        one = graph.constant(1, dtype)
        sides = [algebra.apply(graph, op, (one, x), dtype) for op in ("add", "sub")]
        return algebra.apply(graph, "mul", tuple(sides), dtype)

    return mapped(walk, eqn, (x,), factored)


@rule("pow")
def _pow(walk, eqn, x, y):
    graph, dtype = walk.graph, dtype_of(eqn.outvars[0].aval)

    def raised(x, y):
        return algebra.apply(graph, "pow", (x, algebra.convert(graph, y, dtype)), dtype)

    return mapped(walk, eqn, (x, y), raised)


@rule("integer_pow")
def _integer_pow(walk, eqn, x):
    graph, dtype = walk.graph, dtype_of(eqn.outvars[0].aval)
    raised = lambda x: algebra.power(graph, x, eqn.params["y"], dtype)
    return mapped(walk, eqn, (x,), raised)


@rule("round")
def _round(walk, eqn, x):
    even = int(eqn.params["rounding_method"]) == 1
    op, dtype = "round_even" if even else "round_away", dtype_of(eqn.outvars[0].aval)
    rounded = lambda x: algebra.apply(walk.graph, op, (x,), dtype)
    return mapped(walk, eqn, (x,), rounded)


@rule("convert_element_type")
def _convert(walk, eqn, x):
    dtype = dtype_of(eqn.outvars[0].aval)
    return mapped(walk, eqn, (x,), lambda x: algebra.convert(walk.graph, x, dtype))


@rule(
    "copy",
    "copy_p",
    "stop_gradient",
    "optimization_barrier",
    "name",
    "reshard",
    "mesh_cast",
    "sharding_constraint",
    "pvary",
)
def _identity(walk, eqn, *operands):
    return list(operands)


@rule("clamp")
def _clamp(walk, eqn, low, x, high):
    graph, dtype = walk.graph, dtype_of(eqn.outvars[0].aval)

    def clamp(low, x, high):
        raised = algebra.apply(graph, "max", (x, low), dtype)
        return algebra.apply(graph, "min", (raised, high), dtype)

    return mapped(walk, eqn, (low, x, high), clamp)


@rule("select_n")
def _select(walk, eqn, which, *cases):
    graph = walk.graph
    if dtype_of(eqn.invars[0].aval) == "b1":
        choose = lambda which, *xs: algebra.select(graph, which, *xs)
        return mapped(walk, eqn, (which, *cases), choose)

    def among(which, *xs):
        found = xs[-1]
        for k in reversed(range(len(xs) - 1)):
            number = graph.constant(k, graph.dtype[which])
            here = algebra.apply(graph, "eq", (which, number), "b1")
            found = algebra.select(graph, here, found, xs[k])
        return found

    return mapped(walk, eqn, (which, *cases), among)


@rule("empty", "empty2")
def _empty(walk, eqn):
    """Return an array without values: the start of a list that a loop fills, or a
    placeholder for what the other branch of a `cond` stores for its derivative."""
    aval, graph = eqn.outvars[0].aval, walk.graph
    size, dtype = math.prod(aval.shape), dtype_of(aval)
    if len(aval.shape) != 1 or size < LEAST_WRITTEN:
        return [arrays.constant(graph, np.zeros(aval.shape, aval.dtype))]
    # Arrays of different sizes are different nodes.
    blank = graph.pure("blank", (), dtype, size, size)
    return [arrays.stored(blank, aval.shape, dtype, graph)]


@rule("iota")
def _iota(walk, eqn):
    params, graph = eqn.params, walk.graph
    dtype = dtype_of(eqn.outvars[0].aval)
    shape, axis = params["shape"], params["dimension"]
    if is_large(shape):
        at = lambda i: algebra.convert(graph, index_node(graph, i[axis]), dtype)
        return [Pulled(shape, dtype, at, 0)]
    counts = [graph.constant(k, dtype) for k in range(shape[axis])]
    column = np.array(counts, np.int64)
    column = column.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return [np.broadcast_to(column, shape)]
