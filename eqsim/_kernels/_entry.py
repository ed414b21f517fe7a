"""The function that XLA calls, as LLVM IR.

XLA calls `handler` through its typed foreign-function interface (`c_api.h` of jaxlib). A
call is cut into tasks, each a range of the outer axis. The calling thread and helpers from
XLA's thread pool take tasks from a counter until none is left; so a call never waits for
a helper that has not begun. Tasks, and the order in which their sums are added, depend on
the size of the batch alone: results do not depend on the number of threads.

A call is described by words of 8 bytes on the heap, freed by its last user.
"""

# Words of a call.
NEXT, DONE, USERS, TASKS, LANES, LOOPS, SUMS, ORDER, BUFFERS = range(9)

LARGEST_TASKS = 64
"""Tasks of a call, at most."""
_TASK_COST = 30_000
"""Operations that are worth another thread."""

# Offsets in bytes of XLA's structures, version 0.3.
API, _CONTEXT, _STAGE, _ARGS, _RETS = 16, 24, 32, 72, 112
_ERROR_DESTROY, _SCHEDULE, _NUM_THREADS = 64, 136, 144
_DATA = 24

DECLARATIONS = {
    "declare ptr @malloc(i64)",
    "declare void @free(ptr)",
    "declare i32 @sched_yield()",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}


def handler(
    arguments: int,
    results: int,
    passes: tuple[list[str], list[str]],
    partial: int,
    cost: int,
    finish: list[str],
    check: list[str],
    order: str,
) -> str:
    """Return the entry of a kernel. Its argument 0 holds the sizes of the axes.

    **Arguments:**

    - `passes`: lines that compute `%outer` and `%inner`, the lengths of the two loops.
    - `partial`: bytes of the sums of a task.
    - `cost`: operations of one pass.
    - `finish`: lines that run when all tasks are done.
    - `check`: lines that compare the arguments with what is assumed of them.
    - `order`: expression for the order of the environments, in memory of its own.
    """
    buffers, keep = [], []
    for kind, count, first in (("a", arguments, 0), ("r", results, arguments)):
        source = "%args" if kind == "a" else "%rets"
        for k in range(count):
            place = k + 1 if kind == "a" else k
            word = BUFFERS + first + k
            buffers += [
                f"  %{kind}{k}p = getelementptr ptr, ptr {source}, i64 {place}",
                f"  %{kind}{k}b = load ptr, ptr %{kind}{k}p",
                f"  %{kind}{k}d = getelementptr i8, ptr %{kind}{k}b, i64 {_DATA}",
                f"  %{kind}{k}v = load ptr, ptr %{kind}{k}d",
            ]
            keep += [
                f"  %{kind}{k}s = getelementptr i64, ptr %call, i64 {word}",
                f"  store ptr %{kind}{k}v, ptr %{kind}{k}s",
            ]
    return _HANDLER.format(
        size=8 * (BUFFERS + arguments + results),
        buffers="\n".join(buffers + check),
        keep="\n".join(keep),
        outer="\n".join(passes[0]),
        inner="\n".join(passes[1]),
        partial=partial,
        cost=max(1, cost),
        finish="\n".join(finish),
        arranged=order,
        **_NUMBERS,
    )


TASK = f"""
define internal void @release(ptr %call) {{
  %users = getelementptr i64, ptr %call, i64 {USERS}
  %old = atomicrmw sub ptr %users, i64 1 acq_rel
  %last = icmp eq i64 %old, 1
  br i1 %last, label %clear, label %end
clear:
  %sums_at = getelementptr i64, ptr %call, i64 {SUMS}
  %sums = load ptr, ptr %sums_at
  call void @free(ptr %sums)
  %order_at = getelementptr i64, ptr %call, i64 {ORDER}
  %order = load ptr, ptr %order_at
  call void @free(ptr %order)
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

_NUMBERS = dict(
    next=NEXT,
    done=DONE,
    users=USERS,
    tasks=TASKS,
    lanes=LANES,
    loops=LOOPS,
    sums=SUMS,
    order=ORDER,
    api=API,
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
{buffers}
  %call = call ptr @malloc(i64 {size})
{keep}
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
  %arranged = {arranged}
  %arranged.at = getelementptr i64, ptr %call, i64 {order}
  store ptr %arranged, ptr %arranged.at
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
