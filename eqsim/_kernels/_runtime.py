"""The runtime of a kernel, as LLVM IR: what XLA calls, threads, loops over the batch, and
transfers of numbers.

    handler (called by XLA through its foreign-function interface, `_ffi.py`)
      -> participate: the part of a call that one thread runs, in scratch memory of its own
           region 0: values that the whole batch shares
           for each pass of the outer axis: copy inputs in, region 1
             for each pass of the inner axis: copy inputs in, region 2
             copy outputs out, or add them up

A call is cut into tasks, each a range of the outer axis. The calling thread and helpers from
XLA's thread pool take tasks from a counter until none is left; so a call never waits for
a helper that has not begun. Tasks, and the order in which their sums are added, depend on
the size of the batch alone: results do not depend on the number of threads.

Inputs and outputs lie packed in scratch memory, W environments per tile. The last
tile may be partial: its lanes beyond the batch repeat the last environment. A tile holds
neighbors, or environments that need about equally much work (`_transfers.py`).
"""

from ._assumptions import comparison
from ._emit import Emitter
from ._ffi import (
    API,
    BUFFER,
    ERROR,
    EXECUTE,
    EXTENSION,
    FRAME,
    METADATA,
    METADATA_EXTENSION,
    METADATA_KIND,
    POOL_TASK,
    POOL_THREADS,
    Struct,
    STRUCTS,
)
from ._graph import LANE, LOOP
from ._schedule import Leaf
from ._transfers import (
    accumulate,
    copy_rows,
    declared_moves,
    EXTERNALS,
    gather,
    load_lanes,
    masked_store,
    memory_size,
    memory_type,
    scatter,
    sorting,
    store_lanes,
    sums,
    WORTHWHILE,
)


LARGEST_TASKS = 64
"""Tasks of a call, at most."""
_TASK_COST = 30_000
"""Operations that are worth another thread."""

_DECLARATIONS = {
    "declare ptr @malloc(i64)",
    "declare void @free(ptr)",
    "declare i32 @sched_yield()",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}


def runtime(emitter: Emitter, regions: list[list[str]], packs: list[str]) -> str:
    """Return all functions of a kernel except the chunks.

    **Arguments:**

    - `regions`: lines that run the items of each region.
    - `packs`: lines that store the results of a tile contiguously.
    """
    writer = _Writer(emitter, regions, packs)
    emitter.uses.externals |= _DECLARATIONS
    structs = [struct.declaration for struct in (*STRUCTS, writer.call)]
    parts = [*structs, *writer.transfers(), writer.participate(), writer.help()]
    return "\n".join([*parts, writer.handler(), _FORGET])


