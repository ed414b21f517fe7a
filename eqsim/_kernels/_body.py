"""Values in scratch memory: what is loaded, computed and stored by one function."""

from collections.abc import Callable

from ._instructions import bits, Text
from ._schedule import Schedule


class Body:
    """Instructions of one function, on values in scratch memory.

    **Arguments:**

    - `schedule`: places of the values.
    - `text`: receives the instructions.
    - `table`: returns the name of the global constant of a table.
    - `work`: place of the work of the lanes, see `_grouping.py`.
    """

    def __init__(
        self, schedule: Schedule, text: Text, table: Callable[[int], str], work: int
    ):
        self.graph, self.schedule, self.text = schedule.graph, schedule, text
        self.table, self.width, self.work = table, text.width, work
        self.names: dict[tuple[int, bool], str] = {}
        self._pointers: dict[int, str] = {}

    def address(self, place: int | str) -> str:
        """Return the address of an offset in scratch memory."""
        return self.text.new(f"getelementptr i8, ptr %S, i64 {place}")

    def _align(self, dtype: str, vector: bool) -> int:
        if dtype == "b1":
            return max(1, self.width // 8) if vector else 1
        return bits(dtype) // 8 * (self.width if vector else 1)

    def value(self, node: int, vector: bool = False) -> str:
        """Return the register or literal of a value; `vector` broadcasts scalars."""
        graph = self.graph
        node = self.schedule.resolve(node)
        dtype = graph.dtype[node]
        if node in graph.value:
            return self.text.literal(graph.value[node], dtype, vector)
        own = self.text.is_vector(node)
        name = self.names.get((node, own))
        if name is None:
            name = self._load(node)
            self.names[node, own] = name
        if vector and not own and self.width > 1:
            if (node, True) not in self.names:
                self.names[node, True] = self.text.broadcast(name, dtype)
            return self.names[node, True]
        return name

    def _load(self, node: int) -> str:
        graph = self.graph
        if graph.op[node] == "load":
            array, index = graph.args[node]
            if index in graph.value:
                return self._element(array, int(graph.value[index]))
        dtype, own = graph.dtype[node], self.text.is_vector(node)
        address = self.address(self.schedule.place[node])
        align = self._align(dtype, own)
        return self.text.new(
            f"load {self.text.type(dtype, own)}, ptr {address}, align {align}"
        )

    def store(self, node: int, name: str) -> None:
        """Store a value in its slot."""
        dtype, own = self.graph.dtype[node], self.text.is_vector(node)
        address = self.address(self.schedule.place[node])
        kind, align = self.text.type(dtype, own), self._align(dtype, own)
        self.text.lines.append(f"  store {kind} {name}, ptr {address}, align {align}")

    def evaluate(self, node: int) -> None:
        """Compute a pure node, and keep it if other chunks need it."""
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
            name = self.text.operation(node, self.value)
        self.names[node, self.text.is_vector(node)] = name
        if node in self.schedule.place:
            self.store(node, name)

    # Arrays.

    def array(self, node: int) -> tuple[str, int]:
        """Return the address of an array in memory, and the distance of its rows in
        bytes."""
        node = self.schedule.resolve(node)
        graph = self.graph
        stride = max(bits(graph.dtype[node]), 8) // 8
        if graph.op[node] == "table":
            return self.table(node), stride
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
        self.text.externals.add(
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
        given = [flags, floats, integers, self.address(self.work), result, *tables]
        symbol = self.graph.aux[node].symbol
        kinds = ", ".join(["ptr"] * len(given))
        self.text.externals.add(f"declare void @{symbol}({kinds})")
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
        text.externals.add(f"declare i1 @{function}({kind})")
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
        self.text.externals.add(
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
            self.text.externals.add(
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
