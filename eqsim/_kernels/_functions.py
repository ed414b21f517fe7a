r"""Functions that LLVM does not have for vectors, as LLVM IR.

Sine and cosine: the argument is reduced by multiples of $\pi/2$ in three parts (Cody and
Waite 1980), then the minimax polynomials of Moshier's Cephes library (`sinf.c`, `sin.c`)
hold on $[-\pi/4, \pi/4]$. Arguments too large for that go through the C library, as all
other functions do. What a lane gets does not depend on the other lanes.
"""

import numpy as np

from ._instructions import helper_name, library, literal, scalar_type


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


def definition(op: str, dtype: str, vector: bool, width: int, externals: set) -> str:
    """Return the function of an operation, for vectors of `width` lanes or for scalars."""
    lanes = width if vector else 1
    name = helper_name(op, dtype, vector)
    if op in ("sin", "cos"):
        return _Turn(name, op, dtype, lanes, externals).text()
    if op == "pow":
        return _power(name, dtype, lanes, externals)
    found = library(op)
    if found is None:
        raise KeyError(f"no function for `{op}`")
    function, count = found
    return _lane_by_lane(name, function, count, dtype, lanes, externals)


def _kind(dtype: str, lanes: int) -> str:
    scalar = scalar_type(dtype)
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def _splat(number, dtype: str, lanes: int) -> str:
    text = literal(np.asarray(number, dtype)[()], dtype)
    return text if lanes == 1 else f"splat ({scalar_type(dtype)} {text})"


def _calls(function: str, names: list[str], dtype: str, lanes: int, externals):
    """Return lines that call a C function lane by lane, and the register of the result."""
    scalar, kind = scalar_type(dtype), _kind(dtype, lanes)
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


def _lane_by_lane(name, function, count, dtype, lanes, externals) -> str:
    kind = _kind(dtype, lanes)
    names = ["%a", "%b"][:count]
    lines, result = _calls(function, names, dtype, lanes, externals)
    given = ", ".join(f"{kind} {x}" for x in names)
    head = f"define internal {kind} @{name}({given}) noinline nounwind {{"
    return "\n".join([head, *lines, f"  ret {kind} {result}", "}"])


def _all(name: str, register: str, lanes: int) -> list[str]:
    """Return lines that test whether a boolean holds in all lanes."""
    if lanes == 1:
        return [f"  {name} = xor i1 {register}, false"]
    return [
        f"  {name}.bits = bitcast <{lanes} x i1> {register} to i{lanes}",
        f"  {name} = icmp eq i{lanes} {name}.bits, -1",
    ]


def _power(name: str, dtype: str, lanes: int, externals: set) -> str:
    """Return the function of a power. Exponents that are 1 or 2 in all lanes, such as
    those of `solimp`, need no call."""
    kind, test = _kind(dtype, lanes), _kind("b1", lanes)
    one, two = (_splat(x, dtype, lanes) for x in (1.0, 2.0))
    calls, result = _calls("pow", ["%a", "%b"], dtype, lanes, externals)
    lines = [
        f"define internal {kind} @{name}({kind} %a, {kind} %b) noinline nounwind {{",
        f"  %eq1 = fcmp oeq {kind} %b, {one}",
        *_all("%is1", "%eq1", lanes),
        "  br i1 %is1, label %first, label %more",
        "first:",
        f"  ret {kind} %a",
        "more:",
        f"  %square = fmul {kind} %a, %a",
        f"  %eq2 = fcmp oeq {kind} %b, {two}",
        *_all("%is2", "%eq2", lanes),
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

    def __init__(self, name: str, op: str, dtype: str, lanes: int, externals: set):
        self.name, self.op, self.dtype, self.lanes = name, op, dtype, lanes
        self.externals, self.lines = externals, []
        self.kind = _kind(dtype, lanes)
        self.integer = _kind("i4" if dtype == "f4" else "i8", lanes)
        self.boolean = _kind("b1", lanes)

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
            f"define internal {kind} @{self.name}({kind} %a) noinline nounwind {{"
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
        self.lines += _all("%fits", "%small", self.lanes)
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
