"""Time to trace, lower and compile one physics step of a batch of robots.

    python benchmarks/compile.py --out out/bench
    python benchmarks/compile.py --derivative gradient --batch 256
    python benchmarks/compile.py --memory --models ant humanoid

Each measurement runs in a fresh process without caches. The best repeat counts. `--memory`
measures the memory of one process that compiles derivatives of every kind instead:
`jacfwd`, `jacrev` and `linearize`, in all pipelines and both precisions.
"""

import argparse
import json
import time

import equinox as eqx
import jax
import jax.numpy as jnp
from _bench import caption, child, parser, publish, say, setting, table
from _robots import (
    brax_simulator,
    eqsim_simulator,
    load,
    mjx_simulator,
    NotInstalled,
    TIMED,
)

import eqsim


RUNNERS = {
    "eqsim": "eqsim",
    "mjx": "MJX (iterations of the file)",
    "mjx-1": "MJX (1 it.)",
    "brax": "Brax generalized",
}
WHAT = {
    "none": "one physics step of {batch} robots by\n`jax.jit(jax.vmap(step))`",
    "gradient": "the sum of squares of the states after one\nphysics step of {batch} "
    "robots, and its gradient by their states and controls",
    "jacobian": "the Jacobian of one physics step by state and\ncontrols, of each of "
    "{batch} robots (`jax.jacfwd`)",
}
EXPLANATION = """\
Seconds from a Python function to a program: {what}, the robot being an argument.
Fresh processes without caches, which took turns; the best of {repeats} each. `times`:
total over that of eqsim."""
MEMORY = """\
One process compiles all of it without a cache and keeps it. `seconds`: tracing, compiling
and the first run. `maps` and `memory`: pieces of memory (Linux allows 65,530) and resident
MB of the process after that; `peak` is the most so far."""


def main() -> None:
    """Measure in child processes, one at a time; or act as such a process."""
    options = _options()
    where = setting(options)
    if options.child:
        name, batch = options.models[0], options.batch
        print(json.dumps(measure(options.child, name, batch, options.derivative)))
        return
    cells: list[dict] = []
    show = _memory_report if options.memory else report
    for name in options.models:
        for found in _memory(name) if options.memory else _model(name, options):
            cells.append(found)
            data = {"where": where, "cells": cells}
            title = "compile_memory" if options.memory else "compile"
            publish(options, title, data, show(where, cells, options))
    print(f"\n{show(where, cells, options)}")


def measure(runner: str, name: str, batch: int, derivative: str) -> dict[str, float]:
    """Time the stages of one compilation in this process."""
    step, arguments = _step(runner, name, batch)
    step = DERIVATIVES[derivative](step)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jnp.ones(3)))
    clock = [time.perf_counter()]
    traced = jax.jit(step).trace(*arguments)
    clock.append(time.perf_counter())
    lowered = traced.lower()
    clock.append(time.perf_counter())
    lowered.compile()
    clock.append(time.perf_counter())
    stages = {
        stage: after - before
        for stage, before, after in zip(("trace", "lower", "compile"), clock, clock[1:])
    }
    return stages | {"total": clock[-1] - clock[0]}


def _step(runner, name, batch):
    """Return a batched step, and the shapes of its arguments, starting with the
    robot."""
    sys, model = load(name)
    peer = {
        "eqsim": lambda: eqsim_simulator(sys),
        "mjx": lambda: mjx_simulator(model),
        "mjx-1": lambda: mjx_simulator(model, 1),
        "brax": lambda: brax_simulator(name),
    }[runner]()
    shaped = lambda n: jax.ShapeDtypeStruct((batch, n), jnp.result_type(float))
    sizes = map(shaped, (model.nq, model.nv, model.na))
    init = jax.vmap(peer.init, in_axes=(None, 0, 0, 0))
    states = jax.eval_shape(init, peer.robot, *sizes)
    step = jax.vmap(peer.step, in_axes=(None, 0, 0))
    return step, (peer.robot, states, shaped(model.nu))


def _is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _gradient(step):
    def loss(chosen, rest, robot):
        new = step(robot, *eqx.combine(chosen, rest))
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(new) if _is_float(x))

    def gradient(robot, states, ctrl):
        chosen, rest = eqx.partition((states, ctrl), _is_float)
        return jax.value_and_grad(loss)(chosen, rest, robot)

    return gradient


def _jacobian(step):
    def one(chosen, rest, robot):
        batch = jax.tree.map(lambda x: x[None], eqx.combine(chosen, rest))
        new = jax.tree.map(lambda x: x[0], step(robot, *batch))
        return [x for x in jax.tree.leaves(new) if _is_float(x)]

    def jacobian(robot, states, ctrl):
        chosen, rest = eqx.partition((states, ctrl), _is_float)
        by_state = jax.vmap(jax.jacfwd(one), in_axes=(0, 0, None))
        return by_state(chosen, rest, robot)

    return jacobian


