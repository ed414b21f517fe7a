"""Speed on a GPU: steps and gradients per second, and compile time, beside MJX.

python benchmarks/gpu.py --out out/gpu
python benchmarks/gpu.py --models ant --batches 4096 --programs step
python benchmarks/gpu.py --folder MENAGERIE --models leap_hand/scene_right.xml

MENAGERIE is a copy of https://github.com/google-deepmind/mujoco_menagerie.
"""

import contextlib
import fcntl
import functools as ft
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _bench import (
    caption,
    interleaved,
    parser,
    publish,
    say,
    seconds,
    setting,
    table,
)
from _robots import (
    converge,
    DISTINCT,
    eqsim_simulator,
    error_of,
    load,
    mean_contacts,
    menagerie_start,
    mjx_simulator,
    moved,
    mujoco_call,
    Simulator,
    Start,
)


STEPS = {"step": 20, "gradient": 32}
"""Physics steps of one call of each program."""
CHECKED = 64
"""Number of robots whose coordinates are compared with MuJoCo C."""
RUNNERS = ("eqsim", "MJX", "MJX (1 it.)")
FLAGS = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL"
"""Flags with which loops run on the GPU without a round trip to the host in each pass."""
EXPLANATION = f"""\
The table lists millions of physics steps per second, summed over the B robots; in
parentheses, the speed of eqsim relative to that of MJX. `step`: {STEPS["step"]} steps in one
program, or fewer if one step takes long. `gradient`: gradient of a loss after
{STEPS["gradient"]} steps with respect to the controls of every step. All use Euler and the
time step of the file. The batch repeats {DISTINCT} initial states, which come from 400
steps under random controls; scenes start as in `scenes.py`. `contacts` is their mean
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


# One cell: one robot, one batch, and one program of each simulator.


def run_cell(name: str, kind: str, batch: int, options) -> list[dict[str, Any]]:
    """Compile the programs of all simulators, wait until every cell has compiled, and
    time them while no other cell uses the GPU.

    **Arguments:**

    - `name`: name of a robot, or a scene of `options.folder`, which ends with `.xml`.
    - `kind`: `"step"` or `"gradient"`.
    """
    scene = name.endswith(".xml")
    sys, model = load(options.folder / name if scene else name)
    model.opt.iterations, model.opt.ls_iterations = 100, 50
    start = (menagerie_start if scene else moved)(model, batch)
    programs, compile_seconds = {}, {}
    makers = {
        "eqsim": lambda: eqsim_simulator(sys),
        "MJX": lambda: mjx_simulator(model),
        "MJX (1 it.)": lambda: mjx_simulator(model, 1),
    }
    for label in options.runners:
        about = f"{name}, {kind}, B={batch}: {label}"
        if kind == "gradient" and label == "MJX":
            # MJX has no reverse mode through a loop of unknown length.
            continue
        if time.time() > options.deadline:
            say(f"{about}: no time to compile")
            continue
        try:
            program = _compiled(makers[label](), kind, start)
        except NotImplementedError as error:
            say(f"{about} is left out: {error}")
            continue
        programs[label], compile_seconds[label] = program
        say(f"{about} compiled in {compile_seconds[label]:.0f} s")
    with _turn(options):
        calls, steps = {}, {}
        for label, call in programs.items():
            steps[label] = _affordable(label, call, kind, options.limit)
            if steps[label]:
                calls[label] = ft.partial(call, steps[label])
        taken = interleaved(calls, options.repeats, options.limit)
        last = {label: np.asarray(call()) for label, call in calls.items()}
    contacts, cells = mean_contacts(model, start)[0], []
    for label, timing in taken.items():
        cell = {"model": name, "program": kind, "B": batch, "runner": label}
        cell["contacts"] = contacts
        cell["per_second"] = batch * steps[label] / timing.best
        cell |= {"compile": compile_seconds[label], "spread": timing.spread}
        if kind == "gradient":
            cell["finite"] = float(np.mean(np.isfinite(last[label])))
        else:
            exact = mujoco_call(converge(model), start.first(CHECKED), steps[label])
            cell["error"] = error_of(last[label], exact(1)[:, -1])
        cells.append(cell)
        say(cell)
    own = {cell["runner"]: cell["per_second"] for cell in cells}
    for cell in cells if "eqsim" in own else ():
        cell["times"] = own["eqsim"] / cell["per_second"]
    return cells


def _compiled(peer: Simulator, kind: str, start: Start) -> tuple[Callable, float]:
    """Return a call of a program, which takes the number of steps, and its compile time,
    s."""
    state, ctrl = peer.states(start), start.arrays()[3][:, 0]
    function = {"step": _steps_of, "gradient": _gradient_of}[kind](peer)
    arguments, begin = (peer.robot, state, ctrl), time.perf_counter()
    program = jax.jit(function).lower(*arguments, jnp.asarray(1)).compile()
    call = lambda steps: program(*arguments, jnp.asarray(steps))
    return call, time.perf_counter() - begin


def _steps_of(peer: Simulator) -> Callable:
    """Return a function that takes a number of steps under constant controls."""
    return lambda robot, state, ctrl, steps: peer.coordinates(
        peer.hold(robot, state, ctrl, steps)
    )


def _gradient_of(peer: Simulator) -> Callable:
    """Return a function for the gradient, by the controls of every step, of the mean
    sum of squares of the last coordinates. The number of steps is `STEPS`."""

    def last(robot, state, ctrl):
        move = lambda state, now: (peer.step(robot, state, now), None)
        return peer.coordinates(peer.scan(move, state, ctrl)[0])

    def loss(ctrl, robot, state):
        q = jax.vmap(last, (None, 0, 0))(robot, state, ctrl)
        return jnp.mean(jnp.sum(q**2, axis=-1))

    def run(robot, state, ctrl, _):
        held = jnp.repeat(ctrl[:, None], STEPS["gradient"], axis=1)
        return jax.grad(loss)(held, robot, state)

    return run


def _affordable(label: str, call: Callable, kind: str, limit: float) -> int:
    """Return how many steps a call can take within the limit: at least one. Zero if the
    call fails, for instance for lack of memory."""
    try:
        jax.block_until_ready(call(1))
        once = seconds(lambda: call(1))
    except jax.errors.JaxRuntimeError as error:
        say(f"{label} failed: {str(error).splitlines()[0]}")
        return 0
    steps = STEPS[kind]
    return steps if kind == "gradient" else max(1, min(steps, int(limit / once)))


@contextlib.contextmanager
def _turn(options):
    """Wait until all cells have compiled, or until the deadline, and then for the
    GPU."""
    ready(options)
    while len(list(_turns(options).iterdir())) < options.cells:
        if time.time() > options.deadline:
            break
        time.sleep(0.2)
    with open(options.out / "gpu.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ready(options) -> None:
    """Note that a cell needs no more time to compile."""
    _turns(options).mkdir(exist_ok=True)
    (_turns(options) / options.cell.replace("/", " ")).touch()


def _turns(options) -> pathlib.Path:
    return options.out / "turns"


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
