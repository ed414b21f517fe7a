"""Count the kernels, loops and host round trips of a step on a GPU, without a GPU.

    python benchmarks/gpu_programs.py --models ant humanoid
    python benchmarks/gpu_programs.py --pipelines spring --programs step --peers

Each program is compiled ahead of time in a separate process, without a cache.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys as _sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from _command import parser, publish, say, setting
from _gpu_compiler import DEVICE, gpu, require_compiler
from _hlo import count, Program, Work
from _models import mujoco_model, NotInstalled, package, system
from _peers import mjx_step
from _tables import caption, table
from jax.sharding import SingleDeviceSharding

import eqsim


PIPELINES = ("generalized", "spring", "positional")
PROGRAMS = ("step", "gradient")
MJX = "mjx"
COLUMNS = (
    "model",
    "program",
    "runner",
    "pipeline",
    "kernels",
    "copies",
    "round trips",
    "fixed loops",
    "loops",
    "nested",
    "kernels a pass",
    "copies a pass",
    "trips a pass",
    "kernels a nested pass",
    "copies a nested pass",
    "trips a nested pass",
    "MB",
    "compile",
)
EXPLANATION = """\
Programs for {batch} robots, compiled ahead of time for one {device}; nothing was run.
`step`: one physics step. `gradient`: value and gradient, with respect to the controls, of
the sum of squares of the coordinates after one step. `kernels`: kernel launches and
library calls. `copies`: copies between buffers on the device. `round trips`, `trips`:
reads of a device value by the host, which happen before each pass of a data-dependent
loop and at each branch. These three columns count the work outside data-dependent loops,
including all passes of loops with a fixed number of passes (`fixed loops`). `loops`:
data-dependent loops; `nested`: those inside another one. `a pass`: one pass of every
outermost data-dependent loop; `a nested pass`: one pass of every nested one. A range
gives the shortest and the longest branch. `MB`: temporary memory. `compile`: seconds to
trace, lower and compile. CUDA graphs are not considered. MJX uses the solver iterations of
the file in `step`, and one iteration in `gradient`, where it has no reverse mode
otherwise."""


def main() -> None:
    """Compile in child processes, one at a time, or act as such a process."""
    options = _options()
    where, cells = setting(options), []
    if options.child:
        print(json.dumps(measure(options)))
        return
    require_compiler()
    runners = [*options.pipelines, *_peers(options)]
    for name in options.models:
        for program in options.programs:
            for runner in runners:
                cells += _child(name, program, runner, options)
                data = {"where": where, "device": DEVICE, "cells": cells}
                publish(options, "gpu_programs", data, report(where, cells, options))
    print(f"\n{report(where, cells, options)}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compile one program in this process and count its operations."""
    (name,), (program,) = options.models, options.programs
    step, arguments = _step(options.child, name, program, options.batch)
    place, began = SingleDeviceSharding(gpu()), time.perf_counter()
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype, sharding=place), arguments
    )
    function = _value_and_gradient(step) if program == "gradient" else step
    each = jax.vmap(function, (None, 0, 0))
    traced = jax.jit(each, out_shardings=place).trace(*shapes)
    compiled = traced.lower(lowering_platforms=("cuda",)).compile()
    seconds, text = time.perf_counter() - began, compiled.as_text()
    if options.hlo:
        options.hlo.mkdir(parents=True, exist_ok=True)
        file = options.hlo / f"{name}_{program}_{options.child}.txt"
        file.write_text(text)
    memory = compiled.memory_analysis()
    megabytes = memory.temp_size_in_bytes / 1e6 if memory else None
    return _cell(count(text)) | {"MB": megabytes, "compile": seconds}


def _cell(program: Program) -> dict[str, Any]:
    """Return the columns of the table, and each loop for the JSON file."""
    depths = [loop.depth for loop in program.loops]
    cell: dict[str, Any] = _columns(program.work, "")
    cell |= {"fixed loops": program.fixed_loops, "loops": len(depths)}
    cell["nested"] = sum(depth > 0 for depth in depths)
    if depths:
        cell |= _columns(program.per_pass(nested=False), " a pass")
    if cell["nested"]:
        cell |= _columns(program.per_pass(nested=True), " a nested pass")
    return cell | {"each loop": [x._asdict() for x in program.loops]}


