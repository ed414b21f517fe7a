"""The lane graph: a program of scalars, each of which stands for one SIMD vector.

A node is a number; its properties are entries of parallel lists. Nodes are values: a
constant, the result of a scalar operation, an array in memory (`rows` > 0), or a control
node (a loop or a branch) whose results other nodes `get`. Equal pure nodes are one node.

Nodes belong to blocks. A block is the body of a loop or of a branch; it is nested in the
block in which its control node stands. A pure node lies in the innermost block that one
of its arguments lies in: what a loop does not change is computed before the loop. It
never leaves the body of a branch, unless it is an array of values from outside of a loop
that repeats the branch.
"""

import contextlib
import dataclasses
from typing import Any

import numpy as np


LANE = 1
"""Bit of `Graph.dep`: the value differs between the lanes of a vector."""
LOOP = 2
"""Bit of `Graph.dep`: the value differs between passes of the kernel's second axis."""
TILE = 4
"""Bit of `Graph.dep`: the value is the same in all lanes, and differs between tiles."""


@dataclasses.dataclass
class Block:
    """A scope of nodes.

    - `barrier`: depth that pure nodes made here may rise to.
    - `table`: pure nodes by what they are.
    - `waiting`: arrays that the next loop over them computes, see `_arrays.py`.
    """

    depth: int
    barrier: int
    table: dict = dataclasses.field(default_factory=dict)
    waiting: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Loop:
    """Repeats a body: `while test`, or `length` times where that is known.

    **Arguments:**

    - `depth`: depth of the body's block.
    - `index`: node that counts the passes, or None.
    - `params`, `outs`: the carried nodes at the start and at the end of a pass.
    - `test`: uniform boolean evaluated in every pass, or None with a `length`.
    - `stacked`: for each stacked result, the nodes that one pass contributes.
    """

    depth: int
    index: int | None
    params: list[int]
    outs: list[int]
    test: int | None
    length: int | None
    stacked: list[list[int]]


@dataclasses.dataclass
class Branch:
    """Evaluates `then` if a uniform predicate holds, else `other`."""

    depth: int
    then: list[int]
    other: list[int]


