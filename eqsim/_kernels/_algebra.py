"""Scalar operations on the lane graph: constants are folded, zeros and ones absorbed.

A literal zero is structural: its product with anything is zero, also with NaN and
infinity. All else keeps the semantics of XLA.
"""

import math

import numpy as np

from ._graph import Graph, LANE, TILE


def _divide(x, y):
    if np.issubdtype(x.dtype, np.floating):
        return np.divide(x, y)
    if y == 0:
        return np.asarray(-1).astype(x.dtype)[()]
    # Python's integers do not overflow; the result wraps around.
    return np.asarray(_wrapped(_trunc(int(x), int(y)), x.dtype))[()]


def _remainder(x, y):
    if np.issubdtype(x.dtype, np.floating):
        return np.fmod(x, y)
    if y == 0:
        return x
    return np.asarray(_wrapped(int(x) - int(y) * _trunc(int(x), int(y)), x.dtype))[()]


def _trunc(x: int, y: int) -> int:
    whole = abs(x) // abs(y)
    return whole if (x < 0) == (y < 0) else -whole


def _wrapped(value: int, dtype):
    bits = 8 * dtype.itemsize
    value &= (1 << bits) - 1
    if np.issubdtype(dtype, np.signedinteger) and value >> (bits - 1):
        value -= 1 << bits
    return np.asarray(value, dtype)


def _shift(kind: str):
    def fold(x, y):
        bits, count = 8 * x.dtype.itemsize, int(y)
        if not 0 <= count < bits:
            count = bits - 1 if kind == "arithmetic" else bits
        if kind == "left":
            return _wrapped(int(x) << count, x.dtype)[()]
        if kind == "logical":
            return _wrapped((int(x) & ((1 << bits) - 1)) >> count, x.dtype)[()]
        signed = int(x.astype(f"i{x.dtype.itemsize}"))
        return _wrapped(signed >> count, x.dtype)[()]

    return fold


def _unsigned(x) -> int:
    return int(x) & ((1 << 8 * x.dtype.itemsize) - 1)


def _sign(x):
    return x if x == 0 or x != x else np.copysign(x.dtype.type(1), x)


def _round_away(x):
    whole = np.trunc(x)
    return whole if np.abs(x - whole) < 0.5 else whole + np.copysign(x.dtype.type(1), x)


def _vectorized(function):
    def fold(x):
        try:
            return x.dtype.type(function(float(x)))
        except (OverflowError, ValueError):
            # Poles of the logarithm of the gamma function.
            return x.dtype.type(np.inf)

    return fold


# Operations and their values on constants.
FOLDS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": _remainder,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "atan2": np.arctan2,
    "nextafter": np.nextafter,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": _shift("left"),
    "shift_right_logical": _shift("logical"),
    "shift_right_arithmetic": _shift("arithmetic"),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "not": np.invert,
    "neg": np.negative,
    "clz": lambda x: x.dtype.type(8 * x.dtype.itemsize - _unsigned(x).bit_length()),
    "abs": np.abs,
    "sign": lambda x: _sign(x) if np.issubdtype(x.dtype, np.floating) else np.sign(x),
    "floor": np.floor,
    "ceil": np.ceil,
    "round_even": np.rint,
    "round_away": _round_away,
    "is_finite": np.isfinite,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "cbrt": np.cbrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": lambda x: x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _vectorized(math.erf),
    "erfc": _vectorized(math.erfc),
    "lgamma": _vectorized(math.lgamma),
}

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})
_LONGEST_POWER = 8


def apply(graph: Graph, op: str, args: tuple[int, ...], dtype: str) -> int:
    """Return the simplified node of a scalar operation."""
    value = graph.value
    if all(arg in value for arg in args):
        numbers = [value[arg] for arg in args]
        return graph.constant(FOLDS[op](*numbers), dtype)
    rule = _RULES.get(op)
    if rule is not None:
        found = rule(graph, args, dtype)
        if found is not None:
            return found
    if op in _COMMUTATIVE and args[0] > args[1]:
        args = args[1], args[0]
    return graph.pure(op, args, dtype)


def _add(graph, args, dtype):
    x, y = args
    for one, other in ((x, y), (y, x)):
        if one in graph.value and graph.value[one] == 0:
            return other
    for one, other in ((x, y), (y, x)):
        if graph.op[other] == "neg":
            return apply(graph, "sub", (one, graph.args[other][0]), dtype)


