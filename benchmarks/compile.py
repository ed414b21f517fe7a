"""Time to trace, lower and compile one physics step of a batch of robots.

    python benchmarks/compile.py --out out/bench
    python benchmarks/compile.py --derivative gradient --batch 256

Each measurement runs in a fresh process without caches. The best repeat counts.
"""

import argparse
import json
import os
import subprocess
import sys as _sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
from _command import parser, publish, say, setting
from _models import mujoco_model, NotInstalled, system
from _peers import brax_step, mjx_step
from _tables import caption, table

import eqsim


RUNNERS = ("eqsim", "mjx", "mjx-1", "brax")
LABELS = {
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


def main() -> None:
    """Measure in child processes, one at a time; or act as such a process."""
    options = _options()
    where = setting(options)
    if options.child:
        name, batch = options.models[0], options.batch
        print(json.dumps(measure(options.child, name, batch, options.derivative)))
        return
    cells: list[dict] = []
    for name in options.models:
        cells += _model(name, options)
        data = {"where": where, "cells": cells}
        publish(options, "compile", data, report(where, cells, options))
    print(f"\n{report(where, cells, options)}")


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


def _gradient(step):
    def loss(chosen, rest, robot):
        new = step(robot, *_whole(chosen, rest))
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(new) if _is_float(x))

    def gradient(robot, states, ctrl):
        chosen, rest = _parts((states, ctrl))
        return jax.value_and_grad(loss)(chosen, rest, robot)

    return gradient


def _jacobian(step):
    def one(chosen, rest, robot):
        batch = jax.tree.map(lambda x: x[None], _whole(chosen, rest))
        new = jax.tree.map(lambda x: x[0], step(robot, *batch))
        return [x for x in jax.tree.leaves(new) if _is_float(x)]

    def jacobian(robot, states, ctrl):
        chosen, rest = _parts((states, ctrl))
        by_state = jax.vmap(jax.jacfwd(one), in_axes=(0, 0, None))
        return by_state(chosen, rest, robot)

    return jacobian


def _is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _parts(tree):
    """Split leaves into floating-point arrays and the others."""
    return eqx.partition(tree, _is_float)


def _whole(chosen, rest):
    return eqx.combine(chosen, rest)


DERIVATIVES = {"none": lambda step: step, "gradient": _gradient, "jacobian": _jacobian}


def _step(runner, name, batch):
    """Return a batched step, and the shapes of its arguments, starting with the
    robot."""
    dtype = jnp.result_type(float)
    model = mujoco_model(name, euler=True)
    shaped = lambda n: jax.ShapeDtypeStruct((batch, n), dtype)
    q, qd, ctrl = shaped(model.nq), shaped(model.nv), shaped(model.nu)
    if runner == "eqsim":
        robot, pipeline = system(name, euler=True), eqsim.Generalized()
        one, init = pipeline.step, lambda sys, q, qd: pipeline.init(sys, q, qd)
    elif runner == "brax":
        one, robot, init = brax_step(name)
    else:
        one, robot, alone = mjx_step(model, 1 if runner == "mjx-1" else None)
        init = lambda _, q, qd: alone(q, qd)
    states = jax.eval_shape(jax.vmap(init, in_axes=(None, 0, 0)), robot, q, qd)
    return jax.vmap(one, in_axes=(None, 0, 0)), (robot, states, ctrl)


def _model(name, options):
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
        label = {"model": name, "B": options.batch, "runner": LABELS[runner]}
        cells.append(label | best | {"times": best["total"] / ours})
    return cells


def _child(runner, name, options):
    """Run one measurement in a separate process; empty if that fails."""
    command = [_sys.executable, __file__, "--child", runner, "--models", name]
    command += ["--batch", str(options.batch), "--precision", options.precision]
    command += ["--derivative", options.derivative]
    fresh = {"JAX_ENABLE_COMPILATION_CACHE": "false", "EQSIM_KERNELS_CACHE": ""}
    environment = os.environ | fresh
    about = f"{name}, {LABELS[runner]}"
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=options.limit,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        say(f"{about}: not finished in {options.limit:g} s")
        return None
    if done.returncode:
        say(f"{about} is left out: {done.stderr.strip().splitlines()[-1]}")
        return None
    found = json.loads(done.stdout.strip().splitlines()[-1])
    say(f"{about}: " + ", ".join(f"{k} {v:.2f} s" for k, v in found.items()))
    return found


def report(where: dict, cells: list[dict], options: argparse.Namespace) -> str:
    """Return all results as one table."""
    what = WHAT[options.derivative].format(batch=options.batch)
    text = EXPLANATION.format(what=what, repeats=options.repeats)
    title = f"## Compilation, {where['precision']} precision"
    return f"{title}\n\n{text}\n\n{table(cells)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=3, limit=900.0)
    add = made.add_argument
    add("--models", nargs="*", default=["brax_ant", "ant", "half_cheetah", "humanoid"])
    add("--runners", nargs="*", choices=RUNNERS, default=list(RUNNERS))
    add("--batch", type=int, default=1024)
    add("--derivative", choices=list(DERIVATIVES), default="none")
    add("--child", choices=RUNNERS, help=argparse.SUPPRESS)
    return made.parse_args()


if __name__ == "__main__":
    try:
        main()
    except NotInstalled as error:
        raise SystemExit(str(error)) from None
