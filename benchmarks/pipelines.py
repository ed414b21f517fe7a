"""Compare eqsim's pipelines with those of the same name in Brax: speed and gradient.

    python benchmarks/pipelines.py --out out/bench
    python benchmarks/pipelines.py --pipelines spring --batches 256 --limit 600

Each measurement runs in a fresh process without caches, with a time limit.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _bench import (
    caption,
    child,
    interleaved,
    parser,
    publish,
    say,
    setting,
    show,
    table,
)
from _robots import (
    brax_simulator,
    compiled,
    eqsim_simulator,
    load,
    NotInstalled,
    package,
    Simulator,
    start,
    STARTS,
    SUBSTEPS,
)

import eqsim


RUNNERS = ("eqsim", "Brax")
PIPELINES = {
    "generalized": lambda substeps: eqsim.Generalized(),
    "spring": lambda substeps: eqsim.Spring(substeps=substeps),
    "positional": lambda substeps: eqsim.Positional(substeps=substeps),
}
DT = 0.01
"""Time step of the physics, s."""
SHARE = 0.1
"""Fraction of the time limit for the repeats of one program."""
REFUSALS = (
    ValueError,
    TypeError,
    NotImplementedError,
    MemoryError,
    jax.errors.JaxRuntimeError,
)
COLUMNS = (
    "start",
    "pipeline",
    "substeps",
    "B",
    "runner",
    "forward",
    "ratio",
    "end",
    "compile",
    "gradient",
    "cost",
    "memory",
    "finite",
    "note",
)
EXPLANATION = """\
Pipelines of the same name, on `{model}`. A control step is {control} physics steps of
{dt} s; eqsim divides a physics step into `substeps`, and Brax makes as many steps of a
time step that is so much shorter. `forward`: control steps per second in thousands, in
one program of {length} control steps for B robots, the robot being an argument;
`ratio`: eqsim over Brax; `end`: share of the last coordinates that is a number;
`compile`: seconds to trace, lower and compile that program. `gradient`: physics steps
per second in thousands, for value and gradient by the controls of all of {steps}
physics steps, of the mean over the batch of the sum of squares of the last coordinates;
`cost`: time for value and gradient over time for the value; `memory`: that XLA sets
aside for them, GB; `finite`: share of the gradient that is a number. All run on one
device. Each runner of each line had a process without cache to itself, and {limit:g} s
for everything. The two agree about masses, geometry and actuators, not about how stiff
joints, limits and contacts are."""


def main() -> None:
    """Measure in child processes, one at a time; or act as such a process."""
    options = _options()
    # Parent and child share the device: neither may allocate all its memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    where, cells = setting(options), []
    if options.child:
        for found in measure(options):
            print(json.dumps(found), flush=True)
        return
    runners = _installed()
    for kind in options.states:
        for name in options.pipelines:
            for batch in options.batches:
                cells += _line(kind, name, batch, runners, options)
                data = {"where": where, "model": options.model, "cells": cells}
                publish(options, "pipelines", data, report(where, cells, options))
    print(f"\n{report(where, cells, options)}")


def measure(options) -> Iterator[dict[str, Any]]:
    """Measure one runner in one cell, in this process; print each result when it is
    available."""
    (kind,), (name,), (batch,) = options.states, options.pipelines, options.batches
    robot, model = load(options.model)
    robot = dataclasses.replace(robot, dt=jnp.full_like(robot.dt, DT))
    model.opt.timestep = DT
    length = max(-(-options.steps // SUBSTEPS), options.length)
    q, qd, act, ctrl = start(kind, model, batch, length).arrays()
    substeps = _substeps(name, options)
    make = {
        "eqsim": lambda: eqsim_simulator(robot, PIPELINES[name](options.substeps)),
        "Brax": lambda: brax_simulator(options.model, name, DT, substeps),
    }
    simulator = make[options.child]()
    held = jnp.repeat(ctrl, SUBSTEPS, axis=1)[:, : options.steps]
    yield _forward(simulator, ctrl[:, : options.length], (q, qd, act), options)
    try:
        yield _gradient(simulator, held, (q, qd, act), options)
    except REFUSALS as error:
        yield {"note": f"gradient: {str(error).splitlines()[0]}"}


def _forward(simulator: Simulator, ctrl, states, options) -> dict[str, Any]:
    """Compile and time control steps."""
    arguments = simulator.robot, ctrl, *states
    call, seconds = compiled(_simulate(simulator, SUBSTEPS), *arguments)
    taken = _taken({"forward": call}, options)["forward"]
    return {
        "forward": ctrl.shape[0] * ctrl.shape[1] / taken.best / 1e3,
        "end": float(np.mean(np.isfinite(np.asarray(call())))),
        "compile": seconds,
        "forward_spread": taken.spread,
    }


def _gradient(simulator: Simulator, ctrl, states, options) -> dict[str, Any]:
    """Time a value, and the value with its gradient with respect to the control of each
    step."""
    simulate = _simulate(simulator, 1)

    def loss(ctrl, robot, *states):
        return jnp.mean(jnp.sum(simulate(robot, ctrl, *states) ** 2, axis=-1))

    arguments = ctrl, simulator.robot, *states
    value, both = (
        jax.jit(f).lower(*arguments).compile() for f in (loss, jax.value_and_grad(loss))
    )
    memory = both.memory_analysis().temp_size_in_bytes / 1e9
    if jax.default_backend() == "cpu" and memory > _room():
        raise MemoryError(f"{memory:.3g} GB, of which the machine has {_room():.3g}")
    _, slope = both(*arguments)
    calls = {"value": lambda: value(*arguments), "both": lambda: both(*arguments)}
    taken = _taken(calls, options)
    return {
        "gradient": ctrl.shape[0] * ctrl.shape[1] / taken["both"].best / 1e3,
        "cost": taken["both"].best / taken["value"].best,
        "finite": float(np.mean(np.isfinite(np.asarray(slope)))),
        "memory": memory,
        "gradient_spread": max(timing.spread for timing in taken.values()),
    }


def _room() -> float:
    """Return the memory of the machine, GB, beyond which the system would kill a
    process."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _taken(calls, options):
    return interleaved(calls, options.repeats, SHARE * options.limit)


