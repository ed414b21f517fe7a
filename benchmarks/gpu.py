"""Speed on a GPU: steps and gradients per second, and compile time, beside MJX.

python benchmarks/gpu.py --out out/gpu
python benchmarks/gpu.py --models ant --batches 4096 --programs step
python benchmarks/gpu.py --folder MENAGERIE --models leap_hand/scene_right.xml

MENAGERIE is a copy of https://github.com/google-deepmind/mujoco_menagerie.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from _bench import parser, publish, say, setting
from _gpu_cell import CHECKED, ready, run_cell, STEPS
from _scene_runs import DISTINCT, SETTLE
from _bench import caption, table


RUNNERS = ("eqsim", "MJX", "MJX (1 it.)")
FLAGS = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL"
"""Flags with which loops run on the GPU without a round trip to the host in each pass."""
EXPLANATION = f"""\
The table lists millions of physics steps per second, summed over the B robots; in
parentheses, the speed of eqsim relative to that of MJX. `step`: {STEPS["step"]} steps in one
program, or fewer if one step takes long. `gradient`: gradient of a loss after
{STEPS["gradient"]} steps with respect to the controls of every step. All use Euler and the
time step of the file. The batch repeats {DISTINCT} initial states, which come from {SETTLE}
steps under random controls; scenes start as in `menagerie.py`. `contacts` is their mean
number. eqsim solves each step to convergence. `MJX` iterates to MuJoCo's tolerance, at most
100 times; `MJX (1 it.)` uses one iteration, the only setting in which it supports reverse
mode. Each figure is the best of several interleaved runs. All programs are compiled with
`XLA_FLAGS={FLAGS}`."""
FACTS = f"""\
At the smallest batch of each program: `compile`: seconds to trace, lower and compile
without caches, while other programs were compiled on the other cores. `error`: median
over {CHECKED} robots of the largest relative difference of a coordinate from converged
MuJoCo C after these steps. `finite`: fraction of the entries of the
gradient that are finite."""


def main() -> None:
    """Run every cell in a process of its own, and write the results."""
    options = _options()
    if options.cell:
        _run_one(options)
        return
    names = _cell_names(options)
    shutil.rmtree(options.out / "turns", ignore_errors=True)
    for name in names:
        _result(options, name).unlink(missing_ok=True)
    workers = [_start(name, len(names), options) for name in names]
    end = time.time() + options.seconds
    for name, worker in zip(names, workers, strict=True):
        try:
            worker.wait(max(1.0, end - time.time()))
        except subprocess.TimeoutExpired:
            say(f"{name} is not finished after {options.seconds:g} s")
            worker.kill()
    where, cells = setting(options), []
    for name in names:
        path = _result(options, name)
        if path.exists():
            cells += json.loads(path.read_text())
        else:
            say(f"{name} failed")
    publish(options, "gpu", {"where": where, "cells": cells}, report(where, cells))
    print(report(where, cells))


def _result(options, name: str) -> pathlib.Path:
    """Return the file of the results of a cell."""
    return options.out / f"{name.replace('/', ' ')}.json"


def _cell_names(options) -> list[str]:
    """Return the names of the cells; larger batches, which compile no slower, last."""
    batches = {"step": options.batches, "gradient": options.gradient_batches}
    return [
        f"{program},{model},{batch}"
        for program in options.programs
        for batch in batches[program]
        for model in options.models
    ]


def _start(name: str, count: int, options) -> subprocess.Popen:
    # Each process takes only the memory that it needs, because all share one GPU.
    environment = os.environ | {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "EQSIM_KERNELS_CACHE": "",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", FLAGS),
    }
    command = [sys.executable, *sys.argv, "--cell", name, "--cells", str(count)]
    command += ["--deadline", str(time.time() + options.compile_seconds)]
    return subprocess.Popen(command, env=environment)


def _run_one(options) -> None:
    setting(options)
    kind, name, batch = options.cell.split(",")
    try:
        found = run_cell(name, kind, int(batch), options)
        _result(options, options.cell).write_text(json.dumps(found))
    finally:
        ready(options)


def report(where: dict, cells: list[dict]) -> str:
    """Return a table of speeds, and one of errors and compile times."""
    speeds: dict[tuple, dict] = {}
    facts: dict[tuple, dict] = {}
    for cell in cells:
        key = {name: cell[name] for name in ("model", "program", "B")}
        row = speeds.setdefault((*key.values(),), key | {"contacts": cell["contacts"]})
        text, runner = f"{cell['per_second'] / 1e6:.3g}", cell["runner"]
        peer = runner != "eqsim" and "times" in cell
        row[runner] = f"{text} ({cell['times']:.3g}x)" if peer else text
        fact = facts.setdefault((*key.values(), runner), key | {"runner": runner})
        fact["compile"] = cell["compile"]
        fact |= {name: cell[name] for name in ("error", "finite") if name in cell}
    first: dict[str, int] = {}
    for cell in cells:
        first[cell["program"]] = min(cell["B"], first.get(cell["program"], cell["B"]))
    few = [fact for fact in facts.values() if fact["B"] == first[fact["program"]]]
    title = f"## GPU, {where['precision']} precision"
    parts = title, EXPLANATION, table(list(speeds.values())), FACTS, table(few)
    return "\n\n".join((*parts, caption(where))) + "\n"


def _options():
    made = parser(__doc__, repeats=5, limit=10.0)
    add = made.add_argument
    add("--models", nargs="*", default=["ant", "humanoid", "barkour"])
    add("--programs", nargs="*", choices=tuple(STEPS), default=list(STEPS))
    add("--batches", nargs="*", type=int, default=[4096, 16384, 65536])
    add("--gradient-batches", nargs="*", type=int, default=[4096])
    add("--folder", type=pathlib.Path, default=pathlib.Path(), help="of scenes")
    add("--runners", nargs="*", choices=RUNNERS, default=list(RUNNERS))
    add("--compile-seconds", type=float, default=600.0, help="then timing starts")
    add("--seconds", type=float, default=3600.0, help="then the command ends")
    add("--cell", default="", help="used by the command itself")
    add("--cells", type=int, default=1, help="used by the command itself")
    add("--deadline", type=float, default=0.0, help="used by the command itself")
    options = made.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
