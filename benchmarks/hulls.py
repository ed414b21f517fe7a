"""Convex hulls: seconds to compile and to step an arm, a quadruped and a hand.

python benchmarks/hulls.py --out out/bench
python benchmarks/hulls.py --scenes hand --without-mjx --batch 256
"""

import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import mujoco.rollout
import numpy as np
from _command import parser, publish, say, setting
from _hull_scenes import SCENES
from _models import NotInstalled
from _peers import mjx_step
from _tables import caption, table
from _timing import interleaved

import eqsim


EXPLANATION = """\
One call takes {steps} physics steps of {batch} robots, in one program of
`jax.jit(jax.vmap(step))` with the robot as an argument, or by `mujoco.rollout` with a
thread per core. The robots have moved under random position targets for {settle} steps.
`us`: per step and robot, best of {repeats} runs that took turns. `times`: that of the
peer over that of eqsim. `compile`: seconds to trace, lower and compile, without caches.
`contacts`: mean number in MuJoCo. `error`: median over the robots of the largest
difference of a coordinate from MuJoCo C after the {steps} steps."""

SETTLE = 400
DISTINCT = 256


def main() -> None:
    """Measures scene by scene, and writes after each."""
    options = _options()
    where, cells = setting(options), []
    for name in options.scenes:
        cells += measure(name, options)
        publish(
            options,
            "hulls",
            {"where": where, "cells": cells},
            report(where, cells, options),
        )
    say(report(where, cells, options))


def measure(name: str, options) -> list[dict[str, Any]]:
    """Times eqsim and its peers on one scene."""
    text = SCENES[name]()
    model = mujoco.MjModel.from_xml_string(text)
    start, ctrl, contacts = moved(model, options.batch)
    calls: dict[str, Any] = {"eqsim": _eqsim(text, model, start, ctrl, options)}
    calls["MuJoCo C"] = (_mujoco(model, start, ctrl, options), None)
    if not options.without_mjx:
        try:
            calls["MJX"] = _mjx(model, start, ctrl, options)
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


def moved(model: mujoco.MjModel, batch: int):
    """States after some motion under random controls, the last controls, and the mean
    number of contacts."""
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    low, high = model.actuator_ctrlrange.T
    ctrl = rng.uniform(low, high, (DISTINCT, 4, model.nu))
    ctrl = np.repeat(ctrl, SETTLE // 4, axis=1)
    begin = np.concatenate([[0.0], data.qpos, data.qvel])
    begin = np.tile(begin, (DISTINCT, 1))
    workers = [mujoco.MjData(model) for _ in range(os.cpu_count() or 1)]
    path, _ = mujoco.rollout.rollout(model, workers, begin, ctrl)
    last, counts = path[:, -1], []
    for state in last[:64]:
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        mujoco.mj_forward(model, data)
        counts.append(data.ncon)
    resized = lambda x: np.resize(x, (batch, x.shape[1]))
    return resized(last), resized(ctrl[:, -1]), float(np.mean(counts))


def _eqsim(text: str, model, start, ctrl, options):
    sys, pipeline = eqsim.load_mjcf(text), eqsim.Generalized()
    step = jax.vmap(pipeline.step, (None, 0, 0))

    def simulate(sys, state, ctrl):
        advance = lambda _, state: step(sys, state, ctrl)
        return jax.lax.fori_loop(0, options.steps, advance, state).q

    q, qd, ctrl = _arrays(model, start, ctrl)
    state = jax.vmap(eqsim.State)(q, qd, jnp.zeros((len(q), sys.na), q.dtype))
    return _compiled(simulate, sys, state, ctrl)


def _mjx(model, start, ctrl, options):
    one, robot, init = mjx_step(model)

    def simulate(robot, data, ctrl):
        step = jax.vmap(lambda data, ctrl: one(robot, data, ctrl))
        advance = lambda _, data: step(data, ctrl)
        return jax.lax.fori_loop(0, options.steps, advance, data).qpos

    q, qd, ctrl = _arrays(model, start, ctrl)
    return _compiled(simulate, robot, jax.vmap(init)(q, qd), ctrl)


def _arrays(model, start, ctrl):
    dtype = jnp.result_type(float)
    parts = start[:, 1 : 1 + model.nq], start[:, 1 + model.nq :], ctrl
    return tuple(jnp.asarray(x, dtype) for x in parts)


def _compiled(simulate, *arguments):
    """A call of the program, and the seconds to make it."""
    begin = time.perf_counter()
    program = jax.jit(simulate).lower(*arguments).compile()
    return lambda: program(*arguments), time.perf_counter() - begin


def _mujoco(model, start, ctrl, options):
    threads = os.cpu_count() or 1
    pool = mujoco.rollout.Rollout(nthread=threads)
    workers = [mujoco.MjData(model) for _ in range(threads)]
    held = np.repeat(ctrl[:, None], options.steps, axis=1)
    out = np.empty((len(start), options.steps, start.shape[1]))

    def run():
        pool.rollout(model, workers, start, held, nstep=options.steps, state=out)
        return out[:, -1, 1 : 1 + model.nq]

    return run


def report(where: dict, cells: list[dict], options) -> str:
    """All cells as one table."""
    text = EXPLANATION.format(settle=SETTLE, **vars(options))
    title = f"## Convex hulls, {where['precision']} precision (MuJoCo C: double)"
    return f"{title}\n\n{text}\n\n{table(cells)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=7, limit=60.0)
    add = made.add_argument
    add("--scenes", nargs="*", choices=tuple(SCENES), default=list(SCENES))
    add("--without-mjx", action="store_true", help="compare with MuJoCo C alone")
    add("--batch", type=int, default=1024)
    add("--steps", type=int, default=10, help="physics steps of one call")
    return made.parse_args()


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    os.environ["EQSIM_KERNELS_CACHE"] = ""
    main()
