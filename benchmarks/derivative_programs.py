"""Memory of a process that compiles every kind of derivative of a step.

    python benchmarks/derivative_programs.py --out out/bench

`jacfwd`, `jacrev` and `linearize` of the step of each robot, in all pipelines and in
both precisions, are compiled and run one after another; all stay in memory.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _command import parser, publish, say, setting
from _tables import caption, table

import eqsim


EXPLANATION = """\
One process compiles all of it without a cache and keeps it. `seconds`: tracing, compiling
and the first run. `maps` and `memory`: pieces of memory (Linux allows 65,530) and resident
MB of the process after that; `peak` is the most so far."""
PIPELINES = {
    "Generalized": eqsim.Generalized(),
    "Spring": eqsim.Spring(),
    "Positional": eqsim.Positional(),
}


def jacfwd(step, q, ctrl):
    """Compute the Jacobian with respect to coordinates and controls, in forward
    mode."""
    return jax.jacfwd(step, (0, 1))(q, ctrl)


def jacrev(step, q, ctrl):
    """Compute the Jacobian with respect to coordinates and controls, in reverse
    mode."""
    return jax.jacrev(step, (0, 1))(q, ctrl)


def linearize(step, q, ctrl):
    """The linear map of the step, applied to a batch of directions."""
    _, push = jax.linearize(step, q, ctrl)
    return jax.vmap(lambda k: push(k * jnp.ones_like(q), k * ctrl))(jnp.arange(3.0))


def main() -> None:
    """Compile everything, and write the results after each program."""
    options = _options()
    where, cells = setting(options), []
    for name in options.models:
        env = eqsim.make(name)
        for double in (False, True):
            for label, pipeline in PIPELINES.items():
                for transform in (jacfwd, jacrev, linearize):
                    with jax.enable_x64(double):
                        seconds = _run(transform, pipeline, env.sys, double)
                    cell = {
                        "model": name,
                        "precision": "double" if double else "single",
                        "pipeline": label,
                        "transform": transform.__name__,
                        "seconds": seconds,
                        **memory(),
                    }
                    say(" ".join(str(x) for x in cell.values()))
                    cells.append(cell)
                    data = {"where": where, "cells": cells}
                    publish(options, "derivative_programs", data, report(where, cells))
    print(f"\n{report(where, cells)}")


_KEPT: list = []


def _run(transform, pipeline, sys, double: bool) -> float:
    dtype = jnp.float64 if double else jnp.float32
    cast = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
    pipeline, sys = jax.tree.map(cast, (pipeline, sys))
    begin = time.perf_counter()
    state = pipeline.init(sys)

    def step(q, ctrl):
        after = pipeline.step(sys, eqx.tree_at(lambda s: s.q, state, q), ctrl)
        return jnp.concatenate([after.q, after.qd])

    program = jax.jit(lambda q, ctrl: transform(step, q, ctrl))
    found = program(state.q, jnp.full(sys.nu, 0.1, dtype))
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(found))
    _KEPT.append(program)
    return time.perf_counter() - begin


def memory() -> dict[str, int]:
    """Return the number of memory maps, and the current and largest resident memory of
    this process, MB."""
    with open("/proc/self/maps") as file:
        maps = sum(1 for _ in file)
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    resident, peak = (int(lines[k].split()[0]) // 1000 for k in ("VmRSS", "VmHWM"))
    return {"maps": maps, "memory": resident, "peak": peak}


def report(where: dict, cells: list[dict]) -> str:
    """Return a table with one line per program."""
    rows = [{**cell, "seconds": np.round(cell["seconds"], 1)} for cell in cells]
    return f"{table(rows)}\n\n{EXPLANATION}\n\n{caption(where)}"


def _options():
    command = parser(__doc__ or "", repeats=1)
    command.add_argument("--models", nargs="+", default=["ant", "humanoid"])
    return command.parse_args()


if __name__ == "__main__":
    main()
