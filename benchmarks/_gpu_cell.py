"""One cell of `gpu.py`: one robot, one batch, and one program of each simulator."""

import contextlib
import fcntl
import functools as ft
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _bench import say
from _menagerie_runs import draw, full_physics, mean_contacts
from _models import mujoco_model, system
from _peers import mjx_step
from _scene_runs import arrays, moved, mujoco_call
from _bench import interleaved, seconds
from jax import lax
from parity.reference import converge, errors

import eqsim


STEPS = {"step": 20, "gradient": 32}
"""Physics steps of one call of each program."""
CHECKED = 64
"""Number of robots whose coordinates are compared with MuJoCo C."""


def run_cell(name: str, kind: str, batch: int, options) -> list[dict[str, Any]]:
    """Compile the programs of all simulators, wait until every cell has compiled, and
    time them while no other cell uses the GPU.

    **Arguments:**

    - `name`: name of a robot, or a scene of `options.folder`, which ends with `.xml`.
    - `kind`: `"step"` or `"gradient"`.
    """
    path = str(options.folder / name) if name.endswith(".xml") else name
    model = mujoco_model(path, euler=True)
    model.opt.iterations, model.opt.ls_iterations = 100, 50
    start, ctrl, contacts = initial(name, model, batch)
    programs, compile_seconds = {}, {}
    for label, build in _builders(path, kind, model).items():
        about = f"{name}, {kind}, B={batch}: {label}"
        if label not in options.runners:
            continue
        if time.time() > options.deadline:
            say(f"{about}: no time to compile")
            continue
        try:
            programs[label], compile_seconds[label] = _compiled(*build(start, ctrl))
        except NotImplementedError as error:
            say(f"{about} is left out: {error}")
            continue
        say(f"{about} compiled in {compile_seconds[label]:.0f} s")
    with _turn(options):
        calls, steps = {}, {}
        for label, call in programs.items():
            steps[label] = _affordable(label, call, kind, options.limit)
            if steps[label]:
                calls[label] = ft.partial(call, steps[label])
        taken = interleaved(calls, options.repeats, options.limit)
        last = {label: np.asarray(call()) for label, call in calls.items()}
    cells = []
    for label, timing in taken.items():
        cell = {"model": name, "program": kind, "B": batch, "runner": label}
        cell["contacts"] = contacts
        cell["per_second"] = batch * steps[label] / timing.best
        cell |= {"compile": compile_seconds[label], "spread": timing.spread}
        if kind == "gradient":
            cell["finite"] = float(np.mean(np.isfinite(last[label])))
        else:
            truth = _truth(model, start, ctrl, steps[label])
            error = errors(last[label][:CHECKED].astype(np.float64), truth)
            cell["error"] = float(np.median(error))
        cells.append(cell)
        say(cell)
    own = {cell["runner"]: cell["per_second"] for cell in cells}
    for cell in cells if "eqsim" in own else ():
        cell["times"] = own["eqsim"] / cell["per_second"]
    return cells


def initial(name: str, model: mujoco.MjModel, batch: int):
    """Return initial states, controls, and the mean number of contacts.

    Scenes are driven by the small controls of `menagerie.py`, other robots by random
    controls of their full range.
    """
    if not name.endswith(".xml"):
        return moved(model, batch)
    start = draw(model, batch)
    states = full_physics(start.q, start.qd, start.act)
    return states, start.ctrl, mean_contacts(model, start)


def _builders(path: str, kind: str, model: mujoco.MjModel) -> dict[str, Callable]:
    """Return functions that create a program of a simulator and its arguments; a program
    of steps also takes their number."""

    def program(step, coordinates, scan):
        if kind == "step":
            return _steps_of(step, coordinates)
        return _gradient_of(step, coordinates, scan)

    def ours(start, ctrl):
        q, qd, act, ctrl = arrays(model, start, ctrl)
        state = jax.vmap(eqsim.State)(q, qd, act)
        step, sys = eqsim.Generalized().step, system(path, euler=True)
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


def _steps_of(step, coordinates):
    """Return a function that takes a number of steps under constant controls."""

    def run(robot, state, ctrl, steps):
        every = jax.vmap(step, (None, 0, 0))
        advance = lambda _, state: every(robot, state, ctrl)
        return coordinates(lax.fori_loop(0, steps, advance, state))

    return run


def _gradient_of(step, coordinates, scan):
    """Return a function for the gradient, by the controls of every step, of the mean
    sum of squares of the last coordinates. The number of steps is `STEPS`."""

    def last(robot, state, ctrl):
        move = lambda state, now: (step(robot, state, now), None)
        return coordinates(scan(move, state, ctrl)[0])

    def loss(ctrl, robot, state):
        q = jax.vmap(last, (None, 0, 0))(robot, state, ctrl)
        return jnp.mean(jnp.sum(q**2, axis=-1))

    def run(robot, state, ctrl, _):
        held = jnp.repeat(ctrl[:, None], STEPS["gradient"], axis=1)
        return jax.grad(loss)(held, robot, state)

    return run


def _compiled(function: Callable, arguments: tuple) -> tuple[Callable, float]:
    """Return a call of a program, which takes the number of steps, and its compile time,
    s."""
    begin = time.perf_counter()
    program = jax.jit(function).lower(*arguments, jnp.asarray(1)).compile()
    call = lambda steps: program(*arguments, jnp.asarray(steps))
    return call, time.perf_counter() - begin


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


def _truth(model: mujoco.MjModel, start, ctrl, steps: int) -> np.ndarray:
    """Return the last coordinates of a converged MuJoCo C."""
    return mujoco_call(converge(model), start[:CHECKED], ctrl[:CHECKED], steps)()
