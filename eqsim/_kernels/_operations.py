"""The table of scalar operations, one row each: the value on constants, the simplification,
the LLVM instruction for floats and for integers, and the partial derivatives.

`apply` makes the node of an operation: constants are folded, zeros and ones absorbed. A
literal zero is structural: its product with anything is zero, also with NaN and infinity.
All else keeps the semantics of XLA. Integer division, shifts and conversions are defined
where LLVM's are not. Of LLVM's fast-math flags only `contract` is used: products and sums
may fuse.

The tables are at the end of the file, and name the functions of the sections above them.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ._graph import Graph, LANE, TILE
from ._llvm import bits, Text


Partial = Callable[["Element", int], int] | None
"""A function of an element and a factor that returns the factor times the derivative by
one operand; None where JAX must differentiate."""
Instruction = Callable[[Text, list[str], str, bool], str]
"""A function of the text, the operands, their type and whether they are vectors, which
returns the register of the result."""
FLAT: tuple[Partial, ...] = ()
"""Partial derivatives of a function that is constant almost everywhere."""


class Operation(NamedTuple):
    """One row of the table.

    - `fold`: value on constants, which are NumPy scalars.
    - `floats`, `integers`: instructions; None where there are none for the type.
    - `rule`: simplification, a function of the graph, the arguments and the type; it
        returns a node, or None if there is nothing to simplify.
    - `partials`: partial derivatives, one per operand; None where JAX differentiates.
    - `commutes`: true if the operands can be exchanged.
    - `is_cheap`: true if reverse mode computes the value again rather than storing it in
        each pass of a loop.
    """

    fold: Callable[..., Any]
    floats: Instruction | None = None
    integers: Instruction | None = None
    rule: Callable[..., int | None] | None = None
    partials: tuple[Partial, ...] | None = None
    commutes: bool = False
    is_cheap: bool = False


class Composite(NamedTuple):
    """An element-wise primitive that is made of operations.

    - `value`: a function of an element and the nodes of the operands.
    - `partials`: partial derivatives, as in `Operation`.
    """

    value: Callable[..., int]
    partials: tuple[Partial, ...] | None = None


class Element:
    """One element of an element-wise equation.

    - `dtype`: type of the result; `params`: parameters of the equation.
    - `x`: nodes of the operands; `out`: node of the result, for partial derivatives.
    """

    def __init__(self, graph: Graph, dtype: str, params, x=(), out: int = -1):
        self.graph, self.dtype, self.params = graph, dtype, params
        self.x, self.out = x, out

    def __call__(self, op: str, *args: int) -> int:
        """Return the node of an operation on nodes."""
        return apply(self.graph, op, args, self.dtype)

    def number(self, value: float) -> int:
        """Return the node of a literal."""
        return self.graph.constant(value, self.dtype)

    def where(self, op: str, pair: tuple[int, ...], then: int, other: int) -> int:
        """Return `then` where a comparison holds, else `other`."""
        test = apply(self.graph, op, pair, "b1")
        return select(self.graph, test, other, then)


# Nodes of operations.


def apply(graph: Graph, op: str, args: tuple[int, ...], dtype: str) -> int:
    """Return the simplified node of a scalar operation."""
    value, row = graph.value, OPERATIONS[op]
    if value.keys() >= {*args}:
        numbers = [value[arg] for arg in args]
        return graph.constant(row.fold(*numbers), dtype)
    if row.rule is not None:
        found = row.rule(graph, args, dtype)
        if found is not None:
            return found
    if row.commutes and args[0] > args[1]:
        args = args[1], args[0]
    return graph.pure(op, args, dtype)


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


# Values on constants.


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


def _shifted(kind: str):
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


# Simplifications.


def _simple_add(graph, args, dtype):
    x, y = args
    if x in graph.value and graph.value[x] == 0:
        return y
    if y in graph.value and graph.value[y] == 0:
        return x
    if graph.op[y] == "neg":
        return apply(graph, "sub", (x, graph.args[y][0]), dtype)
    if graph.op[x] == "neg":
        return apply(graph, "sub", (y, graph.args[x][0]), dtype)


def _simple_sub(graph, args, dtype):
    x, y = args
    if y in graph.value and graph.value[y] == 0:
        return x
    if x in graph.value and graph.value[x] == 0:
        return apply(graph, "neg", (y,), dtype)
    if graph.op[y] == "neg":
        return apply(graph, "add", (x, graph.args[y][0]), dtype)


def _simple_mul(graph, args, dtype):
    x, y = args
    one, other = (x, y) if x in graph.value else (y, x)
    if one in graph.value:
        number = graph.value[one]
        if number == 0:
            return graph.constant(0, dtype)
        if number == 1:
            return other
        if number == -1:
            return apply(graph, "neg", (other,), dtype)
    if graph.op[x] == "neg" and graph.op[y] == "neg":
        return apply(graph, "mul", (graph.args[x][0], graph.args[y][0]), dtype)


def _simple_div(graph, args, dtype):
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


def _simple_neg(graph, args, dtype):
    (x,) = args
    if graph.op[x] == "neg":
        return graph.args[x][0]
    if graph.op[x] == "sub":
        a, b = graph.args[x]
        return apply(graph, "sub", (b, a), dtype)


_LONGEST_POWER = 8


def _simple_pow(graph, args, dtype):
    x, y = args
    if y not in graph.value:
        return None
    number = float(graph.value[y])
    if number.is_integer() and abs(number) <= _LONGEST_POWER:
        return power(graph, x, int(number), dtype)


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


def _same_arguments(graph, args, dtype):
    return args[0] if args[0] == args[1] else None


def _simple_not(graph, args, dtype):
    (x,) = args
    return graph.args[x][0] if graph.op[x] == "not" else None


# Instructions.


def _line(instruction: str) -> Instruction:
    """Return an instruction on operands of one type; `{s}` in its name is `s` for signed
    integers and `u` for others."""
    signed, unsigned = instruction.format(s="s"), instruction.format(s="u")

    def write(text: Text, names: list[str], dtype: str, vector: bool) -> str:
        name = signed if dtype[0] == "i" else unsigned
        return text.new(f"{name} {text.type(dtype, vector)} {', '.join(names)}")

    return write


def _intrinsic(name: str) -> Instruction:
    """Return a call of a function that LLVM knows for vectors. Many of these end in calls
    of the C library, lane by lane."""
    return lambda text, names, dtype, vector: text.intrinsic(name, dtype, vector, names)


def _helper(name: str, c_name: str | None = None) -> Instruction:
    """Return a call of a function of `_llvm.py`, or of a function of the C library."""

    def write(text: Text, names: list[str], dtype: str, vector: bool) -> str:
        return text.helper(name, c_name or name, names, dtype, vector)

    return write


def _float_rsqrt(text: Text, names, dtype: str, vector: bool) -> str:
    kind, one = text.type(dtype, vector), text.literal(1.0, dtype, vector)
    root = text.intrinsic("sqrt", dtype, vector, names)
    return text.new(f"fdiv {kind} {one}, {root}")


def _float_is_finite(text: Text, names, dtype: str, vector: bool) -> str:
    kind, infinity = text.type(dtype, vector), text.literal(np.inf, dtype, vector)
    size = text.intrinsic("fabs", dtype, vector, names)
    return text.new(f"fcmp one {kind} {size}, {infinity}")


def _float_logistic(text: Text, names, dtype: str, vector: bool) -> str:
    kind, one = text.type(dtype, vector), text.literal(1.0, dtype, vector)
    negative = text.new(f"fneg {kind} {names[0]}")
    power = text.helper("exp", "exp", [negative], dtype, vector)
    total = text.new(f"fadd {kind} {power}, {one}")
    return text.new(f"fdiv {kind} {one}, {total}")


def _float_sign(text: Text, names, dtype: str, vector: bool) -> str:
    """Write -1, 1, or a zero: zeros keep their sign, and NaN stays NaN."""
    (name,), kind, test = names, text.type(dtype, vector), text.type("b1", vector)
    zero, one = (text.literal(x, dtype, vector) for x in (0.0, 1.0))
    unit = text.intrinsic("copysign", dtype, vector, [one, name])
    some = text.new(f"fcmp one {kind} {name}, {zero}")
    # Where XLA flushes denormals, they equal zero without being zero.
    rest = text.new(f"fmul {kind} {name}, {zero}")
    return text.new(f"select {test} {some}, {kind} {unit}, {kind} {rest}")


def _integer_extremum(op: str, of_flags: str) -> Instruction:
    def write(text: Text, names, dtype: str, vector: bool) -> str:
        if dtype == "b1":
            kind = text.type(dtype, vector)
            return text.new(f"{of_flags} {kind} {', '.join(names)}")
        sign = "s" if dtype[0] == "i" else "u"
        return text.intrinsic(f"{sign}{op}", dtype, vector, names)

    return write


def _integer_not(text: Text, names, dtype: str, vector: bool) -> str:
    ones = text.literal(-1, dtype, vector)
    return text.new(f"xor {text.type(dtype, vector)} {names[0]}, {ones}")


def _integer_neg(text: Text, names, dtype: str, vector: bool) -> str:
    zero = text.literal(0, dtype, vector)
    return text.new(f"sub {text.type(dtype, vector)} {zero}, {names[0]}")


def _integer_clz(text: Text, names, dtype: str, vector: bool) -> str:
    kind = text.type(dtype, vector)
    function = f"llvm.ctlz.{text.suffix(dtype, vector)}"
    return text.call(function, kind, [(kind, names[0]), ("i1", "false")])


def _integer_abs(text: Text, names, dtype: str, vector: bool) -> str:
    kind, test = text.type(dtype, vector), text.type("b1", vector)
    (name,), zero = names, text.literal(0, dtype, vector)
    if dtype[0] != "i":
        return name
    less = text.new(f"icmp slt {kind} {name}, {zero}")
    minus = text.new(f"sub {kind} {zero}, {name}")
    return text.new(f"select {test} {less}, {kind} {minus}, {kind} {name}")


def _integer_sign(text: Text, names, dtype: str, vector: bool) -> str:
    kind, test = text.type(dtype, vector), text.type("b1", vector)
    (name,), signed = names, dtype[0] == "i"
    minus, zero, one = (text.literal(x, dtype, vector) for x in (-1, 0, 1))
    more = text.new(f"icmp {'sgt' if signed else 'ugt'} {kind} {name}, {zero}")
    some = text.new(f"icmp ne {kind} {name}, {zero}")
    rest = text.new(f"select {test} {some}, {kind} {minus}, {kind} {zero}")
    return text.new(f"select {test} {more}, {kind} {one}, {kind} {rest}")


def _integer_division(op: str) -> Instruction:
    """Return the division of integers. Division by zero gives -1, with the dividend as the
    remainder. The smallest integer by -1 overflows to itself, with remainder zero."""

    def write(text: Text, names, dtype: str, vector: bool) -> str:
        kind, test = text.type(dtype, vector), text.type("b1", vector)
        (x, y), sign = names, "s" if dtype[0] == "i" else "u"
        if y.isdigit() and int(y):
            return text.new(f"{sign}{op} {kind} {x}, {y}")
        last, none, one = (text.literal(n, dtype, vector) for n in (-1, 0, 1))
        zero = text.new(f"icmp eq {kind} {y}, {none}")
        safe = text.new(f"select {test} {zero}, {kind} {one}, {kind} {y}")
        minus = None
        if dtype[0] == "i":
            minus = text.new(f"icmp eq {kind} {y}, {last}")
            safe = text.new(f"select {test} {minus}, {kind} {one}, {kind} {safe}")
        raw = text.new(f"{sign}{op} {kind} {x}, {safe}")
        if minus is not None:
            other = none
            if op == "div":
                other = text.new(f"sub {kind} {none}, {x}")
            raw = text.new(f"select {test} {minus}, {kind} {other}, {kind} {raw}")
        by_zero = last if op == "div" else x
        return text.new(f"select {test} {zero}, {kind} {by_zero}, {kind} {raw}")

    return write


def _integer_shift(instruction: str) -> Instruction:
    """Return the shift of an integer. Shifts by the width or more leave only the sign."""

    def write(text: Text, names, dtype: str, vector: bool) -> str:
        kind, test = text.type(dtype, vector), text.type("b1", vector)
        (x, y), size = names, bits(dtype)
        end, last, zero = (text.literal(n, dtype, vector) for n in (size, size - 1, 0))
        inside = text.new(f"icmp ult {kind} {y}, {end}")
        safe = text.new(f"select {test} {inside}, {kind} {y}, {kind} {last}")
        raw = text.new(f"{instruction} {kind} {x}, {safe}")
        if instruction == "ashr":
            return raw
        return text.new(f"select {test} {inside}, {kind} {raw}, {kind} {zero}")

    return write


def convert_instruction(text: Text, name: str, old: str, new: str, vector: bool) -> str:
    """Return the register of a value that is converted to another type."""
    source, target = text.type(old, vector), text.type(new, vector)
    if new == "b1":
        test, zero = ("fcmp une", 0.0) if old[0] == "f" else ("icmp ne", 0)
        return text.new(f"{test} {source} {name}, {text.literal(zero, old, vector)}")
    if old[0] == "f" and new[0] == "f":
        instruction = "fpext" if bits(new) > bits(old) else "fptrunc"
    elif old[0] == "f":
        sign = "s" if new[0] == "i" else "u"
        suffix = f"{text.suffix(new, vector)}.{text.suffix(old, vector)}"
        return text.call(f"llvm.fpto{sign}i.sat.{suffix}", target, [(source, name)])
    elif new[0] == "f":
        instruction = "sitofp" if old[0] == "i" else "uitofp"
    elif bits(new) == bits(old):
        return name
    elif bits(new) < bits(old):
        instruction = "trunc"
    else:
        instruction = "sext" if old[0] == "i" else "zext"
    return text.new(f"{instruction} {source} {name} to {target}")


# Partial derivatives.


def _integer_power(e: Element, ct: int) -> int:
    exponent = e.params["y"]
    if exponent == 0:
        return e.number(0)
    slope = power(e.graph, e.x[0], exponent - 1, e.dtype)
    return e("mul", ct, e("mul", e.number(exponent), slope))


def _extremum(k: int) -> Callable[[Element, int], int]:
    """Return the partial derivative of a minimum or maximum, shared where both operands
    are equal."""

    def partial(e: Element, ct: int) -> int:
        tied = e.where("eq", e.x, e("mul", e.number(0.5), ct), ct)
        return e.where("eq", (e.x[k], e.out), tied, e.number(0))

    return partial


def _inside(e: Element, ct: int) -> int:
    low, x, high = e.x
    below = e.where("lt", (x, high), ct, e.number(0))
    return e.where("gt", (x, low), below, e.number(0))


def _quotient(e: Element, ct: int) -> int:
    return e("neg", e("mul", e("div", ct, e.x[1]), e.out))


def _one_minus_square(e: Element, x: int) -> int:
    one = e.number(1)
    return e("mul", e("add", one, x), e("sub", one, x))


def _round(e: Element, x: int) -> int:
    even = int(e.params["rounding_method"]) == 1
    return e("round_even" if even else "round_away", x)


_same: Partial = lambda e, ct: ct
_minus: Partial = lambda e, ct: e("neg", ct)


# The tables.


def _row(
    fold, floats=None, integers=None, rule=None, partials=None, **flags
) -> Operation:
    """Return a row; texts are names of instructions."""
    floats = _line(floats) if isinstance(floats, str) else floats
    integers = _line(integers) if isinstance(integers, str) else integers
    return Operation(fold, floats, integers, rule, partials, **flags)


def _comparison(fold, test: str, of_floats: str, commutes: bool = False) -> Operation:
    return _row(
        fold,
        f"fcmp {of_floats}",
        f"icmp {test}",
        commutes=commutes,
        is_cheap=True,
    )


_PRODUCT = (
    lambda e, ct: e("mul", ct, e.x[1]),
    lambda e, ct: e("mul", ct, e.x[0]),
)
_commuting = functools.partial(_row, commutes=True, is_cheap=True)
_cheap = functools.partial(_row, is_cheap=True)
OPERATIONS: dict[str, Operation] = {
    # Arithmetic.
    "add": _commuting(np.add, "fadd contract", "add", _simple_add, (_same, _same)),
    "sub": _cheap(
        np.subtract,
        "fsub contract",
        "sub",
        _simple_sub,
        (_same, _minus),
    ),
    "mul": _commuting(np.multiply, "fmul contract", "mul", _simple_mul, _PRODUCT),
    "div": _row(
        _divide,
        "fdiv contract",
        _integer_division("div"),
        _simple_div,
        (lambda e, ct: e("div", ct, e.x[1]), _quotient),
    ),
    "rem": _row(_remainder, _helper("rem", "fmod"), _integer_division("rem")),
    "neg": _cheap(np.negative, "fneg", _integer_neg, _simple_neg, (_minus,)),
    "abs": _cheap(
        np.abs,
        _intrinsic("fabs"),
        _integer_abs,
        partials=(
            lambda e, ct: e.where("ge", (e.x[0], e.number(0)), ct, e("neg", ct)),
        ),
    ),
    "sign": _cheap(
        lambda x: _sign(x) if np.issubdtype(x.dtype, np.floating) else np.sign(x),
        _float_sign,
        _integer_sign,
        partials=FLAT,
    ),
    "max": _commuting(
        np.maximum,
        _intrinsic("maximum"),
        _integer_extremum("max", "or"),
        _same_arguments,
        (_extremum(0), _extremum(1)),
    ),
    "min": _commuting(
        np.minimum,
        _intrinsic("minimum"),
        _integer_extremum("min", "and"),
        _same_arguments,
        (_extremum(0), _extremum(1)),
    ),
    "nextafter": _row(np.nextafter, _helper("nextafter"), partials=FLAT),
    # Comparisons.
    "lt": _comparison(np.less, "{s}lt", "olt"),
    "le": _comparison(np.less_equal, "{s}le", "ole"),
    "gt": _comparison(np.greater, "{s}gt", "ogt"),
    "ge": _comparison(np.greater_equal, "{s}ge", "oge"),
    "eq": _comparison(np.equal, "eq", "oeq", commutes=True),
    "ne": _comparison(np.not_equal, "ne", "une", commutes=True),
    "is_finite": _row(np.isfinite, _float_is_finite),
    # Bits.
    "and": _commuting(np.bitwise_and, None, "and", _and_or(False)),
    "or": _commuting(np.bitwise_or, None, "or", _and_or(True)),
    "xor": _commuting(np.bitwise_xor, None, "xor"),
    "not": _cheap(np.invert, None, _integer_not, _simple_not),
    "shift_left": _row(_shifted("left"), None, _integer_shift("shl")),
    "shift_right_logical": _row(_shifted("logical"), None, _integer_shift("lshr")),
    "shift_right_arithmetic": _row(
        _shifted("arithmetic"), None, _integer_shift("ashr")
    ),
    "clz": _row(
        lambda x: x.dtype.type(8 * x.dtype.itemsize - _unsigned(x).bit_length()),
        None,
        _integer_clz,
    ),
    # Rounding.
    "floor": _row(np.floor, _intrinsic("floor"), partials=FLAT),
    "ceil": _row(np.ceil, _intrinsic("ceil"), partials=FLAT),
    "round_even": _row(np.rint, _intrinsic("roundeven"), partials=FLAT),
    "round_away": _row(_round_away, _intrinsic("round"), partials=FLAT),
    # Powers and exponentials.
    "sqrt": _row(
        np.sqrt,
        _intrinsic("sqrt"),
        partials=(lambda e, ct: e("mul", ct, e("div", e.number(0.5), e.out)),),
    ),
    "rsqrt": _row(lambda x: x.dtype.type(1) / np.sqrt(x), _float_rsqrt),
    "cbrt": _row(np.cbrt, _helper("cbrt")),
    "pow": _row(np.power, _helper("pow"), None, _simple_pow),
    "exp": _row(np.exp, _helper("exp"), partials=(lambda e, ct: e("mul", ct, e.out),)),
    "exp2": _row(np.exp2, _intrinsic("exp2")),
    "expm1": _row(np.expm1, _helper("expm1")),
    "log": _row(
        np.log, _intrinsic("log"), partials=(lambda e, ct: e("div", ct, e.x[0]),)
    ),
    "log1p": _row(np.log1p, _helper("log1p")),
    "logistic": _row(
        lambda x: x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x)), _float_logistic
    ),
    # Circular and hyperbolic functions.
    "sin": _row(
        np.sin,
        _helper("sin"),
        partials=(lambda e, ct: e("mul", ct, e("cos", e.x[0])),),
    ),
    "cos": _row(
        np.cos,
        _helper("cos"),
        partials=(lambda e, ct: e("neg", e("mul", ct, e("sin", e.x[0]))),),
    ),
    "tan": _row(np.tan, _intrinsic("tan")),
    "asin": _row(np.arcsin, _intrinsic("asin")),
    "acos": _row(np.arccos, _intrinsic("acos")),
    "atan": _row(np.arctan, _intrinsic("atan")),
    "atan2": _row(np.arctan2, _intrinsic("atan2")),
    "sinh": _row(np.sinh, _intrinsic("sinh")),
    "cosh": _row(np.cosh, _intrinsic("cosh")),
    "tanh": _row(np.tanh, _helper("tanh")),
    "asinh": _row(np.arcsinh, _helper("asinh")),
    "acosh": _row(np.arccosh, _helper("acosh")),
    "atanh": _row(np.arctanh, _helper("atanh")),
    # Others.
    "erf": _row(_vectorized(math.erf), _helper("erf")),
    "erfc": _row(_vectorized(math.erfc), _helper("erfc")),
    "lgamma": _row(_vectorized(math.lgamma), _helper("lgamma")),
}
COMPOSITES: dict[str, Composite] = {
    "add_any": Composite(lambda e, x, y: e("add", x, y), (_same, _same)),
    "square": Composite(
        lambda e, x: e("mul", x, x),
        (lambda e, ct: e("mul", ct, e("mul", e.number(2), e.x[0])),),
    ),
    # In jax 0.12 and newer.
    "one_minus_square": Composite(
        _one_minus_square,
        (lambda e, ct: e("mul", ct, e("mul", e.number(-2), e.x[0])),),
    ),
    "pow": Composite(lambda e, x, y: e("pow", x, convert(e.graph, y, e.dtype))),
    "integer_pow": Composite(
        lambda e, x: power(e.graph, x, e.params["y"], e.dtype), (_integer_power,)
    ),
    "round": Composite(_round, FLAT),
    "clamp": Composite(
        lambda e, low, x, high: e("min", e("max", x, low), high),
        (None, _inside, None),
    ),
}
PARTIALS = {
    name: row.partials
    for name, row in (OPERATIONS | COMPOSITES).items()
    if row.partials is not None
}
"""Partial derivatives of the element-wise primitives that have any."""
SMOOTH = [name for name, partials in PARTIALS.items() if partials != FLAT]
"""Element-wise primitives that vary smoothly and that JAX need not differentiate."""
