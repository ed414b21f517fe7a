"""Functions of a kernel that move numbers between XLA's buffers and scratch memory, add them
up, and sort environments by their work: LLVM IR.

In a buffer, environments are the last axis. In scratch memory, each row holds the W
environments of a tile: neighbors (`load_lanes`, `store_lanes`), or those that were chosen by
their work (`gather`, `scatter`).
"""

from ._llvm import bits, scalar_type
from ._schedule import Leaf


def memory_type(leaf: Leaf) -> str:
    """Return the type of the numbers of a leaf in memory."""
    return "i8" if leaf.dtype == "b1" else scalar_type(leaf.dtype)


def memory_size(leaf: Leaf) -> int:
    return max(bits(leaf.dtype), 8) // 8


def _for_each(head: str, body: str, start: str = "") -> str:
    """Return a function that runs a body for `%k` from 0 to `%count - 1`."""
    return f"""
define internal void {head} {{
entry:{start}
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %end
body:{body}
  %next = add i64 %k, 1
  br label %loop
end:
  ret void
}}
"""


def copy_rows(kind: str) -> str:
    """Move rows of numbers into and out of scratch memory."""
    head = f"@rows_{kind}(ptr %to, ptr %from, i64 %count, i64 %step_to, i64 %step)"
    body = f"""
  %at = mul i64 %k, %step
  %source = getelementptr {kind}, ptr %from, i64 %at
  %x = load {kind}, ptr %source
  %put = mul i64 %k, %step_to
  %target = getelementptr {kind}, ptr %to, i64 %put
  store {kind} %x, ptr %target"""
    return _for_each(head, body)


_MOVED = "ptr %to, ptr %from, i64 %count, i64 %step, i64 %first, i64 %total"


def _whole_or_part(name: str, width: int) -> str:
    """Move rows of W lanes, by one of two functions."""
    return f"""
define internal void @{name}({_MOVED}) {{
  %stop = add i64 %first, {width}
  %whole = icmp sle i64 %stop, %total
  br i1 %whole, label %all, label %some
all:
  call void @{name}_whole({_MOVED})
  ret void
some:
  call void @{name}_part({_MOVED})
  ret void
}}
"""


def _rows_of_lanes(kind: str, width: int, packed: str, array: str) -> str:
    """Return lines that compute `%p` and `%q`, the places of row `%k`."""
    return f"""
  %o = mul i64 %k, %step
  %oi = add i64 %o, %first
  %p = getelementptr {kind}, ptr {array}, i64 %oi
  %q0 = mul i64 %k, {width}
  %q = getelementptr {kind}, ptr {packed}, i64 %q0"""


def load_lanes(kind: str, size: int, width: int) -> str:
    """Load `count` rows of W lanes that begin at environment `first` of `total`. Lanes
    beyond the batch repeat the last environment."""
    vector, name = f"<{width} x {kind}>", f"load_{kind}"
    whole = f"""{_rows_of_lanes(kind, width, "%to", "%from")}
  %x = load {vector}, ptr %p, align {size}
  store {vector} %x, ptr %q, align {size}"""
    start = """
  %last = sub i64 %total, 1"""
    lanes = [
        f"""
  %i{j} = add i64 %first, {j}
  %over{j} = icmp sgt i64 %i{j}, %last
  %own{j} = select i1 %over{j}, i64 %last, i64 %i{j}
  %s{j} = add i64 %row, %own{j}
  %from{j} = getelementptr {kind}, ptr %from, i64 %s{j}
  %x{j} = load {kind}, ptr %from{j}
  %t{j} = add i64 %packed, {j}
  %to{j} = getelementptr {kind}, ptr %to, i64 %t{j}
  store {kind} %x{j}, ptr %to{j}"""
        for j in range(width)
    ]
    part = f"""
  %row = mul i64 %k, %step
  %packed = mul i64 %k, {width}{"".join(lanes)}"""
    both = _for_each(f"@{name}_whole({_MOVED})", whole)
    both += _for_each(f"@{name}_part({_MOVED})", part, start)
    return both + _whole_or_part(name, width)


_SHORT = {"float": "f32", "double": "f64"}


def masked_store(kind: str, width: int) -> str:
    return f"llvm.masked.store.v{width}{_SHORT.get(kind, kind)}.p0"


