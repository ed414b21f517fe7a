"""LLVM IR of a kernel.

    handler (entry for XLA, `_runtime.py`)
      -> participate: what one thread does of a call, in scratch memory of its own
           region 0: what the whole batch shares
           for each pass of the outer axis: copy inputs in, region 1
             for each pass of the inner axis: copy inputs in, region 2
             copy outputs out, or add them up

Inputs and outputs lie packed in scratch memory, W environments side by side. The last
tile may be partial: its lanes beyond the batch repeat the last environment.
"""

import dataclasses

import numpy as np

from . import _runtime as runtime
from ._functions import definition
from ._graph import Graph, LANE
from ._instructions import bits, literal, scalar_type, Text
from ._scalarize import Unsupported
from ._schedule import Choose, Chunk, Copy, Item, Repeat, Schedule


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An argument or a result of a kernel.

    **Arguments:**

    - `rows`: number of elements for each environment.
    - `dep`: the axes of the batch that it has, `LANE` and `LOOP`.
    - `summed`: whether a result is added up over the axes of the nest.
    """

    rows: int
    dtype: str
    dep: int
    summed: bool = False


class Emitter:
    """Text of one kernel.

    **Arguments:**

    - `inputs`: arguments; `sources` are their nodes, in the same order.
    - `outputs`: results; `results` are the nodes of their elements.
    - `nest`: axes of the batch, from the outermost loop on.
    - `width`: lanes of a vector.
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
        self._layout()

    def _layout(self) -> None:
        """Fixed places: inputs, then outputs, then accumulators, then slots."""
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
        self.schedule.allocate(top, fixed)
        self.size = max(self.schedule.size, top) + 64

    def _stride(self, dtype: str, dep: int) -> int:
        """Bytes from one row of an array to the next."""
        return max(bits(dtype), 8) // 8 * (self.width if dep & LANE else 1)

    # Functions of scalar operations.

    def _function(self, lines: list[str]) -> str:
        if not lines:
            return ""
        name = f"@c{len(self.functions)}"
        head = f"define internal void {name}(ptr noalias %S) noinline nounwind {{"
        self.functions.append("\n".join([head, *lines, "  ret void", "}"]))
        return f"  call void {name}(ptr %S)"

    def _chunk(self, chunk: Chunk) -> str:
        body = Body(self)
        for node in chunk.nodes:
            body.evaluate(node)
        self.cost += len(chunk.nodes)
        return self._function(body.lines)

    def _copy(self, copy: Copy) -> list[str]:
        """States may be read by other assignments: all are loaded before any is
        stored, other values a few at a time."""
        states = {state for _, state in copy.pairs}
        resolve = self.schedule.resolve
        first = [p for p in copy.pairs if resolve(p[0]) in states]
        rest = [p for p in copy.pairs if resolve(p[0]) not in states]
        self._check_arrays(first)
        calls = []
        for array, index, values in copy.stacked:
            for k in range(0, len(values), 128):
                body = Body(self)
                body.stack(array, index, values[k : k + 128], k, len(values))
                calls.append(self._function(body.lines))
        if first:
            body = Body(self)
            body.assign(first)
            calls.append(self._function(body.lines))
        for k in range(0, len(rest), 128):
            body = Body(self)
            for pair in rest[k : k + 128]:
                body.assign([pair])
            calls.append(self._function(body.lines))
        return calls

    def _check_arrays(self, pairs) -> None:
        if sum(bool(self.graph.rows[state]) for _, state in pairs) > 1:
            raise Unsupported("a loop that permutes large arrays")

    def _label(self) -> int:
        self.labels += 1
        return self.labels

    # Control flow.

    def program(self, items: list[Item]) -> list[str]:
        """Lines that run items one after the other."""
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
        """The address of a value, and the line that computes it."""
        name = f"%a{self._label()}"
        place = self.schedule.place[self.schedule.resolve(node)]
        return name, [f"  {name} = getelementptr i8, ptr %S, i64 {place}"]

    def _flag(self, node: int) -> tuple[str, list[str]]:
        """A uniform boolean as a register."""
        if self.schedule.resolve(node) in self.graph.value:
            value = self.graph.value[self.schedule.resolve(node)]
            return ("true" if value else "false"), []
        body = Driver(self)
        name = body.value(node)
        return name, body.lines

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
            address, address_lines = self._slot(item.counter)
            lines += [
                *address_lines,
                f"  %count{n} = load i32, ptr {address}, align 8",
                f"  %more{n} = icmp slt i32 %count{n}, {item.length}",
                f"  br i1 %more{n}, label %body{n}, label %end{n}",
            ]
        before = self.cost
        lines += [f"body{n}:", *self.program(item.body), *self._copy(item.last)]
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
        """The text of the module."""
        regions = [self.program(items) for items in self.schedule.regions]
        packs = self._packs()
        text = runtime.module(self, regions, packs)
        helpers = [
            definition(*helper, self.width, self.externals)
            for helper in sorted(self.helpers)
        ]
        parts = [*sorted(self.externals), *self.tables.values(), *helpers]
        return "\n".join([*parts, *self.functions, text])

    def table(self, node: int) -> str:
        """The global constant of a table."""
        name = f"@table{node}"
        if node not in self.tables:
            dtype, data = self.graph.aux[node]
            numbers = np.frombuffer(data, dtype if dtype != "b1" else "?")
            kind = "i8" if dtype == "b1" else scalar_type(dtype)
            shown = "u1" if dtype == "b1" else dtype
            entries = ", ".join(f"{kind} {literal(x, shown)}" for x in numbers)
            self.tables[node] = (
                f"{name} = internal constant [{len(numbers)} x {kind}] [{entries}], align 64"
            )
        return name

    def _packs(self) -> list[str]:
        """Lines that store the results of a tile side by side."""
        lines = []
        for leaf, nodes, place in zip(
            self.outputs, self.results, self.packed, strict=True
        ):
            for k in range(0, len(nodes), 256):
                body = Body(self)
                body.pack(leaf, nodes[k : k + 256], place, k)
                lines.append(self._function(body.lines))
        return lines

    def deepest(self, leaf: Leaf) -> int:
        """The region in which an argument is copied in."""
        found = 0
        for k, axis in enumerate(self.nest, 1):
            found = k if leaf.dep & axis else found
        return found


