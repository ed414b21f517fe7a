"""LLVM instructions for scalar operations on vectors of W environments.

Only `contract` is allowed: products and sums may fuse. NaN, infinities and signed zeros
are kept. Integer division, shifts and conversions are defined where LLVM's are not.
"""

import struct

import numpy as np

from ._graph import Graph, LANE


FAST = "contract "

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

_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
# Functions that LLVM knows for vectors; they end in calls of the C library, lane by lane.
_INTRINSICS = {
    "exp": "exp",
    "exp2": "exp2",
    "log": "log",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "floor": "floor",
    "ceil": "ceil",
    "round_even": "roundeven",
    "round_away": "round",
    "sqrt": "sqrt",
    "atan2": "atan2",
}
# Functions of the C library without an intrinsic.
_LIBRARY = {
    "expm1": 1,
    "log1p": 1,
    "cbrt": 1,
    "asinh": 1,
    "acosh": 1,
    "atanh": 1,
    "erf": 1,
    "erfc": 1,
    "lgamma": 1,
    "rem": 2,
    "nextafter": 2,
}
_LIBRARY_NAMES = {"rem": "fmod"}


def scalar_type(dtype: str) -> str:
    """Return LLVM's name of a type."""
    return _TYPES[dtype]


def bits(dtype: str) -> int:
    """Return the width of a type in bits; 1 for booleans."""
    return 1 if dtype == "b1" else 8 * int(dtype[1:])


