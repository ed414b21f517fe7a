"""The entry of a kernel for XLA, and its threads, as LLVM IR.

XLA calls `handler` through its typed foreign-function interface (`c_api.h`). A call is
cut into tasks, each a range of the outer axis. The calling thread and helpers from XLA's
thread pool take tasks from a counter until none is left; so a call never waits for a
helper that has not begun. Tasks, and the order in which their sums are added, depend on
the size of the batch alone: results do not depend on the number of threads.

A call is described by words of 8 bytes on the heap, freed by the last who uses it:
"""

from ._graph import LANE
from ._instructions import bits, scalar_type


# Words of a call.
_NEXT, _DONE, _USERS, _TASKS, _LANES, _LOOPS, _SUMS, _BUFFERS = range(8)

LARGEST_TASKS = 64
"""Tasks of a call, at most."""
_TASK_COST = 30_000
"""Operations that are worth another thread."""

# Offsets in bytes of XLA's structures, version 0.3.
_API, _CONTEXT, _STAGE, _ARGS, _RETS = 16, 24, 32, 72, 112
_ERROR_DESTROY, _SCHEDULE, _NUM_THREADS = 64, 136, 144
_DATA = 24


def module(emitter, regions: list[list[str]], packs: list[str]) -> str:
    """All functions but the chunks."""
    writer = _Writer(emitter, regions, packs)
    emitter.externals |= _DECLARATIONS
    return "\n".join([*writer.copies(), writer.participate(), _TASK, writer.handler()])


_DECLARATIONS = {
    "declare ptr @malloc(i64)",
    "declare void @free(ptr)",
    "declare i32 @sched_yield()",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}


def _copy_rows(kind: str) -> str:
    """Functions that move rows of numbers into and out of scratch memory."""
    return f"""
define internal void @rows_{kind}(ptr %to, ptr %from, i64 %count, i64 %step_to, i64 %step) {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %end
body:
  %at = mul i64 %k, %step
  %source = getelementptr {kind}, ptr %from, i64 %at
  %x = load {kind}, ptr %source
  %put = mul i64 %k, %step_to
  %target = getelementptr {kind}, ptr %to, i64 %put
  store {kind} %x, ptr %target
  %next = add i64 %k, 1
  br label %loop
end:
  ret void
}}
"""


