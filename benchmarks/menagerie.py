"""Robots of MuJoCo Menagerie: time to the first step, throughput, gradients and memory.

python benchmarks/menagerie.py MENAGERIE --out out/bench
python benchmarks/menagerie.py MENAGERIE --scenes unitree_go2/scene.xml --only throughput
python benchmarks/menagerie.py MENAGERIE --mjbatch ENVIRONMENT/bin/python

MENAGERIE is a copy of https://github.com/google-deepmind/mujoco_menagerie. mjbatch needs
an environment of its own, because it requires a certain version of MuJoCo. Each
measurement runs in a process of its own.
"""

import pathlib
import resource
import shutil
import sys as _sys
import tempfile
import time
from typing import Any

import _menagerie_runs as runs
import jax
import jax.numpy as jnp
from _command import parser, publish, say, setting
from _menagerie_runs import best_seconds, read_states, SCALE, SETTLE, STEPS, Task
from _tables import caption, table
from jax import lax

import eqsim
from eqsim.collision import contact_plan
from eqsim.io import load_mjcf


SCENES = (
    "unitree_go2/scene.xml",
    "boston_dynamics_spot/scene.xml",
    "agility_cassie/scene.xml",
    "shadow_hand/scene_right.xml",
    "aloha/scene.xml",
    "universal_robots_ur5e/scene.xml",
    "franka_emika_panda/scene.xml",
    "unitree_g1/scene.xml",
    "leap_hand/scene_right.xml",
)
PARTS = ("first", "throughput", "gradient", "memory")
FIRST = ("first step", "first gradient")
RUNNERS = {"eqsim": "eqsim", "mujoco": "MuJoCo C", "mjbatch": "mjbatch"}
FIRST_BATCH = 256
"""Number of robots in the first step and in the first gradient."""
EXPLANATION = f"""\
All robots start after {SETTLE} steps of MuJoCo C from the first keyframe (from the
reference pose if there is none). Random controls change every {STEPS} steps; they are
uniform around those of the keyframe (around 0), within {SCALE:g} of half their range.
`pairs`: candidate pairs of shapes in eqsim. `contacts`: mean number in MuJoCo at the start.

`first step`, `first gradient`: seconds from the call of `load_mjcf` to the first result
for {FIRST_BATCH} robots, with empty caches; imports are not included. `cached`: the same
if the caches of eqsim and JAX contain the programs of all other robots of the table.
`call`: milliseconds of a later call of the same program, which takes one step of
{FIRST_BATCH} robots; in parentheses with its gradient.

`eqsim`, `MuJoCo C`, `mjbatch`: thousands of physics steps per second of B robots, in calls
of {STEPS} steps with constant controls; in parentheses how many times faster eqsim is.
eqsim runs `jit(vmap(pipeline.step))` in `lax.scan` on one JAX device; MuJoCo C runs
`mujoco.rollout` and mjbatch `Batch.step`, with one thread per core and the solver,
iterations and tolerance of the file. `error`: median over the robots of the largest
difference of a coordinate from MuJoCo C after {STEPS} steps, for the last batch.

`gradients`: thousands of values and gradients of a step per second, for {{gradients}}
robots in calls of {STEPS} steps: `value_and_grad` of the sum of squares of the new state
with respect to coordinates, velocities and controls. `cost`: time for value and gradient
over time for the step. `memory`: peak memory of a process that loads the file, compiles
with empty caches and takes {STEPS} steps of {{memory}} robots, MB; in parentheses the peak
before the first step. Timings are the best of {{repeats}} (`first`: of {{first_repeats}})."""


def main() -> None:
    """Measure all scenes in child processes; or act as such a process."""
    if runs.serve(MEASUREMENTS):
        return
    options = _options()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, pathlib.Path(scratch))
        for name in options.scenes:
            bench.describe(name)
        for cached in (False, True) if "first" in options.only else ():
            for name in options.scenes:
                bench.time_first(name, cached)
        for name in options.scenes:
            bench.measure(name)
    print(f"\n{report(bench.where, bench.cells, options)}")


