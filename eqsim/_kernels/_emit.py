"""LLVM IR of a kernel.

    handler (entry for XLA, `_runtime.py`)
      -> participate: what one thread does of a call, in scratch memory of its own
           region 0: what the whole batch shares
           for each pass of the outer axis: copy inputs in, region 1
             for each pass of the inner axis: copy inputs in, region 2
             copy outputs out, or add them up

Inputs and outputs lie packed in scratch memory, W environments per tile. The last
tile may be partial: its lanes beyond the batch repeat the last environment.
"""

import dataclasses
from typing import Any

from . import _runtime as runtime
from ._allocate import allocate
from ._body import Body
from ._functions import definition
from ._graph import Graph, LANE
from ._grouping import tally
from ._instructions import bits, Text
from ._scalarize import Unsupported
from ._schedule import (
    Choose,
    Chunk,
    Copy,
    Item,
    lanes_going,
    Repeat,
    Schedule,
)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An argument or a result of a kernel.

    **Arguments:**

    - `rows`: number of elements for each environment.
    - `dep`: the axes of the batch that it has, `LANE` and `LOOP`.
    - `summed`: true if a result is added up over the axes of the nest.
    - `assumed`: assumptions about arguments, see `_assumptions.py`.
    """

    rows: int
    dtype: str
    dep: int
    summed: bool = False
    assumed: bytes | None = None


_MOST_STORED = 128
"""Values that one function stores or copies."""


class Emitter:
    """Text of one kernel.

    **Arguments:**

    - `inputs`: arguments; `sources` are their nodes, in the same order.
    - `outputs`: results; `results` are the nodes of their elements.
    - `nest`: axes of the batch, from the outermost loop on.
    - `width`: lanes of a vector.

    **Attributes:**

    - `costs`: costs of the functions that it calls, see `_callees.py`.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: list[Leaf],
        sources: list[int],
        outputs: list[Leaf],
        results: list[list[int]],
        nest: tuple[int, ...],
        width: int,
    ):
        self.graph, self.nest, self.width = graph, nest, width
        self.inputs, self.sources = inputs, sources
        self.outputs, self.results = outputs, results
        flat = [node for row in results for node in row]
        self.schedule = Schedule(graph, nest, flat, width)
        self.externals: set[str] = set()
        self.helpers: set[tuple[str, str, bool]] = set()
        self.functions: list[str] = []
        self.tables: dict[int, str] = {}
        self.labels = 0
        self.cost = 0
        self.weights: list[int] = []
        self.costs: dict[Any, Any] = {}
        self._layout()

    def _layout(self) -> None:
        """Place the inputs, outputs, accumulators and slots, in this order."""
        top, fixed, self.packed, self.sums = 0, {}, [], {}
        for leaf, node in zip(self.inputs, self.sources, strict=True):
            fixed[node] = top
            top += _round(leaf.rows * self._stride(leaf.dtype, leaf.dep))
        for k, leaf in enumerate(self.outputs):
            self.packed.append(top)
            full = LANE if LANE in self.nest else 0
            top += _round(leaf.rows * self._stride(leaf.dtype, full))
            if leaf.summed:
                self.sums[k] = top
                top += _round(leaf.rows * self._stride(leaf.dtype, full))
        self.lane_numbers, self.work = top, top + _round(8 * self.width)
        top = self.work + _round(4 * self.width)
        allocate(self.schedule, top, fixed)
        self.size = max(self.schedule.size, top) + 64

    def _stride(self, dtype: str, dep: int) -> int:
        """Return the bytes from one row of an array to the next."""
        return max(bits(dtype), 8) // 8 * (self.width if dep & LANE else 1)

    # Functions of scalar operations.

    def _body(self, prefix: str = "%t") -> Body:
        """Return an empty function; the names of its registers begin with `prefix`."""
        text = Text(self.graph, self.width, self.externals, self.helpers, prefix)
        return Body(self.schedule, text, self.table, self.work)

    def _function(self, lines: list[str]) -> str:
        if not lines:
            return ""
        name = f"@c{len(self.functions)}"
        head = f"define internal void {name}(ptr noalias %S) noinline nounwind {{"
        self.functions.append("\n".join([head, *lines, "  ret void", "}"]))
        return f"  call void {name}(ptr %S)"

    def _chunk(self, chunk: Chunk) -> str:
        body = self._body()
        for node in chunk.nodes:
            body.evaluate(node)
            if self.graph.op[node] == "call":
                cost = self.costs[self.graph.aux[node]]
                self.cost += cost.whole
                self.weights += [cost.largest] if self.nest == (LANE,) else []
        self.cost += len(chunk.nodes)
        return self._function(body.text.lines)

    def _copy(self, copy: Copy) -> list[str]:
        """Return lines that copy values. States may be read by other assignments, so
        all are loaded before any is stored; other values are copied a few at a time."""
        states = {state for _, state in copy.pairs}
        read = self.schedule.read
        first = [p for p in copy.pairs if read(p[0]) in states]
        rest = [p for p in copy.pairs if read(p[0]) not in states]
        self._check_arrays(first)
        calls = self._stacked(copy)
        if first:
            body = self._body()
            body.assign(first)
            calls.append(self._function(body.text.lines))
        for k in range(0, len(rest), _MOST_STORED):
            body = self._body()
            for pair in rest[k : k + _MOST_STORED]:
                body.assign([pair])
            calls.append(self._function(body.text.lines))
        return calls

    def _stacked(self, copy: Copy) -> list[str]:
        """Return calls of functions that store some results of a pass each."""
        calls, body, room = [], self._body(), _MOST_STORED
        for array, index, values in copy.stacked:
            for k in range(0, len(values), _MOST_STORED):
                part = values[k : k + _MOST_STORED]
                if len(part) > room:
                    calls.append(self._function(body.text.lines))
                    body, room = self._body(), _MOST_STORED
                body.stack(array, index, part, k, len(values))
                room -= len(part)
        calls.append(self._function(body.text.lines))
        return [call for call in calls if call]

    def _check_arrays(self, pairs) -> None:
        if sum(bool(self.graph.rows[state]) for _, state in pairs) > 1:
            raise Unsupported("a loop that permutes large arrays")

    def _label(self) -> int:
        self.labels += 1
        return self.labels

    # Control flow.

    def program(self, items: list[Item]) -> list[str]:
        """Return lines that run items one after the other."""
        lines: list[str] = []
        for item in items:
            if isinstance(item, Chunk):
                lines.append(self._chunk(item))
            elif isinstance(item, Copy):
                lines += self._copy(item)
            elif isinstance(item, Repeat):
                lines += self._repeat(item)
            else:
                lines += self._choose(item)
        return lines

    def _slot(self, node: int) -> tuple[str, list[str]]:
        """Return the address of a value, and the line that computes it."""
        name = f"%a{self._label()}"
        place = self.schedule.place[self.schedule.resolve(node)]
        return name, [f"  {name} = getelementptr i8, ptr %S, i64 {place}"]

    def _flag(self, node: int) -> tuple[str, list[str]]:
        """Return a uniform boolean as a register."""
        if self.schedule.resolve(node) in self.graph.value:
            value = self.graph.value[self.schedule.resolve(node)]
            return ("true" if value else "false"), []
        body = self._body(f"%d{self._label()}_")
        name = body.value(node)
        return name, body.text.lines

    def _repeat(self, item: Repeat) -> list[str]:
        n = self._label()
        lines = self._copy(item.init)
        if item.counter is not None:
            address, address_lines = self._slot(item.counter)
            lines += [*address_lines, f"  store i32 0, ptr {address}, align 8"]
        lines += [f"  br label %loop{n}", f"loop{n}:"]
        if item.test is not None:
            lines += self.program(item.head)
            flag, flag_lines = self._flag(item.test)
            lines += [*flag_lines, f"  br i1 {flag}, label %body{n}, label %end{n}"]
        else:
            assert item.counter is not None, "a loop without a test is counted"
            address, address_lines = self._slot(item.counter)
            lines += [
                *address_lines,
                f"  %count{n} = load i32, ptr {address}, align 8",
                f"  %more{n} = icmp slt i32 %count{n}, {item.length}",
                f"  br i1 %more{n}, label %body{n}, label %end{n}",
            ]
        before = self.cost
        body = [*self.program(item.body), *self._copy(item.last)]
        lines += [f"body{n}:", *self._tally(item.test, self.cost - before), *body]
        # Passes are not known, and loops may lie in branches that are seldom taken.
        self.cost += self.cost - before
        if item.counter is not None:
            address, address_lines = self._slot(item.counter)
            lines += [
                *address_lines,
                f"  %old{n} = load i32, ptr {address}, align 8",
                f"  %new{n} = add i32 %old{n}, 1",
                f"  store i32 %new{n}, ptr {address}, align 8",
            ]
        return [*lines, f"  br label %loop{n}", f"end{n}:"]

    def _tally(self, test: int | None, weight: int) -> list[str]:
        """Return lines that add a pass of a loop to the work of the lanes that need it."""
        going = None if test is None else lanes_going(self.graph, test)
        if going is None or self.nest != (LANE,):
            return []
        self.weights.append(weight)
        body = self._body()
        name, place = body.value(going, True), body.address(self.work)
        body.text.lines += tally(self.width, name, place, weight)
        return [self._function(body.text.lines)]

    def _choose(self, item: Choose) -> list[str]:
        n = self._label()
        flag, lines = self._flag(item.test)
        return [
            *lines,
            f"  br i1 {flag}, label %then{n}, label %else{n}",
            f"then{n}:",
            *self.program(item.then),
            f"  br label %join{n}",
            f"else{n}:",
            *self.program(item.other),
            f"  br label %join{n}",
            f"join{n}:",
        ]

    # The whole.

    def module(self) -> str:
        """Return the text of the module."""
        regions = [self.program(items) for items in self.schedule.regions]
        return self.joined(runtime.module(self, regions, self.packs()))

    def joined(self, text: str) -> str:
        """Return a module of the functions so far, and of more text."""
        helpers = [
            definition(*helper, self.width, self.externals)
            for helper in sorted(self.helpers)
        ]
        parts = [*sorted(self.externals), *self.tables.values(), *helpers]
        return "\n".join([*parts, *self.functions, text])

    def table(self, node: int) -> str:
        """Return the global constant of a table."""
        name = f"@table{node}"
        if node not in self.tables:
            dtype, data = self.graph.aux[node]
            # Bytes as they lie in memory: long lists of numbers are slow to write.
            entries = data.hex("\\")
            self.tables[node] = (
                f'{name} = internal constant [{len(data)} x i8] c"\\{entries}", align 64'
            )
        return name

    def packs(self, pointed: bool = False) -> list[str]:
        """Return the lines that store the results of a tile contiguously.

        **Arguments:**

        - `pointed`: true if there is an address in place of the results.
        """
        lines = []
        for leaf, nodes, place in zip(
            self.outputs, self.results, self.packed, strict=True
        ):
            dtype = self.graph.dtype[nodes[0]] if pointed else leaf.dtype
            for k in range(0, len(nodes), 256):
                body = self._body()
                base = body.pointed(place) if pointed else body.address(place)
                body.pack(dtype, nodes[k : k + 256], base, k)
                lines.append(self._function(body.text.lines))
        return lines

    def deepest(self, leaf: Leaf) -> int:
        """Return the region into which an argument is copied."""
        found = 0
        for k, axis in enumerate(self.nest, 1):
            found = k if leaf.dep & axis else found
        return found


def _round(size: int) -> int:
    return -(-size // 64) * 64
