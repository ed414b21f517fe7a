"""Environments that need equally many passes of loops share vectors: LLVM IR.

A loop runs as long as any lane needs it, so a vector takes as long as its slowest lane.
A kernel remembers how much work the loops of each environment were in its last call, and
sorts environments by it, the slowest first. What a lane gets does not depend on the other
lanes, so this changes the time of a call alone.
"""

REMEMBERED = 65_536
"""Environments whose work is remembered; others share these places."""
_BINS = 1024
_BLOCK = 4096
"""Environments that are sorted together, so that their numbers lie close in memory."""
WORTHWHILE = 20_000
"""Operations of a loop body from which sorting pays. With 15 thousand (Gymnasium's ant) a
step became 3 % slower, with 27 thousand (a quadruped of meshes) 1.9 times as fast."""
_LARGEST_STEP = 16
"""Differences in work up to this share of the largest loop body do not matter."""


def unit(weights: list[int]) -> int:
    """Return the operations that count as one, given those of all loop bodies."""
    return max(1, max(weights, default=1) // _LARGEST_STEP)


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


def definitions(width: int, per_key: int) -> str:
    """Return functions that sort environments, and that read and store their work.

    **Arguments:**

    - `per_key`: operations that count as one, see `unit`.
    """
    numbers = dict(width=width, per_key=per_key, **_NUMBERS)
    return "\n".join(text.format(**numbers) for text in _DEFINITIONS)


_NUMBERS = dict(
    remembered=REMEMBERED,
    mask=REMEMBERED - 1,
    bins=_BINS,
    last_bin=_BINS - 1,
    block=_BLOCK,
    key_bytes=2 * _BLOCK,
    bin_bytes=8 * _BINS,
)
_HINTS = """
@hints = internal global [{remembered} x i16] zeroinitializer, align 64
"""
_ARRANGE = """
define internal ptr @arrange(i64 %lanes) noinline nounwind {{
entry:
  %counts = alloca [{bins} x i64], align 64
  %places = add i64 %lanes, 1
  %bytes = mul i64 %places, 8
  %order = call ptr @malloc(i64 %bytes)
  ; One vector needs no order.
  %single = icmp sle i64 %lanes, {width}
  br i1 %single, label %plain, label %several
plain:
  %p = phi i64 [ 0, %entry ], [ %p.next, %plain ]
  %plain.p = getelementptr i64, ptr %order, i64 %p
  store i64 %p, ptr %plain.p
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %lanes
  br i1 %p.more, label %plain, label %done
done:
  ret ptr %order
several:
  %keys = call ptr @malloc(i64 {key_bytes})
  br label %blocks
blocks:
  %low = phi i64 [ 0, %several ], [ %high, %placed ]
  %rest = icmp slt i64 %low, %lanes
  br i1 %rest, label %block, label %over
block:
  %end = add i64 %low, {block}
  %whole = icmp slt i64 %end, %lanes
  %high = select i1 %whole, i64 %end, i64 %lanes
  call void @llvm.memset.p0.i64(ptr %counts, i8 0, i64 {bin_bytes}, i1 false)
  br label %count
count:
  %i = phi i64 [ %low, %block ], [ %i.next, %count ]
  %hint.at = and i64 %i, {mask}
  %hint.p = getelementptr i16, ptr @hints, i64 %hint.at
  %hint = load atomic i16, ptr %hint.p monotonic, align 2
  %i.own = sub i64 %i, %low
  %key.p = getelementptr i16, ptr %keys, i64 %i.own
  store i16 %hint, ptr %key.p
  %bin = zext i16 %hint to i64
  %bin.p = getelementptr i64, ptr %counts, i64 %bin
  %n = load i64, ptr %bin.p
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %bin.p
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %high
  br i1 %i.more, label %count, label %starts
starts:
  %b = phi i64 [ {last_bin}, %count ], [ %b.next, %starts ]
  %start = phi i64 [ %low, %count ], [ %start.next, %starts ]
  %start.p = getelementptr i64, ptr %counts, i64 %b
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
  %j.bin.p = getelementptr i64, ptr %counts, i64 %j.bin
  %place = load i64, ptr %j.bin.p
  %place.next = add i64 %place, 1
  store i64 %place.next, ptr %j.bin.p
  %order.p = getelementptr i64, ptr %order, i64 %place
  store i64 %j, ptr %order.p
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %high
  br i1 %j.more, label %put, label %placed
placed:
  br label %blocks
over:
  call void @free(ptr %keys)
  ret ptr %order
}}
"""
_CHOOSE = """
define internal void @choose(ptr %to, ptr %work, ptr %order, i64 %first, i64 %total) {{
entry:
  store <{width} x i32> zeroinitializer, ptr %work, align 64
  %last = sub i64 %total, 1
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %i0 = add i64 %first, %k
  %over = icmp sgt i64 %i0, %last
  %i = select i1 %over, i64 %last, i64 %i0
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
_REMEMBER = """
define internal void @remember(ptr %index, ptr %work) noinline nounwind {{
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %from = getelementptr i32, ptr %work, i64 %k
  %all = load i32, ptr %from
  %units = udiv i32 %all, {per_key}
  %fits = icmp ult i32 %units, {last_bin}
  %cut = select i1 %fits, i32 %units, i32 {last_bin}
  %key = trunc i32 %cut to i16
  %own.at = getelementptr i64, ptr %index, i64 %k
  %own = load i64, ptr %own.at
  %place = and i64 %own, {mask}
  %hint = getelementptr i16, ptr @hints, i64 %place
  store atomic i16 %key, ptr %hint monotonic, align 2
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, {width}
  br i1 %more, label %next, label %end
end:
  ret void
}}
"""
_DEFINITIONS = _HINTS, _ARRANGE, _CHOOSE, _REMEMBER


def move_lanes(kind: str, size: int, width: int) -> tuple[str, set[str]]:
    """Return a function that loads `count` rows of the environments of a vector, one
    that stores those of the first `valid` lanes, and their declarations."""
    vector, wide = f"<{width} x {kind}>", f"<{width} x i64>"
    suffix = f"v{width}{_SUFFIX[kind]}.v{width}p0"
    pointers, mask = f"<{width} x ptr>", f"<{width} x i1>"
    load, store = f"llvm.masked.gather.{suffix}", f"llvm.masked.scatter.{suffix}"
    text = _MOVES.format(
        kind=kind,
        size=size,
        width=width,
        vector=vector,
        wide=wide,
        pointers=pointers,
        mask=mask,
        lanes=", ".join(f"i64 {k}" for k in range(width)),
        arguments="ptr %to, ptr %from, i64 %count, i64 %step, ptr %index",
        every=f"{mask} splat (i1 true), {vector} poison",
        load=load,
        store=store,
    )
    declared = {
        f"declare {vector} @{load}({pointers}, {mask}, {vector})",
        f"declare void @{store}({vector}, {pointers}, {mask})",
    }
    return text, declared


_MOVES = """
define internal void @gather_{kind}({arguments}) {{
entry:
  %lane = load {wide}, ptr %index, align 64
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %end
body:
  %o = mul i64 %k, %step
  %row = getelementptr {kind}, ptr %from, i64 %o
  %p = getelementptr {kind}, ptr %row, {wide} %lane
  %x = call {vector} @{load}({pointers} align {size} %p, {every})
  %q0 = mul i64 %k, {width}
  %q = getelementptr {kind}, ptr %to, i64 %q0
  store {vector} %x, ptr %q, align {size}
  %next = add i64 %k, 1
  br label %loop
end:
  ret void
}}

define internal void @scatter_{kind}({arguments}, i64 %valid) {{
entry:
  %lane = load {wide}, ptr %index, align 64
  %one = insertelement {wide} poison, i64 %valid, i64 0
  %all = shufflevector {wide} %one, {wide} poison, <{width} x i32> zeroinitializer
  %mask = icmp slt {wide} <{lanes}>, %all
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %end
body:
  %o = mul i64 %k, %step
  %row = getelementptr {kind}, ptr %to, i64 %o
  %p = getelementptr {kind}, ptr %row, {wide} %lane
  %q0 = mul i64 %k, {width}
  %q = getelementptr {kind}, ptr %from, i64 %q0
  %x = load {vector}, ptr %q, align {size}
  call void @{store}({vector} %x, {pointers} align {size} %p, {mask} %mask)
  %next = add i64 %k, 1
  br label %loop
end:
  ret void
}}
"""
_SUFFIX = {"float": "f32", "double": "f64"} | {
    f"i{n}": f"i{n}" for n in (8, 16, 32, 64)
}
