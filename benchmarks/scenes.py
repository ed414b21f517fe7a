"""Speed of robots with contacts, tendons, equality constraints and meshes, or of MJCF files.

    python benchmarks/scenes.py --out out/bench
    python benchmarks/scenes.py --scenes ant quadruped linkage --cones
    python benchmarks/scenes.py --scenes arm hand --peers mujoco mjx --batches 64
    python benchmarks/scenes.py --folder MENAGERIE --gradient --batches 256 1024

MENAGERIE is a copy of https://github.com/google-deepmind/mujoco_menagerie.
"""

import os
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from _bench import caption, interleaved, parser, publish, say, setting, table
from _robots import (
    compiled,
    eqsim_simulator,
    error_of,
    mean_contacts,
    MENAGERIE,
    menagerie_start,
    mjx_simulator,
    moved,
    mujoco_call,
    NotInstalled,
    SETTLE,
    Simulator,
    Start,
)
from _scenes import SCENES
from jax import lax

import eqsim
from eqsim.collision import contact_plan


CONES = ("pyramidal", "elliptic")
EXPLANATION = f"""\
One call takes {{steps}} physics steps of B robots under constant controls: in one program
of `jax.jit(jax.vmap(step))` with the robot as an argument, or by `mujoco.rollout` with a
thread per core, with the solver, iterations and tolerance of the file. Robots have moved
under random controls for 400 steps; those of MuJoCo Menagerie for {SETTLE} steps under
small ones, from the first keyframe. `pairs`: candidate pairs of shapes in eqsim.
`contacts`: mean number in MuJoCo. `k steps/s`: physics steps of eqsim per second, in
thousands; `us`: the same as microseconds per step and robot, best of {{repeats}} runs that
took turns. `MuJoCo C`, `MJX`: time over that of eqsim. `compile`: seconds to trace, lower
and compile, without caches; in parentheses that of MJX. `error`: median over the robots of
the largest relative difference of a coordinate from MuJoCo C after the {{steps}} steps.
`gradient`: time of a step with its gradient with respect to coordinates, velocities and
controls, over that of a step. `elliptic`: time with the elliptic cone over that with the
pyramidal one."""


def main() -> None:
    """Measure all scenes, and write the results after each."""
    options = _options()
    where, cells = setting(options), []
    for name, source in _sources(options).items():
        for batch in options.batches:
            cells += measure(name, source, batch, options)
            data = {"where": where, "cells": cells}
            publish(options, "scenes", data, report(where, cells, options))
        jax.clear_caches()
    print(f"\n{report(where, cells, options)}")


def _sources(options) -> dict[str, str | pathlib.Path]:
    """Return MJCF text or files by name."""
    if options.folder:
        names = list(map(str, options.files)) or MENAGERIE
        files = {name: options.folder / name for name in names}
        if missing := [name for name, path in files.items() if not path.exists()]:
            text = f"{options.folder} has no {', '.join(missing)}: choose --files."
            raise SystemExit(text)
        return files
    files = {"/".join(path.parts[-2:]): path for path in options.files}
    names = options.scenes
    if names is None:
        names = [] if files else list(SCENES)
    return {name: SCENES[name]() for name in names} | files


def measure(
    name: str, source: str | pathlib.Path, batch: int, options
) -> list[dict[str, Any]]:
    """Time eqsim and its peers on one scene, with both cones alternately if it has
    contacts and `--cones` is given."""
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    cells: dict[str, dict[str, Any]] = {}
    for cone in CONES if options.cones else ("",):
        sys, model = _load(source, cone)
        begin = (menagerie_start if options.folder else moved)(model, batch)
        contacts, _ = mean_contacts(model, begin)
        pairs = len(contact_plan(sys).pairs)
        cells[cone] = {"scene": name.removesuffix(".xml"), "B": batch}
        cells[cone] |= {"nv": model.nv, "pairs": pairs, "contacts": contacts}
        found, seconds = _calls(name, sys, model, begin, options)
        calls |= {(cone, label): call for label, call in found.items()}
        cells[cone]["compile"] = seconds
        if cone:
            cells[cone]["cone"] = cone if contacts else "-"
        if not contacts:
            break
    taken = interleaved(calls, options.repeats, options.limit)
    best = {key: timing.best for key, timing in taken.items()}
    for cone, cell in cells.items():
        ours = best[cone, "eqsim"]
        truth = calls[cone, "MuJoCo C"]()
        cell["k steps/s"] = batch * options.steps / ours / 1e3
        cell["us"] = 1e6 * ours / batch / options.steps
        for peer in ("MuJoCo C", "MJX"):
            if (cone, peer) in best:
                cell[peer] = f"{best[cone, peer] / ours:.3g}x"
        if (cone, "gradient") in best:
            cell["gradient"] = f"{best[cone, 'gradient'] / ours:.2g}x"
        if cone == CONES[1]:
            cell["elliptic"] = f"{ours / best[CONES[0], 'eqsim']:.3g}x"
        cell["error"] = error_of(calls[cone, "eqsim"](), truth)
        say(cell)
    return list(cells.values())


