"""Speed of exact linear models of a step, compared with MuJoCo's finite differences.

python benchmarks/linearize.py --out out/bench
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax


# Before JAX is first used: one device per core.
jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import mujoco
import numpy as np
from _bench import caption, interleaved, parser, publish, say, setting, table
from _robots import robots, Start, start, STARTS
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import eqsim
from eqsim.control import linearize_step


EXPLANATION = """\
Linear models $x' = A x + B u$ of one physics step (Euler) per second, in thousands, at
{batch} states. `eqsim`: exact, `linearize_step` under `jax.jit` and `jax.vmap`, with the
states sharded over one device per core. `central`, `one-sided`: finite differences by
MuJoCo C's `mjd_transitionFD` with the solver settings of the file, one thread per core;
one-sided differences need half as many steps. `ratio`: speed of eqsim over MuJoCo C.
`error`: median over the states of the largest difference from central differences,
relative to the largest entry. It is large where a joint is exactly at its limit, because
finite differences step across the discontinuity of the limit force."""

DIFFERENCES = ("central", "one-sided")


def main() -> None:
    """Time all cells, and write the results after each."""
    options = _options()
    where, rows = setting(options), []
    for name, sys, model in robots(options.models):
        for kind in STARTS:
            begin = start(kind, model, options.batch, 1)
            cell = _cell(sys, model, begin, options)
            rows.append({"model": name, "start": kind} | cell)
            say(rows[-1])
            data = {"where": where, "rows": rows}
            publish(options, "linearize", data, report(where, rows, options))
    print(f"\n{report(where, rows, options)}")


def _cell(sys, model, begin: Start, options) -> dict[str, Any]:
    calls = {"eqsim": _ours(sys, begin)}
    calls |= {label: _theirs(model, begin, label) for label in DIFFERENCES}
    ours, theirs = (np.asarray(calls[label]()[0]) for label in ("eqsim", "central"))
    largest = lambda x: np.max(np.abs(x), axis=(1, 2))
    error = np.median(largest(ours - theirs) / largest(theirs))
    taken = interleaved(calls, options.repeats, options.limit)
    speeds = {label: len(begin.q) / taken[label].best / 1e3 for label in calls}
    cell = {"eqsim": speeds["eqsim"]}
    for label in DIFFERENCES:
        cell[label] = speeds[label]
        cell[f"ratio to {label}"] = speeds["eqsim"] / speeds[label]
    return cell | {
        "error": float(error),
        "spread": max(timing.spread for timing in taken.values()),
    }


def _ours(sys: eqsim.System, begin: Start) -> Callable[[], Any]:
    pipeline = eqsim.Generalized()

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
    q, qd, _, ctrl = begin.arrays()
    arrays = jax.device_put((q, qd, ctrl[:, 0]), split)
    sys = jax.device_put(sys, NamedSharding(mesh, PartitionSpec()))
    return lambda: models(sys, *arrays)


def _theirs(model: mujoco.MjModel, begin: Start, label: str) -> Callable[[], Any]:
    threads, central = os.cpu_count() or 1, label == "central"
    size, nx = len(begin.q), 2 * model.nv + model.na
    A, B = np.zeros((size, nx, nx)), np.zeros((size, nx, model.nu))
    parts = np.array_split(np.arange(size), threads)
    pool = ThreadPoolExecutor(threads)
    data = [mujoco.MjData(model) for _ in parts]

    def run(data, part):
        for k in part:
            data.qpos[:], data.qvel[:] = begin.q[k], begin.qd[k]
            data.ctrl[:] = begin.ctrl[k, 0]
            mujoco.mjd_transitionFD(model, data, 1e-6, central, A[k], B[k], None, None)

    def call():
        list(pool.map(run, data, parts))
        return A, B

    return call


def report(where: dict, rows: list[dict], options) -> str:
    """Return all results as one table."""
    text = EXPLANATION.format(batch=options.batch)
    title = f"## Linear models, {where['precision']} precision (MuJoCo C: double)"
    return f"{title}\n\n{text}\n\n{table(rows)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=5, limit=20.0)
    made.add_argument("--models", nargs="*", default=["ant", "half_cheetah"])
    made.add_argument("--batch", type=int, default=1024)
    return made.parse_args()


if __name__ == "__main__":
    main()
