"""Functions of a kernel that move numbers between XLA's buffers and scratch memory, and add
them up: LLVM IR.

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
