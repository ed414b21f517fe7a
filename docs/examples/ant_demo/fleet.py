"""Thousands of ants, each with its own masses, in one program."""

import copy
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import mujoco
import mujoco.rollout
import numpy as np

import eqsim
from eqsim import randomize

from .robot import eqsim_system, mujoco_model


SHOWN, CHUNKS = 36, 4
"""Number of ants in the animation, and number of consecutive rollouts."""


class Throughput(NamedTuple):
    """Environment steps per second of both simulators, and the sizes."""

    ants: int
    length: int
    substeps: int
    cores: int
    eqsim: float
    mujoco: float
    compile_seconds: float


def throughput(ants: int, length: int, rounds: int) -> tuple[Throughput, str]:
    """Measure both simulators in turn; the best of `rounds` counts.

    Both start from the same states and draw controls over the full range.

    **Returns:** the rates, and a page that shows some of the ants.
    """
    begin = time.perf_counter()
    # Single precision, as one trains; MuJoCo C has double precision only.
    with jax.enable_x64(False):
        env, fleet, first, run = _eqsim(ants, length)
        jax.block_until_ready(run(0))
        compile_seconds = time.perf_counter() - begin
        page = _shown(env, fleet, first, run)
        other = _mujoco(fleet, first[0], length, env.frame_skip)
        other(0)
        pairs = [
            (_seconds(run, seed), _seconds(other, seed))
            for seed in range(1, rounds + 1)
        ]
    ours, theirs = (ants * length / min(column) for column in zip(*pairs, strict=True))
    cores = os.cpu_count() or 1
    sizes = ants, length, env.frame_skip, cores
    return Throughput(*sizes, ours, theirs, compile_seconds), page


def _eqsim(ants: int, length: int):
    env = eqsim.make("ant", sys=eqsim_system())
    keys = jr.split(jr.key(0), ants)
    fleet, axes = randomize.batched_env(env, randomize.masses(0.5, 2.0), keys)
    first = eqx.filter_jit(eqx.filter_vmap(env.reset))(keys)
    policy = lambda obs, key: jr.uniform(key, (env.sys.nu,), minval=-1.0)
    kept = lambda state, action, timestep: (timestep.reward, state.q)

    def run(seed, start=first):
        return eqsim.rollout(
            fleet,
            policy,
            jr.split(jr.key(seed), ants),
            length,
            start=start,
            env_axes=axes,
            collect=kept,
        )

    return env, fleet, first, run


def _shown(env, fleet, start, run) -> str:
    """Return a page that plays the motion of some ants in a grid."""
    parts = []
    for seed in range(CHUNKS):
        (_, q), start = run(seed, start)
        parts.append(np.asarray(q[:SHOWN]))
    q = np.concatenate(parts, axis=1)
    return eqsim.viewer.export(env, q, dt=float(env.dt), spacing=2.5).html


def _mujoco(fleet, states, length: int, substeps: int) -> Callable[[int], object]:
    """Return a function that runs the same ants in MuJoCo C, on a thread per core."""
    model = mujoco_model(bare=True)
    # The solver's settings of the file.
    model.opt.iterations, model.opt.tolerance = 100, 1e-8
    models = [_with_links(model, *row) for row in _masses(fleet)]
    threads = os.cpu_count() or 1
    data = [mujoco.MjData(model) for _ in range(threads)]
    pool = mujoco.rollout.Rollout(nthread=threads)
    time_column = np.zeros((len(models), 1))
    begin = np.concatenate([time_column, states.q, states.qd], axis=1)
    steps = length * substeps
    out = np.empty((len(models), steps, begin.shape[1]))
    sensors = np.empty((len(models), steps, model.nsensordata))

    # Drawn before the clock runs, and held for an environment step.
    rng, shape = np.random.default_rng(0), (len(models), length, model.nu)
    ctrl = np.repeat(rng.uniform(-1, 1, shape), substeps, axis=1)
    place = {"state": out, "sensordata": sensors}
    return lambda seed: pool.rollout(models, data, begin, ctrl, **place)


def _masses(fleet):
    links = fleet.sys.links
    return zip(np.asarray(links.mass), np.asarray(links.inertia), strict=True)


def _with_links(model: mujoco.MjModel, mass, inertia) -> mujoco.MjModel:
    model = copy.copy(model)
    model.body_mass[1:], model.body_inertia[1:] = mass, inertia
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def _seconds(run: Callable[[int], object], seed: int) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(run(seed))
    return time.perf_counter() - begin
