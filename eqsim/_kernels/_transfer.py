"""Moves numbers between XLA's buffers and scratch memory, and adds them up: LLVM IR."""


def copy_rows(kind: str) -> str:
    """Return functions that move rows of numbers into and out of scratch memory."""
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


def load_lanes(kind: str, size: int, width: int) -> str:
    """Load `count` rows of W lanes that begin at environment `first` of `total`. Lanes
    beyond the batch repeat the last environment."""
    vector = f"<{width} x {kind}>"
    arguments = "ptr %to, ptr %from, i64 %count, i64 %step, i64 %first, i64 %total"
    return f"""
define internal void @load_{kind}({arguments}) {{
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
"""


def store_lanes(kind: str, size: int, width: int) -> str:
    """Store rows of W lanes, except the lanes beyond the batch."""
    vector = f"<{width} x {kind}>"
    arguments = "ptr %to, ptr %from, i64 %count, i64 %step, i64 %first, i64 %total"
    return f"""
define internal void @store_{kind}({arguments}) {{
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


def _sum(kind: str) -> tuple[str, str]:
    """Return the instruction that adds numbers, and their zero."""
    return ("fadd", "0.0") if kind in ("float", "double") else ("add", "0")


def accumulate(kind: str, size: int, width: int) -> str:
    """Return the function that adds rows of lanes to accumulators, except lanes beyond the
    batch."""
    vector = f"<{width} x {kind}>" if width > 1 else kind
    operation, zero = _sum(kind)
    zero = "zeroinitializer" if width > 1 else zero
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
"""


def total_lanes(kind: str) -> str:
    """Return the function that adds the lanes of each row."""
    operation, zero = _sum(kind)
    return f"""
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
  %sum = phi {kind} [ {zero}, %row ], [ %new, %lane ]
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
"""


def total_tasks(kind: str) -> str:
    """Return the function that adds the rows of all tasks, in the order of the tasks."""
    operation, zero = _sum(kind)
    return f"""
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
  %sum = phi {kind} [ {zero}, %row ], [ %new, %part ]
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
