"""Environments that need equally many passes of loops share vectors: LLVM IR.

A loop runs as long as any lane needs it, so a vector takes as long as its slowest lane.
A kernel counts the operations of each environment in such loops, and sorts environments by
those of its last call, the slowest first. What a lane gets does not depend on the
other lanes, so this changes the time of a call alone. Three functions do it:

- `arrange` returns the order of all environments, by a counting sort, once in a call;
- `choose` takes the next W numbers of the order, the environments of a vector;
- `remember` keeps the work of the environments of a vector for the next call.

Rows of the chosen environments are moved by `gather` and `scatter` (`_runtime.py`).
"""

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
    """Return the functions of this file.

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