def _load(source: str | pathlib.Path, cone: str):
    """Return a scene in eqsim and MuJoCo, with the integrator and solver of the file."""
    if isinstance(source, pathlib.Path):
        model = mujoco.MjModel.from_xml_path(str(source))
    else:
        model = mujoco.MjModel.from_xml_string(source)
    if cone:
        model.opt.cone = CONES.index(cone)
    return eqsim.load_mjcf(model), model


def _calls(name: str, sys, model, begin: Start, options):
    """Return calls by name, and the seconds to compile that of eqsim, and of MJX."""
    states, ctrl = begin.arrays(), begin.arrays()[3][:, 0]
    eqsims = eqsim_simulator(sys)
    call, seconds = compiled(_steps(eqsims, options.steps), sys, states, ctrl)
    calls, text = {"eqsim": call}, f"{seconds:.3g}"
    last = mujoco_call(model, begin, options.steps)
    calls["MuJoCo C"] = lambda: last(1)[:, -1]
    if options.gradient:
        gradients = _gradients(options.steps)
        calls["gradient"], _ = compiled(gradients, sys, states, ctrl)
    if "mjx" in options.peers:
        try:
            peer = mjx_simulator(model)
            simulate = _steps(peer, options.steps)
            calls["MJX"], seconds = compiled(simulate, peer.robot, states, ctrl)
            text += f" ({seconds:.3g})"
        except (NotInstalled, NotImplementedError) as error:
            say(f"{name}: MJX is left out: {error}")
    return calls, text


def _steps(peer: Simulator, steps: int) -> Callable:
    def simulate(robot, start, ctrl):
        states = jax.vmap(peer.init, (None, 0, 0, 0))(robot, *start[:3])
        return peer.coordinates(peer.hold(robot, states, ctrl, steps))

    return simulate


def _gradients(steps: int) -> Callable:
    """Return a function for the sums of values and gradients over steps: of the sum of
    squares of the new state by coordinates, velocities and controls."""
    step = eqsim.Generalized().step

    def one(sys, q, qd, act, ctrl):
        new = step(sys, eqsim.State(q, qd, act), ctrl)
        return jnp.sum(new.q**2) + jnp.sum(new.qd**2), new

    each = jax.vmap(
        jax.value_and_grad(one, (1, 2, 4), has_aux=True), (None, 0, 0, 0, 0)
    )

    def simulate(sys, start, ctrl):
        def advance(carry, _):
            (q, qd, act), sums = carry
            (value, new), gradients = each(sys, q, qd, act, ctrl)
            sums = jax.tree.map(jnp.add, sums, (value, gradients))
            return ((new.q, new.qd, new.act), sums), None

        q, qd, act, _ = start
        zeros = jax.tree.map(jnp.zeros_like, (q[:, 0], (q, qd, ctrl)))
        return lax.scan(advance, ((q, qd, act), zeros), length=steps)[0]

    return simulate


def report(where: dict, cells: list[dict], options) -> str:
    """Return all results as one table."""
    columns = ("scene", "cone", "B", "nv", "pairs", "contacts", "k steps/s", "us")
    columns += ("MuJoCo C", "MJX", "gradient", "elliptic", "compile", "error")
    shown = [name for name in columns if any(name in cell for cell in cells)]
    text = EXPLANATION.format(**vars(options))
    title = f"## Scenes, {where['precision']} precision (MuJoCo C: double)"
    return f"{title}\n\n{text}\n\n{table(cells, shown)}\n\n{caption(where)}\n"


def _options():
    made = parser(__doc__, repeats=7, limit=60.0)
    add = made.add_argument
    add(
        "--scenes", nargs="*", choices=tuple(SCENES), help="by default all, if no files"
    )
    add(
        "--files",
        nargs="*",
        type=pathlib.Path,
        default=[],
        help="MJCF files; with --folder, those below it",
    )
    add("--folder", type=pathlib.Path, help="MuJoCo Menagerie, instead of --scenes")
    add("--peers", nargs="*", choices=("mujoco", "mjx"), default=["mujoco"])
    add("--cones", action="store_true", help="time both friction cones")
    add("--gradient", action="store_true", help="time gradients, too")
    add("--batches", nargs="*", type=int, default=[1024])
    add("--steps", type=int, default=20, help="physics steps of one call")
    return made.parse_args()


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    os.environ["EQSIM_KERNELS_CACHE"] = ""
    main()