class Bench:
    """All measurements, and their results so far.

    **Arguments:**

    - `options`: options of the command line.
    - `scratch`: folder for initial states and caches.
    """

    def __init__(self, options, scratch: pathlib.Path):
        self.options, self.scratch = options, scratch
        self.where, self.cells = setting(options), []

    def describe(self, name: str) -> None:
        """Write initial states, and count degrees of freedom, contacts and pairs."""
        options = self.options
        sizes = (options.gradient_batch, options.memory_batch, FIRST_BATCH)
        for what in ("states", "pairs"):
            self.run(name, what, max(*options.batches, *sizes))

    def time_first(self, name: str, cached: bool) -> None:
        """Time the first step and the first gradient, with empty caches or with those of
        the other scenes."""
        others = [other for other in self.options.scenes if other != name]
        if cached and not others:
            return
        for what in FIRST:
            for repeat in range(self.options.first_repeats):
                cold = self.scratch / "cold"
                own = self.scratch / "cached" if cached else cold / name / what
                shutil.rmtree(own, ignore_errors=True)
                for other in others if cached else ():
                    # The same as one folder that all others fill in turn: the names of
                    # stored programs are digests of their sources.
                    for part in (cold / other).glob("first *"):
                        shutil.copytree(part, own, dirs_exist_ok=True)
                self.run(name, what, FIRST_BATCH, own, cached=cached)

    def measure(self, name: str) -> None:
        """Measure throughput, gradients and memory."""
        options = self.options
        for batch in options.batches if "throughput" in options.only else ():
            for runner in RUNNERS:
                if runner != "mjbatch" or options.mjbatch:
                    self.run(name, runner, batch)
        if "gradient" in options.only:
            self.run(name, "gradient", options.gradient_batch)
        if "memory" in options.only:
            empty = self.scratch / "memory" / name
            self.run(name, "memory", options.memory_batch, empty)

    def run(
        self,
        name: str,
        what: str,
        batch: int,
        cache: pathlib.Path | None = None,
        cached: bool = False,
    ) -> None:
        """Run a measurement in a child process, and write its results.

        **Arguments:**

        - `cache`: folder of the caches, by default one that all measurements share.
        - `cached`: true if other scenes have filled the caches (for the results only).
        """
        options, states = self.options, f"{name.replace('/', '_')}.npz"
        file, states = (options.folder / name).resolve(), self.scratch / states
        task = Task(str(file), str(states), batch, options.repeats)
        cache = cache or self.scratch / "shared"
        environment = {
            "EQSIM_KERNELS_CACHE": str(cache / "kernels"),
            "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
            "JAX_ENABLE_COMPILATION_CACHE": "true",
            "JAX_ENABLE_X64": str(options.precision == "double"),
        }
        about, begin = f"{name}, {what}, B={batch}", time.perf_counter()
        try:
            command = _command(what, options.mjbatch)
            found = runs.child(command, what, task, environment, options.limit)
        except runs.Failed as error:
            say(f"{about}: {error}")
            return
        seconds = time.perf_counter() - begin
        say(f"{about}{', cached' * cached}: {found} ({seconds:.0f} s in all)")
        if "version" in found:
            self.where["versions"][what] = found.pop("version")
        cell = {"scene": name, "measurement": what, "batch": batch, "cached": cached}
        self.cells.append(cell | found)
        data = {"where": self.where, "cells": self.cells}
        publish(options, "menagerie", data, report(self.where, self.cells, options))


def _command(what: str, mjbatch: str | None) -> list[str]:
    """Return interpreter and script of a measurement."""
    if what == "mjbatch":
        # -E ignores PYTHONPATH, which is for this environment.
        return [str(mjbatch), "-E", runs.__file__]
    script = runs.__file__ if what in runs.MEASUREMENTS else __file__
    return [_sys.executable, script]


# Measurements of eqsim, each in a process of its own.


def count_pairs(task: Task) -> dict[str, Any]:
    """Count the candidate pairs of eqsim."""
    return {"pairs": len(contact_plan(load_mjcf(task.file)).pairs)}