class Text:
    """Instructions of one function.

    - `width`: lanes of a vector.
    - `externals`: declarations that the module needs.
    - `helpers`: functions of `_functions.py` that it needs, `(name, dtype, lanes)`.
    - `prefix`: beginning of the names of registers.
    """

    def __init__(
        self, graph: Graph, width: int, externals: set, helpers: set, prefix: str
    ):
        self.graph, self.width, self.prefix = graph, width, prefix
        self.externals, self.helpers = externals, helpers
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
        self.externals.add(f"declare {result} @{function}({kinds})")
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
        self.externals.add(f"declare {kind} @{function}({kinds})")
        given = ", ".join(f"{kind} {operand}" for operand in operands)
        return self.new(f"call {flags}{kind} @{function}({given})")

    def operation(self, node: int, operand) -> str:
        """Return the result of a scalar operation; `operand(argument, vector)` names
        the register of an argument."""
        graph, op = self.graph, self.graph.op[node]
        args, dtype, vector = graph.args[node], graph.dtype[node], self.is_vector(node)
        if op == "any":
            return self._any(args[0], operand)
        of = graph.dtype[args[-1]] if op != "select" else dtype
        if op == "select":
            return self._select(node, operand, vector)
        names = [operand(arg, vector) for arg in args]
        if op == "convert":
            return self._convert(names[0], of, dtype, vector)
        if of[0] == "f":
            return self._float(op, names, of, vector)
        return self._integer(op, names, of, vector)

    def _any(self, arg: int, operand) -> str:
        if not self.is_vector(arg):
            return operand(arg, False)
        name, width = operand(arg, True), self.width
        packed = self.new(f"bitcast <{width} x i1> {name} to i{width}")
        return self.new(f"icmp ne i{width} {packed}, 0")

    def _select(self, node: int, operand, vector: bool) -> str:
        graph, (which, other, then) = self.graph, self.graph.args[node]
        kind = self.type(graph.dtype[node], vector)
        by_lane = self.is_vector(which)
        of = self.type("b1", by_lane)
        test = operand(which, by_lane)
        one, two = operand(then, vector), operand(other, vector)
        return self.new(f"select {of} {test}, {kind} {one}, {kind} {two}")

    def _float(self, op: str, names: list[str], dtype: str, vector: bool) -> str:
        kind = self.type(dtype, vector)
        one = lambda number: self.literal(number, dtype, vector)
        if op in ("add", "sub", "mul", "div"):
            return self.new(f"f{op} {FAST}{kind} {names[0]}, {names[1]}")
        if op in _COMPARE:
            return self.new(f"fcmp o{op} {kind} {names[0]}, {names[1]}")
        if op in ("eq", "ne"):
            test = "oeq" if op == "eq" else "une"
            return self.new(f"fcmp {test} {kind} {names[0]}, {names[1]}")
        if op == "neg":
            return self.new(f"fneg {kind} {names[0]}")
        if op == "abs":
            return self.intrinsic("fabs", dtype, vector, names)
        if op in ("max", "min"):
            return self.intrinsic(f"{op}imum", dtype, vector, names)
        if op == "rsqrt":
            root = self.intrinsic("sqrt", dtype, vector, names)
            return self.new(f"fdiv {kind} {one(1.0)}, {root}")
        if op == "is_finite":
            size = self.intrinsic("fabs", dtype, vector, names)
            return self.new(f"fcmp one {kind} {size}, {one(np.inf)}")
        if op == "sign":
            return self._float_sign(names[0], dtype, vector)
        if op == "logistic":
            negative = self.new(f"fneg {kind} {names[0]}")
            power = self.intrinsic("exp", dtype, vector, [negative])
            total = self.new(f"fadd {kind} {power}, {one(1.0)}")
            return self.new(f"fdiv {kind} {one(1.0)}, {total}")
        if op in _INTRINSICS:
            return self.intrinsic(_INTRINSICS[op], dtype, vector, names)
        return self._helper(op, names, dtype, vector)

    def _float_sign(self, name: str, dtype: str, vector: bool) -> str:
        """Return -1, 1, or a zero: zeros keep their sign, and NaN stays NaN."""
        kind, test = self.type(dtype, vector), self.type("b1", vector)
        zero, one = (self.literal(x, dtype, vector) for x in (0.0, 1.0))
        unit = self.intrinsic("copysign", dtype, vector, [one, name])
        some = self.new(f"fcmp one {kind} {name}, {zero}")
        # Where XLA flushes denormals, they equal zero without being zero.
        rest = self.new(f"fmul {kind} {name}, {zero}")
        return self.new(f"select {test} {some}, {kind} {unit}, {kind} {rest}")

    def _helper(self, op: str, names: list[str], dtype: str, vector: bool) -> str:
        kind = self.type(dtype, vector)
        self.helpers.add((op, dtype, vector))
        given = ", ".join(f"{kind} {name}" for name in names)
        return self.new(f"call {kind} @{helper_name(op, dtype, vector)}({given})")

    def _integer(self, op: str, names: list[str], dtype: str, vector: bool) -> str:
        kind, test = self.type(dtype, vector), self.type("b1", vector)
        signed, one = dtype[0] == "i", lambda x: self.literal(x, dtype, vector)
        pair = ", ".join(names)
        if op in ("add", "sub", "mul", "and", "or", "xor"):
            return self.new(f"{op} {kind} {pair}")
        if op in ("eq", "ne"):
            return self.new(f"icmp {op} {kind} {pair}")
        if op in _COMPARE:
            return self.new(f"icmp {'s' if signed else 'u'}{op} {kind} {pair}")
        if op in ("max", "min"):
            if dtype == "b1":
                return self.new(f"{'or' if op == 'max' else 'and'} {kind} {pair}")
            name = f"{'s' if signed else 'u'}{op}"
            return self.intrinsic(name, dtype, vector, names)
        if op == "not":
            return self.new(f"xor {kind} {names[0]}, {one(-1)}")
        if op == "neg":
            return self.new(f"sub {kind} {one(0)}, {names[0]}")
        if op == "clz":
            function = f"llvm.ctlz.{self.suffix(dtype, vector)}"
            operands = [(kind, names[0]), ("i1", "false")]
            return self.call(function, kind, operands)
        if op == "abs":
            if not signed:
                return names[0]
            less = self.new(f"icmp slt {kind} {names[0]}, {one(0)}")
            minus = self.new(f"sub {kind} {one(0)}, {names[0]}")
            return self.new(f"select {test} {less}, {kind} {minus}, {kind} {names[0]}")
        if op == "sign":
            more = self.new(
                f"icmp {'sgt' if signed else 'ugt'} {kind} {names[0]}, {one(0)}"
            )
            some = self.new(f"icmp ne {kind} {names[0]}, {one(0)}")
            rest = self.new(f"select {test} {some}, {kind} {one(-1)}, {kind} {one(0)}")
            return self.new(f"select {test} {more}, {kind} {one(1)}, {kind} {rest}")
        if op in ("div", "rem"):
            return self._division(op, names, dtype, vector)
        if op.startswith("shift"):
            return self._shift(op, names, dtype, vector)
        raise KeyError(f"no instruction for `{op}` of {dtype}")

    def _division(self, op: str, names, dtype: str, vector: bool) -> str:
        """Divide integers. Division by zero gives -1, with the dividend as the remainder. The
        smallest integer by -1 overflows to itself, with remainder zero."""
        kind, test = self.type(dtype, vector), self.type("b1", vector)
        x, y = names
        one = lambda number: self.literal(number, dtype, vector)
        sign = "s" if dtype[0] == "i" else "u"
        if y.isdigit() and int(y):
            return self.new(f"{sign}{op} {kind} {x}, {y}")
        zero = self.new(f"icmp eq {kind} {y}, {one(0)}")
        safe = self.new(f"select {test} {zero}, {kind} {one(1)}, {kind} {y}")
        minus = None
        if dtype[0] == "i":
            minus = self.new(f"icmp eq {kind} {y}, {one(-1)}")
            safe = self.new(f"select {test} {minus}, {kind} {one(1)}, {kind} {safe}")
        raw = self.new(f"{sign}{op} {kind} {x}, {safe}")
        if minus is not None:
            other = one(0)
            if op == "div":
                other = self.new(f"sub {kind} {one(0)}, {x}")
            raw = self.new(f"select {test} {minus}, {kind} {other}, {kind} {raw}")
        by_zero = one(-1) if op == "div" else x
        return self.new(f"select {test} {zero}, {kind} {by_zero}, {kind} {raw}")

    def _shift(self, op: str, names, dtype: str, vector: bool) -> str:
        """Shift an integer. Shifts by the width or more leave only the sign."""
        kind, test = self.type(dtype, vector), self.type("b1", vector)
        x, y = names
        size = bits(dtype)
        one = lambda number: self.literal(number, dtype, vector)
        inside = self.new(f"icmp ult {kind} {y}, {one(size)}")
        largest = one(size - 1)
        safe = self.new(f"select {test} {inside}, {kind} {y}, {kind} {largest}")
        if op == "shift_right_arithmetic":
            return self.new(f"ashr {kind} {x}, {safe}")
        name = "shl" if op == "shift_left" else "lshr"
        raw = self.new(f"{name} {kind} {x}, {safe}")
        return self.new(f"select {test} {inside}, {kind} {raw}, {kind} {one(0)}")

    def _convert(self, name: str, old: str, new: str, vector: bool) -> str:
        source, target = self.type(old, vector), self.type(new, vector)
        one = lambda number: self.literal(number, old, vector)
        if new == "b1":
            if old[0] == "f":
                return self.new(f"fcmp une {source} {name}, {one(0.0)}")
            return self.new(f"icmp ne {source} {name}, {one(0)}")
        if old[0] == "f" and new[0] == "f":
            instruction = "fpext" if bits(new) > bits(old) else "fptrunc"
            return self.new(f"{instruction} {source} {name} to {target}")
        if old[0] == "f":
            sign = "s" if new[0] == "i" else "u"
            function = (
                f"llvm.fpto{sign}i.sat.{self.suffix(new, vector)}"
                f".{self.suffix(old, vector)}"
            )
            return self.call(function, target, [(source, name)])
        if new[0] == "f":
            sign = "s" if old[0] == "i" else "u"
            return self.new(f"{sign}itofp {source} {name} to {target}")
        if bits(new) == bits(old):
            return name
        if bits(new) < bits(old):
            return self.new(f"trunc {source} {name} to {target}")
        extend = "sext" if old[0] == "i" else "zext"
        return self.new(f"{extend} {source} {name} to {target}")


def literal(number, dtype: str) -> str:
    """Return a constant operand in LLVM's notation."""
    if dtype[0] == "f":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"
    if dtype == "b1":
        return "true" if number else "false"
    return str(int(number))


def helper_name(op: str, dtype: str, vector: bool) -> str:
    """Return the name of a function of `_functions.py`."""
    return f"{op}_{dtype}{'_lanes' if vector else ''}"


def library(op: str) -> tuple[str, int] | None:
    """Return the name and the number of arguments of the C function of an operation."""
    if op not in _LIBRARY:
        return None
    return _LIBRARY_NAMES.get(op, op), _LIBRARY[op]