def _copy_lanes(kind: str, size: int, width: int) -> str:
    """`count` rows of W lanes that begin at environment `first` of `total`; lanes beyond
    the batch repeat the last environment, and are not written."""
    vector = f"<{width} x {kind}>"
    return f"""
define internal void @load_{kind}(ptr %to, ptr %from, i64 %count, i64 %step, i64 %first, i64 %total) {{
entry:
  %last = sub i64 %total, 1
  %stop = add i64 %first, {width}
  %whole = icmp sle i64 %stop, %total
  br i1 %whole, label %fast, label %slow
fast:
  %k = phi i64 [ 0, %entry ], [ %kn, %fast_body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %fast_body, label %end
fast_body:
  %o = mul i64 %k, %step
  %oi = add i64 %o, %first
  %p = getelementptr {kind}, ptr %from, i64 %oi
  %x = load {vector}, ptr %p, align {size}
  %q0 = mul i64 %k, {width}
  %q = getelementptr {kind}, ptr %to, i64 %q0
  store {vector} %x, ptr %q, align {size}
  %kn = add i64 %k, 1
  br label %fast
slow:
  %j = phi i64 [ 0, %entry ], [ %jn, %slow_body ]
  %all = mul i64 %count, {width}
  %again = icmp slt i64 %j, %all
  br i1 %again, label %slow_body, label %end
slow_body:
  %row = udiv i64 %j, {width}
  %lane = urem i64 %j, {width}
  %i0 = add i64 %first, %lane
  %over = icmp sgt i64 %i0, %last
  %i = select i1 %over, i64 %last, i64 %i0
  %r = mul i64 %row, %step
  %ri = add i64 %r, %i
  %rp = getelementptr {kind}, ptr %from, i64 %ri
  %rx = load {kind}, ptr %rp
  %rq = getelementptr {kind}, ptr %to, i64 %j
  store {kind} %rx, ptr %rq
  %jn = add i64 %j, 1
  br label %slow
end:
  ret void
}}

define internal void @store_{kind}(ptr %to, ptr %from, i64 %count, i64 %step, i64 %first, i64 %total) {{
entry:
  %stop = add i64 %first, {width}
  %whole = icmp sle i64 %stop, %total
  br i1 %whole, label %fast, label %slow
fast:
  %k = phi i64 [ 0, %entry ], [ %kn, %fast_body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %fast_body, label %end
fast_body:
  %o = mul i64 %k, %step
  %oi = add i64 %o, %first
  %p = getelementptr {kind}, ptr %to, i64 %oi
  %q0 = mul i64 %k, {width}
  %q = getelementptr {kind}, ptr %from, i64 %q0
  %x = load {vector}, ptr %q, align {size}
  store {vector} %x, ptr %p, align {size}
  %kn = add i64 %k, 1
  br label %fast
slow:
  %j = phi i64 [ 0, %entry ], [ %jn, %slow_next ]
  %all = mul i64 %count, {width}
  %again = icmp slt i64 %j, %all
  br i1 %again, label %slow_body, label %end
slow_body:
  %row = udiv i64 %j, {width}
  %lane = urem i64 %j, {width}
  %i = add i64 %first, %lane
  %inside = icmp slt i64 %i, %total
  br i1 %inside, label %put, label %slow_next
put:
  %r = mul i64 %row, %step
  %ri = add i64 %r, %i
  %rp = getelementptr {kind}, ptr %to, i64 %ri
  %rq = getelementptr {kind}, ptr %from, i64 %j
  %rx = load {kind}, ptr %rq
  store {kind} %rx, ptr %rp
  br label %slow_next
slow_next:
  %jn = add i64 %j, 1
  br label %slow
end:
  ret void
}}
"""