def _sub(graph, args, dtype):
    x, y = args
    if y in graph.value and graph.value[y] == 0:
        return x
    if x in graph.value and graph.value[x] == 0:
        return apply(graph, "neg", (y,), dtype)
    if graph.op[y] == "neg":
        return apply(graph, "add", (x, graph.args[y][0]), dtype)


def _mul(graph, args, dtype):
    for one, other in (args, args[::-1]):
        if one in graph.value:
            number = graph.value[one]
            if number == 0:
                return graph.constant(0, dtype)
            if number == 1:
                return other
            if number == -1:
                return apply(graph, "neg", (other,), dtype)
    x, y = args
    if graph.op[x] == "neg" and graph.op[y] == "neg":
        return apply(graph, "mul", (graph.args[x][0], graph.args[y][0]), dtype)


def _div(graph, args, dtype):
    x, y = args
    if dtype[0] != "f":
        return None
    if x in graph.value and graph.value[x] == 0:
        return x
    if y in graph.value:
        # Exact for powers of two; else off by at most one rounding. A denormal inverse
        # would be flushed to zero.
        inverse = graph.constant(1.0 / graph.value[y], dtype)
        if np.finfo(dtype).tiny <= abs(graph.value[inverse]) < np.inf:
            return apply(graph, "mul", (x, inverse), dtype)


def _neg(graph, args, dtype):
    (x,) = args
    if graph.op[x] == "neg":
        return graph.args[x][0]
    if graph.op[x] == "sub":
        a, b = graph.args[x]
        return apply(graph, "sub", (b, a), dtype)


def _pow(graph, args, dtype):
    x, y = args
    if y not in graph.value:
        return None
    number = float(graph.value[y])
    if number.is_integer() and abs(number) <= _LONGEST_POWER:
        return power(graph, x, int(number), dtype)


def power(graph: Graph, x: int, exponent: int, dtype: str) -> int:
    """Raise `x` to an integer power by repeated squaring."""
    if exponent < 0:
        one = graph.constant(1, dtype)
        return apply(graph, "div", (one, power(graph, x, -exponent, dtype)), dtype)
    result, square = graph.constant(1, dtype), x
    while exponent:
        if exponent & 1:
            result = apply(graph, "mul", (result, square), dtype)
        exponent >>= 1
        if exponent:
            square = apply(graph, "mul", (square, square), dtype)
    return result


def _and_or(absorbing: bool):
    def rule(graph, args, dtype):
        x, y = args
        if x == y:
            return x
        if dtype != "b1":
            return None
        for one, other in ((x, y), (y, x)):
            if one in graph.value:
                return one if bool(graph.value[one]) is absorbing else other

    return rule


def _same(graph, args, dtype):
    return args[0] if args[0] == args[1] else None


def _not(graph, args, dtype):
    (x,) = args
    return graph.args[x][0] if graph.op[x] == "not" else None


_RULES = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "pow": _pow,
    "and": _and_or(False),
    "or": _and_or(True),
    "max": _same,
    "min": _same,
    "not": _not,
}


def select(graph: Graph, which: int, other: int, then: int) -> int:
    """Return `then` where a boolean holds, else `other`."""
    if which in graph.value:
        return then if graph.value[which] else other
    if then == other or which in graph.held:
        return then
    dtype = graph.dtype[then]
    if graph.op[which] == "not":
        which, other, then = graph.args[which][0], then, other
    if dtype == "b1" and then in graph.value and other in graph.value:
        return which if graph.value[then] else apply(graph, "not", (which,), "b1")
    return graph.pure("select", (which, other, then), dtype)


def convert(graph: Graph, x: int, dtype: str) -> int:
    """Convert `x` to another type: truncating, saturating from floats to integers."""
    old = graph.dtype[x]
    if old == dtype:
        return x
    if x not in graph.value and old == "b1":
        return select(graph, x, graph.constant(0, dtype), graph.constant(1, dtype))
    if x not in graph.value:
        return graph.pure("convert", (x,), dtype)
    number = graph.value[x]
    if old[0] == "f" and dtype[0] in "iu":
        info = np.iinfo(dtype)
        if np.isnan(number):
            return graph.constant(0, dtype)
        whole = int(np.clip(np.trunc(number), -(2.0**70), 2.0**70))
        return graph.constant(min(max(whole, info.min), info.max), dtype)
    return graph.constant(number, dtype)


def any_lane(graph: Graph, which: int) -> int:
    """Return whether a boolean holds in any lane; the result is the same in all lanes."""
    if not graph.dep[which] & LANE:
        return which
    node = graph.pure("any", (which,), "b1")
    graph.dep[node] = graph.dep[which] & ~LANE | TILE
    return node
