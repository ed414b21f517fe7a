"""Throughput: physics steps per second, compared with MuJoCo C, MJX and Brax.

python benchmarks/step.py --out out/bench
python benchmarks/step.py --quick --models ant --peers mujoco

Physics steps per second of B robots with `eqsim.rollout`, and with
`eqx.filter_jit(eqx.filter_vmap(env.step))` called from Python, with the states on one device or
sharded over all. MuJoCo C runs `mujoco.rollout` with one thread per core; MJX and Brax run one
compiled loop on the same devices as eqsim.

- All simulators use the same random controls, each held for five steps, and the same initial
  states: `airborne`, high above the ground with full controls, or `settled`, after three seconds
  in MuJoCo with small controls. The table lists the mean numbers of contacts and constraint rows.
- All use the Euler integrator and the Newton solver, independently of the file (MJX has no PGS).
  MuJoCo C and MJX use the number of iterations and the tolerance of the file, which the table
  lists. MJX is also measured with one iteration, a common setting that does not converge. eqsim
  solves each step to convergence.
"""

import os
import sys
import time


# Before JAX is first used. LAPACK's batched kernels, which MJX calls, wait for threads
# of the pool from within the pool; with as many devices as cores this can deadlock.
if "--peers" not in sys.argv or {"mjx", "brax"} & set(sys.argv):
    os.environ["XLA_FLAGS"] = " ".join(
        [os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=false"]
    )

import jax


# One device per core, the recommended setting.
jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
from _bench import (
    affordable,
    caption,
    interleaved,
    parser,
    publish,
    say,
    setting,
    table,
)
from _robots import (
    converge,
    Driven,
    error_of,
    load,
    mean_contacts,
    mujoco_call,
    nothing,
    RandomControls,
    robots,
    SCALE,
    Simulator,
    simulators,
    Start,
    start,
    STARTS,
    SUBSTEPS,
    TIMED,
)
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import eqsim


EXPLANATION = f"""\
Physics steps per second, in thousands; in parentheses how many times faster eqsim is
through `eqsim.rollout`. All integrate by Euler with the time step of the file; a random
control is held for {SUBSTEPS} steps. eqsim solves every step to convergence; MuJoCo C
and MJX solve by Newton up to the tolerance and the number of iterations of the file.
`contacts` and `rows`: means over the initial states. `airborne`: the robot falls freely
under full random controls; `settled`: it stands or lies on the ground under small
ones ({SCALE["settled"]:g} of their range). All use all cores; with MJX or Brax as peers,
`plain jit` uses one, as XLA's thread pool is then switched off. Each
figure is the best of several runs, which took turns."""


class Runner(NamedTuple):
    """A simulator: `prepare(start)` returns `run(n)`, which takes `n` control steps and
    returns the last coordinates, `(batch, nq)`, or those of all steps.

    `fixed`: true if `run` supports only the full length; `alone`: true if it can run
    when the devices do not divide the batch.
    """

    label: str
    prepare: Callable[[Start], Callable[[int], Any]]
    fixed: bool = False
    alone: bool = True


def main() -> None:
    """Time all cells, and write the results after each."""
    options = _options()
    where, cells = setting(options), []
    for name, robot, model in robots(options.models):
        for batch in options.batches:
            for kind in options.states:
                cells += time_cell(name, robot, model, kind, batch, options)
                data = {"where": where, "cells": cells}
                publish(options, "step", data, report(where, cells))
    print(f"\n{report(where, cells)}")


def time_cell(
    name: str, robot: eqsim.System, model: mujoco.MjModel, kind, batch: int, options
) -> list[dict]:
    """Time all runners from the same initial states, alternately."""
    length = max(1, options.steps // SUBSTEPS)
    rollout, begin = _rollout(robot, model, kind, start(kind, model, batch, length))
    few = begin.first(64)
    path = mujoco_call(converge(load(name)[1]), few, SUBSTEPS)(length)
    calls, lengths, last, prepared = {}, {}, {}, {}
    for peer in [rollout, *_runners(name, robot, model, options)]:
        if batch % len(jax.devices()) and not peer.alone:
            continue
        began = time.perf_counter()
        try:
            run = peer.prepare(begin)
            n = length if peer.fixed else affordable(run, length, options.limit)
            found = np.asarray(run(n), np.float64)
            last[peer.label] = found[:, -1] if found.ndim == 3 else found
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            say(f"{name}, {kind}, B={batch}: {peer.label} failed: {error}")
            continue
        prepared[peer.label] = time.perf_counter() - began
        calls[peer.label], lengths[peer.label] = lambda run=run, n=n: run(n), n
    contacts, rows = mean_contacts(model, begin)
    cells = []
    for label, timing in interleaved(calls, options.repeats, options.limit).items():
        steps = lengths[label] * SUBSTEPS
        cell = {"model": name, "start": kind, "batch": batch}
        cell |= {"iterations": model.opt.iterations, "tolerance": model.opt.tolerance}
        cell |= {"contacts": contacts, "rows": rows, "runner": label, "steps": steps}
        cell["steps_per_second"] = batch * steps / timing.best
        cell |= {"seconds": timing.seconds, "spread": timing.spread}
        cell["prepared"] = prepared[label]
        cell["error"] = error_of(last[label], path[:, steps - 1])
        cells.append(cell)
        say(_line(cell, cells[0]))
    return cells


def _rollout(robot, model, kind, begin: Start) -> tuple[Runner, Start]:
    """Return `eqsim.rollout` on all devices, and the start with the controls that its
    policy draws."""
    env = Driven(robot, eqsim.Generalized(), SUBSTEPS)
    first = jax.vmap(env.begin)(_states(begin))
    policy = RandomControls.create(model, SCALE[kind])
    keys = jr.split(jr.key(0), len(begin.q))

    def run(length, collect=nothing):
        return eqsim.rollout(env, policy, keys, length, start=first, collect=collect)

    actions, _ = run(begin.ctrl.shape[1], lambda state, action, timestep: action)
    begin = begin._replace(ctrl=np.asarray(actions, np.float64))
    prepare = lambda start: lambda length: run(length)[1][0].q
    return Runner("eqsim", prepare, fixed=True), begin


def _runners(name: str, robot, model, options) -> list[Runner]:
    """Return the other ways to run eqsim, and the peers."""
    found = []
    if "plain" in options.variants:
        found.append(_plain(robot, spread=False))
    if "sharded" in options.variants and len(jax.devices()) > 1:
        found.append(_plain(robot, spread=True))
    if "mujoco" in options.peers:
        call = lambda start: mujoco_call(model, start, SUBSTEPS)
        found.append(Runner("MuJoCo C", call))
    names = {"mjx": ("mjx", "mjx-1"), "brax": ("brax",), "mujoco": ()}
    peers = [name for peer in options.peers for name in names[peer]]
    # One runner where the file itself asks for one iteration.
    found += map(_spread, simulators(name, model, peers))
    return list({runner.label: runner for runner in found}.values())


def _plain(robot: eqsim.System, *, spread: bool) -> Runner:
    """Run the compiled step from Python for each control step.

    **Arguments:**

    - `spread`: true to shard the states over all devices, false for one device.
    """

    def prepare(start):
        env, state = Driven(robot, eqsim.Generalized(), SUBSTEPS), _states(start)
        actions = [jnp.asarray(a, state.q.dtype) for a in start.ctrl.swapaxes(0, 1)]
        if spread:
            split = NamedSharding(_mesh(), PartitionSpec("batch"))
            state, actions = jax.device_put((state, actions), split)
        step = eqx.filter_jit(eqx.filter_vmap(env.step))

        def run(length):
            now = state
            for action in actions[:length]:
                now, _ = step(now, action)
            return now.q

        return run

    label = "eqsim, plain jit" + (", all cores" if spread else "")
    return Runner(label, prepare, alone=not spread)


def _spread(peer: Simulator) -> Runner:
    """Run a peer in one program, sharded over the devices like eqsim."""

    def simulate(robot, q, qd, act, ctrl, length):
        state = jax.vmap(peer.init, (None, 0, 0, 0))(robot, q, qd, act)

        def control_step(i, state):
            now = lax.dynamic_index_in_dim(ctrl, i, axis=1, keepdims=False)
            return peer.hold(robot, state, now, SUBSTEPS)

        return peer.coordinates(lax.fori_loop(0, length, control_step, state))

    split, whole = PartitionSpec("batch"), PartitionSpec()
    spread = jax.shard_map(
        simulate,
        mesh=_mesh(),
        in_specs=(whole, split, split, split, split, whole),
        out_specs=split,
        check_vma=False,
    )
    alone, shared = jax.jit(simulate), jax.jit(spread)
    everywhere = jax.device_put(peer.robot, NamedSharding(_mesh(), whole))

    def prepare(start):
        arrays = start.arrays()
        if len(start.q) % len(jax.devices()):
            return lambda length: alone(peer.robot, *arrays, jnp.asarray(length))
        return lambda length: shared(everywhere, *arrays, jnp.asarray(length))

    return Runner(peer.label, prepare)


def _mesh():
    return jax.make_mesh((len(jax.devices()),), ("batch",), (AxisType.Auto,))


def _states(start: Start) -> eqsim.State:
    return jax.vmap(eqsim.State)(*start.arrays()[:3])


def report(where: dict, cells: list[dict]) -> str:
    """Return a table with one line per robot, initial state and batch."""
    lines: dict[tuple, dict] = {}
    same = ("model", "start", "batch", "iterations", "tolerance", "contacts", "rows")
    ours = {}
    for cell in cells:
        key = cell["model"], cell["start"], cell["batch"]
        line = lines.setdefault(
            key, {name.replace("batch", "B"): cell[name] for name in same}
        )
        speed = cell["steps_per_second"]
        line[cell["runner"]] = f"{speed / 1e3:.3g}"
        if cell["runner"] == "eqsim":
            ours[key] = speed
        elif key in ours:
            line[cell["runner"]] += f" ({ours[key] / speed:.3g}x)"
    title = f"## Throughput, {where['precision']} precision (MuJoCo C: double)"
    parts = title, EXPLANATION, table(list(lines.values())), caption(where)
    return "\n\n".join(parts) + "\n"


def _line(cell, first):
    ratio = first["steps_per_second"] / cell["steps_per_second"]
    return (
        f"{cell['model']}, {cell['start']}, B={cell['batch']}: {cell['runner']}: "
        f"{cell['steps_per_second'] / 1e3:.4g} k steps/s (eqsim {ratio:.3g}x), spread "
        f"{100 * cell['spread']:.0f} %, error {cell['error']:.1e} after "
        f"{cell['steps']}, prepared in {cell['prepared']:.1f} s"
    )


def _options():
    made = parser(__doc__, repeats=5, limit=20.0)
    add = made.add_argument
    peers, variants = ["mujoco", "mjx", "brax"], ["plain", "sharded"]
    add("--models", nargs="*", default=list(TIMED))
    add("--batches", nargs="*", type=int, default=[1, 64, 1024, 4096])
    add("--states", nargs="*", choices=STARTS, default=list(STARTS))
    add("--peers", nargs="*", choices=peers, default=peers)
    add("--variants", nargs="*", choices=variants, default=variants)
    add("--steps", type=int, default=100, help="physics steps of a simulation")
    add("--quick", action="store_true", help="small batches, few steps and repeats")
    options = made.parse_args()
    if options.quick:
        options.batches, options.steps = [1, 16], 20
        options.repeats, options.limit = 2, 2.0
    return options


if __name__ == "__main__":
    main()
