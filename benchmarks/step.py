"""Throughput: physics steps per second, compared with MuJoCo C, MJX and Brax.

python benchmarks/step.py --out out/bench
python benchmarks/step.py --quick --models ant --peers mujoco
"""

import os
import sys
import time


# Before JAX is first used. LAPACK's batched kernels, which MJX calls, wait for threads
# of the pool from within the pool; with as many devices as cores this can deadlock.
if "--peers" not in sys.argv or {"mjx", "brax"} & set(sys.argv):
    os.environ["XLA_FLAGS"] = " ".join(
        [os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=false"]
    )

import jax


# One device per core, the recommended setting.
jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

import numpy as np
from _command import parser, publish, robots, say, setting
from _models import mujoco_model, TIMED
from _peers import eqsim_plain, eqsim_rollout, mujoco_c, Peer, peers_of
from _reference import converge, errors
from _starts import load, SCALE, Start, start, STARTS, SUBSTEPS
from _tables import caption, table
from _timing import affordable, interleaved


EXPLANATION = f"""\
Physics steps per second, in thousands; in parentheses how many times faster eqsim is
through `eqsim.rollout`. All integrate by Euler with the time step of the file; a random
control is held for {SUBSTEPS} steps. eqsim solves every step to convergence; MuJoCo C
and MJX solve by Newton up to the tolerance and the number of iterations of the file.
`contacts` and `rows`: means over the simulation. `airborne`: the robot falls freely
under full random controls; `settled`: it stands or lies on the ground under small
ones ({SCALE["settled"]:g} of their range). All use all cores; with MJX or Brax as peers,
`plain jit` uses one, as XLA's thread pool is then switched off. Each
figure is the best of several runs, which took turns."""


def main() -> None:
    """Time all cells, and write the results after each."""
    options = _options()
    where, cells = setting(options), []
    for name, robot, model in robots(options.models):
        runners = [eqsim_rollout(robot)]
        if "plain" in options.variants:
            runners.append(eqsim_plain(robot, spread=False))
        if "sharded" in options.variants and len(jax.devices()) > 1:
            runners.append(eqsim_plain(robot, spread=True))
        runners += peers_of(name, options.peers, say)
        for batch in options.batches:
            for kind in options.states:
                begin = start(kind, robot, model, batch, _length(options))
                cells += time_cell(name, model, runners, kind, begin, options)
                data = {"where": where, "cells": cells}
                publish(options, "step", data, report(where, cells))
    print(f"\n{report(where, cells)}")


def time_cell(
    name, model, runners: list[Peer], kind, begin: Start, options
) -> list[dict]:
    """Time all runners from the same initial states, alternately."""
    batch, length = len(begin.q), _length(options)
    path, contacts, rows = _truth(name, begin, length)
    calls, lengths, last = {}, {}, {}
    prepared = {}
    for peer in runners:
        if batch % len(jax.devices()) and not peer.alone:
            continue
        began = time.perf_counter()
        try:
            run = peer.prepare(begin)
            n = length if peer.fixed else affordable(run, length, options.limit)
            last[peer.label] = np.asarray(run(n), np.float64)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            say(f"{name}, {kind}, B={batch}: {peer.label} failed: {error}")
            continue
        prepared[peer.label] = time.perf_counter() - began
        calls[peer.label], lengths[peer.label] = lambda run=run, n=n: run(n), n
    taken = interleaved(calls, options.repeats, options.limit)
    found = []
    for label, timing in taken.items():
        steps = lengths[label] * SUBSTEPS
        found.append(
            {
                "model": name,
                "start": kind,
                "batch": batch,
                "iterations": model.opt.iterations,
                "tolerance": model.opt.tolerance,
                "contacts": contacts,
                "rows": rows,
                "runner": label,
                "steps": steps,
                "steps_per_second": batch * steps / timing.best,
                "seconds": timing.seconds,
                "spread": timing.spread,
                "prepared": prepared[label],
                "error": _error(last[label], path[:, steps - 1], model.nq),
            }
        )
        say(_line(found[-1], found[0]))
    return found


def _length(options) -> int:
    """Return the number of control steps of a simulation."""
    return max(1, options.steps // SUBSTEPS)


def _truth(name: str, begin: Start, length: int):
    """Simulate with MuJoCo with a converged solver, and return the load."""
    model = converge(mujoco_model(name, euler=True))
    few = begin.first(64)
    path = mujoco_c(model).prepare(few)(length)
    contacts, rows = load(model, path, np.repeat(few.ctrl, SUBSTEPS, axis=1))
    return path[..., 1 : 1 + model.nq], contacts, rows


def _error(last, target, nq):
    """Return the median error of the last coordinates, to check that the same motion
    was simulated."""
    if last.ndim == 3:
        last = last[:, -1, 1 : 1 + nq]
    return float(np.median(errors(last[: len(target)], target)))


def report(where: dict, cells: list[dict]) -> str:
    """Return a table with one line per robot, initial state and batch."""
    lines: dict[tuple, dict] = {}
    for cell in cells:
        key = cell["model"], cell["start"], cell["batch"]
        line = lines.setdefault(
            key,
            {
                "model": cell["model"],
                "start": cell["start"],
                "B": cell["batch"],
                "iterations": cell["iterations"],
                "tolerance": cell["tolerance"],
                "contacts": cell["contacts"],
                "rows": cell["rows"],
            },
        )
        speed = cell["steps_per_second"]
        line[cell["runner"]] = f"{speed / 1e3:.3g}"
        if cell["runner"] == "eqsim":
            line["reference"] = speed
        elif "reference" in line:
            line[cell["runner"]] += f" ({line['reference'] / speed:.3g}x)"
    for line in lines.values():
        line.pop("reference", None)
    precision = f"{where['precision']} precision (MuJoCo C: double)"
    title = f"## Throughput, {precision}"
    parts = title, EXPLANATION, table(list(lines.values())), caption(where)
    return "\n\n".join(parts) + "\n"


def _line(cell, first):
    ratio = first["steps_per_second"] / cell["steps_per_second"]
    return (
        f"{cell['model']}, {cell['start']}, B={cell['batch']}: {cell['runner']}: "
        f"{cell['steps_per_second'] / 1e3:.4g} k steps/s (eqsim {ratio:.3g}x), spread "
        f"{100 * cell['spread']:.0f} %, error {cell['error']:.1e} after "
        f"{cell['steps']}, prepared in {cell['prepared']:.1f} s"
    )


def _options():
    made = parser(__doc__, repeats=5, limit=20.0)
    add = made.add_argument
    add("--models", nargs="*", default=list(TIMED))
    add("--batches", nargs="*", type=int, default=[1, 64, 1024, 4096])
    add("--states", nargs="*", choices=STARTS, default=list(STARTS))
    add("--peers", nargs="*", choices=("mujoco", "mjx", "brax"))
    add("--variants", nargs="*", choices=("plain", "sharded"))
    add("--steps", type=int, default=100, help="physics steps of a simulation")
    add("--quick", action="store_true", help="small batches, few steps and repeats")
    options = made.parse_args()
    if options.peers is None:
        options.peers = ["mujoco", "mjx", "brax"]
    if options.variants is None:
        options.variants = ["plain", "sharded"]
    if options.quick:
        options.batches, options.steps = [1, 16], 20
        options.repeats, options.limit = 2, 2.0
    return options


if __name__ == "__main__":
    main()
