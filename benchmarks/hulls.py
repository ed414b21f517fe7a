"""Time to compile and to step robots with convex hulls, or MJCF files.

python benchmarks/hulls.py --out out/bench
python benchmarks/hulls.py --scenes hand --without-mjx --batch 256
python benchmarks/hulls.py --scenes --files FOLDER/go2/scene_flat.xml
"""

import os
import pathlib
from typing import Any

import jax
import numpy as np
from _command import parser, publish, say, setting
from _hull_scenes import SCENES
from _models import NotInstalled
from _scene_runs import compiled_model, eqsim_call, mjx_call, moved, mujoco_call, SETTLE
from _tables import caption, table
from _timing import interleaved


EXPLANATION = """\
One call takes {steps} physics steps of {batch} robots, in one program of
`jax.jit(jax.vmap(step))` with the robot as an argument, or by `mujoco.rollout` with a
thread per core. The robots have moved under random position targets for {settle} steps.
`us`: per step and robot, best of {repeats} runs that took turns. `times`: that of the
peer over that of eqsim. `compile`: seconds to trace, lower and compile, without caches.
`contacts`: mean number in MuJoCo. `error`: median over the robots of the largest
difference of a coordinate from MuJoCo C after the {steps} steps."""


def main() -> None:
    """Measure all scenes, and write the results after each."""
    options = _options()
    where, cells = setting(options), []
    for name, source in _sources(options).items():
        cells += measure(name, source, options)
        publish(
            options,
            "hulls",
            {"where": where, "cells": cells},
            report(where, cells, options),
        )
    say(report(where, cells, options))


def _sources(options) -> dict[str, str | pathlib.Path]:
    scenes = {name: SCENES[name]() for name in options.scenes}
    return scenes | {"/".join(path.parts[-2:]): path for path in options.files}


def measure(name: str, source: str | pathlib.Path, options) -> list[dict[str, Any]]:
    """Time eqsim and its peers on one scene."""
    model = compiled_model(source)
    start, ctrl, contacts = moved(model, options.batch)
    calls: dict[str, Any] = {
        "eqsim": eqsim_call(source, model, start, ctrl, options.steps)
    }
    calls["MuJoCo C"] = (mujoco_call(model, start, ctrl, options.steps), None)
    if not options.without_mjx:
        try:
            calls["MJX"] = mjx_call(model, start, ctrl, options.steps)
        except (NotInstalled, NotImplementedError) as error:
            say(f"{name}: MJX is left out: {error}")
    taken = interleaved(
        {label: run for label, (run, _) in calls.items()},
        options.repeats,
        options.limit,
    )
    truth = calls["MuJoCo C"][0]()
    cells, ours = [], taken["eqsim"].best
    for label, timing in taken.items():
        run, compiling = calls[label]
        error = np.max(np.abs(np.asarray(run(), np.float64) - truth), axis=1)
        cell = {
            "scene": name,
            "runner": label,
            "contacts": contacts,
            "us": timing.best / options.batch / options.steps * 1e6,
            "times": timing.best / ours,
            "compile": compiling,
            "error": float(np.median(error)),
        }
        say(", ".join(f"{k} {v}" for k, v in cell.items()))
        cells.append(cell)
    return cells


def report(where: dict, cells: list[dict], options) -> str:
    """Return all results as one table."""
    text = EXPLANATION.format(settle=SETTLE, **vars(options))
    title = f"## Convex hulls, {where['precision']} precision (MuJoCo C: double)"
    return f"{title}\n\n{text}\n\n{table(cells)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=7, limit=60.0)
    add = made.add_argument
    add("--scenes", nargs="*", choices=tuple(SCENES), default=list(SCENES))
    add("--files", nargs="*", type=pathlib.Path, default=[], help="MJCF files")
    add("--without-mjx", action="store_true", help="compare with MuJoCo C alone")
    add("--batch", type=int, default=1024)
    add("--steps", type=int, default=10, help="physics steps of one call")
    return made.parse_args()


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    os.environ["EQSIM_KERNELS_CACHE"] = ""
    main()