def _round(size: int) -> int:
    return -(-size // 64) * 64


class Body(Text):
    """Instructions on values in scratch memory."""

    def __init__(self, emitter: Emitter):
        graph = emitter.graph
        super().__init__(graph, emitter.width, emitter.externals, emitter.helpers)
        self.emitter, self.schedule = emitter, emitter.schedule
        self.names: dict[tuple[int, bool], str] = {}

    def address(self, place: int | str) -> str:
        """The address of an offset in scratch memory."""
        return self.new(f"getelementptr i8, ptr %S, i64 {place}")

    def _align(self, dtype: str, vector: bool) -> int:
        if dtype == "b1":
            return max(1, self.width // 8) if vector else 1
        return bits(dtype) // 8 * (self.width if vector else 1)

    def value(self, node: int, vector: bool = False) -> str:
        """The register or literal of a value; `vector` broadcasts scalars."""
        graph = self.graph
        node = self.schedule.resolve(node)
        dtype = graph.dtype[node]
        if node in graph.value:
            return self.literal(graph.value[node], dtype, vector)
        own = self.is_vector(node)
        name = self.names.get((node, own))
        if name is None:
            name = self._load(node)
            self.names[node, own] = name
        if vector and not own and self.width > 1:
            if (node, True) not in self.names:
                self.names[node, True] = self.broadcast(name, dtype)
            return self.names[node, True]
        return name

    def _load(self, node: int) -> str:
        graph = self.graph
        if graph.op[node] == "load":
            array, index = graph.args[node]
            if index in graph.value:
                return self._element(array, int(graph.value[index]))
        dtype, own = graph.dtype[node], self.is_vector(node)
        address = self.address(self.schedule.place[node])
        align = self._align(dtype, own)
        return self.new(f"load {self.type(dtype, own)}, ptr {address}, align {align}")

    def store(self, node: int, name: str) -> None:
        """Keeps a value in its slot."""
        dtype, own = self.graph.dtype[node], self.is_vector(node)
        address = self.address(self.schedule.place[node])
        kind, align = self.type(dtype, own), self._align(dtype, own)
        self.lines.append(f"  store {kind} {name}, ptr {address}, align {align}")

    def evaluate(self, node: int) -> None:
        """Computes a pure node, and keeps it if other chunks need it."""
        graph, op = self.graph, self.graph.op[node]
        if graph.rows[node]:
            _ARRAYS[op](self, node)
            return
        if op == "load":
            array, index = graph.args[node]
            if index in graph.value:
                return
            name = self._lookup(node, array, index)
        else:
            name = self.operation(node, self.value)
        self.names[node, self.is_vector(node)] = name
        if node in self.schedule.place:
            self.store(node, name)

    # Arrays.

    def array(self, node: int) -> tuple[str, int]:
        """The address of an array in memory, and the distance of its rows in bytes."""
        node = self.schedule.resolve(node)
        graph = self.graph
        stride = max(bits(graph.dtype[node]), 8) // 8
        if graph.op[node] == "table":
            return self.emitter.table(node), stride
        if self.is_vector(node):
            stride *= self.width
        return self.address(self.schedule.place[node]), stride

    def _row(self, base: str, stride: int, index: str) -> str:
        wide = self.new(f"sext i32 {index} to i64")
        offset = self.new(f"mul i64 {wide}, {stride}")
        return self.new(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _element(self, array: int, row: int) -> str:
        base, stride = self.array(array)
        address = self.new(f"getelementptr i8, ptr {base}, i64 {row * stride}")
        return self._read(address, self.schedule.resolve(array))

    def _memory_type(self, dtype: str, vector: bool) -> str:
        return self.type("u1" if dtype == "b1" else dtype, vector)

    def _read(self, address: str, array: int) -> str:
        """A row of an array; booleans are bytes there."""
        dtype, own = self.graph.dtype[array], self.is_vector(array)
        kind = self._memory_type(dtype, own)
        align = max(bits(dtype), 8) // 8
        name = self.new(f"load {kind}, ptr {address}, align {align}")
        if dtype != "b1":
            return name
        return self.new(f"icmp ne {kind} {name}, {self.literal(0, 'u1', own)}")

    def _write(self, address: str, name: str, dtype: str, own: bool) -> None:
        kind = self._memory_type(dtype, own)
        if dtype == "b1":
            name = self.new(f"zext {self.type('b1', own)} {name} to {kind}")
        align = max(bits(dtype), 8) // 8
        self.lines.append(f"  store {kind} {name}, ptr {address}, align {align}")

    def _lookup(self, node: int, array: int, index: int) -> str:
        """An element at a computed index."""
        graph, resolved = self.graph, self.schedule.resolve(array)
        base, stride = self.array(array)
        if not self.is_vector(self.schedule.resolve(index)):
            row = self._row(base, stride, self.value(index, False))
            return self._read(row, resolved)
        dtype = graph.dtype[resolved]
        offset = self.value(index, True)
        integers = self.type("i4", True)
        if self.is_vector(resolved):
            scaled = self.new(
                f"mul {integers} {offset}, {self.literal(self.width, 'i4', True)}"
            )
            lanes = ", ".join(f"i32 {k}" for k in range(self.width))
            offset = self.new(f"add {integers} {scaled}, <{lanes}>")
        element = self._memory_type(dtype, False)
        addresses = self.new(
            f"getelementptr {element}, ptr {base}, {integers} {offset}"
        )
        name = self._gather(addresses, dtype)
        if dtype == "b1":
            kind = self._memory_type(dtype, True)
            return self.new(f"icmp ne {kind} {name}, {self.literal(0, 'u1', True)}")
        return name

    def _gather(self, addresses: str, dtype: str) -> str:
        kind, width = self._memory_type(dtype, True), self.width
        shown = "u1" if dtype == "b1" else dtype
        suffix = f"{self.suffix(shown, True)}.v{width}p0"
        function = f"llvm.masked.gather.{suffix}"
        align = max(bits(dtype), 8) // 8
        self.externals.add(
            f"declare {kind} @{function}(<{width} x ptr>, <{width} x i1>, {kind})"
        )
        every = "splat (i1 true)"
        return self.new(
            f"call {kind} @{function}(<{width} x ptr> align {align} {addresses}, "
            f"<{width} x i1> {every}, {kind} poison)"
        )

    def pack_array(self, node: int) -> None:
        """Stores nodes side by side."""
        base, stride = self.array(node)
        own, dtype = self.is_vector(node), self.graph.dtype[node]
        for k, entry in enumerate(self.graph.args[node]):
            name = self.value(entry, own)
            address = self.new(f"getelementptr i8, ptr {base}, i64 {k * stride}")
            self._write(address, name, dtype, own)

    def update(self, node: int) -> None:
        """An array with one element replaced, in place where nothing else reads it."""
        array, index, value = self.graph.args[node]
        self._copy_array(array, node)
        base, stride = self.array(node)
        dtype, own = self.graph.dtype[node], self.is_vector(node)
        name = self.value(value, own)
        if not self.is_vector(self.schedule.resolve(index)):
            row = self._row(base, stride, self.value(index, False))
            self._write(row, name, dtype, own)
            return
        places, scalar = self.value(index, True), self._memory_type(dtype, False)
        kind = self._memory_type(dtype, True)
        if dtype == "b1":
            name = self.new(f"zext {self.type('b1', True)} {name} to {kind}")
        integers, size = self.type("i4", True), max(bits(dtype), 8) // 8
        for lane in range(self.width):
            one = self.new(f"extractelement {integers} {places}, i64 {lane}")
            row = self._row(base, stride, one)
            address = self.new(f"getelementptr i8, ptr {row}, i64 {lane * size}")
            number = self.new(f"extractelement {kind} {name}, i64 {lane}")
            self.lines.append(f"  store {scalar} {number}, ptr {address}, align {size}")

    def _copy_array(self, source: int, target: int) -> None:
        """Copies an array, broadcasting it to lanes where the target has them."""
        source = self.schedule.resolve(source)
        graph, rows = self.graph, self.graph.rows[target]
        base, stride = self.array(target)
        own, dtype = self.is_vector(target), graph.dtype[target]
        if self.is_vector(source) == own:
            if graph.op[source] != "table":
                pair = self.schedule.place[source], self.schedule.place[target]
                if pair[0] == pair[1]:
                    return
            origin, _ = self.array(source)
            self.externals.add(
                "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)"
            )
            self.lines.append(
                f"  call void @llvm.memmove.p0.p0.i64(ptr {base}, ptr {origin}, "
                f"i64 {rows * stride}, i1 false)"
            )
            return
        for k in range(rows):
            name = self.broadcast(self._element(source, k), dtype)
            address = self.new(f"getelementptr i8, ptr {base}, i64 {k * stride}")
            self._write(address, name, dtype, own)

    def blend(self, node: int) -> None:
        """Elements of one array or of another, lane by lane."""
        which, old, new = self.graph.args[node]
        base, stride = self.array(node)
        dtype, own = self.graph.dtype[node], self.is_vector(node)
        kind, test = self.type(dtype, own), self.type("b1", own)
        mask = self.value(which, own)
        for k in range(self.graph.rows[node]):
            pair = [self._spread(x, k, own) for x in (new, old)]
            name = self.new(f"select {test} {mask}, {kind} {pair[0]}, {kind} {pair[1]}")
            address = self.new(f"getelementptr i8, ptr {base}, i64 {k * stride}")
            self._write(address, name, dtype, own)

    def _spread(self, array: int, row: int, own: bool) -> str:
        name = self._element(array, row)
        resolved = self.schedule.resolve(array)
        if own and not self.is_vector(resolved):
            return self.broadcast(name, self.graph.dtype[resolved])
        return name

    # Assignments.

    def assign(self, pairs: list[tuple[int, int]]) -> None:
        """Stores values to states, after all of them have been read."""
        scalars = [(a, b) for a, b in pairs if not self.graph.rows[b]]
        names = [self.value(a, self.is_vector(b)) for a, b in scalars]
        for (_, state), name in zip(scalars, names, strict=True):
            self.store(state, name)
        for source, state in pairs:
            if self.graph.rows[state]:
                self._copy_array(source, state)

    def stack(self, array: int, index: int, values, first: int, count: int) -> None:
        """Stores the stacked results of a pass."""
        base, stride = self.array(array)
        array = self.schedule.resolve(array)
        dtype, own = self.graph.dtype[array], self.is_vector(array)
        row = self._row(base, stride * count, self.value(index, False))
        for k, value in enumerate(values, first):
            name = self.value(value, own)
            address = self.new(f"getelementptr i8, ptr {row}, i64 {k * stride}")
            self._write(address, name, dtype, own)

    def pack(self, leaf: Leaf, nodes: list[int], place: int, first: int) -> None:
        """Stores results side by side."""
        own = self.width > 1 and LANE in self.emitter.nest
        stride = self.emitter._stride(leaf.dtype, LANE if own else 0)
        for k, node in enumerate(nodes, first):
            name = self.value(node, own)
            self._write(self.address(place + k * stride), name, leaf.dtype, own)


class Driver(Body):
    """Instructions in the function that runs the chunks."""

    def new(self, expression: str) -> str:
        name = f"%d{self.emitter._label()}"
        self.lines.append(f"  {name} = {expression}")
        return name


_ARRAYS = {"pack": Body.pack_array, "update": Body.update, "blend": Body.blend}