def _valid_lanes(width: int) -> str:
    """Return lines that compute `%mask`: the first `%valid` lanes."""
    if width == 1:
        return "\n  %mask = icmp slt i64 0, %valid"
    lanes, wide = ", ".join(f"i64 {k}" for k in range(width)), f"<{width} x i64>"
    zeros = f"<{width} x i32> zeroinitializer"
    return f"""
  %one = insertelement {wide} poison, i64 %valid, i64 0
  %all = shufflevector {wide} %one, {wide} poison, {zeros}
  %mask = icmp slt {wide} <{lanes}>, %all"""


def store_lanes(kind: str, size: int, width: int) -> str:
    """Store rows of W lanes, except the lanes beyond the batch."""
    vector, name = f"<{width} x {kind}>", f"store_{kind}"
    rows = f"""{_rows_of_lanes(kind, width, "%from", "%to")}
  %x = load {vector}, ptr %q, align {size}"""
    whole = f"""{rows}
  store {vector} %x, ptr %p, align {size}"""
    arguments = f"{vector} %x, ptr align {size} %p, <{width} x i1> %mask"
    part = f"""{rows}
  call void @{masked_store(kind, width)}({arguments})"""
    start = f"""
  %valid = sub i64 %total, %first{_valid_lanes(width)}"""
    both = _for_each(f"@{name}_whole({_MOVED})", whole)
    both += _for_each(f"@{name}_part({_MOVED})", part, start)
    return both + _whole_or_part(name, width)


_CHOSEN = (
    "ptr %to, ptr %from, i64 %count, i64 %step, ptr %chosen, i64 %first, i64 %total"
)


def _vector_suffix(kind: str, width: int) -> str:
    return f"v{width}{_SHORT.get(kind, kind)}.v{width}p0"


def _rows_of_chosen(kind: str, width: int, packed: str, array: str) -> str:
    """Return lines that compute `%p`, the places of row `%k` of the chosen environments, and
    `%q`, that of the packed row."""
    return f"""
  %o = mul i64 %k, %step
  %row = getelementptr {kind}, ptr {array}, i64 %o
  %p = getelementptr {kind}, ptr %row, <{width} x i64> %lane
  %q0 = mul i64 %k, {width}
  %q = getelementptr {kind}, ptr {packed}, i64 %q0"""


def declared_moves(kind: str, width: int) -> set[str]:
    vector, pointers, mask = (
        f"<{width} x {kind}>",
        f"<{width} x ptr>",
        f"<{width} x i1>",
    )
    suffix = _vector_suffix(kind, width)
    return {
        f"declare {vector} @llvm.masked.gather.{suffix}({pointers}, {mask}, {vector})",
        f"declare void @llvm.masked.scatter.{suffix}({vector}, {pointers}, {mask})",
    }


def gather(kind: str, size: int, width: int) -> str:
    """Load `count` rows of the chosen environments."""
    vector, pointers = f"<{width} x {kind}>", f"<{width} x ptr>"
    start = f"""
  %lane = load <{width} x i64>, ptr %chosen, align 64"""
    body = f"""{_rows_of_chosen(kind, width, "%to", "%from")}
  %x = call {vector} @llvm.masked.gather.{_vector_suffix(kind, width)}(
    {pointers} align {size} %p, <{width} x i1> splat (i1 true), {vector} poison)
  store {vector} %x, ptr %q, align {size}"""
    return _for_each(f"@gather_{kind}({_CHOSEN})", body, start)


def scatter(kind: str, size: int, width: int) -> str:
    """Store rows of the chosen environments, except the lanes beyond the batch."""
    vector, pointers = f"<{width} x {kind}>", f"<{width} x ptr>"
    start = f"""
  %lane = load <{width} x i64>, ptr %chosen, align 64
  %valid = sub i64 %total, %first{_valid_lanes(width)}"""
    body = f"""{_rows_of_chosen(kind, width, "%from", "%to")}
  %x = load {vector}, ptr %q, align {size}
  call void @llvm.masked.scatter.{_vector_suffix(kind, width)}(
    {vector} %x, {pointers} align {size} %p, <{width} x i1> %mask)"""
    return _for_each(f"@scatter_{kind}({_CHOSEN})", body, start)


def _add(kind: str) -> tuple[str, str]:
    """Return the instruction that adds numbers, and their zero."""
    return ("fadd", "0.0") if kind in ("float", "double") else ("add", "0")