class Graph:
    """Nodes of one kernel.

    - `op`, `args`, `dtype`, `aux`: operation, argument nodes, NumPy type string without
        byte order (`f4`), static data.
    - `dep`: batch axes that the value depends on (`LANE`, `LOOP`).
    - `depth`: depth of the block that the node lies in.
    - `rows`: number of elements of an array in memory, 0 for a scalar.
    - `value`: NumPy scalars of the constants.
    - `assumed`: patterns of arguments, see `_assumptions.py`.
    - `frozen`: maps an array to a boolean node and another array: both arrays are equal
        in the lanes where the node is false.
    - `held`: tests of loops whose lanes end separately. They hold wherever the results of
        the body are used.
    - `literals`: unrolled arrays of constants, by type, shape and bytes.
    - `width`: lanes of a vector.
    - `keeps_blanks`: true if short arrays without values are kept as such; such a graph
        cannot be compiled.
    """

    def __init__(self, width: int = 1, keeps_blanks: bool = False) -> None:
        self.width, self.keeps_blanks = width, keeps_blanks
        self.op: list[str] = []
        self.args: list[tuple[int, ...]] = []
        self.dtype: list[str] = []
        self.dep: list[int] = []
        self.depth: list[int] = []
        self.aux: list[Any] = []
        self.rows: list[int] = []
        self.value: dict[int, np.generic] = {}
        self.assumed: dict[int, bytes] = {}
        self.frozen: dict[int, tuple[int, int]] = {}
        self.held: set[int] = set()
        self.literals: dict[tuple[str, tuple[int, ...], bytes], np.ndarray] = {}
        self.blocks = [Block(0, 0)]
        self._constants: dict[tuple[str, bytes], int] = {}
        self._numbers: dict[tuple[str, int | float], int] = {}
        self._captures: dict[int, tuple[int, ...]] = {}

    def _append(self, op, args, dtype, dep, depth, aux, rows) -> int:
        self.op.append(op)
        self.args.append(args)
        self.dtype.append(dtype)
        self.dep.append(dep)
        self.depth.append(depth)
        self.aux.append(aux)
        self.rows.append(rows)
        return len(self.op) - 1

    def constant(self, value, dtype: str) -> int:
        """Return a literal number."""
        # Numbers of Python need no conversion to be found again. Equal ones are the same,
        # but for the sign of zero.
        short = None
        if type(value) is int or type(value) is float and value:
            short = dtype, value
            if (found := self._numbers.get(short)) is not None:
                return found
        scalar: Any = np.asarray(value).astype(dtype)[()]
        key = dtype, scalar.tobytes()
        found = self._constants.get(key)
        if found is None:
            found = self._append("const", (), dtype, 0, 0, None, 0)
            self._constants[key] = found
            self.value[found] = scalar
        if short is not None:
            self._numbers[short] = found
        return found

    def source(self, op: str, dtype: str, dep: int, aux=None, rows: int = 0) -> int:
        """Return a node without arguments in the current block: an input or a
        parameter."""
        depth = self.blocks[-1].depth
        return self._append(op, (), dtype, dep, depth, aux, rows)

    def pure(self, op: str, args: tuple[int, ...], dtype: str, aux=None, rows=0) -> int:
        """Return the node of a pure operation, in the outermost block that allows it."""
        depth, dep = 0, 0
        for arg in args:
            dep |= self.dep[arg]
            if self.depth[arg] > depth:
                depth = self.depth[arg]
        key = op, args, dtype, aux
        blocks = self.blocks
        found = blocks[depth].table.get(key)
        if found is not None:
            return found
        if depth < blocks[-1].barrier and not (
            op == "pack" and self._is_repeated(depth)
        ):
            depth = blocks[-1].barrier
            found = blocks[depth].table.get(key)
            if found is not None:
                return found
        found = self._append(op, args, dtype, dep, depth, aux, rows)
        blocks[depth].table[key] = found
        return found

    def _is_repeated(self, depth: int) -> bool:
        """Return whether a loop lies between a block and the current one."""
        return any(block.barrier < block.depth for block in self.blocks[depth + 1 :])

    def freeze(self, which: int, old: list[int], new: list[int]) -> None:
        """Record that arrays have not changed in the lanes where `which` does not
        hold."""
        for one, two in zip(old, new, strict=True):
            if self.rows[one] and one != two:
                self.frozen[two] = one, which

    def keeps(self, which: int, old: int, new: int) -> bool:
        """Return whether two arrays are known to be equal in the lanes where `which`
        does not hold."""
        while new != old:
            new, mask = self.frozen.get(new, (-1, -1))
            if mask != which:
                return False
        return True

    @contextlib.contextmanager
    def block(self, branch: bool):
        """Open a new innermost block, the body of a loop or of a branch."""
        depth = len(self.blocks)
        barrier = depth if branch else self.blocks[-1].barrier
        self.blocks.append(Block(depth, barrier))
        try:
            yield depth
        finally:
            self.blocks.pop()

    def control(self, op: str, args: tuple[int, ...], aux: Loop | Branch) -> int:
        """Add a loop or a branch to the current block."""
        outs = _results(aux)
        captures = self._free(outs, aux.depth)
        dep = 0
        for node in (*args, *captures):
            dep |= self.dep[node]
        if isinstance(aux, Loop):
            for node in aux.params:
                dep |= self.dep[node]
        depth = self.blocks[-1].depth
        node = self._append(op, args, "", dep, depth, aux, 0)
        self._captures[node] = captures
        return node

    def recapture(self, control: int) -> None:
        """Update the captures of a control node after it was changed."""
        aux = self.aux[control]
        self._captures[control] = self._free(_results(aux), aux.depth)

    def get(self, control: int, number: int, dtype: str, dep: int, rows: int) -> int:
        """Return result `number` of a control node. It is known once per tile even if
        all lanes share it, because the control node runs once per tile."""
        depth, whole = self.depth[control], self.dep[control]
        dep |= whole & (LOOP | TILE) | (TILE if whole & LANE else 0)
        return self._append("get", (control,), dtype, dep, depth, number, rows)

    def __str__(self) -> str:
        return show(self)

    def needs(self, node: int) -> tuple[int, ...]:
        """Return the nodes that must be computed before a node."""
        captures = self._captures.get(node)
        return self.args[node] if captures is None else self.args[node] + captures

    def _free(self, outs: list[int], depth: int) -> tuple[int, ...]:
        """Return the nodes outside the block at `depth` that `outs` need."""
        free, seen, stack = [], set(outs), list(outs)
        while stack:
            node = stack.pop()
            if self.depth[node] < depth:
                if node not in self.value:
                    free.append(node)
                continue
            for arg in self.needs(node):
                if arg not in seen:
                    seen.add(arg)
                    stack.append(arg)
        return tuple(sorted(free))


