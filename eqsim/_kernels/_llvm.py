r"""LLVM IR as text: registers, types, literals, calls, and the functions that LLVM does not
have for vectors.

Sine and cosine: the argument is reduced by multiples of $\pi/2$ in three parts (Cody and
Waite 1980), then the minimax polynomials of Moshier's Cephes library (`sinf.c`, `sin.c`)
hold on $[-\pi/4, \pi/4]$. Arguments too large for that go through the C library, as all
other functions but exp and tanh do. These reduce the argument by multiples of $\log 2$ and
use Taylor polynomials. The result of a lane does not depend on the other lanes.
"""

import functools
import math
import struct
from typing import NamedTuple

import numpy as np

from ._graph import Graph, LANE


_TYPES = {
    "b1": "i1",
    "i1": "i8",
    "u1": "i8",
    "i2": "i16",
    "u2": "i16",
    "i4": "i32",
    "u4": "i32",
    "i8": "i64",
    "u8": "i64",
    "f4": "float",
    "f8": "double",
}


@functools.cache
def _vectors(width: int) -> dict[str, str]:
    return {dtype: f"<{width} x {name}>" for dtype, name in _TYPES.items()}


def scalar_type(dtype: str) -> str:
    """Return LLVM's name of a type."""
    return _TYPES[dtype]


_BITS = {dtype: 1 if dtype == "b1" else 8 * int(dtype[1:]) for dtype in _TYPES}


def bits(dtype: str) -> int:
    """Return the width of a type in bits; 1 for booleans."""
    return _BITS[dtype]


def literal(number, dtype: str) -> str:
    """Return a constant operand in LLVM's notation."""
    if dtype[0] == "f":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"
    if dtype == "b1":
        return "true" if number else "false"
    return str(int(number))


class Helper(NamedTuple):
    """A function of the module that chunks call.

    - `name`: the operation; `c_name`: name of the C function that does the same.
    - `arity`: number of arguments.
    - `dtype`, `vector`: type of the arguments, and whether they are vectors.
    """

    name: str
    c_name: str
    arity: int
    dtype: str
    vector: bool

    @property
    def symbol(self) -> str:
        """Name in the module."""
        return f"@{self.name}_{self.dtype}{'_lanes' if self.vector else ''}"


class Uses:
    """What functions need from the module that they are in.

    - `externals`: declarations.
    - `helpers`: functions like sine.
    - `tables`: nodes of tables of numbers.
    """

    def __init__(self, *others: "Uses"):
        union = lambda sets: set().union(*sets)
        self.externals: set[str] = union(x.externals for x in others)
        self.helpers: set[Helper] = union(x.helpers for x in others)
        self.tables: set[int] = union(x.tables for x in others)