def _accumulate(kind: str, size: int, width: int) -> str:
    """Adds rows of lanes to accumulators, but for the lanes beyond the batch."""
    vector = f"<{width} x {kind}>" if width > 1 else kind
    operation = "fadd" if kind in ("float", "double") else "add"
    zero = "zeroinitializer" if width > 1 else ("0.0" if operation == "fadd" else "0")
    if width > 1:
        lanes = ", ".join(f"i64 {k}" for k in range(width))
        mask = f"""
  %one = insertelement <{width} x i64> poison, i64 %valid, i64 0
  %all = shufflevector <{width} x i64> %one, <{width} x i64> poison, <{width} x i32> zeroinitializer
  %mask = icmp slt <{width} x i64> <{lanes}>, %all"""
        test = f"<{width} x i1>"
    else:
        mask, test = "\n  %mask = icmp slt i64 0, %valid", "i1"
    return f"""
define internal void @add_{kind}(ptr %sum, ptr %from, i64 %count, i64 %valid) {{
entry:{mask}
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %end
body:
  %p = getelementptr {vector}, ptr %from, i64 %k
  %x = load {vector}, ptr %p, align {size}
  %own = select {test} %mask, {vector} %x, {vector} {zero}
  %q = getelementptr {vector}, ptr %sum, i64 %k
  %old = load {vector}, ptr %q, align {size}
  %new = {operation} {vector} %old, %own
  store {vector} %new, ptr %q, align {size}
  %next = add i64 %k, 1
  br label %loop
end:
  ret void
}}

define internal void @total_{kind}(ptr %to, ptr %from, i64 %count, i64 %width) {{
entry:
  br label %rows
rows:
  %k = phi i64 [ 0, %entry ], [ %kn, %done ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %row, label %end
row:
  %base = mul i64 %k, %width
  br label %lanes
lanes:
  %j = phi i64 [ 0, %row ], [ %jn, %lane ]
  %sum = phi {kind} [ {"0.0" if operation == "fadd" else "0"}, %row ], [ %new, %lane ]
  %again = icmp slt i64 %j, %width
  br i1 %again, label %lane, label %done
lane:
  %i = add i64 %base, %j
  %p = getelementptr {kind}, ptr %from, i64 %i
  %x = load {kind}, ptr %p
  %new = {operation} {kind} %sum, %x
  %jn = add i64 %j, 1
  br label %lanes
done:
  %q = getelementptr {kind}, ptr %to, i64 %k
  store {kind} %sum, ptr %q
  %kn = add i64 %k, 1
  br label %rows
end:
  ret void
}}

define internal void @plus_{kind}(ptr %to, ptr %from, i64 %count, i64 %tasks, i64 %step) {{
entry:
  br label %rows
rows:
  %k = phi i64 [ 0, %entry ], [ %kn, %done ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %row, label %end
row:
  br label %parts
parts:
  %j = phi i64 [ 0, %row ], [ %jn, %part ]
  %sum = phi {kind} [ {"0.0" if operation == "fadd" else "0"}, %row ], [ %new, %part ]
  %again = icmp slt i64 %j, %tasks
  br i1 %again, label %part, label %done
part:
  %o = mul i64 %j, %step
  %p0 = getelementptr i8, ptr %from, i64 %o
  %p = getelementptr {kind}, ptr %p0, i64 %k
  %x = load {kind}, ptr %p
  %new = {operation} {kind} %sum, %x
  %jn = add i64 %j, 1
  br label %parts
done:
  %q = getelementptr {kind}, ptr %to, i64 %k
  store {kind} %sum, ptr %q
  %kn = add i64 %k, 1
  br label %rows
end:
  ret void
}}
"""


_TASK = f"""
define internal void @release(ptr %call) {{
  %users = getelementptr i64, ptr %call, i64 {_USERS}
  %old = atomicrmw sub ptr %users, i64 1 acq_rel
  %last = icmp eq i64 %old, 1
  br i1 %last, label %clear, label %end
clear:
  %sums_at = getelementptr i64, ptr %call, i64 {_SUMS}
  %sums = load ptr, ptr %sums_at
  call void @free(ptr %sums)
  call void @free(ptr %call)
  br label %end
end:
  ret void
}}

define internal void @help(ptr %call) {{
  call void @participate(ptr %call)
  call void @release(ptr %call)
  ret void
}}
"""


