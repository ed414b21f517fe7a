"""From a schedule to functions of LLVM IR.

A `Body` writes one function: which values it loads from scratch memory, computes, and stores
there. The `Emitter` writes a function for each chunk of the schedule, and the lines that
call them, with loops and branches around.
"""

from collections.abc import Callable
from typing import Any

from ._llvm import bits, Chunk, LLVMModule, Text, Uses
from ._operations import convert_instruction, OPERATIONS
from ._schedule import (
    Choose,
    Copy,
    Item,
    lanes_going,
    Operations,
    Repeat,
    Schedule,
    Scratch,
)
from ._transfers import tally
from ._translation import Unsupported


class Body:
    """Instructions of one function, on values in scratch memory.

    **Arguments:**

    - `schedule`: places of the values.
    - `text`: receives the instructions.
    """

    def __init__(self, schedule: Schedule, text: Text):
        self.graph, self.schedule, self.text = schedule.graph, schedule, text
        self.width = text.width
        # Registers and literals of values as they are, and broadcast to all lanes.
        self._names: dict[int, str] = {}
        self._broadcast: dict[int, str] = {}
        self._pointers: dict[int, str] = {}

    def address(self, place: int | str) -> str:
        """Return the address of an offset in scratch memory."""
        return self.text.new(f"getelementptr i8, ptr %S, i64 {place}")

    def value(self, node: int, vector: bool = False) -> str:
        """Return the register or literal of a value; `vector` broadcasts scalars."""
        names = self._broadcast if vector else self._names
        name = names.get(node)
        if name is None:
            name = names[node] = self._value(self.schedule.resolve(node), vector)
        return name

    def _value(self, node: int, vector: bool) -> str:
        graph, text = self.graph, self.text
        dtype = graph.dtype[node]
        if node in graph.value:
            return text.literal(graph.value[node], dtype, vector)
        name = self._names.get(node)
        if name is None:
            name = self._names[node] = self._load(node)
        if not vector or text.is_vector(node) or self.width == 1:
            return name
        if node not in self._broadcast:
            self._broadcast[node] = text.broadcast(name, dtype)
        return self._broadcast[node]

    def _load(self, node: int) -> str:
        graph = self.graph
        if graph.op[node] == "load":
            array, index = graph.args[node]
            if index in graph.value:
                return self._element(array, int(graph.value[index]))
        kind, slot = self._slot(node)
        return self.text.new(f"load {kind}, {slot}")

    def _slot(self, node: int) -> tuple[str, str]:
        """Return the type of a value, and the operand that names its slot."""
        dtype, own = self.graph.dtype[node], self.text.is_vector(node)
        address = self.address(self.schedule.place[node])
        align = max(1, bits(dtype) * (self.width if own else 1) // 8)
        return self.text.type(dtype, own), f"ptr {address}, align {align}"

    def store(self, node: int, name: str) -> None:
        """Store a value in its slot."""
        kind, slot = self._slot(node)
        self.text.lines.append(f"  store {kind} {name}, {slot}")

    def evaluate(self, node: int) -> None:
        """Compute a pure node, and keep it if other chunks need it."""
        graph, op = self.graph, self.graph.op[node]
        if graph.rows[node]:
            _ARRAYS[op](self, node)
            return
        vector = self.text.is_vector(node)
        if op == "load":
            array, index = graph.args[node]
            if index in graph.value:
                return
            name = self._lookup(node, array, index)
        else:
            name = self._operation(node, op, vector)
        self._names[node] = name
        if vector:
            self._broadcast[node] = name
        if node in self.schedule.place:
            self.store(node, name)

    def _operation(self, node: int, op: str, vector: bool) -> str:
        """Return the result of a scalar operation."""
        graph, text = self.graph, self.text
        args, dtype = graph.args[node], graph.dtype[node]
        if op == "any":
            return self._any(args[0])
        if op == "select":
            which, other, then = args
            by_lane = text.is_vector(which)
            of, kind = text.type("b1", by_lane), text.type(dtype, vector)
            test = self.value(which, by_lane)
            one, two = self.value(then, vector), self.value(other, vector)
            return text.new(f"select {of} {test}, {kind} {one}, {kind} {two}")
        known, of = self._broadcast if vector else self._names, graph.dtype[args[-1]]
        names = [known.get(arg) or self.value(arg, vector) for arg in args]
        if op == "convert":
            return convert_instruction(text, names[0], of, dtype, vector)
        row = OPERATIONS[op]
        write = row.floats if of[0] == "f" else row.integers
        if write is None:
            raise KeyError(f"no instruction for `{op}` of {of}")
        return write(text, names, of, vector)

    def _any(self, arg: int) -> str:
        if not self.text.is_vector(arg):
            return self.value(arg)
        name, width = self.value(arg, True), self.width
        packed = self.text.new(f"bitcast <{width} x i1> {name} to i{width}")
        return self.text.new(f"icmp ne i{width} {packed}, 0")

    # Arrays.

    def array(self, node: int) -> tuple[str, int]:
        """Return the address of an array in memory, and the distance of its rows in
        bytes."""
        node = self.schedule.resolve(node)
        graph = self.graph
        stride = max(bits(graph.dtype[node]), 8) // 8
        if graph.op[node] == "table":
            self.text.uses.tables.add(node)
            return table_name(node), stride
        if self.text.is_vector(node):
            stride *= self.width
        place = self.schedule.place[node]
        if graph.op[node] == "pointer":
            return self.pointed(place), stride
        return self.address(place), stride

    def pointed(self, place: int) -> str:
        """Return an address that lies at an offset in scratch memory."""
        if place not in self._pointers:
            name = self.text.new(f"load ptr, ptr {self.address(place)}, align 8")
            self._pointers[place] = name
        return self._pointers[place]

    def _row(self, base: str, stride: int, index: str) -> str:
        wide = self.text.new(f"sext i32 {index} to i64")
        offset = self.text.new(f"mul i64 {wide}, {stride}")
        return self.text.new(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _element(self, array: int, row: int) -> str:
        base, stride = self.array(array)
        address = self.text.new(f"getelementptr i8, ptr {base}, i64 {row * stride}")
        return self._read(address, self.schedule.resolve(array))

    def _memory_type(self, dtype: str, vector: bool) -> str:
        return self.text.type("u1" if dtype == "b1" else dtype, vector)

    def _read(self, address: str, array: int) -> str:
        """Read a row of an array, in which booleans are stored as bytes."""
        dtype, own = self.graph.dtype[array], self.text.is_vector(array)
        kind = self._memory_type(dtype, own)
        align = max(bits(dtype), 8) // 8
        name = self.text.new(f"load {kind}, ptr {address}, align {align}")
        if dtype != "b1":
            return name
        return self.text.new(
            f"icmp ne {kind} {name}, {self.text.literal(0, 'u1', own)}"
        )

    def _write(self, address: str, name: str, dtype: str, own: bool) -> None:
        kind = self._memory_type(dtype, own)
        if dtype == "b1":
            name = self.text.new(f"zext {self.text.type('b1', own)} {name} to {kind}")
        align = max(bits(dtype), 8) // 8
        self.text.lines.append(f"  store {kind} {name}, ptr {address}, align {align}")

    def _lookup(self, node: int, array: int, index: int) -> str:
        """Read an element at a computed index."""
        graph, resolved = self.graph, self.schedule.resolve(array)
        base, stride = self.array(array)
        if not self.text.is_vector(self.schedule.resolve(index)):
            row = self._row(base, stride, self.value(index, False))
            return self._read(row, resolved)
        dtype = graph.dtype[resolved]
        own = self.text.is_vector(resolved)
        addresses = self._addresses(base, index, dtype, lanes=own)
        name = self._gather(addresses, dtype)
        if dtype == "b1":
            kind = self._memory_type(dtype, True)
            return self.text.new(
                f"icmp ne {kind} {name}, {self.text.literal(0, 'u1', True)}"
            )
        return name

    def _gather(self, addresses: str, dtype: str) -> str:
        kind, width = self._memory_type(dtype, True), self.width
        shown = "u1" if dtype == "b1" else dtype
        suffix = f"{self.text.suffix(shown, True)}.v{width}p0"
        function = f"llvm.masked.gather.{suffix}"
        align = max(bits(dtype), 8) // 8
        self.text.uses.externals.add(
            f"declare {kind} @{function}(<{width} x ptr>, <{width} x i1>, {kind})"
        )
        every = "splat (i1 true)"
        return self.text.new(
            f"call {kind} @{function}(<{width} x ptr> align {align} {addresses}, "
            f"<{width} x i1> {every}, {kind} poison)"
        )

    def call(self, node: int) -> None:
        """Call a function of `_callees.py`, whose results are an array."""
        flags, floats, integers, *tables = (
            self.array(x)[0] for x in self.graph.args[node]
        )
        result, _ = self.array(node)
        given = [flags, floats, integers, result, *tables]
        symbol = self.graph.aux[node].symbol
        kinds = ", ".join(["ptr"] * len(given))
        self.text.uses.externals.add(f"declare void @{symbol}({kinds})")
        arguments = ", ".join(f"ptr {name}" for name in given)
        self.text.lines.append(f"  call void @{symbol}({arguments})")

    def pack_array(self, node: int) -> None:
        """Store nodes contiguously."""
        base, stride = self.array(node)
        own, dtype = self.text.is_vector(node), self.graph.dtype[node]
        for k, entry in enumerate(self.graph.args[node]):
            name = self.value(entry, own)
            address = self.text.new(f"getelementptr i8, ptr {base}, i64 {k * stride}")
            self._write(address, name, dtype, own)

    def update(self, node: int) -> None:
        """Replace one element of an array, in place if nothing else reads the array;
        only in the lanes where the fourth argument holds, if there is one."""
        array, index, value, *mask = self.graph.args[node]
        self._copy_array(array, node)
        base, stride = self.array(node)
        dtype, own = self.graph.dtype[node], self.text.is_vector(node)
        name = self.value(value, own)
        if not self.text.is_vector(self.schedule.resolve(index)):
            row = self._row(base, stride, self.value(index, False))
            if mask:
                kind, test = self.text.type(dtype, own), self.text.type("b1", own)
                old = self._read(row, node)
                choice = self.value(mask[0], own)
                name = self.text.new(
                    f"select {test} {choice}, {kind} {name}, {kind} {old}"
                )
            self._write(row, name, dtype, own)
            return
        kind = self._memory_type(dtype, True)
        if dtype == "b1":
            name = self.text.new(f"zext {self.text.type('b1', True)} {name} to {kind}")
        addresses = self._addresses(base, index, dtype, lanes=True)
        if mask:
            self._scatter_any(addresses, name, self.value(mask[0], True), dtype)
        else:
            self._scatter(addresses, name, "splat (i1 true)", dtype)

    def _scatter_any(self, addresses: str, name: str, mask: str, dtype: str) -> None:
        """Write in the lanes of a mask; skip the write if there are none."""
        text, n = self.text, self.text.label()
        kind = text.type("b1", True)
        function = f"llvm.vector.reduce.or.v{self.width}i1"
        text.uses.externals.add(f"declare i1 @{function}({kind})")
        some = text.new(f"call i1 @{function}({kind} {mask})")
        text.lines += [
            f"  br i1 {some}, label %write{n}, label %after{n}",
            f"write{n}:",
        ]
        self._scatter(addresses, name, mask, dtype)
        text.lines += [f"  br label %after{n}", f"after{n}:"]

    def _scatter(self, addresses: str, name: str, mask: str, dtype: str) -> None:
        kind, width = self._memory_type(dtype, True), self.width
        shown = "u1" if dtype == "b1" else dtype
        suffix = f"{self.text.suffix(shown, True)}.v{width}p0"
        function, align = f"llvm.masked.scatter.{suffix}", max(bits(dtype), 8) // 8
        self.text.uses.externals.add(
            f"declare void @{function}({kind}, <{width} x ptr>, <{width} x i1>)"
        )
        self.text.lines.append(
            f"  call void @{function}({kind} {name}, <{width} x ptr> align {align} "
            f"{addresses}, <{width} x i1> {mask})"
        )

    def _addresses(self, base: str, index: int, dtype: str, lanes: bool) -> str:
        """Return the addresses of the elements at an index that differs between lanes.

        **Arguments:**

        - `lanes`: true if each lane has its own elements.
        """
        offset, integers = self.value(index, True), self.text.type("i4", True)
        if lanes:
            scaled = self.text.new(
                f"mul {integers} {offset}, {self.text.literal(self.width, 'i4', True)}"
            )
            numbers = ", ".join(f"i32 {k}" for k in range(self.width))
            offset = self.text.new(f"add {integers} {scaled}, <{numbers}>")
        element = self._memory_type(dtype, False)
        return self.text.new(
            f"getelementptr {element}, ptr {base}, {integers} {offset}"
        )

    def join(self, node: int) -> None:
        """Store arrays one after the other."""
        start, rows = 0, self.graph.rows
        for part in self.graph.args[node]:
            self._copy_array(part, node, start)
            start += rows[part]

    def _copy_array(self, source: int, target: int, start: int = 0) -> None:
        """Copy an array into another one from row `start` on, broadcasting it to lanes
        if the target has lanes."""
        source = self.schedule.resolve(source)
        graph, rows = self.graph, self.graph.rows[source]
        if graph.op[source] == "blank":
            return
        base, stride = self.array(target)
        own, dtype = self.text.is_vector(target), graph.dtype[target]
        if start:
            base = self.text.new(f"getelementptr i8, ptr {base}, i64 {start * stride}")
        if self.text.is_vector(source) == own:
            if graph.op[source] != "table":
                place = self.schedule.place
                resolved = self.schedule.resolve(target)
                if place[source] == place[resolved] + start * stride:
                    return
            origin, _ = self.array(source)
            self.text.uses.externals.add(
                "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)"
            )
            self.text.lines.append(
                f"  call void @llvm.memmove.p0.p0.i64(ptr {base}, ptr {origin}, "
                f"i64 {rows * stride}, i1 false)"
            )
            return
        origin, step = self.array(source)

        def copy(row: str) -> None:
            name = self._read(self._row(origin, step, row), source)
            name = self.text.broadcast(name, dtype)
            self._write(self._row(base, stride, row), name, dtype, own)

        self._for_rows(rows, copy)

    def blend(self, node: int) -> None:
        """Select elements of one array or of another, lane by lane."""
        which, old, new = self.graph.args[node]
        base, stride = self.array(node)
        dtype, own = self.graph.dtype[node], self.text.is_vector(node)
        kind, test = self.text.type(dtype, own), self.text.type("b1", own)
        mask = self.value(which, own)
        parts = [(self.schedule.resolve(x), *self.array(x)) for x in (new, old)]

        def choose(row: str) -> None:
            one, two = (self._spread(*part, row, own) for part in parts)
            name = self.text.new(f"select {test} {mask}, {kind} {one}, {kind} {two}")
            self._write(self._row(base, stride, row), name, dtype, own)

        self._for_rows(self.graph.rows[node], choose)

    def _spread(self, array: int, base: str, stride: int, row: str, own: bool) -> str:
        name = self._read(self._row(base, stride, row), array)
        if own and not self.text.is_vector(array):
            return self.text.broadcast(name, self.graph.dtype[array])
        return name

    def _for_rows(self, rows: int, body: Callable[[str], None]) -> None:
        """Loop over the rows of an array."""
        text = self.text
        n = text.label()
        text.lines.append(f"  br label %enter{n}")
        text.lines.append(f"enter{n}:")
        text.lines.append(f"  br label %row{n}")
        text.lines.append(f"row{n}:")
        row, more = f"%row{n}.k", f"%row{n}.next"
        text.lines.append(f"  {row} = phi i32 [ 0, %enter{n} ], [ {more}, %row{n} ]")
        body(row)
        text.lines += [
            f"  {more} = add i32 {row}, 1",
            f"  %row{n}.go = icmp slt i32 {more}, {rows}",
            f"  br i1 %row{n}.go, label %row{n}, label %end{n}",
            f"end{n}:",
        ]

    # Assignments.

    def assign(self, pairs: list[tuple[int, int]]) -> None:
        """Store values to states, after reading all of them."""
        scalars = [(a, b) for a, b in pairs if not self.graph.rows[b]]
        names = [self.value(a, self.text.is_vector(b)) for a, b in scalars]
        for (_, state), name in zip(scalars, names, strict=True):
            self.store(state, name)
        for source, state in pairs:
            if self.graph.rows[state]:
                self._copy_array(source, state)

    def stack(self, array: int, index: int, values, first: int, count: int) -> None:
        """Store the stacked results of a pass."""
        base, stride = self.array(array)
        array = self.schedule.resolve(array)
        dtype, own = self.graph.dtype[array], self.text.is_vector(array)
        row = self._row(base, stride * count, self.value(index, False))
        for k, value in enumerate(values, first):
            name = self.value(value, own)
            address = self.text.new(f"getelementptr i8, ptr {row}, i64 {k * stride}")
            self._write(address, name, dtype, own)

    def pack(self, dtype: str, nodes: list[int], base: str, first: int) -> None:
        """Store results contiguously."""
        own = self.width > 1
        stride = max(bits(dtype), 8) // 8 * self.width
        for k, node in enumerate(nodes, first):
            name = self.value(node, own)
            to = self.text.new(f"getelementptr i8, ptr {base}, i64 {k * stride}")
            self._write(to, name, dtype, own)


_ARRAYS = {
    "blank": lambda body, node: None,
    "pack": Body.pack_array,
    "join": Body.join,
    "update": Body.update,
    "blend": Body.blend,
    "call": Body.call,
}


_MOST_STORED = 128
"""Values that one function stores or copies."""


class Emitter:
    """Text of one kernel.

    **Arguments:**

    - `schedule`, `scratch`: order and places of the values.
    - `cost_of`: returns the number of operations of a function that a kernel calls.
    - `tallies`: true if the work of each lane in loops is counted.

    **Attributes:**

    - `chunks`, `tables`: functions of scalar operations, and tables of numbers.
    - `uses`: declarations that the lines outside of chunks need.
    - `cost`: operations of one pass over the batch; those of loops count twice.
    - `weights`: operations of a pass of each loop whose lanes end at different times.
    """

    def __init__(
        self,
        schedule: Schedule,
        scratch: Scratch,
        cost_of: Callable[[Any], int],
        tallies: bool = False,
    ):
        self.schedule, self.scratch, self.cost_of = schedule, scratch, cost_of
        self.tallies = tallies
        self.graph, self.width = schedule.graph, schedule.graph.width
        self.inputs, self.sources, self.outputs, self.results, self.nest = (
            schedule.interface
        )
        self.chunks: list[Chunk] = []
        self.uses = Uses()
        self.labels = 0
        self.cost = 0
        self.weights: list[int] = []

    # Functions of scalar operations.

    def _body(self, prefix: str = "%t") -> Body:
        """Return an empty function; the names of its registers begin with `prefix`."""
        return Body(self.schedule, Text(self.graph, self.width, prefix))

    def _function(self, body: Body) -> str:
        """Add a function, and return the line that calls it."""
        if not body.text.lines:
            return ""
        name = f"@c{len(self.chunks)}"
        self.chunks.append(Chunk(name, body.text.lines, body.text.uses))
        return f"  call void {name}(ptr %S)"

    def _chunk(self, chunk: Operations) -> str:
        body = self._body()
        for node in chunk.nodes:
            body.evaluate(node)
            if self.graph.op[node] == "call":
                self.cost += self.cost_of(self.graph.aux[node])
        self.cost += len(chunk.nodes)
        return self._function(body)

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
            calls.append(self._function(body))
        for k in range(0, len(rest), _MOST_STORED):
            body = self._body()
            for pair in rest[k : k + _MOST_STORED]:
                body.assign([pair])
            calls.append(self._function(body))
        return calls

    def _stacked(self, copy: Copy) -> list[str]:
        """Return calls of functions that store some results of a pass each."""
        calls, body, room = [], self._body(), _MOST_STORED
        for array, index, values in copy.stacked:
            for k in range(0, len(values), _MOST_STORED):
                part = values[k : k + _MOST_STORED]
                if len(part) > room:
                    calls.append(self._function(body))
                    body, room = self._body(), _MOST_STORED
                body.stack(array, index, part, k, len(values))
                room -= len(part)
        calls.append(self._function(body))
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
            if isinstance(item, Operations):
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
        self.uses = Uses(self.uses, body.text.uses)
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
        if going is None or not self.tallies:
            return []
        self.weights.append(weight)
        body = self._body()
        lanes, place = body.value(going, True), body.address(self.scratch.work)
        body.text.lines += tally(self.width, lanes, place, weight)
        return [self._function(body)]

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

    def regions(self) -> list[list[str]]:
        """Return lines that run each region of the schedule."""
        return [self.program(items) for items in self.schedule.regions]

    def packs(self, pointed: bool = False) -> list[str]:
        """Return the lines that store the results of a tile contiguously.

        **Arguments:**

        - `pointed`: true if there is an address in place of the results.
        """
        lines = []
        places = self.scratch.packed
        for leaf, nodes, place in zip(self.outputs, self.results, places, strict=True):
            dtype = self.graph.dtype[nodes[0]] if pointed else leaf.dtype
            for k in range(0, len(nodes), 256):
                body = self._body()
                base = body.pointed(place) if pointed else body.address(place)
                body.pack(dtype, nodes[k : k + 256], base, k)
                lines.append(self._function(body))
        return lines

    def module(self, main: str) -> LLVMModule:
        """Return a module of the functions so far, and of more text."""
        used = Uses(self.uses, *(chunk.uses for chunk in self.chunks)).tables
        tables = {node: self._table(node) for node in used}
        return LLVMModule(self.width, self.chunks, tables, main, self.uses)

    def _table(self, node: int) -> str:
        """Return the definition of a table of numbers."""
        _, data = self.graph.aux[node]
        # Bytes as they lie in memory: long lists of numbers are slow to write.
        entries = "\\" + data.hex("\\")
        kind = f"[{len(data)} x i8]"
        return f'{table_name(node)} = internal constant {kind} c"{entries}", align 64'


def table_name(node: int) -> str:
    """Return the name of the global constant of a table."""
    return f"@table{node}"