def _results(aux: Loop | Branch) -> list[int]:
    """Return all nodes of the block of a control node that its results depend on."""
    if isinstance(aux, Branch):
        return [*aux.then, *aux.other]
    test = [] if aux.test is None else [aux.test]
    return [*aux.outs, *test, *(node for row in aux.stacked for node in row)]


def show(graph: Graph, outputs: list[int] | None = None) -> str:
    """Return a graph as text, one line an operation, indented by the depth of its block.

    A line gives the node, its type (with the number of elements of an array in memory), the
    axes that it depends on (`l`: lanes, `p`: passes of the second axis, `t`: tiles), the
    operation and its arguments. Literals are written in place.

    **Arguments:**

    - `outputs`: nodes whose ancestors are shown; None for all nodes.
    """
    shown = range(len(graph.op)) if outputs is None else _ancestors(graph, outputs)
    return "\n".join(_line(graph, node) for node in shown if node not in graph.value)


def _ancestors(graph: Graph, outputs: list[int]) -> list[int]:
    """Return the nodes that some nodes need, with the bodies of loops and branches."""
    seen, stack = set(outputs), list(outputs)
    while stack:
        node = stack.pop()
        aux, needs = graph.aux[node], list(graph.needs(node))
        if isinstance(aux, Loop | Branch):
            needs += _results(aux)
        if isinstance(aux, Loop):
            needs += aux.params
        stack += [x for x in needs if x not in seen]
        seen.update(needs)
    return sorted(seen)


def _line(graph: Graph, node: int) -> str:
    name = lambda n: str(graph.value[n]) if n in graph.value else f"%{n}"
    names = lambda nodes: "(" + ", ".join(map(name, nodes)) + ")"
    aux, rows, dep = graph.aux[node], graph.rows[node], graph.dep[node]
    kind = graph.dtype[node] + (f"[{rows}]" if rows else "")
    axes = "".join(x for x, bit in (("l", LANE), ("p", LOOP), ("t", TILE)) if dep & bit)
    words = [f"%{node}", kind, axes, "=", graph.op[node], *map(name, graph.args[node])]
    if isinstance(aux, Loop):
        count = f"{aux.length} times" if aux.test is None else f"while {name(aux.test)}"
        words += [count, names(aux.params), "->", names(aux.outs)]
        words += [f"stacks {names(row)}" for row in aux.stacked]
    elif isinstance(aux, Branch):
        words += ["then", names(aux.then), "else", names(aux.other)]
    elif graph.op[node] == "table":
        words.append(f"{len(aux[1])} bytes")
    elif aux is not None:
        words.append(f"#{aux}")
    return "  " * graph.depth[node] + " ".join(word for word in words if word)