class _Writer:
    """Functions that know the arguments and results of one kernel."""

    def __init__(self, emitter, regions, packs):
        self.emitter, self.regions, self.packs = emitter, regions, packs
        self.nest, self.width = emitter.nest, emitter.width
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
        """The functions that move numbers of the types that occur."""
        leaves = [*self.emitter.inputs, *self.emitter.outputs]
        kinds = sorted({(self._kind(leaf), self._size(leaf)) for leaf in leaves})
        text = [_copy_rows(kind) for kind, _ in kinds]
        if LANE in self.nest:
            text += [_copy_lanes(kind, size, self.width) for kind, size in kinds]
        summed = {(self._kind(x), self._size(x)) for x in leaves if x.summed}
        width = self.width if LANE in self.nest else 1
        return text + [_accumulate(kind, size, width) for kind, size in sorted(summed)]

    def _word(self, name: str, number: int, kind: str = "i64") -> list[str]:
        return [
            f"  %{name}.at = getelementptr i64, ptr %call, i64 {number}",
            f"  %{name} = load {kind}, ptr %{name}.at, align 8",
        ]

    def _buffer(self, number: int) -> tuple[str, list[str]]:
        self.count += 1
        name = f"buffer{self.count}"
        return f"%{name}", self._word(name, _BUFFERS + number, "ptr")

    def _scratch(self, place: int) -> tuple[str, list[str]]:
        self.count += 1
        name = f"%scratch{self.count}"
        return name, [f"  {name} = getelementptr i8, ptr %S, i64 {place}"]

    def _copy_in(self, region: int) -> list[str]:
        """Lines that pack the arguments which a region needs first."""
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
        """Lines that move the rows of a leaf, of shape `[rows, loops, lanes]` without
        the axes that it lacks."""
        kind, lines = self._kind(leaf), []
        self.count += 1
        n = self.count
        at, step = buffer, "1"
        has_loop = bool(leaf.dep & 2)
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
        """Lines that store or add up the results of a pass."""
        lines = list(self.packs)
        emitter, first = self.emitter, len(self.emitter.inputs)
        if any(leaf.summed for leaf in emitter.outputs):
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
        return lines

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
        """Lines that leave the sums of a task for `handler`."""
        if not self.offset:
            return []
        lines = [
            *self._word("sums", _SUMS, "ptr"),
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
        """What a thread does: take a task, compute what is shared, then work on tasks
        until none is left."""
        body = self._nested(1)
        return "\n".join(
            [
                "define internal void @participate(ptr %call) noinline nounwind {",
                "entry:",
                *(f"  %index{k} = alloca i64" for k in range(1, len(self.nest) + 1)),
                f"  %next.at = getelementptr i64, ptr %call, i64 {_NEXT}",
                "  %task0 = atomicrmw add ptr %next.at, i64 1 acq_rel",
                *self._word("tasks", _TASKS),
                *self._word("lanes", _LANES),
                *self._word("loops", _LOOPS),
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
                f"  %done.at = getelementptr i64, ptr %call, i64 {_DONE}",
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
        """The block in which region 0 ends."""
        found = "begin"
        for line in self.regions[0]:
            if line.endswith(":") and not line.startswith(" "):
                found = line[:-1]
        return f"%{found}"

    def _outer_range(self) -> list[str]:
        """`%low` and `%high`: the passes of the outer axis that a task has."""
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
        """How often the loop over an axis runs."""
        if axis != LANE:
            return [f"  {name} = add i64 %loops, 0"]
        return [
            f"  {name}.up = add i64 %lanes, {self.width - 1}",
            f"  {name} = sdiv i64 {name}.up, {self.width}",
        ]

    def _nested(self, level: int) -> list[str]:
        """The loops over the axes from `level` on."""
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
            *self._copy_in(level),
            *self.regions[level],
            *self._nested(level + 1),
            f"  %after{level} = add i64 %pass{level}, 1",
            f"  store i64 %after{level}, ptr %index{level}",
            f"  br label %axis{level}",
            f"out{level}:",
        ]

    def handler(self) -> str:
        """The function that XLA calls. Argument 0 holds the sizes of the axes."""
        nin, nout = len(self.emitter.inputs), len(self.emitter.outputs)
        buffers = []
        for kind, count, first in (("a", nin, 0), ("r", nout, nin)):
            source = "%args" if kind == "a" else "%rets"
            for k in range(count):
                place = k + 1 if kind == "a" else k
                buffers += [
                    f"  %{kind}{k}p = getelementptr ptr, ptr {source}, i64 {place}",
                    f"  %{kind}{k}b = load ptr, ptr %{kind}{k}p",
                    f"  %{kind}{k}d = getelementptr i8, ptr %{kind}{k}b, i64 {_DATA}",
                    f"  %{kind}{k}v = load ptr, ptr %{kind}{k}d",
                    f"  %{kind}{k}s = getelementptr i64, ptr %call, "
                    f"i64 {_BUFFERS + first + k}",
                    f"  store ptr %{kind}{k}v, ptr %{kind}{k}s",
                ]
        size = 8 * (_BUFFERS + nin + nout)
        outer = ["  %outer = add i64 0, 1"]
        if self.nest:
            outer = self._passes("%outer", self.nest[0])
        inner = ["  %inner = add i64 0, 1"]
        if len(self.nest) > 1:
            inner = self._passes("%inner", self.nest[1])
        return _HANDLER.format(
            size=size,
            buffers="\n".join(buffers),
            outer="\n".join(outer),
            inner="\n".join(inner),
            partial=self.partial,
            cost=max(1, self.emitter.cost),
            finish="\n".join(self._final_sums(nin)),
            **_NUMBERS,
        )

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


_NUMBERS = dict(
    next=_NEXT,
    done=_DONE,
    users=_USERS,
    tasks=_TASKS,
    lanes=_LANES,
    loops=_LOOPS,
    sums=_SUMS,
    api=_API,
    context=_CONTEXT,
    stage=_STAGE,
    args=_ARGS,
    rets=_RETS,
    destroy=_ERROR_DESTROY,
    schedule=_SCHEDULE,
    threads=_NUM_THREADS,
    data=_DATA,
    most=LARGEST_TASKS,
    worth=_TASK_COST,
)

_HANDLER = """
define ptr @handler(ptr %frame) nounwind {{
entry:
  %ext.at = getelementptr i8, ptr %frame, i64 8
  %ext = load ptr, ptr %ext.at
  %plain = icmp eq ptr %ext, null
  br i1 %plain, label %run, label %query
query:
  %kind.at = getelementptr i8, ptr %ext, i64 8
  %kind = load i32, ptr %kind.at
  %is_query = icmp eq i32 %kind, 1
  br i1 %is_query, label %answer, label %run
answer:
  %answer.at = getelementptr i8, ptr %ext, i64 24
  %info = load ptr, ptr %answer.at
  %major = getelementptr i8, ptr %info, i64 24
  store i32 0, ptr %major
  %minor = getelementptr i8, ptr %info, i64 28
  store i32 3, ptr %minor
  %traits = getelementptr i8, ptr %info, i64 32
  store i32 0, ptr %traits
  %state = getelementptr i8, ptr %info, i64 40
  store i64 0, ptr %state
  ret ptr null
run:
  %stage.at = getelementptr i8, ptr %frame, i64 {stage}
  %stage = load i32, ptr %stage.at
  %executes = icmp eq i32 %stage, 3
  br i1 %executes, label %execute, label %nothing
nothing:
  ret ptr null
execute:
  %args.at = getelementptr i8, ptr %frame, i64 {args}
  %args = load ptr, ptr %args.at
  %rets.at = getelementptr i8, ptr %frame, i64 {rets}
  %rets = load ptr, ptr %rets.at
  %call = call ptr @malloc(i64 {size})
{buffers}
  %axes.b = load ptr, ptr %args
  %axes.at = getelementptr i8, ptr %axes.b, i64 {data}
  %axes = load ptr, ptr %axes.at
  %lanes32 = load i32, ptr %axes
  %lanes = sext i32 %lanes32 to i64
  %loops.p = getelementptr i32, ptr %axes, i64 1
  %loops32 = load i32, ptr %loops.p
  %loops = sext i32 %loops32 to i64
  %lanes.at = getelementptr i64, ptr %call, i64 {lanes}
  store i64 %lanes, ptr %lanes.at
  %loops.at = getelementptr i64, ptr %call, i64 {loops}
  store i64 %loops, ptr %loops.at
{outer}
{inner}
  %few = icmp slt i64 %outer, {most}
  %tasks = select i1 %few, i64 %outer, i64 {most}
  %tasks.at = getelementptr i64, ptr %call, i64 {tasks}
  store i64 %tasks, ptr %tasks.at
  %next.at = getelementptr i64, ptr %call, i64 {next}
  store i64 0, ptr %next.at
  %done.at = getelementptr i64, ptr %call, i64 {done}
  store i64 0, ptr %done.at
  %users.at = getelementptr i64, ptr %call, i64 {users}
  store i64 1, ptr %users.at
  %partial = mul i64 %tasks, {partial}
  %room = add i64 %partial, 8
  %sums = call ptr @malloc(i64 %room)
  %sums.at = getelementptr i64, ptr %call, i64 {sums}
  store ptr %sums, ptr %sums.at
  %passes = mul i64 %outer, %inner
  %work = mul i64 %passes, {cost}
  %worth = sdiv i64 %work, {worth}
  %rest = sub i64 %tasks, 1
  %less = icmp slt i64 %worth, %rest
  %wanted = select i1 %less, i64 %worth, i64 %rest
  %helps = icmp sgt i64 %wanted, 0
  br i1 %helps, label %ask, label %main
ask:
  %api.at = getelementptr i8, ptr %frame, i64 {api}
  %api = load ptr, ptr %api.at
  %context.at = getelementptr i8, ptr %frame, i64 {context}
  %context = load ptr, ptr %context.at
  %number = alloca i64
  store i64 1, ptr %number
  %question = alloca [5 x i64]
  %q0 = getelementptr i64, ptr %question, i64 0
  store i64 32, ptr %q0
  %q1 = getelementptr i64, ptr %question, i64 1
  store i64 0, ptr %q1
  %q2 = getelementptr i64, ptr %question, i64 2
  store ptr %context, ptr %q2
  %q3 = getelementptr i64, ptr %question, i64 3
  store ptr %number, ptr %q3
  %threads.at = getelementptr i8, ptr %api, i64 {threads}
  %threads_of = load ptr, ptr %threads.at
  %error0 = call ptr %threads_of(ptr %question)
  call void @forget(ptr %api, ptr %error0)
  %pool = load i64, ptr %number
  %others = sub i64 %pool, 1
  %fewer = icmp slt i64 %others, %wanted
  %helpers = select i1 %fewer, i64 %others, i64 %wanted
  store i64 40, ptr %q0
  store ptr @help, ptr %q3
  %q4 = getelementptr i64, ptr %question, i64 4
  store ptr %call, ptr %q4
  %schedule.at = getelementptr i8, ptr %api, i64 {schedule}
  %schedule = load ptr, ptr %schedule.at
  br label %hire
hire:
  %h = phi i64 [ 0, %ask ], [ %hn, %hired ]
  %more = icmp slt i64 %h, %helpers
  br i1 %more, label %one, label %main
one:
  %old_users = atomicrmw add ptr %users.at, i64 1 acq_rel
  %error = call ptr %schedule(ptr %question)
  %ok = icmp eq ptr %error, null
  br i1 %ok, label %hired, label %refused
refused:
  %left = atomicrmw sub ptr %users.at, i64 1 acq_rel
  call void @forget(ptr %api, ptr %error)
  br label %hired
hired:
  %hn = add i64 %h, 1
  br label %hire
main:
  call void @participate(ptr %call)
  br label %wait
wait:
  %so_far = load atomic i64, ptr %done.at acquire, align 8
  %all = icmp sge i64 %so_far, %tasks
  br i1 %all, label %finish, label %pause
pause:
  %yielded = call i32 @sched_yield()
  br label %wait
finish:
{finish}
  call void @release(ptr %call)
  ret ptr null
}}

define internal void @forget(ptr %api, ptr %error) {{
  %none = icmp eq ptr %error, null
  br i1 %none, label %end, label %destroy
destroy:
  %arguments = alloca [3 x i64]
  store i64 24, ptr %arguments
  %a1 = getelementptr i64, ptr %arguments, i64 1
  store i64 0, ptr %a1
  %a2 = getelementptr i64, ptr %arguments, i64 2
  store ptr %error, ptr %a2
  %function.at = getelementptr i8, ptr %api, i64 {destroy}
  %function = load ptr, ptr %function.at
  call void %function(ptr %arguments)
  br label %end
end:
  ret void
}}
"""