def first(function, task: Task) -> dict[str, Any]:
    """Time the first call of a function, including the time to load the file, and later
    calls."""
    # JAX starts its devices on first use.
    jax.block_until_ready(jnp.zeros(3))
    begin = time.perf_counter()
    arguments = _arguments(task)
    program = jax.jit(function)
    call = lambda: jax.block_until_ready(program(*arguments))
    call()
    seconds = time.perf_counter() - begin
    later = best_seconds({"call": call}, task.repeats)
    return {"seconds": seconds, "later": later["call"]}


def throughput(task: Task) -> dict[str, Any]:
    """Time `STEPS` steps in one program."""
    arguments, program = _arguments(task), jax.jit(_steps)
    call = lambda: jax.block_until_ready(program(*arguments))
    taken = best_seconds({"step": call}, task.repeats)["step"]
    error = runs.difference(jax.device_get(call().q), read_states(task))
    return runs.throughput(task, taken) | {"error": error}


def gradient(task: Task) -> dict[str, Any]:
    """Time `STEPS` steps with values and gradients, and without, alternately."""
    arguments = _arguments(task)
    programs = {"step": jax.jit(_steps), "gradient": jax.jit(_gradients)}
    calls = {
        name: lambda program=program: jax.block_until_ready(program(*arguments))
        for name, program in programs.items()
    }
    best = best_seconds(calls, task.repeats)
    finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(calls["gradient"]())]
    return {
        "gradients_per_second": task.batch * STEPS / best["gradient"],
        "cost": best["gradient"] / best["step"],
        "finite": all(map(bool, finite)),
    }


def memory(task: Task) -> dict[str, Any]:
    """Return the peak memory before and after the first call, MB."""
    arguments = _arguments(task)
    program = jax.jit(_steps).lower(*arguments).compile()
    before = _peak()
    jax.block_until_ready(program(*arguments))
    return {"before": before, "peak": _peak()}


def _peak() -> float:
    """Return the peak memory of this process, MB.

    On Linux it includes the memory of the parent process when it started this one, so
    the parent loads no robot.
    """
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 1e6 if _sys.platform == "darwin" else used * 1024 / 1e6


def _step(sys: eqsim.System, state: eqsim.State, ctrl) -> eqsim.State:
    return jax.vmap(eqsim.Generalized().step, (None, 0, 0))(sys, state, ctrl)


def _steps(sys: eqsim.System, state: eqsim.State, ctrl) -> eqsim.State:
    advance = lambda state, _: (_step(sys, state, ctrl), None)
    return lax.scan(advance, state, None, length=STEPS)[0]


def value_and_gradient(sys: eqsim.System, state: eqsim.State, ctrl):
    """Return the sum of squares of all states after a step and these states, and its
    gradient with respect to coordinates, velocities and controls."""

    def one(q, qd, act, ctrl):
        new = eqsim.Generalized().step(sys, eqsim.State(q, qd, act), ctrl)
        return jnp.sum(new.q**2) + jnp.sum(new.qd**2), new

    def loss(chosen):
        q, qd, ctrl = chosen
        values, new = jax.vmap(one)(q, qd, state.act, ctrl)
        return jnp.sum(values), new

    return jax.value_and_grad(loss, has_aux=True)((state.q, state.qd, ctrl))


def _gradients(sys: eqsim.System, state: eqsim.State, ctrl):
    """Return the sums of values and of gradients over `STEPS` steps."""

    def advance(carry, _):
        state, sums = carry
        (value, state), gradients = value_and_gradient(sys, state, ctrl)
        return (state, jax.tree.map(jnp.add, sums, (value, gradients))), None

    zeros = jax.tree.map(jnp.zeros_like, (state.q[0, 0], (state.q, state.qd, ctrl)))
    return lax.scan(advance, (state, zeros), None, length=STEPS)[0]


def _arguments(task: Task):
    """Return the robot, and initial states and controls of the batch."""
    start, dtype = read_states(task), jnp.result_type(float)
    arrays = (start.q, start.qd, start.act, start.ctrl)
    q, qd, act, ctrl = (jnp.asarray(x, dtype) for x in arrays)
    return load_mjcf(task.file), jax.vmap(eqsim.State)(q, qd, act), ctrl