DERIVATIVES = {"none": lambda step: step, "gradient": _gradient, "jacobian": _jacobian}


def _model(name, options) -> list[dict]:
    """Measure all runners with one robot, alternately."""
    taken: dict[str, list[dict]] = {}
    for _ in range(options.repeats):
        for runner in options.runners:
            found = _child(runner, name, options)
            if found is not None:
                taken.setdefault(runner, []).append(found)
    cells = []
    for runner, all_found in taken.items():
        best = min(all_found, key=lambda found: found["total"])
        ours = min(found["total"] for found in taken.get("eqsim", [best]))
        label = {"model": name, "B": options.batch, "runner": RUNNERS[runner]}
        cells.append(label | best | {"times": best["total"] / ours})
    return cells


def _child(runner, name, options) -> dict | None:
    """Run one measurement in a separate process; None if that fails."""
    words = [__file__, "--child", runner, "--models", name, "--batch", options.batch]
    words += ["--precision", options.precision, "--derivative", options.derivative]
    found, trouble = child(words, options.limit)
    about = f"{name}, {RUNNERS[runner]}"
    if trouble:
        say(f"{about} is left out: {trouble}")
        return None
    say(f"{about}: " + ", ".join(f"{k} {v:.2f} s" for k, v in found[-1].items()))
    return found[-1]


TRANSFORMS = {
    "jacfwd": lambda step, q, ctrl: jax.jacfwd(step, (0, 1))(q, ctrl),
    "jacrev": lambda step, q, ctrl: jax.jacrev(step, (0, 1))(q, ctrl),
    # The linear map, applied to a batch of directions.
    "linearize": lambda step, q, ctrl: jax.vmap(
        lambda k, push=jax.linearize(step, q, ctrl)[1]: push(k * jnp.ones_like(q), ctrl)
    )(jnp.arange(3.0)),
}
_KEPT: list = []


def _memory(name: str):
    """Compile and run every derivative of a step in this process."""
    sys, _ = load(name)
    for double in (False, True):
        for pipeline in (eqsim.Generalized(), eqsim.Spring(), eqsim.Positional()):
            for transform in TRANSFORMS:
                with jax.enable_x64(double):
                    seconds = _compiled(transform, pipeline, sys, double)
                cell = {"model": name, "precision": "double" if double else "single"}
                cell |= {"pipeline": type(pipeline).__name__, "transform": transform}
                cell |= {"seconds": round(seconds, 1)} | _usage()
                say(" ".join(str(x) for x in cell.values()))
                yield cell


def _compiled(transform: str, pipeline, sys, double: bool) -> float:
    dtype = jnp.float64 if double else jnp.float32
    cast = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
    pipeline, sys = jax.tree.map(cast, (pipeline, sys))
    begin = time.perf_counter()
    state = pipeline.init(sys)

    def step(q, ctrl):
        after = pipeline.step(sys, eqx.tree_at(lambda s: s.q, state, q), ctrl)
        return jnp.concatenate([after.q, after.qd])

    program = jax.jit(lambda q, ctrl: TRANSFORMS[transform](step, q, ctrl))
    found = program(state.q, jnp.full(sys.nu, 0.1, dtype))
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(found))
    _KEPT.append(program)
    return time.perf_counter() - begin


def _usage() -> dict[str, int]:
    """Return the number of memory maps, and the current and largest resident memory of
    this process, MB."""
    with open("/proc/self/maps") as file:
        maps = sum(1 for _ in file)
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    resident, peak = (int(lines[k].split()[0]) // 1000 for k in ("VmRSS", "VmHWM"))
    return {"maps": maps, "memory": resident, "peak": peak}


def report(where: dict, cells: list[dict], options: argparse.Namespace) -> str:
    """Return all results as one table."""
    what = WHAT[options.derivative].format(batch=options.batch)
    text = EXPLANATION.format(what=what, repeats=options.repeats)
    title = f"## Compilation, {where['precision']} precision"
    return f"{title}\n\n{text}\n\n{table(cells)}\n\n{caption(where)}\n"


def _memory_report(where: dict, cells: list[dict], options) -> str:
    return (
        f"## Compiled derivatives\n\n{MEMORY}\n\n{table(cells)}\n\n{caption(where)}\n"
    )


def _options():
    made = parser(__doc__, repeats=3, limit=900.0)
    add = made.add_argument
    add("--models", nargs="*", default=list(TIMED))
    add("--runners", nargs="*", choices=tuple(RUNNERS), default=list(RUNNERS))
    add("--batch", type=int, default=1024)
    add("--derivative", choices=list(DERIVATIVES), default="none")
    add("--memory", action="store_true", help="memory of compiled derivatives")
    add("--child", choices=tuple(RUNNERS), help=argparse.SUPPRESS)
    return made.parse_args()


if __name__ == "__main__":
    try:
        main()
    except NotInstalled as error:
        raise SystemExit(str(error)) from None