def accumulate(kind: str, size: int, width: int) -> str:
    """Add rows of lanes to accumulators, except lanes beyond the batch."""
    vector = f"<{width} x {kind}>" if width > 1 else kind
    test = f"<{width} x i1>" if width > 1 else "i1"
    operation, zero = _add(kind)
    zero = "zeroinitializer" if width > 1 else zero
    body = f"""
  %p = getelementptr {vector}, ptr %from, i64 %k
  %x = load {vector}, ptr %p, align {size}
  %own = select {test} %mask, {vector} %x, {vector} {zero}
  %q = getelementptr {vector}, ptr %sum, i64 %k
  %old = load {vector}, ptr %q, align {size}
  %new = {operation} {vector} %old, %own
  store {vector} %new, ptr %q, align {size}"""
    head = f"@add_{kind}(ptr %sum, ptr %from, i64 %count, i64 %valid)"
    return _for_each(head, body, _valid_lanes(width))


def sums(kind: str, size: int, width: int) -> str:
    """Return the functions that add the lanes of each row, and the rows of all tasks in the
    order of the tasks."""
    operation, zero = _add(kind)
    total = f"""
  %base = mul i64 %k, {width}
  %row = getelementptr {kind}, ptr %from, i64 %base
  %sum = call {kind} @sum_{kind}(ptr %row, i64 {width}, i64 {size})
  %q = getelementptr {kind}, ptr %to, i64 %k
  store {kind} %sum, ptr %q"""
    plus = f"""
  %row = getelementptr {kind}, ptr %from, i64 %k
  %sum = call {kind} @sum_{kind}(ptr %row, i64 %tasks, i64 %step)
  %q = getelementptr {kind}, ptr %to, i64 %k
  store {kind} %sum, ptr %q"""
    arguments = "ptr %to, ptr %from, i64 %count"
    return f"""
define internal {kind} @sum_{kind}(ptr %from, i64 %count, i64 %step) {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %sum = phi {kind} [ {zero}, %entry ], [ %new, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %end
body:
  %at = mul i64 %k, %step
  %p = getelementptr i8, ptr %from, i64 %at
  %x = load {kind}, ptr %p
  %new = {operation} {kind} %sum, %x
  %next = add i64 %k, 1
  br label %loop
end:
  ret {kind} %sum
}}
{_for_each(f"@total_{kind}({arguments})", total)}
{_for_each(f"@plus_{kind}({arguments}, i64 %tasks, i64 %step)", plus)}
"""


# Environments that need equally many passes of loops share vectors. A loop runs as long as any
# lane needs it, so a vector takes as long as its slowest lane. A kernel counts the operations of
# each environment in such loops, and sorts environments by those of its last call, the slowest
# first. What a lane gets does not depend on the other lanes, so this changes the time of a call
# alone. Three functions do it:
#
# - `arrange` returns the order of all environments, by a counting sort, once in a call;
# - `choose` takes the next W numbers of the order, the environments of a vector;
# - `remember` keeps the work of the environments of a vector for the next call.
#
# Rows of the chosen environments are moved by `gather` and `scatter`.


WORTHWHILE = 20_000
"""Operations of a loop body from which sorting pays. With 15 thousand (Gymnasium's ant) a
step became 3 % slower, with 27 thousand (a quadruped of meshes) 1.9 times as fast."""
_REMEMBERED = 65_536
"""Environments whose work is remembered; others share these places."""
_BINS = 1024
_BLOCK = 4096
"""Environments that are sorted together, so that their numbers lie close in memory."""
_LARGEST_STEP = 16
"""Differences in work up to this share of the largest loop body do not matter."""


def tally(width: int, going: str, place: str, weight: int) -> list[str]:
    """Return lines that add the operations of a pass to the work of the lanes that need
    it."""
    kind = f"<{width} x i32>"
    return [
        f"  %work = load {kind}, ptr {place}, align 64",
        f"  %sum = add {kind} %work, splat (i32 {weight})",
        f"  %now = select <{width} x i1> {going}, {kind} %sum, {kind} %work",
        f"  store {kind} %now, ptr {place}, align 64",
    ]