def _simulate(simulator: Simulator, steps: int) -> Callable:
    """Simulate a batch, with each control constant for a number of physics steps."""

    def one(robot, ctrl, q, qd, act):
        def move(state, now):
            again = lambda state, _: (simulator.step(robot, state, now), None)
            count = steps * simulator.substeps
            return simulator.scan(again, state, length=count)[0], None

        first = simulator.init(robot, q, qd, act)
        return simulator.coordinates(simulator.scan(move, first, ctrl)[0])

    return jax.vmap(one, in_axes=(None, 0, 0, 0, 0))


def _substeps(name, options):
    return 1 if name == "generalized" else options.substeps


def _installed() -> list[str]:
    """Return the installed runners; report missing ones."""
    try:
        package("brax")
    except NotInstalled as error:
        say(f"Brax is left out: {error}")
        return [runner for runner in RUNNERS if runner != "Brax"]
    return list(RUNNERS)


def _line(kind, name, batch, runners, options) -> list[dict[str, Any]]:
    """Return all runners in one cell, and the speedup of eqsim."""
    label = {"start": kind, "pipeline": name, "substeps": _substeps(name, options)}
    label |= {"B": batch}
    found = [
        label | {"runner": runner} | _child(runner, kind, name, batch, options)
        for runner in runners
    ]
    ours, *theirs = (cell.get("forward") for cell in found)
    if ours and theirs and theirs[0]:
        found[0]["ratio"] = ours / theirs[0]
    for cell in found:
        say(", ".join(f"{key} {show(value)}" for key, value in cell.items()))
    return found


def _child(runner, kind, name, batch, options) -> dict[str, Any]:
    """Run one measurement in a separate process; return its results, and the reason if
    some are missing."""
    words = [__file__, *sys.argv[1:], "--child", runner, "--states", kind]
    lines, trouble = child(
        [*words, "--pipelines", name, "--batches", batch], options.limit
    )
    found: dict[str, Any] = {}
    for line in lines:
        found |= line
    if trouble:
        found["note"] = f"gradient: {trouble}" if "forward" in found else trouble
    return found


def report(where: dict, cells: list[dict], options: argparse.Namespace) -> str:
    """Return all results as one table."""
    text = EXPLANATION.format(control=SUBSTEPS, dt=DT, **vars(options))
    rows = [
        cell | {"ratio": f"{cell['ratio']:.3g}x"} if "ratio" in cell else cell
        for cell in cells
    ]
    columns = [name for name in COLUMNS if any(name in row for row in rows)]
    title = f"## Pipelines, {where['precision']} precision"
    return f"{title}\n\n{text}\n\n{table(rows, columns)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=5, limit=300.0)
    add = made.add_argument
    add("--model", default="brax_ant")
    add("--pipelines", nargs="*", choices=tuple(PIPELINES), default=list(PIPELINES))
    add("--batches", nargs="*", type=int, default=[1, 256, 1024, 4096])
    add("--states", nargs="*", choices=STARTS, default=["settled"])
    add("--substeps", type=int, default=2, help="of spring and positional")
    add("--length", type=int, default=20, help="control steps of a simulation")
    add("--steps", type=int, default=32, help="physics steps of the gradient")
    add("--child", choices=RUNNERS, help=argparse.SUPPRESS)
    return made.parse_args()


if __name__ == "__main__":
    try:
        main()
    except NotInstalled as error:
        raise SystemExit(str(error)) from None