def _columns(work: Work, suffix: str) -> dict[str, str]:
    names = "kernels", "copies", "round trips" if not suffix else "trips"
    return {f"{name}{suffix}": str(x) for name, x in zip(names, work, strict=True)}


def _step(runner: str, name: str, program: str, batch: int) -> tuple[Callable, tuple]:
    """Return `step(robot, state, ctrl)` of one robot, and its arguments: the robot, and
    the shapes of a batch of states and controls."""
    dtype, model = jnp.result_type(float), mujoco_model(name, euler=True)
    shaped = lambda n: jax.ShapeDtypeStruct((batch, n), dtype)
    q, qd, ctrl = shaped(model.nq), shaped(model.nv), shaped(model.nu)
    if runner == MJX:
        step, robot, init = mjx_step(model, 1 if program == "gradient" else None)
        one_mjx = lambda robot, data, ctrl: _moved(step(robot, data, ctrl))
        return one_mjx, (robot, jax.eval_shape(jax.vmap(init), q, qd), ctrl)
    sys, pipeline = system(name, euler=True), eqsim.PIPELINES.get(runner)()
    states = jax.eval_shape(jax.vmap(lambda q, qd: pipeline.init(sys, q, qd)), q, qd)
    arrays, static = eqx.partition(sys, eqx.is_array)

    def one_eqsim(arrays, state, ctrl):
        return pipeline.step(eqx.combine(arrays, static), state, ctrl)

    return one_eqsim, (arrays, states, ctrl)


def _moved(data: Any) -> eqsim.State:
    """Return the part of MJX's data that the next step reads, so that nothing else is
    written."""
    return eqsim.State(data.qpos, data.qvel, data.act, data.qacc_warmstart)


def _value_and_gradient(step: Callable) -> Callable:
    def function(robot, state, ctrl):
        loss = lambda ctrl: jnp.sum(step(robot, state, ctrl).q ** 2)
        return jax.value_and_grad(loss)(ctrl)

    return function


def _peers(options) -> list[str]:
    """Return the installed peers."""
    try:
        package("mujoco.mjx")
    except NotInstalled as error:
        if options.peers:
            say(f"MJX is left out: {error}")
        return []
    return options.peers


def _child(name, program, runner, options) -> list[dict]:
    """Compile one program in a separate process; empty if that fails."""
    command = [_sys.executable, __file__, "--child", runner, "--models", name]
    command += ["--programs", program, "--batch", str(options.batch)]
    command += ["--precision", options.precision]
    command += ["--hlo", str(options.hlo)] if options.hlo else []
    environment = os.environ | {
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    about = f"{name}, {program}, {runner}"
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
        return []
    if done.returncode:
        say(f"{about} is left out: {done.stderr.strip().splitlines()[-1]}")
        return []
    found = json.loads(done.stdout.strip().splitlines()[-1])
    peer = runner == MJX
    label = {"model": name, "program": program, "runner": "MJX" if peer else "eqsim"}
    say(
        f"{about}: {', '.join(f'{k} {v}' for k, v in found.items() if k != 'each loop')}"
    )
    return [label | {"pipeline": None if peer else runner} | found]


def report(where: dict, cells: list[dict], options: argparse.Namespace) -> str:
    """Return all programs as one table."""
    text = EXPLANATION.format(batch=options.batch, device=DEVICE)
    title = f"## GPU programs, {where['precision']} precision"
    shown = [column for column in COLUMNS if any(column in cell for cell in cells)]
    return f"{title}\n\n{text}\n\n{table(cells, shown)}\n\n{caption(where)}\n"


def _options() -> argparse.Namespace:
    made = parser(__doc__, repeats=1, limit=1800.0)
    add = made.add_argument
    add("--models", nargs="*", default=["ant", "humanoid"])
    add("--pipelines", nargs="*", choices=PIPELINES, default=list(PIPELINES))
    add("--programs", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    add("--peers", nargs="*", choices=(MJX,), default=[MJX])
    add("--batch", type=int, default=4096)
    add("--hlo", type=pathlib.Path, help="folder for the optimized HLO as text")
    add("--child", choices=(*PIPELINES, MJX), help=argparse.SUPPRESS)
    return made.parse_args()


if __name__ == "__main__":
    try:
        main()
    except NotInstalled as error:
        raise SystemExit(str(error)) from None
