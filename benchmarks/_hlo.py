"""Count kernels, copies, loops and host round trips in the optimized HLO of a program."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple


class Range(NamedTuple):
    """Smallest and largest count; they differ if the program branches."""

    least: int = 0
    most: int = 0

    def __add__(self, other: "Range") -> "Range":
        return Range(self.least + other.least, self.most + other.most)

    def times(self, n: int) -> "Range":
        return Range(n * self.least, n * self.most)

    def __str__(self) -> str:
        same = self.least == self.most
        return str(self.least) if same else f"{self.least}-{self.most}"


class Work(NamedTuple):
    """Operations of a part of a program.

    - `kernels`: kernel launches and library calls.
    - `copies`: copies between buffers on the device.
    - `round_trips`: reads of a device value by the host.
    """

    kernels: Range = Range()
    copies: Range = Range()
    round_trips: Range = Range()

    def __add__(self, other: "Work") -> "Work":
        return Work(*(x + y for x, y in zip(self, other)))

    def times(self, n: int) -> "Work":
        return Work(*(x.times(n) for x in self))


class Loop(NamedTuple):
    """A data-dependent loop.

    - `depth`: number of data-dependent loops around it.
    - `work`: work of one iteration, including the first test of nested loops but not
        their iterations.
    """

    name: str
    depth: int
    work: Work


class Program(NamedTuple):
    """A compiled program.

    - `work`: work outside data-dependent loops.
    - `fixed_loops`: number of loops with a fixed number of iterations.
    """

    work: Work
    loops: list[Loop]
    fixed_loops: int

    def per_pass(self, nested: bool) -> Work:
        """Return the work of one iteration of every outermost loop, or of every nested
        loop."""
        return total(loop.work for loop in self.loops if (loop.depth > 0) == nested)


class _Instruction(NamedTuple):
    shape: str
    op: str
    attributes: str


_KERNEL, _COPY = Work(kernels=Range(1, 1)), Work(copies=Range(1, 1))
_ROUND_TRIP = Work(round_trips=Range(1, 1))
_FREE = {
    "add-dependency",
    "after-all",
    "async-done",
    "bitcast",
    "constant",
    "copy-done",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
}
_HEAD = re.compile(r"^(ENTRY )?%([\w.\-]+) \(.*\{\s*$")
_LINE = re.compile(r"^\s+(?:ROOT )?%[\w.\-]+ = (.*)$")
_COMMENT = re.compile(r"/\*.*?\*/")
_DIMENSIONS = re.compile(r"\w+\[([\d,<=]*)\]")


def count(text: str) -> Program:
    """Count the work of a program.

    All iterations of a loop with a fixed number of iterations are counted; XLA does not
    evaluate its condition. The host evaluates the condition of any other loop before
    each iteration, and the predicate of a branch once. CUDA graphs, which XLA may build
    from kernels when it loads a program, are not considered.

    **Arguments:**

    - `text`: `compiled.as_text()`.
    """
    computations, entry = _parse(text)
    loops: list[Loop] = []
    fixed: set[str] = set()

    def walk(name: str, depth: int) -> Work:
        return total(of(one, depth) for one in computations.get(name, []))

    def of(one: _Instruction, depth: int) -> Work:
        op, attributes = one.op, one.attributes
        if op in _FREE or _is_empty(one.shape):
            return Work()
        if op == "while":
            return loop(attributes, depth)
        if op == "conditional":
            return _ROUND_TRIP + _either(
                [walk(x, depth) for x in _branches(attributes)]
            )
        if op in ("call", "async-start"):
            return walk(_called(attributes), depth)
        if op in ("copy", "copy-start"):
            return _COPY
        calls_host = op == "custom-call" and "callback" in attributes
        return _KERNEL + _ROUND_TRIP if calls_host else _KERNEL

    def loop(attributes: str, depth: int) -> Work:
        body, condition = (_named(attributes, x) for x in ("body", "condition"))
        passes = re.search(r'known_trip_count\D*"(\d+)"', attributes)
        if passes:
            fixed.add(body)
            return walk(body, depth).times(int(passes[1]))
        test = _ROUND_TRIP + walk(condition, depth + 1)
        loops.append(Loop(_origin(attributes), depth, walk(body, depth + 1) + test))
        return test

    return Program(walk(entry, 0), loops, len(fixed))


def total(parts: Iterable[Work]) -> Work:
    """Sum the work of several parts."""
    return sum(parts, Work())


def _either(branches: list[Work]) -> Work:
    """Return the range of the work of several branches."""
    fields = zip(*branches)
    ends = ((min(x.least for x in f), max(x.most for x in f)) for f in fields)
    return Work(*(Range(*end) for end in ends))


def _parse(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """Return all computations by name, and the name of the entry computation."""
    computations: dict[str, list[_Instruction]] = {}
    current, entry = "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            current = head[2]
            computations[current] = []
            entry = current if head[1] else entry
        elif current and (found := _LINE.match(line)):
            computations[current].append(_instruction(found[1]))
    return computations, entry


def _instruction(text: str) -> _Instruction:
    """Parse `shape op(operands), attributes`."""
    text = _COMMENT.sub("", text)
    end = _closing(text) if text.startswith("(") else text.index(" ")
    shape, rest = text[:end], text[end:].lstrip()
    op, _, rest = rest.partition("(")
    return _Instruction(shape, op, rest[_closing(f"({rest}") - 1 :])


def _closing(text: str) -> int:
    """Return the index after the parenthesis that closes the first character."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place + 1
    return len(text)


def _is_empty(shape: str) -> bool:
    """Test if an array, or every array of a tuple, has size zero."""
    sizes = [
        math.prod(int(n) for n in re.findall(r"\d+", dimensions))
        for dimensions in _DIMENSIONS.findall(shape)
    ]
    return bool(sizes) and not any(sizes)


def _branches(attributes: str) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", attributes)
    if listed:
        return re.findall(r"%([\w.\-]+)", listed[1])
    return [_named(attributes, f"{x}_computation") for x in ("true", "false")]


def _called(attributes: str) -> str:
    found = re.search(
        r"(?:to_apply|calls|called_computations)=\{?%([\w.\-]+)", attributes
    )
    return found[1] if found else ""


def _named(attributes: str, name: str) -> str:
    found = re.search(rf"\b{name}=%([\w.\-]+)", attributes)
    return found[1] if found else ""


def _origin(attributes: str) -> str:
    """Return the JAX name stack of a loop, or an empty string."""
    found = re.search(r'op_name="([^"]*)"', attributes)
    return found[1] if found else ""