class _Writer:
    """Functions that know the arguments and results of one kernel.

    - `call`: the description of a call, on the heap, which its last user frees.
    - `sorts`: true if environments are sorted by their work.
    - `offset`: places of the sums of a task; `partial`: bytes of them.
    """

    def __init__(self, emitter: Emitter, regions, packs):
        self.emitter, self.regions, self.packs = emitter, regions, packs
        self.nest, self.width = emitter.nest, emitter.width
        self.lanes = self.width if LANE in self.nest else 1
        self.inputs, self.outputs = emitter.inputs, emitter.outputs
        count = len(self.inputs) + len(self.outputs)
        words = ("next", "done", "users", "tasks", "lanes", "loops")
        named = dict.fromkeys(words, "i64")
        named |= dict(sums="ptr", order="ptr")
        self.call = Struct("Call", **named, buffers=f"[{count} x ptr]")
        self.sorts = max(emitter.weights, default=0) >= WORTHWHILE
        self.offset, self.partial = {}, 0
        for k, leaf in enumerate(self.outputs):
            if leaf.summed:
                self.offset[k] = self.partial
                self.partial += -(-leaf.rows * memory_size(leaf) // 8) * 8
        self.count = 0

    def _word(self, name: str, kind: str = "i64") -> list[str]:
        """Return lines that load a field of the call."""
        return [
            f"  %{name}.at = {self.call.at('%call', name)}",
            f"  %{name} = load {kind}, ptr %{name}.at, align 8",
        ]

    def _new(self, expression: str) -> tuple[str, str]:
        """Return a register, and the line that sets it."""
        self.count += 1
        return f"%v{self.count}", f"  %v{self.count} = {expression}"

    def _buffer_at(self, number: int) -> tuple[str, list[str]]:
        array, first = self._new(self.call.at("%call", "buffers"))
        at, second = self._new(f"getelementptr ptr, ptr {array}, i64 {number}")
        return at, [first, second]

    def _buffer(self, number: int) -> tuple[str, list[str]]:
        at, lines = self._buffer_at(number)
        buffer, line = self._new(f"load ptr, ptr {at}, align 8")
        return buffer, [*lines, line]

    def _scratch(self, place: int) -> tuple[str, list[str]]:
        name, line = self._new(f"getelementptr i8, ptr %S, i64 {place}")
        return name, [line]

    # Transfers.

    def transfers(self) -> list[str]:
        """Return the functions that move numbers of the types that occur."""
        leaves = [*self.inputs, *self.outputs]
        kinds = sorted({(memory_type(leaf), memory_size(leaf)) for leaf in leaves})
        text = [copy_rows(kind) for kind, _ in kinds]
        externals = self.emitter.uses.externals
        if self.sorts:
            text.append(sorting(self.width, self.emitter.weights))
            externals |= EXTERNALS
            for kind, size in kinds:
                text += [gather(kind, size, self.width)]
                text += [scatter(kind, size, self.width)]
                externals |= declared_moves(kind, self.width)
        elif LANE in self.nest:
            for kind, size in kinds:
                text += [load_lanes(kind, size, self.width)]
                text += [store_lanes(kind, size, self.width)]
                kinds_of = f"<{self.width} x {kind}>, ptr, <{self.width} x i1>"
                function = masked_store(kind, self.width)
                externals.add(f"declare void @{function}({kinds_of})")
        summed = {
            (memory_type(leaf), memory_size(leaf)) for leaf in leaves if leaf.summed
        }
        for kind, size in sorted(summed):
            text.append(accumulate(kind, size, self.lanes))
            text.append(sums(kind, size, self.lanes))
        return text

    def _copy_in(self, region: int) -> list[str]:
        """Return lines that pack the arguments which a region is the first to need."""
        lines: list[str] = []
        schedule = self.emitter.schedule
        pairs = zip(self.inputs, self.emitter.sources, strict=True)
        for k, (leaf, node) in enumerate(pairs):
            if self._region_of(leaf) != region or node not in schedule.live:
                continue
            to, own = self._scratch(schedule.place[node])
            source, more = self._buffer(k)
            lines += [*own, *more]
            if leaf.pointed:
                lines.append(f"  store ptr {source}, ptr {to}, align 8")
            else:
                lines += self._move(leaf, to, source, into=True)
        return lines

    def _region_of(self, leaf: Leaf) -> int:
        """Return the region into which an argument is copied."""
        found = 0
        for k, axis in enumerate(self.nest, 1):
            found = k if leaf.dep & axis else found
        return found

    def _move(self, leaf: Leaf, scratch: str, buffer: str, into: bool) -> list[str]:
        """Return lines that move the rows of a leaf, of shape `[rows, loops, lanes]`
        without the axes that it lacks."""
        kind, lines = memory_type(leaf), []
        at, step = buffer, "%lanes" if leaf.dep & LANE else "1"
        if leaf.dep & LOOP:
            skip, first = self._new(f"mul i64 %loop, {step}")
            at, second = self._new(f"getelementptr {kind}, ptr {buffer}, i64 {skip}")
            step, third = self._new(f"mul i64 %loops, {step}")
            lines += [first, second, third]
        pair = (scratch, at) if into else (at, scratch)
        arguments = f"ptr {pair[0]}, ptr {pair[1]}, i64 {leaf.rows}"
        if leaf.dep & LANE and self.sorts:
            function = f"{'gather' if into else 'scatter'}_{kind}"
            arguments += f", i64 {step}, ptr %chosen, i64 %first, i64 %lanes"
        elif leaf.dep & LANE:
            function = f"{'load' if into else 'store'}_{kind}"
            arguments += f", i64 {step}, i64 %first, i64 %lanes"
        else:
            function, steps = f"rows_{kind}", ("1", step) if into else (step, "1")
            arguments += f", i64 {steps[0]}, i64 {steps[1]}"
        return [*lines, f"  call void @{function}({arguments})"]

    def _results(self) -> list[str]:
        """Return lines that store or add the results of a pass."""
        lines = list(self.packs)
        if self.offset:
            valid = "sub i64 %lanes, %first" if LANE in self.nest else "add i64 0, 1"
            lines.append(f"  %valid = {valid}")
        pairs = zip(self.outputs, self.emitter.scratch.packed, strict=True)
        for k, (leaf, place) in enumerate(pairs, len(self.inputs)):
            packed, own = self._scratch(place)
            lines += own
            if not leaf.summed:
                buffer, own = self._buffer(k)
                lines += [*own, *self._move(leaf, packed, buffer, into=False)]
                continue
            total, own = self._scratch(self.emitter.scratch.sums[k - len(self.inputs)])
            arguments = f"ptr {total}, ptr {packed}, i64 {leaf.rows}, i64 %valid"
            lines += [*own, f"  call void @add_{memory_type(leaf)}({arguments})"]
        if self.sorts:
            lines.append("  call void @remember(ptr %chosen, ptr %work_of)")
        return lines

    def _choose(self) -> list[str]:
        """Return lines that choose the environments of a vector."""
        if not self.sorts:
            return []
        scratch = self.emitter.scratch
        return [
            f"  %chosen = getelementptr i8, ptr %S, i64 {scratch.chosen}",
            f"  %work_of = getelementptr i8, ptr %S, i64 {scratch.work}",
            *self._word("order", "ptr"),
            "  call void @choose(ptr %chosen, ptr %work_of, ptr %order, i64 %first, "
            "i64 %lanes)",
        ]

    # Sums over the batch.

    def _clear_sums(self) -> list[str]:
        lines: list[str] = []
        for k in self.offset:
            leaf, place = self.outputs[k], self.emitter.scratch.sums[k]
            size = leaf.rows * memory_size(leaf) * self.lanes
            to, own = self._scratch(place)
            clear = f"  call void @llvm.memset.p0.i64(ptr {to}, i8 0, i64 {size}, i1 0)"
            lines += [*own, clear]
        return lines

    def _keep_sums(self) -> list[str]:
        """Return lines that leave the sums of a task for `handler`."""
        if not self.offset:
            return []
        lines = [
            *self._word("sums", "ptr"),
            f"  %own_at = mul i64 %task, {self.partial}",
            "  %own = getelementptr i8, ptr %sums, i64 %own_at",
        ]
        for k, offset in self.offset.items():
            leaf = self.outputs[k]
            total, more = self._scratch(self.emitter.scratch.sums[k])
            own, line = self._new(f"getelementptr i8, ptr %own, i64 {offset}")
            arguments = f"ptr {own}, ptr {total}, i64 {leaf.rows}"
            lines += [
                *more,
                line,
                f"  call void @total_{memory_type(leaf)}({arguments})",
            ]
        return lines

    def _final_sums(self) -> list[str]:
        lines: list[str] = []
        for k, offset in self.offset.items():
            leaf = self.outputs[k]
            buffer, own = self._buffer(len(self.inputs) + k)
            total, line = self._new(f"getelementptr i8, ptr %sums, i64 {offset}")
            arguments = f"ptr {buffer}, ptr {total}, i64 {leaf.rows}"
            call = f"@plus_{memory_type(leaf)}({arguments}, i64 %tasks, i64 {self.partial})"
            lines += [*own, line, f"  call void {call}"]
        return lines

    # A thread.

    def participate(self) -> str:
        """Return the function of a thread: take a task, compute shared values, then work on
        tasks until none is left."""
        lines = [
            "define internal void @participate(ptr %call) noinline nounwind {",
            "entry:",
            *(f"  %index{k} = alloca i64" for k in range(1, len(self.nest) + 1)),
            f"  %next.at = {self.call.at('%call', 'next')}",
            "  %task0 = atomicrmw add ptr %next.at, i64 1 acq_rel",
            *self._word("tasks"),
            *self._word("lanes"),
            *self._word("loops"),
            "  %some = icmp slt i64 %task0, %tasks",
            "  br i1 %some, label %begin, label %leave",
            "begin:",
            f"  %memory = call ptr @malloc(i64 {self.emitter.scratch.size + 64})",
            "  %raw = ptrtoint ptr %memory to i64",
            "  %up = add i64 %raw, 63",
            "  %aligned = and i64 %up, -64",
            "  %S = inttoptr i64 %aligned to ptr",
            *self._copy_in(0),
            *self.regions[0],
            "  br label %shared",
            "shared:",
            "  br label %work",
            "work:",
            "  %task = phi i64 [ %task0, %shared ], [ %task1, %finish ]",
            *self._outer_range(),
            *self._clear_sums(),
            *self._nested(1),
            "  br label %finish",
            "finish:",
            *self._keep_sums(),
            f"  %done.at = {self.call.at('%call', 'done')}",
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
        return "\n".join(lines)

    def _outer_range(self) -> list[str]:
        """Return lines that compute `%low` and `%high`, the range of passes of the
        outer axis in a task."""
        if not self.nest:
            return []
        return [
            *self._passes("%outer", self.nest[0]),
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
            *self._choose(),
            *self._copy_in(level),
            *self.regions[level],
            *self._nested(level + 1),
            f"  %after{level} = add i64 %pass{level}, 1",
            f"  store i64 %after{level}, ptr %index{level}",
            f"  br label %axis{level}",
            f"out{level}:",
        ]

    def help(self) -> str:
        """Return the function of a helper, and the one that ends the use of a call."""
        return f"""
define internal void @help(ptr %call) {{
  call void @participate(ptr %call)
  call void @release(ptr %call)
  ret void
}}

define internal void @release(ptr %call) {{
  %users = {self.call.at("%call", "users")}
  %old = atomicrmw sub ptr %users, i64 1 acq_rel
  %last = icmp eq i64 %old, 1
  br i1 %last, label %clear, label %end
clear:
  %sums.at = {self.call.at("%call", "sums")}
  %sums = load ptr, ptr %sums.at
  call void @free(ptr %sums)
  %order.at = {self.call.at("%call", "order")}
  %order = load ptr, ptr %order.at
  call void @free(ptr %order)
  call void @free(ptr %call)
  br label %end
end:
  ret void
}}
"""

    # The entry.

    def handler(self) -> str:
        """Return the function that XLA calls. Its argument 0 holds the sizes of the axes."""
        tables, check = self._check()
        lines = [
            *tables,
            "define ptr @handler(ptr %frame) nounwind {",
            _QUERY,
            *self._arguments(),
            *check,
            *self._description(),
            self._hire(),
            *self._final_sums(),
            "  call void @release(ptr %call)",
            "  ret ptr null",
            "}",
        ]
        return "\n".join(lines)

    def _check(self) -> tuple[list[str], list[str]]:
        """Return definitions, and lines that compare the arguments with the
        assumptions."""
        patterns = [leaf.assumed for leaf in self.inputs]
        if not any(patterns):
            return [], []
        return comparison(patterns, [leaf.dtype for leaf in self.inputs])

    def _arguments(self) -> list[str]:
        """Return lines that load the addresses of all arrays: `%a0.data`, ... of the
        arguments and `%r0.data`, ... of the results."""
        lines = [
            f"  %args.at = {FRAME.at('%frame', 'arguments.values')}",
            "  %args = load ptr, ptr %args.at",
            f"  %rets.at = {FRAME.at('%frame', 'results.values')}",
            "  %rets = load ptr, ptr %rets.at",
        ]
        arguments = [(f"%a{k}", "%args", k + 1) for k in range(len(self.inputs))]
        results = [(f"%r{k}", "%rets", k) for k in range(len(self.outputs))]
        for name, source, place in [("%axes", "%args", 0), *arguments, *results]:
            lines += [
                f"  {name}.place = getelementptr ptr, ptr {source}, i64 {place}",
                f"  {name}.buffer = load ptr, ptr {name}.place",
                f"  {name}.at = {BUFFER.at(f'{name}.buffer', 'data')}",
                f"  {name}.data = load ptr, ptr {name}.at",
            ]
        return lines

    def _description(self) -> list[str]:
        """Return lines that describe the call."""
        one = "  {} = add i64 0, 1".format
        axes = zip(("%outer", "%inner"), self.nest)
        passes = {name: self._passes(name, axis) for name, axis in axes}
        lines = [
            f"  %call = call ptr @malloc(i64 {self.call.size})",
            "  %lanes32 = load i32, ptr %axes.data",
            "  %lanes = sext i32 %lanes32 to i64",
            "  %loops.p = getelementptr i32, ptr %axes.data, i64 1",
            "  %loops32 = load i32, ptr %loops.p",
            "  %loops = sext i32 %loops32 to i64",
            *passes.get("%outer", [one("%outer")]),
            *passes.get("%inner", [one("%inner")]),
            f"  %few = icmp slt i64 %outer, {LARGEST_TASKS}",
            f"  %tasks = select i1 %few, i64 %outer, i64 {LARGEST_TASKS}",
            f"  %partial = mul i64 %tasks, {self.partial}",
            "  %room = add i64 %partial, 8",
            "  %sums = call ptr @malloc(i64 %room)",
        ]
        order = "null"
        if self.sorts:
            order = "%arranged"
            lines.append("  %arranged = call ptr @arrange(i64 %lanes)")
        values = dict(next=0, done=0, users=1, tasks="%tasks", lanes="%lanes")
        values |= dict(loops="%loops", sums="%sums", order=order)
        for name, value in values.items():
            kind = self.call.fields[name]
            lines.append(f"  %{name}.at = {self.call.at('%call', name)}")
            lines.append(f"  store {kind} {value}, ptr %{name}.at")
        names = [f"%a{k}" for k in range(len(self.inputs))]
        names += [f"%r{k}" for k in range(len(self.outputs))]
        for k, name in enumerate(names):
            at, own = self._buffer_at(k)
            lines += [*own, f"  store ptr {name}.data, ptr {at}"]
        return lines

    def _hire(self) -> str:
        """Return lines that ask for as many helpers as are worth it, take part, and wait
        for the others."""
        return f"""
  %passes = mul i64 %outer, %inner
  %operations = mul i64 %passes, {max(1, self.emitter.cost)}
  %worth = sdiv i64 %operations, {_TASK_COST}
  %rest = sub i64 %tasks, 1
  %less = icmp slt i64 %worth, %rest
  %wanted = select i1 %less, i64 %worth, i64 %rest
  %helps = icmp sgt i64 %wanted, 0
  br i1 %helps, label %ask, label %main
ask:
  %api.at = {FRAME.at("%frame", "api")}
  %api = load ptr, ptr %api.at
  %context.at = {FRAME.at("%frame", "context")}
  %context = load ptr, ptr %context.at
  %threads = alloca i64
  store i64 1, ptr %threads
  %question = alloca {POOL_THREADS.name}
  %question.size = {POOL_THREADS.at("%question", "size")}
  store i64 {POOL_THREADS.size}, ptr %question.size
  %question.extension = {POOL_THREADS.at("%question", "extension")}
  store ptr null, ptr %question.extension
  %question.context = {POOL_THREADS.at("%question", "context")}
  store ptr %context, ptr %question.context
  %question.count = {POOL_THREADS.at("%question", "count")}
  store ptr %threads, ptr %question.count
  %threads_of.at = {API.at("%api", "pool_threads")}
  %threads_of = load ptr, ptr %threads_of.at
  %error0 = call ptr %threads_of(ptr %question)
  call void @forget(ptr %api, ptr %error0)
  %pool = load i64, ptr %threads
  %others = sub i64 %pool, 1
  %fewer = icmp slt i64 %others, %wanted
  %helpers = select i1 %fewer, i64 %others, i64 %wanted
  %task = alloca {POOL_TASK.name}
  %task.size = {POOL_TASK.at("%task", "size")}
  store i64 {POOL_TASK.size}, ptr %task.size
  %task.extension = {POOL_TASK.at("%task", "extension")}
  store ptr null, ptr %task.extension
  %task.context = {POOL_TASK.at("%task", "context")}
  store ptr %context, ptr %task.context
  %task.task = {POOL_TASK.at("%task", "task")}
  store ptr @help, ptr %task.task
  %task.data = {POOL_TASK.at("%task", "data")}
  store ptr %call, ptr %task.data
  %schedule.at = {API.at("%api", "pool_schedule")}
  %schedule = load ptr, ptr %schedule.at
  br label %hire
hire:
  %h = phi i64 [ 0, %ask ], [ %hn, %hired ]
  %more = icmp slt i64 %h, %helpers
  br i1 %more, label %one, label %main
one:
  %old_users = atomicrmw add ptr %users.at, i64 1 acq_rel
  %error = call ptr %schedule(ptr %task)
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
finish:"""


_QUERY = f"""entry:
  %ext.at = {FRAME.at("%frame", "extension")}
  %ext = load ptr, ptr %ext.at
  %plain = icmp eq ptr %ext, null
  br i1 %plain, label %run, label %query
query:
  %kind.at = {EXTENSION.at("%ext", "kind")}
  %kind = load i32, ptr %kind.at
  %is_query = icmp eq i32 %kind, {METADATA_KIND}
  br i1 %is_query, label %answer, label %run
answer:
  %answer.at = {METADATA_EXTENSION.at("%ext", "metadata")}
  %info = load ptr, ptr %answer.at
  %major = {METADATA.at("%info", "version.major")}
  store i32 0, ptr %major
  %minor = {METADATA.at("%info", "version.minor")}
  store i32 3, ptr %minor
  %traits = {METADATA.at("%info", "traits")}
  store i32 0, ptr %traits
  %state = {METADATA.at("%info", "state")}
  store i64 0, ptr %state
  ret ptr null
run:
  %stage.at = {FRAME.at("%frame", "stage")}
  %stage = load i32, ptr %stage.at
  %executes = icmp eq i32 %stage, {EXECUTE}
  br i1 %executes, label %execute, label %nothing
nothing:
  ret ptr null
execute:"""
_FORGET = f"""
define internal void @forget(ptr %api, ptr %error) {{
  %none = icmp eq ptr %error, null
  br i1 %none, label %end, label %destroy
destroy:
  %given = alloca {ERROR.name}
  %size = {ERROR.at("%given", "size")}
  store i64 {ERROR.size}, ptr %size
  %extension = {ERROR.at("%given", "extension")}
  store ptr null, ptr %extension
  %own = {ERROR.at("%given", "error")}
  store ptr %error, ptr %own
  %function.at = {API.at("%api", "error_destroy")}
  %function = load ptr, ptr %function.at
  call void %function(ptr %given)
  br label %end
end:
  ret void
}}
"""
