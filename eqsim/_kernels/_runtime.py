"""The part of a call that one thread runs, as LLVM IR: tasks, loops over the batch, and
transfers."""

from . import _grouping
from ._assumptions import comparison, DEFINITIONS, otherwise
from ._entry import (
    API,
    BUFFERS,
    DECLARATIONS,
    DONE,
    handler,
    LANES,
    LOOPS,
    NEXT,
    ORDER,
    SUMS,
    TASK,
    TASKS,
)
from ._graph import LANE, LOOP
from ._grouping import definitions, move_lanes, unit
from ._instructions import bits, scalar_type
from ._transfer import (
    accumulate,
    copy_rows,
    load_lanes,
    store_lanes,
    total_lanes,
    total_tasks,
)


def module(emitter, regions: list[list[str]], packs: list[str]) -> str:
    """Return all functions except the chunks."""
    writer = _Writer(emitter, regions, packs)
    emitter.externals |= DECLARATIONS
    parts = [*writer.copies(), writer.participate(), TASK, writer.entry()]
    return "\n".join(parts)


class _Writer:
    """Functions that know the arguments and results of one kernel."""

    def __init__(self, emitter, regions, packs):
        self.emitter, self.regions, self.packs = emitter, regions, packs
        self.nest, self.width = emitter.nest, emitter.width
        # The order of summands, and so their rounding, must not depend on earlier calls.
        adds_up = any(leaf.summed for leaf in emitter.outputs)
        largest = max(emitter.weights, default=0)
        self.grouped = largest >= _grouping.WORTHWHILE and not adds_up
        self.offset = {}
        top = 0
        for k, leaf in enumerate(emitter.outputs):
            if leaf.summed:
                self.offset[k] = top
                top += -(-leaf.rows * max(bits(leaf.dtype), 8) // 8 // 8) * 8
        self.partial = top
        self.count = 0

    def _kind(self, leaf) -> str:
        return "i8" if leaf.dtype == "b1" else scalar_type(leaf.dtype)

    def _size(self, leaf) -> int:
        return max(bits(leaf.dtype), 8) // 8

    def copies(self) -> list[str]:
        """Return the functions that move numbers of the types that occur."""
        leaves = [*self.emitter.inputs, *self.emitter.outputs]
        kinds = sorted({(self._kind(leaf), self._size(leaf)) for leaf in leaves})
        text = [copy_rows(kind) for kind, _ in kinds]
        if self.grouped:
            text.append(definitions(self.width, unit(self.emitter.weights)))
            for kind, size in kinds:
                functions, declared = move_lanes(kind, size, self.width)
                text.append(functions)
                self.emitter.externals |= declared
        elif LANE in self.nest:
            text += [load_lanes(kind, size, self.width) for kind, size in kinds]
            text += [store_lanes(kind, size, self.width) for kind, size in kinds]
        summed = {(self._kind(x), self._size(x)) for x in leaves if x.summed}
        width = self.width if LANE in self.nest else 1
        for kind, size in sorted(summed):
            text.append(accumulate(kind, size, width))
            text += [total_lanes(kind), total_tasks(kind)]
        return text

    def _word(self, name: str, number: int, kind: str = "i64") -> list[str]:
        return [
            f"  %{name}.at = getelementptr i64, ptr %call, i64 {number}",
            f"  %{name} = load {kind}, ptr %{name}.at, align 8",
        ]

    def _buffer(self, number: int) -> tuple[str, list[str]]:
        self.count += 1
        name = f"buffer{self.count}"
        return f"%{name}", self._word(name, BUFFERS + number, "ptr")

    def _scratch(self, place: int) -> tuple[str, list[str]]:
        self.count += 1
        name = f"%scratch{self.count}"
        return name, [f"  {name} = getelementptr i8, ptr %S, i64 {place}"]

    def _copy_in(self, region: int) -> list[str]:
        """Return lines that pack the arguments which a region is the first to need."""
        lines: list[str] = []
        emitter = self.emitter
        for k, (leaf, node) in enumerate(
            zip(emitter.inputs, emitter.sources, strict=True)
        ):
            if emitter.deepest(leaf) != region or node not in emitter.schedule.live:
                continue
            to, own = self._scratch(emitter.schedule.place[node])
            source, more = self._buffer(k)
            lines += [*own, *more]
            lines += self._move(leaf, to, source, into=True)
        return lines

    def _move(self, leaf, scratch: str, buffer: str, into: bool) -> list[str]:
        """Return lines that move the rows of a leaf, of shape `[rows, loops, lanes]`
        without the axes that it lacks."""
        kind, lines = self._kind(leaf), []
        self.count += 1
        n = self.count
        at, step = buffer, "1"
        has_loop = bool(leaf.dep & LOOP)
        if has_loop:
            scale = "%lanes" if leaf.dep & LANE else "1"
            at, step = f"%from{n}", f"%step{n}"
            lines += [
                f"  %skip{n} = mul i64 %loop, {scale}",
                f"  {at} = getelementptr {kind}, ptr {buffer}, i64 %skip{n}",
                f"  {step} = mul i64 %loops, {scale}",
            ]
        elif leaf.dep & LANE:
            step = "%lanes"
        if leaf.dep & LANE and self.grouped:
            function = "gather" if into else "scatter"
            more = "" if into else ", i64 %valid"
            pair = (scratch, at) if into else (at, scratch)
            return [
                *lines,
                f"  call void @{function}_{kind}(ptr {pair[0]}, ptr {pair[1]}, "
                f"i64 {leaf.rows}, i64 {step}, ptr %chosen{more})",
            ]
        if leaf.dep & LANE:
            function = "load" if into else "store"
            pair = (scratch, at) if into else (at, scratch)
            return [
                *lines,
                f"  call void @{function}_{kind}(ptr {pair[0]}, ptr {pair[1]}, "
                f"i64 {leaf.rows}, i64 {step}, i64 %first, i64 %lanes)",
            ]
        pair = (scratch, at) if into else (at, scratch)
        steps = ("1", step) if into else (step, "1")
        return [
            *lines,
            f"  call void @rows_{kind}(ptr {pair[0]}, ptr {pair[1]}, i64 {leaf.rows}, "
            f"i64 {steps[0]}, i64 {steps[1]})",
        ]

    def _results(self) -> list[str]:
        """Return lines that store or add the results of a pass."""
        lines = list(self.packs)
        emitter, first = self.emitter, len(self.emitter.inputs)
        if self.grouped or any(leaf.summed for leaf in emitter.outputs):
            lines += [
                "  %valid = sub i64 %lanes, %first"
                if LANE in self.nest
                else "  %valid = add i64 0, 1"
            ]
        for k, (leaf, place) in enumerate(
            zip(emitter.outputs, emitter.packed, strict=True)
        ):
            packed, own = self._scratch(place)
            lines += own
            if leaf.summed:
                total, own = self._scratch(emitter.sums[k])
                lines += own
                lines.append(
                    f"  call void @add_{self._kind(leaf)}(ptr {total}, ptr {packed}, "
                    f"i64 {leaf.rows}, i64 %valid)"
                )
                continue
            buffer, more = self._buffer(first + k)
            lines += [*more, *self._move(leaf, packed, buffer, into=False)]
        if self.grouped:
            lines.append("  call void @remember(ptr %chosen, ptr %passed)")
        return lines

    def _chosen(self) -> list[str]:
        """Return lines that choose the environments of a vector."""
        if not self.grouped:
            return []
        emitter = self.emitter
        return [
            f"  %chosen = getelementptr i8, ptr %S, i64 {emitter.lane_numbers}",
            f"  %passed = getelementptr i8, ptr %S, i64 {emitter.work}",
            *self._word("arranged", ORDER, "ptr"),
            "  call void @choose(ptr %chosen, ptr %passed, ptr %arranged, i64 %first, i64 %lanes)",
        ]

    def _clear_sums(self) -> list[str]:
        lines: list[str] = []
        for k, place in self.emitter.sums.items():
            leaf = self.emitter.outputs[k]
            size = leaf.rows * self._size(leaf)
            size *= self.width if LANE in self.nest else 1
            to, own = self._scratch(place)
            lines += [
                *own,
                f"  call void @llvm.memset.p0.i64(ptr {to}, i8 0, i64 {size}, i1 false)",
            ]
        return lines

    def _keep_sums(self) -> list[str]:
        """Return lines that leave the sums of a task for `handler`."""
        if not self.offset:
            return []
        lines = [
            *self._word("sums", SUMS, "ptr"),
            f"  %own_at = mul i64 %task, {self.partial}",
            "  %own = getelementptr i8, ptr %sums, i64 %own_at",
        ]
        width = self.width if LANE in self.nest else 1
        for k, offset in self.offset.items():
            leaf, place = self.emitter.outputs[k], self.emitter.sums[k]
            total, own = self._scratch(place)
            lines += [
                *own,
                f"  %own{k} = getelementptr i8, ptr %own, i64 {offset}",
                f"  call void @total_{self._kind(leaf)}(ptr %own{k}, ptr {total}, "
                f"i64 {leaf.rows}, i64 {width})",
            ]
        return lines

    def participate(self) -> str:
        """Return the function of a thread: take a task, compute shared values, then work on
        tasks until none is left."""
        body = self._nested(1)
        return "\n".join(
            [
                "define internal void @participate(ptr %call) noinline nounwind {",
                "entry:",
                *(f"  %index{k} = alloca i64" for k in range(1, len(self.nest) + 1)),
                f"  %next.at = getelementptr i64, ptr %call, i64 {NEXT}",
                "  %task0 = atomicrmw add ptr %next.at, i64 1 acq_rel",
                *self._word("tasks", TASKS),
                *self._word("lanes", LANES),
                *self._word("loops", LOOPS),
                "  %some = icmp slt i64 %task0, %tasks",
                "  br i1 %some, label %begin, label %leave",
                "begin:",
                f"  %memory = call ptr @malloc(i64 {self.emitter.size + 64})",
                "  %raw = ptrtoint ptr %memory to i64",
                "  %up = add i64 %raw, 63",
                "  %aligned = and i64 %up, -64",
                "  %S = inttoptr i64 %aligned to ptr",
                *self._copy_in(0),
                *self.regions[0],
                "  br label %work",
                "work:",
                "  %task = phi i64 [ %task0, %start ], [ %task1, %finish ]".replace(
                    "%start", self._predecessor()
                ),
                *self._outer_range(),
                *self._clear_sums(),
                *body,
                "  br label %finish",
                "finish:",
                *self._keep_sums(),
                f"  %done.at = getelementptr i64, ptr %call, i64 {DONE}",
                "  %done = atomicrmw add ptr %done.at, i64 1 acq_rel",
                "  %task1 = atomicrmw add ptr %next.at, i64 1 acq_rel",
                "  %again = icmp slt i64 %task1, %tasks",
                "  br i1 %again, label %work, label %over",
                "over:",
                "  call void @free(ptr %memory)",
                "  ret void",
                "leave:",
                "  ret void",
                "}",
            ]
        )

    def _predecessor(self) -> str:
        """Return the block in which region 0 ends."""
        found = "begin"
        for line in self.regions[0]:
            if line.endswith(":") and not line.startswith(" "):
                found = line[:-1]
        return f"%{found}"

    def _outer_range(self) -> list[str]:
        """Return lines that compute `%low` and `%high`, the range of passes of the
        outer axis in a task."""
        if not self.nest:
            return []
        lines = [*self._passes("%outer", self.nest[0])]
        return [
            *lines,
            "  %cut0 = mul i64 %task, %outer",
            "  %low = sdiv i64 %cut0, %tasks",
            "  %task_end = add i64 %task, 1",
            "  %cut1 = mul i64 %task_end, %outer",
            "  %high = sdiv i64 %cut1, %tasks",
        ]

    def _passes(self, name: str, axis: int) -> list[str]:
        """Return the number of passes of the loop over an axis."""
        if axis != LANE:
            return [f"  {name} = add i64 %loops, 0"]
        return [
            f"  {name}.up = add i64 %lanes, {self.width - 1}",
            f"  {name} = sdiv i64 {name}.up, {self.width}",
        ]

    def _nested(self, level: int) -> list[str]:
        """Return the loops over the axes from `level` on."""
        if level > len(self.nest):
            return self._results()
        axis = self.nest[level - 1]
        low, high = ("%low", "%high") if level == 1 else ("0", f"%most{level}")
        own = f"%first = mul i64 %pass{level}, {self.width}"
        own = own if axis == LANE else f"%loop = add i64 %pass{level}, 0"
        lines = [] if level == 1 else self._passes(high, axis)
        return [
            *lines,
            f"  store i64 {low}, ptr %index{level}",
            f"  br label %axis{level}",
            f"axis{level}:",
            f"  %pass{level} = load i64, ptr %index{level}",
            f"  %more_axis{level} = icmp slt i64 %pass{level}, {high}",
            f"  br i1 %more_axis{level}, label %in{level}, label %out{level}",
            f"in{level}:",
            f"  {own}",
            *self._chosen(),
            *self._copy_in(level),
            *self.regions[level],
            *self._nested(level + 1),
            f"  %after{level} = add i64 %pass{level}, 1",
            f"  store i64 %after{level}, ptr %index{level}",
            f"  br label %axis{level}",
            f"out{level}:",
        ]

    def entry(self) -> str:
        """Return the function that XLA calls."""
        nin = len(self.emitter.inputs)
        one = "  {} = add i64 0, 1"
        outer, inner = [one.format("%outer")], [one.format("%inner")]
        if self.nest:
            outer = self._passes("%outer", self.nest[0])
        if len(self.nest) > 1:
            inner = self._passes("%inner", self.nest[1])
        results, cost = len(self.emitter.outputs), self.emitter.cost
        finish = self._final_sums(nin)
        tables, check = self._check()
        order = "call ptr @arrange(i64 %lanes)"
        order = order if self.grouped else "getelementptr i8, ptr null, i64 0"
        passes = outer, inner
        text = handler(nin, results, passes, self.partial, cost, finish, check, order)
        return "\n".join([*tables, text])

    def _check(self) -> tuple[list[str], list[str]]:
        """Return definitions, and lines that compare the arguments with the
        assumptions."""
        inputs = self.emitter.inputs
        patterns = [leaf.assumed for leaf in inputs]
        if not any(patterns):
            return [], []
        tables, lines = comparison(patterns, [leaf.dtype for leaf in inputs])
        return [*DEFINITIONS, *tables], [*lines, otherwise(API)]

    def _final_sums(self, nin: int) -> list[str]:
        lines: list[str] = []
        for k, offset in self.offset.items():
            leaf = self.emitter.outputs[k]
            buffer, own = self._buffer(nin + k)
            lines += [
                *own,
                f"  %total{k} = getelementptr i8, ptr %sums, i64 {offset}",
                f"  call void @plus_{self._kind(leaf)}(ptr {buffer}, ptr %total{k}, "
                f"i64 {leaf.rows}, i64 %tasks, i64 {self.partial})",
            ]
        return lines
