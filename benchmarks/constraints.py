"""Cost of friction cones, tendons and equality constraints.

python benchmarks/constraints.py --out out/bench
"""

import os
from typing import Any

import jax
import mujoco
import numpy as np
from _command import parser, publish, say, setting
from _constraint_scenes import SCENES
from _scene_runs import eqsim_call, moved, mujoco_call, SETTLE
from _tables import caption, table
from _timing import interleaved


EXPLANATION = """\
One call takes {steps} physics steps of {batch} robots: eqsim in one program of
`jax.jit(jax.vmap(step))` with the robot as an argument, MuJoCo C by `mujoco.rollout` with a
thread per core. The robots have moved under random controls for {settle} steps. `us`: per
step and robot, best of {repeats} runs that took turns. `MuJoCo C`: its time over that of
eqsim. `elliptic`: time with the elliptic cone over that with the pyramidal one.
`compile`: seconds to trace, lower and compile, without caches. `contacts`: mean number.
`error`: median over the robots of the largest difference of a coordinate from MuJoCo C
after the {steps} steps."""

CONES = ("pyramidal", "elliptic")


def main() -> None:
    """Measure all scenes, and write the results after each."""
    options = _options()
    where, cells = setting(options), []
    for name in options.scenes:
        cells += measure(name, options)
        data = {"where": where, "cells": cells}
        publish(options, "constraints", data, report(where, cells, options))
    say(report(where, cells, options))


def measure(name: str, options) -> list[dict[str, Any]]:
    """Time a scene, with both cones alternately if it has contacts."""
    calls, cells, text = {}, {}, SCENES[name]()
    for cone in CONES:
        own = _with_cone(text, cone)
        model = mujoco.MjModel.from_xml_string(own)
        start, ctrl, contacts = moved(model, options.batch)
        run, compiling = eqsim_call(own, model, start, ctrl, options.steps)
        calls[cone, "eqsim"] = run
        calls[cone, "MuJoCo C"] = mujoco_call(model, start, ctrl, options.steps)
        cells[cone] = {
            "scene": name,
            "cone": cone if contacts else "-",
            "contacts": contacts,
            "compile": compiling,
        }
        if not contacts:
            break
    taken = interleaved(calls, options.repeats, options.limit)
    per_step = 1e6 / options.batch / options.steps
    for cone, cell in cells.items():
        ours, theirs = (taken[cone, who].best for who in ("eqsim", "MuJoCo C"))
        pair = (np.asarray(calls[cone, who]()) for who in ("eqsim", "MuJoCo C"))
        error = np.max(np.abs(np.subtract(*pair)), axis=1)
        cell |= {"us": ours * per_step, "MuJoCo C": f"{theirs / ours:.3g}x"}
        if len(cells) > 1:
            first = taken[CONES[0], "eqsim"].best
            cell["elliptic"] = f"{ours / first:.3g}x" if cone == CONES[1] else "1x"
        cell["error"] = float(np.median(error))
        say(", ".join(f"{k} {v}" for k, v in cell.items()))
    return list(cells.values())


def _with_cone(text: str, cone: str) -> str:
    return text.replace("<option ", f'<option cone="{cone}" ', 1)


def report(where: dict, cells: list[dict], options) -> str:
    """Return all results as one table."""
    text = EXPLANATION.format(settle=SETTLE, **vars(options))
    title = f"## Constraints, {where['precision']} precision (MuJoCo C: double)"
    return f"{title}\n\n{text}\n\n{table(cells)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=9, limit=60.0)
    add = made.add_argument
    add("--scenes", nargs="*", choices=tuple(SCENES), default=list(SCENES))
    add("--batch", type=int, default=1024)
    add("--steps", type=int, default=20, help="physics steps of one call")
    return made.parse_args()


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    os.environ["EQSIM_KERNELS_CACHE"] = ""
    main()