class Text:
    """Instructions of one function.

    - `width`: lanes of a vector.
    - `uses`: declarations of the module that the instructions need.
    - `prefix`: beginning of the names of registers.
    """

    def __init__(self, graph: Graph, width: int, prefix: str = "%t"):
        self.graph, self.width, self.prefix = graph, width, prefix
        self.uses = Uses()
        self.lines: list[str] = []
        self._kinds = _TYPES, _vectors(width)
        self._count = 0

    def new(self, expression: str) -> str:
        """Assign an expression to a new register."""
        self._count += 1
        name = f"{self.prefix}{self._count}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def label(self) -> int:
        """Return a number for the names of labels."""
        self._count += 1
        return self._count

    def is_vector(self, node: int) -> bool:
        """Return whether lanes have values of their own."""
        return self.width > 1 and self.graph.dep[node] & LANE != 0

    def type(self, dtype: str, vector: bool) -> str:
        """Return LLVM's name of the type of a value."""
        return self._kinds[vector][dtype]

    def literal(self, number, dtype: str, vector: bool) -> str:
        """Return a constant operand in LLVM's notation."""
        text = literal(number, dtype)
        return f"splat ({_TYPES[dtype]} {text})" if vector else text

    def broadcast(self, name: str, dtype: str) -> str:
        """Broadcast a scalar to all lanes."""
        vector, scalar = self.type(dtype, True), _TYPES[dtype]
        one = self.new(f"insertelement {vector} poison, {scalar} {name}, i64 0")
        zeros = f"<{self.width} x i32> zeroinitializer"
        return self.new(f"shufflevector {vector} {one}, {vector} poison, {zeros}")

    def call(self, function: str, result: str, operands: list[tuple[str, str]]) -> str:
        """Call an external function."""
        kinds = ", ".join(kind for kind, _ in operands)
        self.uses.externals.add(f"declare {result} @{function}({kinds})")
        given = ", ".join(f"{kind} {name}" for kind, name in operands)
        return self.new(f"call {result} @{function}({given})")

    def suffix(self, dtype: str, vector: bool) -> str:
        """Return the end of the name of an intrinsic."""
        kind = f"{'f' if dtype[0] == 'f' else 'i'}{bits(dtype)}"
        return f"v{self.width}{kind}" if vector else kind

    def intrinsic(self, name: str, dtype: str, vector: bool, operands, flags="") -> str:
        """Call an intrinsic on operands of one type."""
        kind = self.type(dtype, vector)
        function = f"llvm.{name}.{self.suffix(dtype, vector)}"
        kinds = ", ".join([kind] * len(operands))
        self.uses.externals.add(f"declare {kind} @{function}({kinds})")
        given = ", ".join(f"{kind} {operand}" for operand in operands)
        return self.new(f"call {flags}{kind} @{function}({given})")

    def helper(
        self, name: str, c_name: str, operands: list[str], dtype: str, vector: bool
    ) -> str:
        """Call a function of the module, see `definition`."""
        own = Helper(name, c_name, len(operands), dtype, vector)
        self.uses.helpers.add(own)
        kind = self.type(dtype, vector)
        given = ", ".join(f"{kind} {operand}" for operand in operands)
        return self.new(f"call {kind} {own.symbol}({given})")


# Modules.


class Chunk(NamedTuple):
    """A function of scalar operations, `void name(ptr noalias)`."""

    name: str
    lines: list[str]
    uses: Uses

    def text(self, linkage: str) -> str:
        """Return the definition."""
        head = f"define {linkage} void {self.name}(ptr noalias %S) noinline nounwind {{"
        return "\n".join([head, *self.lines, "  ret void", "}"])