def sorting(width: int, weights: list[int]) -> str:
    """Return the functions that sort.

    **Arguments:**

    - `weights`: operations of the loop bodies.
    """
    unit = max(1, max(weights) // _LARGEST_STEP)
    return _arrange() + _choose(width) + _remember(width, unit)


def _arrange() -> str:
    # The bins of a block: first how many environments are in each, then where it begins.
    return f"""
@hints = internal global [{_REMEMBERED} x i16] zeroinitializer, align 64

define internal ptr @arrange(i64 %lanes) noinline nounwind {{
entry:
  %bins = alloca [{_BINS} x i64], align 64
  %bytes = shl i64 %lanes, 3
  %order = call ptr @malloc(i64 %bytes)
  %keys = call ptr @malloc(i64 {2 * _BLOCK})
  br label %blocks
blocks:
  %low = phi i64 [ 0, %entry ], [ %high, %put ]
  %rest = icmp slt i64 %low, %lanes
  br i1 %rest, label %block, label %over
block:
  %end = add i64 %low, {_BLOCK}
  %high = call i64 @llvm.smin.i64(i64 %end, i64 %lanes)
  call void @llvm.memset.p0.i64(ptr %bins, i8 0, i64 {8 * _BINS}, i1 false)
  br label %count
count:
  %i = phi i64 [ %low, %block ], [ %i.next, %count ]
  %hint.at = and i64 %i, {_REMEMBERED - 1}
  %hint.p = getelementptr i16, ptr @hints, i64 %hint.at
  %hint = load atomic i16, ptr %hint.p monotonic, align 2
  %i.own = sub i64 %i, %low
  %key.p = getelementptr i16, ptr %keys, i64 %i.own
  store i16 %hint, ptr %key.p
  %bin = zext i16 %hint to i64
  %bin.p = getelementptr i64, ptr %bins, i64 %bin
  %n = load i64, ptr %bin.p
  %n.next = add i64 %n, 1
  store i64 %n.next, ptr %bin.p
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %high
  br i1 %i.more, label %count, label %starts
starts:
  %b = phi i64 [ {_BINS - 1}, %count ], [ %b.next, %starts ]
  %start = phi i64 [ %low, %count ], [ %start.next, %starts ]
  %start.p = getelementptr i64, ptr %bins, i64 %b
  %own = load i64, ptr %start.p
  store i64 %start, ptr %start.p
  %start.next = add i64 %start, %own
  %b.next = sub i64 %b, 1
  %b.more = icmp sge i64 %b.next, 0
  br i1 %b.more, label %starts, label %put
put:
  %j = phi i64 [ %low, %starts ], [ %j.next, %put ]
  %j.own = sub i64 %j, %low
  %j.key.p = getelementptr i16, ptr %keys, i64 %j.own
  %j.key = load i16, ptr %j.key.p
  %j.bin = zext i16 %j.key to i64
  %j.bin.p = getelementptr i64, ptr %bins, i64 %j.bin
  %place = load i64, ptr %j.bin.p
  %place.next = add i64 %place, 1
  store i64 %place.next, ptr %j.bin.p
  %order.p = getelementptr i64, ptr %order, i64 %place
  store i64 %j, ptr %order.p
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %high
  br i1 %j.more, label %put, label %blocks
over:
  call void @free(ptr %keys)
  ret ptr %order
}}
"""


def _choose(width: int) -> str:
    return f"""
define internal void @choose(ptr %to, ptr %work, ptr %order, i64 %first, i64 %total) {{
entry:
  store <{width} x i32> zeroinitializer, ptr %work, align 64
  %last = sub i64 %total, 1
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %beyond = add i64 %first, %k
  %i = call i64 @llvm.smin.i64(i64 %beyond, i64 %last)
  %from = getelementptr i64, ptr %order, i64 %i
  %own = load i64, ptr %from
  %at = getelementptr i64, ptr %to, i64 %k
  store i64 %own, ptr %at
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, {width}
  br i1 %more, label %next, label %end
end:
  ret void
}}
"""


def _remember(width: int, unit: int) -> str:
    return f"""
define internal void @remember(ptr %chosen, ptr %work) {{
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %from = getelementptr i32, ptr %work, i64 %k
  %all = load i32, ptr %from
  %units = udiv i32 %all, {unit}
  %cut = call i32 @llvm.umin.i32(i32 %units, i32 {_BINS - 1})
  %key = trunc i32 %cut to i16
  %own.at = getelementptr i64, ptr %chosen, i64 %k
  %own = load i64, ptr %own.at
  %place = and i64 %own, {_REMEMBERED - 1}
  %hint = getelementptr i16, ptr @hints, i64 %place
  store atomic i16 %key, ptr %hint monotonic, align 2
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, {width}
  br i1 %more, label %next, label %end
end:
  ret void
}}
"""


EXTERNALS = {
    "declare i64 @llvm.smin.i64(i64, i64)",
    "declare i32 @llvm.umin.i32(i32, i32)",
}
"""Declarations that these functions need."""
