"""One cell of `gpu.py`: one robot, one batch, and one program of each simulator."""

import contextlib
import fcntl
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _command import say
from _models import mujoco_model, system
from _peers import mjx_step
from _reference import converge, errors
from _scene_runs import arrays, compiled, moved, mujoco_call
from _timing import interleaved
from jax import lax

import eqsim


STEPS = {"step": 20, "gradient": 32}
"""Physics steps of one call of each program."""
CHECKED = 64
"""Number of robots whose coordinates are compared with MuJoCo C."""


def run_cell(name: str, kind: str, batch: int, options) -> list[dict[str, Any]]:
    """Compile the programs of all simulators, wait until every cell has compiled, and
    time them while no other cell uses the GPU.

    **Arguments:**

    - `kind`: `"step"` or `"gradient"`.
    """
    model = mujoco_model(name, euler=True)
    model.opt.iterations, model.opt.ls_iterations = 100, 50
    start, ctrl, contacts = moved(model, batch)
    programs, seconds = {}, {}
    for label, build in _builders(name, kind, model).items():
        if time.time() > options.deadline:
            say(f"{name}, {kind}, B={batch}: no time to compile {label}")
            continue
        function, arguments = build(start, ctrl)
        programs[label], seconds[label] = compiled(function, *arguments)
        say(f"{name}, {kind}, B={batch}: {label} compiled in {seconds[label]:.0f} s")
    with _turn(options):
        calls = {label: call for label, call in programs.items() if _runs(label, call)}
        taken = interleaved(calls, options.repeats, options.limit)
        last = {label: np.asarray(call()) for label, call in calls.items()}
    truth = _truth(model, start, ctrl, STEPS[kind]) if kind == "step" else None
    cells = []
    for label, timing in taken.items():
        cell = {"model": name, "program": kind, "B": batch, "runner": label}
        cell["contacts"] = contacts
        cell["per_second"] = batch * STEPS[kind] / timing.best
        if "eqsim" in taken:
            cell["times"] = timing.best / taken["eqsim"].best
        cell |= {"compile": seconds[label], "spread": timing.spread}
        if truth is None:
            cell["finite"] = float(np.mean(np.isfinite(last[label])))
        else:
            error = errors(last[label][:CHECKED].astype(np.float64), truth)
            cell["error"] = float(np.median(error))
        cells.append(cell)
    return cells


def _builders(name: str, kind: str, model: mujoco.MjModel) -> dict[str, Callable]:
    """Return functions that create a program of a simulator and its arguments."""

    def program(step, coordinates, scan):
        if kind == "step":
            return _steps_of(step, coordinates, STEPS[kind])
        return _gradient_of(step, coordinates, scan, STEPS[kind])

    def ours(start, ctrl):
        q, qd, act, ctrl = arrays(model, start, ctrl)
        state = jax.vmap(eqsim.State)(q, qd, act)
        step, sys = eqsim.Generalized().step, system(name, euler=True)
        made = program(step, lambda state: state.q, eqsim.scan)
        return made, (sys, state, ctrl)

    def theirs(iterations):
        def build(start, ctrl):
            step, robot, init = mjx_step(model, iterations)
            q, qd, _, ctrl = arrays(model, start, ctrl)
            made = program(step, lambda data: data.qpos, lax.scan)
            return made, (robot, jax.vmap(init)(q, qd), ctrl)

        return build

    found = {"eqsim": ours, "MJX": theirs(None), "MJX (1 it.)": theirs(1)}
    if kind == "gradient":
        # MJX has no reverse mode through a loop of unknown length.
        del found["MJX"]
    return found


def _steps_of(step, coordinates, steps: int):
    """Return a function that takes steps under constant controls."""

    def run(robot, state, ctrl):
        every = jax.vmap(step, (None, 0, 0))
        advance = lambda _, state: every(robot, state, ctrl)
        return coordinates(lax.fori_loop(0, steps, advance, state))

    return run


def _gradient_of(step, coordinates, scan, steps: int):
    """Return a function for the gradient, by the controls of every step, of the mean
    sum of squares of the last coordinates."""

    def last(robot, state, ctrl):
        move = lambda state, now: (step(robot, state, now), None)
        return coordinates(scan(move, state, ctrl)[0])

    def loss(ctrl, robot, state):
        q = jax.vmap(last, (None, 0, 0))(robot, state, ctrl)
        return jnp.mean(jnp.sum(q**2, axis=-1))

    def run(robot, state, ctrl):
        held = jnp.repeat(ctrl[:, None], steps, axis=1)
        return jax.grad(loss)(held, robot, state)

    return run


def _runs(label: str, call: Callable) -> bool:
    """Run a program once; return whether it succeeds, which it does not without memory."""
    try:
        jax.block_until_ready(call())
    except jax.errors.JaxRuntimeError as error:
        say(f"{label} failed: {str(error).splitlines()[0]}")
        return False
    return True


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
    (_turns(options) / options.cell).touch()


def _turns(options) -> pathlib.Path:
    return options.out / "turns"


def _truth(model: mujoco.MjModel, start, ctrl, steps: int) -> np.ndarray:
    """Return the last coordinates of a converged MuJoCo C."""
    return mujoco_call(converge(model), start[:CHECKED], ctrl[:CHECKED], steps)()
