"""Linear models of a step per second: exact ones, beside MuJoCo's finite differences.

python benchmarks/linearize.py --out out/bench
"""

import argparse
import math
import os
import pathlib
import sys as _sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax


# Before JAX is first used: one device per core.
jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import jax.numpy as jnp
import mujoco
import numpy as np
from _models import mujoco_model, NotInstalled, system
from _starts import Start, start, STARTS
from _tables import caption, circumstances, table, write
from _timing import interleaved
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import eqsim
from eqsim.control import linearize_step


EXPLANATION = """\
Linear models $x' = A x + B u$ of one physics step (Euler) per second, in thousands, at
{batch} states. `eqsim`: exact, `linearize_step` under `jax.jit` and `jax.vmap`, the
states spread over one device per core. MuJoCo C: `mjd_transitionFD` with one-sided
differences and the solver settings of the file, one thread per core. `ratio`: eqsim
over MuJoCo C; `error`: median over the states of the largest difference between the
two, relative to the largest entry (where a joint stands exactly at its limit, finite
differences see the jump of its force, and are far off)."""


def main() -> None:
    """Times all cells, and writes after each."""
    options = _options()
    jax.config.update("jax_enable_x64", options.precision == "double")
    where = circumstances() | {"precision": options.precision}
    rows: list[dict] = []
    for name in options.models:
        try:
            robots = system(name, euler=True), mujoco_model(name, euler=True)
        except NotInstalled as error:
            print(f"{name} is left out: {error}", file=_sys.stderr)
            continue
        for kind in STARTS:
            begin = start(kind, *robots, options.batch, 1)
            rows.append({"model": name, "start": kind} | _cell(robots, begin, options))
            print(rows[-1], file=_sys.stderr, flush=True)
            text = report(where, rows, options)
            write(options.out / "linearize.json", {"where": where, "rows": rows})
            write(options.out / "linearize.md", text)
            write(options.markdown, text)
    print(f"\n{report(where, rows, options)}")


def _cell(robots, begin: Start, options) -> dict[str, Any]:
    sys, model = robots
    calls = {"eqsim": _ours(sys, begin), "MuJoCo C": _theirs(model, begin)}
    ours, theirs = (np.asarray(calls[label]()[0]) for label in calls)
    largest = lambda x: np.max(np.abs(x), axis=(1, 2))
    error = np.median(largest(ours - theirs) / largest(theirs))
    taken = interleaved(calls, options.repeats, options.limit)
    speeds = {label: len(begin.q) / taken[label].best / 1e3 for label in calls}
    return speeds | {
        "ratio": speeds["eqsim"] / speeds["MuJoCo C"],
        "error": float(error),
        "spread": max(timing.spread for timing in taken.values()),
    }


def _ours(sys: eqsim.System, begin: Start) -> Callable[[], Any]:
    pipeline, dtype = eqsim.Generalized(), jnp.result_type(float)

    @jax.jit
    def models(sys, q, qd, ctrl):
        one = lambda q, qd, ctrl: linearize_step(
            pipeline, sys, pipeline.init(sys, q, qd), ctrl
        )
        return jax.vmap(one)(q, qd, ctrl)

    count = math.gcd(len(jax.devices()), len(begin.q))
    mesh = jax.make_mesh(
        (count,), ("batch",), (AxisType.Auto,), devices=jax.devices()[:count]
    )
    split = NamedSharding(mesh, PartitionSpec("batch"))
    arrays = [jnp.asarray(x, dtype) for x in (begin.q, begin.qd, begin.ctrl[:, 0])]
    arrays = jax.device_put(arrays, split)
    sys = jax.device_put(sys, NamedSharding(mesh, PartitionSpec()))
    return lambda: models(sys, *arrays)


def _theirs(model: mujoco.MjModel, begin: Start) -> Callable[[], Any]:
    threads = os.cpu_count() or 1
    size, nx = len(begin.q), 2 * model.nv + model.na
    A, B = np.zeros((size, nx, nx)), np.zeros((size, nx, model.nu))
    parts = np.array_split(np.arange(size), threads)
    pool = ThreadPoolExecutor(threads)
    data = [mujoco.MjData(model) for _ in parts]

    def run(data, part):
        for k in part:
            data.qpos[:], data.qvel[:] = begin.q[k], begin.qd[k]
            data.ctrl[:] = begin.ctrl[k, 0]
            mujoco.mjd_transitionFD(model, data, 1e-6, False, A[k], B[k], None, None)

    def call():
        list(pool.map(run, data, parts))
        return A, B

    return call


def report(where: dict, rows: list[dict], options) -> str:
    """All cells as one table."""
    text = EXPLANATION.format(batch=options.batch)
    title = f"## Linear models, {where['precision']} precision (MuJoCo C: double)"
    return f"{title}\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--models", nargs="*", default=["ant", "half_cheetah"])
    add("--batch", type=int, default=1024)
    add("--repeats", type=int, default=5)
    add("--limit", type=float, default=20.0, help="seconds for one runner in one cell")
    add("--precision", choices=("single", "double"), default="single")
    add("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    add("--markdown", type=pathlib.Path, help="a second place for the table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