MEASUREMENTS = {
    "pairs": count_pairs,
    "first step": lambda task: first(_step, task),
    "first gradient": lambda task: first(value_and_gradient, task),
    "eqsim": throughput,
    "gradient": gradient,
    "memory": memory,
}


def report(where: dict, cells: list[dict], options) -> str:
    """Return a table with one line per scene."""
    names = dict.fromkeys(cell["scene"] for cell in cells)
    rows = [_row(name, [c for c in cells if c["scene"] == name]) for name in names]
    columns = dict.fromkeys(key for row in rows for key in row)
    text = EXPLANATION.format(
        gradients=f"{options.gradient_batch:,}",
        memory=f"{options.memory_batch:,}",
        repeats=options.repeats,
        first_repeats=options.first_repeats,
    )
    title = f"## MuJoCo Menagerie, {where['precision']} precision (MuJoCo C: double)"
    parts = title, text, table(rows, list(columns)), caption(where)
    return "\n\n".join(parts) + "\n"


def _row(name: str, cells: list[dict]) -> dict[str, Any]:
    """Return the line of a scene."""
    row: dict[str, Any] = {"scene": name.removesuffix(".xml")}
    for cell in cells:
        if cell["measurement"] in ("states", "pairs"):
            row |= {k: cell[k] for k in ("nv", "contacts", "pairs") if k in cell}
    row |= _first_columns([c for c in cells if c["measurement"] in FIRST])
    speeds = {
        (cell["measurement"], cell["batch"]): cell["steps_per_second"]
        for cell in cells
        if cell["measurement"] in RUNNERS
    }
    for (what, batch), speed in speeds.items():
        key = f"{RUNNERS[what]}, B={batch:,}"
        row[key] = f"{speed / 1e3:.3g}"
        if what != "eqsim" and ("eqsim", batch) in speeds:
            row[key] += f" ({speeds['eqsim', batch] / speed:.2g}x)"
    for cell in cells:
        if cell["measurement"] == "eqsim":
            row["error"] = f"{cell['error']:.0e}"
        elif cell["measurement"] == "gradient":
            row["gradients"] = f"{cell['gradients_per_second'] / 1e3:.3g}"
            row["cost"] = f"{cell['cost']:.2g}x" if cell["finite"] else "not finite"
        elif cell["measurement"] == "memory":
            row["memory"] = f"{cell['peak']:.0f} ({cell['before']:.0f})"
    return row


def _first_columns(cells: list[dict]) -> dict[str, Any]:
    """Return the columns of the first step and of the first gradient, best repeats."""
    best, later = {}, {}
    for cell in cells:
        what = cell["measurement"]
        key = f"{what}, cached" if cell["cached"] else what
        best[key] = min(cell["seconds"], best.get(key, cell["seconds"]))
        later[what] = min(1e3 * cell["later"], later.get(what, 1e3 * cell["later"]))
    texts = [f"{later[what]:.3g}" for what in FIRST if what in later]
    return best | ({"call": " (".join(texts) + ")" * (len(texts) - 1)} if texts else {})


def _options():
    made = parser(__doc__ or "", repeats=5, limit=1800.0)
    add = made.add_argument
    add("folder", type=pathlib.Path, help="folder of MuJoCo Menagerie")
    add("--scenes", nargs="*", default=list(SCENES), help="files below the folder")
    add("--only", type=lambda text: text.split(","), default=list(PARTS))
    add("--batches", nargs="*", type=int, default=[1, 256, 1024, 4096])
    add("--gradient-batch", type=int, default=1024)
    add("--memory-batch", type=int, default=4096)
    add("--first-repeats", type=int, default=2)
    add("--mjbatch", help="interpreter of an environment in which mjbatch is installed")
    options = made.parse_args()
    if unknown := set(options.only) - set(PARTS):
        made.error(f"--only accepts {','.join(PARTS)}, got {','.join(unknown)}")
    if missing := [s for s in options.scenes if not (options.folder / s).exists()]:
        made.error(f"{options.folder} does not contain {', '.join(missing)}")
    return options


if __name__ == "__main__":
    main()
