r"""LLVM IR as text: registers, types, literals, calls, and the functions that LLVM does not
have for vectors.

Sine and cosine: the argument is reduced by multiples of $\pi/2$ in three parts (Cody and
Waite 1980), then the minimax polynomials of Moshier's Cephes library (`sinf.c`, `sin.c`)
hold on $[-\pi/4, \pi/4]$. Arguments too large for that go through the C library, as all
other functions do. The result of a lane does not depend on the other lanes.
"""

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


def scalar_type(dtype: str) -> str:
    """Return LLVM's name of a type."""
    return _TYPES[dtype]


def bits(dtype: str) -> int:
    """Return the width of a type in bits; 1 for booleans."""
    return 1 if dtype == "b1" else 8 * int(dtype[1:])


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
        return self.width > 1 and bool(self.graph.dep[node] & LANE)

    def type(self, dtype: str, vector: bool) -> str:
        """Return LLVM's name of the type of a value."""
        name = _TYPES[dtype]
        return f"<{self.width} x {name}>" if vector else name

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
    if helper.name in ("sin", "cos"):
        return _Turn(helper, lanes, externals).text()
    if helper.name == "pow":
        return _power(helper, lanes, externals)
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


class _Turn:
    """Sine or cosine."""

    def __init__(self, helper: Helper, lanes: int, externals: set):
        self.op, self.dtype, self.lanes = helper.name, helper.dtype, lanes
        self.symbol, self.externals, self.lines = helper.symbol, externals, []
        dtype = helper.dtype
        self.kind = _lane_type(dtype, lanes)
        self.integer = _lane_type("i4" if dtype == "f4" else "i8", lanes)
        self.boolean = _lane_type("b1", lanes)

    def number(self, value) -> str:
        return _splat(value, self.dtype, self.lanes)

    def whole(self, value: int) -> str:
        return _splat(value, "i4" if self.dtype == "f4" else "i8", self.lanes)

    def add(self, name: str, expression: str) -> str:
        self.lines.append(f"  {name} = {expression}")
        return name

    def intrinsic(self, name: str, function: str, *operands: str) -> str:
        kind = self.kind
        suffix = "f32" if self.dtype == "f4" else "f64"
        suffix = suffix if self.lanes == 1 else f"v{self.lanes}{suffix}"
        full = f"llvm.{function}.{suffix}"
        kinds = ", ".join([kind] * len(operands))
        self.externals.add(f"declare {kind} @{full}({kinds})")
        given = ", ".join(f"{kind} {operand}" for operand in operands)
        return self.add(name, f"call {kind} @{full}({given})")

    def polynomial(self, tag: str, coefficients) -> str:
        found = self.number(coefficients[0])
        for k, coefficient in enumerate(coefficients[1:]):
            term = self.number(coefficient)
            found = self.intrinsic(f"%{tag}{k}", "fmuladd", "%z", found, term)
        return found

    def text(self) -> str:
        kind, boolean = self.kind, self.boolean
        self.lines.append(
            f"define internal {kind} {self.symbol}({kind} %a) noinline nounwind {{"
        )
        self.intrinsic("%size", "fabs", "%a")
        limit = self.number(_LARGEST[self.dtype])
        self.add("%small", f"fcmp ole {kind} %size, {limit}")
        zero = self.number(0.0)
        self.add("%near", f"select {boolean} %small, {kind} %a, {kind} {zero}")
        self._reduce()
        sine = self.polynomial("s", _SINE[self.dtype])
        self.add("%rz", f"fmul {kind} %r3, %z")
        sine = self.intrinsic("%sine", "fmuladd", "%rz", sine, "%r3")
        cosine = self.polynomial("c", _COSINE[self.dtype])
        self.add("%odd0", f"and {self.integer} %turn, {self.whole(1)}")
        self.add("%odd", f"icmp ne {self.integer} %odd0, {self.whole(0)}")
        self.add("%chosen", f"select {boolean} %odd, {kind} {cosine}, {kind} {sine}")
        self.add("%half0", f"and {self.integer} %turn, {self.whole(2)}")
        self.add("%half", f"icmp ne {self.integer} %half0, {self.whole(0)}")
        self.add("%minus", f"fneg {kind} %chosen")
        out = self.add("%out", f"select {boolean} %half, {kind} %minus, {kind} %chosen")
        if self.op == "sin":
            self.add("%none", f"fcmp oeq {kind} %a, {zero}")
            out = self.add(
                "%odd_out", f"select {boolean} %none, {kind} %a, {kind} {out}"
            )
        self.lines += _every_lane("%fits", "%small", self.lanes)
        self.lines += ["  br i1 %fits, label %done, label %far", "far:"]
        calls, result = _calls(self.op, ["%a"], self.dtype, self.lanes, self.externals)
        self.lines += calls
        self.add("%mixed", f"select {boolean} %small, {kind} {out}, {kind} {result}")
        self.lines += [f"  ret {kind} %mixed", "done:", f"  ret {kind} {out}", "}"]
        return "\n".join(self.lines)

    def _reduce(self) -> None:
        """Add lines that reduce an angle to `%r3` in [-pi/4, pi/4] and `%turn`, the
        number of quarter turns."""
        kind = self.kind
        self.add("%k0", f"fmul {kind} %near, {self.number(2 / np.pi)}")
        self.intrinsic("%k", "rint", "%k0")
        below = "%near"
        for j, part in enumerate(_PARTS[self.dtype], 1):
            below = self.intrinsic(f"%r{j}", "fmuladd", "%k", self.number(-part), below)
        self.add("%turn0", f"fptosi {kind} %k to {self.integer}")
        shift = self.whole(1 if self.op == "cos" else 0)
        self.add("%turn", f"add {self.integer} %turn0, {shift}")
        self.add("%z", f"fmul {kind} %r3, %r3")
