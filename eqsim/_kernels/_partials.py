"""Partial derivatives of element-wise primitives, as nodes.

A partial derivative $\\partial f / \\partial x_k$ is a number for each element, so that
one function serves forward mode (times a tangent) and reverse mode (times a cotangent).
"""

from collections.abc import Callable

from . import _algebra as algebra
from ._algebra import power
from ._graph import Graph


class Entry:
    """One element of an element-wise equation.

    - `x`: nodes of the operands; `out`: node of the result.
    """

    def __init__(self, graph: Graph, dtype: str, params, out: int, x: tuple[int, ...]):
        self.graph, self.dtype, self.params = graph, dtype, params
        self.out, self.x = out, x

    def __call__(self, op: str, *args: int) -> int:
        """Return the node of an operation on nodes."""
        return algebra.apply(self.graph, op, args, self.dtype)

    def number(self, value: float) -> int:
        """Return the node of a literal."""
        return self.graph.constant(value, self.dtype)

    def where(self, op: str, pair: tuple[int, ...], then: int, other: int) -> int:
        """Return `then` where a comparison holds, else `other`."""
        test = algebra.apply(self.graph, op, pair, "b1")
        return algebra.select(self.graph, test, other, then)


def _integer_power(e: Entry, ct: int) -> int:
    exponent = e.params["y"]
    if exponent == 0:
        return e.number(0)
    slope = power(e.graph, e.x[0], exponent - 1, e.dtype)
    return e("mul", ct, e("mul", e.number(exponent), slope))


def _extremum(k: int) -> Callable[[Entry, int], int]:
    """Return the partial derivative of a minimum or maximum, shared where both operands
    are equal."""

    def partial(e: Entry, ct: int) -> int:
        tied = e.where("eq", e.x, e("mul", e.number(0.5), ct), ct)
        return e.where("eq", (e.x[k], e.out), tied, e.number(0))

    return partial


def _inside(e: Entry, ct: int) -> int:
    low, x, high = e.x
    below = e.where("lt", (x, high), ct, e.number(0))
    return e.where("gt", (x, low), below, e.number(0))


def _quotient(e: Entry, ct: int) -> int:
    return e("neg", e("mul", e("div", ct, e.x[1]), e.out))


Partial = Callable[[Entry, int], int] | None
"""A function of an element and a factor that returns the factor times the derivative by
one operand; None where JAX must differentiate."""
_SAME: Partial = lambda e, ct: ct
PARTIALS: dict[str, tuple[Partial, ...]] = {
    "add": (_SAME, _SAME),
    "add_any": (_SAME, _SAME),
    "sub": (_SAME, lambda e, ct: e("neg", ct)),
    "mul": (lambda e, ct: e("mul", ct, e.x[1]), lambda e, ct: e("mul", ct, e.x[0])),
    "div": (lambda e, ct: e("div", ct, e.x[1]), _quotient),
    "neg": (lambda e, ct: e("neg", ct),),
    "square": (lambda e, ct: e("mul", ct, e("mul", e.number(2), e.x[0])),),
    "one_minus_square": (lambda e, ct: e("mul", ct, e("mul", e.number(-2), e.x[0])),),
    "integer_pow": (_integer_power,),
    "sqrt": (lambda e, ct: e("mul", ct, e("div", e.number(0.5), e.out)),),
    "sin": (lambda e, ct: e("mul", ct, e("cos", e.x[0])),),
    "cos": (lambda e, ct: e("neg", e("mul", ct, e("sin", e.x[0]))),),
    "exp": (lambda e, ct: e("mul", ct, e.out),),
    "log": (lambda e, ct: e("div", ct, e.x[0]),),
    "abs": (lambda e, ct: e.where("ge", (e.x[0], e.number(0)), ct, e("neg", ct)),),
    "max": (_extremum(0), _extremum(1)),
    "min": (_extremum(0), _extremum(1)),
    "clamp": (None, _inside, None),
}