class LLVMModule(NamedTuple):
    """A module of LLVM IR.

    - `width`: lanes of a vector.
    - `chunks`: functions that call nothing but helpers.
    - `tables`: definitions of tables of numbers, by their nodes.
    - `main`: text of all other functions; `uses`: what it needs.
    """

    width: int
    chunks: list[Chunk]
    tables: dict[int, str]
    main: str
    uses: Uses

    def text(self) -> str:
        """Return the whole module."""
        return self._text(self.chunks, "internal", self.main, self.uses)

    def _text(self, chunks, linkage: str, main: str, own: Uses) -> str:
        uses = Uses(own, *(chunk.uses for chunk in chunks))
        helpers = [
            definition(helper, self.width, uses.externals)
            for helper in sorted(uses.helpers)
        ]
        tables = [self.tables[node] for node in sorted(uses.tables)]
        functions = [chunk.text(linkage) for chunk in chunks]
        parts = [*sorted(uses.externals), *tables, *helpers, *functions, main]
        return "\n".join(parts)

    def split(self, count: int) -> list[str]:
        """Return at most `count` modules with shares of the chunks; the first one has
        everything else, too."""
        sizes = [sum(map(len, chunk.lines)) for chunk in self.chunks]
        if count < 2 or len(sizes) < 2:
            return [self.text()]
        shares: list[list[Chunk]] = [[] for _ in range(count)]
        start, total = 0, sum(sizes)
        for chunk, size in zip(self.chunks, sizes, strict=True):
            shares[min(start * count // total, count - 1)].append(chunk)
            start += size
        away = [chunk for share in shares[1:] for chunk in share]
        known = [f"declare hidden void {chunk.name}(ptr noalias)" for chunk in away]
        main = "\n".join([*known, self.main])
        others = [share for share in shares[1:] if share]
        return [
            self._text(shares[0], "hidden", main, self.uses),
            *(self._text(share, "hidden", "", Uses()) for share in others),
        ]

    @property
    def size(self) -> int:
        """Number of characters of the chunks."""
        return sum(len(line) for chunk in self.chunks for line in chunk.lines)


# Functions.


_PARTS = {
    "f4": (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
    "f8": (
        1.57079625129699707031,
        7.54978941586159635335e-8,
        5.39030285815811905290e-15,
    ),
}
_LARGEST = {"f4": 8192.0, "f8": 1e5}
_SINE = {
    "f4": (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    "f8": (
        1.58962301576546568060e-10,
        -2.50507477628578072866e-8,
        2.75573136213857245213e-6,
        -1.98412698295895385996e-4,
        8.33333333332211858878e-3,
        -1.66666666666666307295e-1,
    ),
}
_COSINE = {
    "f4": (
        2.443315711809948e-5,
        -1.388731625493765e-3,
        4.166664568298827e-2,
        -0.5,
        1.0,
    ),
    "f8": (
        -1.13585365213876817300e-11,
        2.08757008419747316778e-9,
        -2.75573141792967388112e-7,
        2.48015872888517045348e-5,
        -1.38888888888730564116e-3,
        4.16666666666665929218e-2,
        -0.5,
        1.0,
    ),
}


def definition(helper: Helper, width: int, externals: set) -> str:
    """Return the text of a function, for vectors of `width` lanes or for scalars."""
    lanes = width if helper.vector else 1
    if helper.name in _DEFINITIONS:
        return _DEFINITIONS[helper.name](helper, lanes, externals)
    kind = _lane_type(helper.dtype, lanes)
    names = ["%a", "%b"][: helper.arity]
    lines, result = _calls(helper.c_name, names, helper.dtype, lanes, externals)
    given = ", ".join(f"{kind} {x}" for x in names)
    head = f"define internal {kind} {helper.symbol}({given}) noinline nounwind {{"
    return "\n".join([head, *lines, f"  ret {kind} {result}", "}"])


def _lane_type(dtype: str, lanes: int) -> str:
    scalar = scalar_type(dtype)
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def _splat(number, dtype: str, lanes: int) -> str:
    text = literal(np.asarray(number, dtype)[()], dtype)
    return text if lanes == 1 else f"splat ({scalar_type(dtype)} {text})"


def _calls(function: str, names: list[str], dtype: str, lanes: int, externals):
    """Return lines that call a C function lane by lane, and the register of the result."""
    scalar, kind = scalar_type(dtype), _lane_type(dtype, lanes)
    function += "f" if dtype == "f4" else ""
    externals.add(f"declare {scalar} @{function}({', '.join([scalar] * len(names))})")
    if lanes == 1:
        given = ", ".join(f"{scalar} {name}" for name in names)
        return [f"  %value = call {scalar} @{function}({given})"], "%value"
    lines, found = [], "poison"
    for k in range(lanes):
        given = []
        for j, name in enumerate(names):
            lines.append(f"  %lane{j}_{k} = extractelement {kind} {name}, i64 {k}")
            given.append(f"{scalar} %lane{j}_{k}")
        lines.append(f"  %one{k} = call {scalar} @{function}({', '.join(given)})")
        lines.append(
            f"  %all{k} = insertelement {kind} {found}, {scalar} %one{k}, i64 {k}"
        )
        found = f"%all{k}"
    return lines, found


def _every_lane(name: str, register: str, lanes: int) -> list[str]:
    """Return lines that test whether a boolean holds in all lanes."""
    if lanes == 1:
        return [f"  {name} = xor i1 {register}, false"]
    return [
        f"  {name}.bits = bitcast <{lanes} x i1> {register} to i{lanes}",
        f"  {name} = icmp eq i{lanes} {name}.bits, -1",
    ]


def _power(helper: Helper, lanes: int, externals: set) -> str:
    """Return the function of a power. Exponents that are 1 or 2 in all lanes, such as
    those of `solimp`, need no call."""
    dtype = helper.dtype
    kind, test = _lane_type(dtype, lanes), _lane_type("b1", lanes)
    one, two = (_splat(x, dtype, lanes) for x in (1.0, 2.0))
    calls, result = _calls("pow", ["%a", "%b"], dtype, lanes, externals)
    lines = [
        f"define internal {kind} {helper.symbol}({kind} %a, {kind} %b) noinline nounwind {{",
        f"  %eq1 = fcmp oeq {kind} %b, {one}",
        *_every_lane("%is1", "%eq1", lanes),
        "  br i1 %is1, label %first, label %more",
        "first:",
        f"  ret {kind} %a",
        "more:",
        f"  %square = fmul {kind} %a, %a",
        f"  %eq2 = fcmp oeq {kind} %b, {two}",
        *_every_lane("%is2", "%eq2", lanes),
        "  br i1 %is2, label %second, label %rest",
        "second:",
        f"  ret {kind} %square",
        "rest:",
        *calls,
        f"  %but2 = select {test} %eq2, {kind} %square, {kind} {result}",
        f"  %but1 = select {test} %eq1, {kind} %a, {kind} %but2",
        f"  ret {kind} %but1",
        "}",
    ]
    return "\n".join(lines)


class _Lines:
    """Lines of a function of one argument `%a` on vectors of lanes.

    - `lines`: the lines so far.
    """

    def __init__(self, helper: Helper, lanes: int, externals: set):
        self.op, self.dtype, self.lanes = helper.name, helper.dtype, lanes
        self.externals, self.is_single = externals, helper.dtype == "f4"
        self.kind = _lane_type(helper.dtype, lanes)
        self.integer = _lane_type("i4" if self.is_single else "i8", lanes)
        self.boolean = _lane_type("b1", lanes)
        self.lines = [
            f"define internal {self.kind} {helper.symbol}({self.kind} %a) noinline "
            "nounwind {"
        ]

    def number(self, value) -> str:
        return _splat(value, self.dtype, self.lanes)

    def whole(self, value: int) -> str:
        return _splat(value, "i4" if self.is_single else "i8", self.lanes)

    def add(self, name: str, expression: str) -> str:
        self.lines.append(f"  {name} = {expression}")
        return name

    def intrinsic(self, name: str, function: str, *operands: str) -> str:
        kind = self.kind
        suffix = "f32" if self.is_single else "f64"
        suffix = suffix if self.lanes == 1 else f"v{self.lanes}{suffix}"
        full = f"llvm.{function}.{suffix}"
        kinds = ", ".join([kind] * len(operands))
        self.externals.add(f"declare {kind} @{full}({kinds})")
        given = ", ".join(f"{kind} {operand}" for operand in operands)
        return self.add(name, f"call {kind} @{full}({given})")

    def polynomial(self, tag: str, argument: str, coefficients) -> str:
        """Add a polynomial by Horner's rule, from the highest coefficient."""
        found = self.number(coefficients[0])
        for k, coefficient in enumerate(coefficients[1:]):
            term = self.number(coefficient)
            found = self.intrinsic(f"%{tag}{k}", "fmuladd", argument, found, term)
        return found

    def reduced(self, tag: str, argument: str, unit: float, parts) -> str:
        """Add `%k`, the nearest whole number of units in the argument, and return the
        rest.

        **Arguments:**

        - `parts`: numbers whose sum is the unit, the first ones with few digits, so that
            their products with `%k` are exact (Cody and Waite, *Software manual for the
            elementary functions*, 1980).
        """
        self.add("%k0", f"fmul {self.kind} {argument}, {self.number(1 / unit)}")
        self.intrinsic("%k", "rint", "%k0")
        rest = argument
        for j, part in enumerate(parts, 1):
            rest = self.intrinsic(
                f"%{tag}{j}", "fmuladd", "%k", self.number(-part), rest
            )
        return rest


def _turn(helper: Helper, lanes: int, externals: set) -> str:
    """Return a sine or cosine."""
    own = _Lines(helper, lanes, externals)
    kind, boolean, integer = own.kind, own.boolean, own.integer
    zero = own.number(0.0)
    own.intrinsic("%size", "fabs", "%a")
    own.add("%small", f"fcmp ole {kind} %size, {own.number(_LARGEST[own.dtype])}")
    own.add("%near", f"select {boolean} %small, {kind} %a, {kind} {zero}")
    # The rest lies in [-pi/4, pi/4], and `%turn` is the number of quarter turns.
    rest = own.reduced("r", "%near", np.pi / 2, _PARTS[own.dtype])
    own.add("%turn0", f"fptosi {kind} %k to {integer}")
    own.add("%turn", f"add {integer} %turn0, {own.whole(int(own.op == 'cos'))}")
    own.add("%z", f"fmul {kind} {rest}, {rest}")
    sine = own.polynomial("s", "%z", _SINE[own.dtype])
    own.add("%rz", f"fmul {kind} {rest}, %z")
    sine = own.intrinsic("%sine", "fmuladd", "%rz", sine, rest)
    cosine = own.polynomial("c", "%z", _COSINE[own.dtype])
    own.add("%odd0", f"and {integer} %turn, {own.whole(1)}")
    own.add("%odd", f"icmp ne {integer} %odd0, {own.whole(0)}")
    own.add("%chosen", f"select {boolean} %odd, {kind} {cosine}, {kind} {sine}")
    own.add("%half0", f"and {integer} %turn, {own.whole(2)}")
    own.add("%half", f"icmp ne {integer} %half0, {own.whole(0)}")
    own.add("%minus", f"fneg {kind} %chosen")
    out = own.add("%out", f"select {boolean} %half, {kind} %minus, {kind} %chosen")
    if own.op == "sin":
        own.add("%none", f"fcmp oeq {kind} %a, {zero}")
        out = own.add("%odd_out", f"select {boolean} %none, {kind} %a, {kind} {out}")
    own.lines += _every_lane("%fits", "%small", lanes)
    own.lines += ["  br i1 %fits, label %done, label %far", "far:"]
    calls, result = _calls(own.op, ["%a"], own.dtype, lanes, externals)
    own.lines += calls
    own.add("%mixed", f"select {boolean} %small, {kind} {out}, {kind} {result}")
    own.lines += [f"  ret {kind} %mixed", "done:", f"  ret {kind} {out}", "}"]
    return "\n".join(own.lines)


_LOG_2 = {
    "f4": (0.693359375, -2.1219444005469058e-4),
    "f8": (0.693145751953125, 1.4286068203094173e-6),
}
_RANGES = {"f4": (-104.0, 89.0), "f8": (-746.0, 710.0)}
"""Arguments beyond which an exponential is zero or infinite."""
_DEGREES = {"f4": 7, "f8": 13}
"""Degrees of the Taylor polynomials of exp for arguments up to log(2) / 2."""
_SATURATED = {"f4": 10.0, "f8": 20.0}
"""Arguments beyond which tanh is one."""


def _exponential_minus_one(own: _Lines, argument: str) -> tuple[str, str]:
    r"""Add $e^r - 1$ for the rest $r = x - k \log 2$. Returns it and the integer $k$."""
    kind, degree = own.kind, _DEGREES[own.dtype]
    rest = own.reduced("r", argument, np.log(2.0), _LOG_2[own.dtype])
    terms = [1.0 / math.factorial(n) for n in range(degree, 1, -1)]
    inner = own.polynomial("p", rest, terms)
    own.add("%rr", f"fmul {kind} {rest}, {rest}")
    own.intrinsic("%less", "fmuladd", "%rr", inner, rest)
    own.add("%whole", f"fptosi {kind} %k to {own.integer}")
    return "%less", "%whole"


def _power_of_two(own: _Lines, name: str, exponent: str) -> str:
    """Add two to the power of an integer, from the bits of a floating-point number."""
    bias, digits = (127, 23) if own.is_single else (1023, 52)
    own.add(f"{name}.biased", f"add {own.integer} {exponent}, {own.whole(bias)}")
    own.add(f"{name}.bits", f"shl {own.integer} {name}.biased, {own.whole(digits)}")
    return own.add(name, f"bitcast {own.integer} {name}.bits to {own.kind}")


def _clipped(own: _Lines, argument: str, low: float, high: float) -> str:
    """Limit an argument; NaN becomes a number."""
    own.intrinsic("%above", "maxnum", argument, own.number(low))
    return own.intrinsic("%inside", "minnum", "%above", own.number(high))


def _with_nan(own: _Lines, value: str) -> str:
    """Add the end of the function: NaN if the argument is NaN."""
    own.add("%nan", f"fcmp uno {own.kind} %a, %a")
    own.add("%out", f"select {own.boolean} %nan, {own.kind} %a, {own.kind} {value}")
    own.lines += [f"  ret {own.kind} %out", "}"]
    return "\n".join(own.lines)


def _exponential(helper: Helper, lanes: int, externals: set) -> str:
    """Return the exponential function."""
    own = _Lines(helper, lanes, externals)
    inside = _clipped(own, "%a", *_RANGES[own.dtype])
    less, whole = _exponential_minus_one(own, inside)
    own.add("%one", f"fadd {own.kind} {less}, {own.number(1.0)}")
    # In two steps: the power itself may overflow, or be smaller than normal numbers.
    half = own.add("%half", f"ashr {own.integer} {whole}, {own.whole(1)}")
    rest = own.add("%rest", f"sub {own.integer} {whole}, {half}")
    own.add("%scaled", f"fmul {own.kind} %one, {_power_of_two(own, '%first', half)}")
    own.add("%all", f"fmul {own.kind} %scaled, {_power_of_two(own, '%second', rest)}")
    return _with_nan(own, "%all")


def _tanh(helper: Helper, lanes: int, externals: set) -> str:
    r"""Return $\tanh x = m/(m + 2)$ with $m = e^{2 |x|} - 1$ and the sign of $x$."""
    own = _Lines(helper, lanes, externals)
    kind = own.kind
    own.intrinsic("%size", "fabs", "%a")
    own.add("%double", f"fadd {kind} %size, %size")
    inside = _clipped(own, "%double", 0.0, 2.0 * _SATURATED[own.dtype])
    less, whole = _exponential_minus_one(own, inside)
    power = _power_of_two(own, "%power", whole)
    own.add("%offset", f"fsub {kind} {power}, {own.number(1.0)}")
    own.intrinsic("%m", "fmuladd", power, less, "%offset")
    own.add("%below", f"fadd {kind} %m, {own.number(2.0)}")
    own.add("%ratio", f"fdiv {kind} %m, %below")
    own.intrinsic("%signed", "copysign", "%ratio", "%a")
    return _with_nan(own, "%signed")


_DEFINITIONS = {
    "sin": _turn,
    "cos": _turn,
    "exp": _exponential,
    "tanh": _tanh,
    "pow": _power,
}
