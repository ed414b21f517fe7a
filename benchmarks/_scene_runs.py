"""MJCF scenes in eqsim and its peers: states after some motion, and timed calls."""

import os
import pathlib
import time

import jax
import jax.numpy as jnp
import mujoco
import mujoco.rollout
import numpy as np
from _peers import mjx_step

import eqsim


SETTLE = 400
DISTINCT = 256


def compiled_model(source: str | pathlib.Path) -> mujoco.MjModel:
    """Return MuJoCo's model of an MJCF text or file, with the Newton solver."""
    if isinstance(source, pathlib.Path):
        model = mujoco.MjModel.from_xml_path(str(source))
    else:
        model = mujoco.MjModel.from_xml_string(source)
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model


def moved(model: mujoco.MjModel, batch: int):
    """Return states after some motion under random controls, the last controls, and the
    mean number of contacts."""
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    low, high = model.actuator_ctrlrange.T
    ctrl = rng.uniform(low, high, (DISTINCT, 4, model.nu))
    ctrl = np.repeat(ctrl, SETTLE // 4, axis=1)
    begin = np.concatenate([[0.0], data.qpos, data.qvel, data.act])
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


def eqsim_call(source: str | pathlib.Path, model, start, ctrl, steps: int):
    """Return a call of eqsim, and its compile time, s."""
    sys, pipeline = eqsim.load_mjcf(source), eqsim.Generalized()
    step = jax.vmap(pipeline.step, (None, 0, 0))

    def simulate(sys, state, ctrl):
        advance = lambda _, state: step(sys, state, ctrl)
        return jax.lax.fori_loop(0, steps, advance, state).q

    q, qd, act, ctrl = arrays(model, start, ctrl)
    state = jax.vmap(eqsim.State)(q, qd, act)
    return compiled(simulate, sys, state, ctrl)


def mjx_call(model, start, ctrl, steps: int):
    """Return a call of MJX, and its compile time, s."""
    one, robot, init = mjx_step(model)

    def simulate(robot, data, ctrl):
        step = jax.vmap(lambda data, ctrl: one(robot, data, ctrl))
        advance = lambda _, data: step(data, ctrl)
        return jax.lax.fori_loop(0, steps, advance, data).qpos

    q, qd, _, ctrl = arrays(model, start, ctrl)
    return compiled(simulate, robot, jax.vmap(init)(q, qd), ctrl)


def arrays(model, start, ctrl):
    """Return coordinates, velocities, activations and controls in JAX."""
    dtype = jnp.result_type(float)
    ends = np.cumsum([1, model.nq, model.nv])
    _, q, qd, act = np.split(start, ends, axis=1)
    return tuple(jnp.asarray(x, dtype) for x in (q, qd, act, ctrl))


def compiled(simulate, *arguments):
    """Return a call of the program, and its compile time, s."""
    begin = time.perf_counter()
    program = jax.jit(simulate).lower(*arguments).compile()
    return lambda: program(*arguments), time.perf_counter() - begin


def mujoco_call(model, start, ctrl, steps: int):
    """Return a call of MuJoCo C on all cores."""
    threads = os.cpu_count() or 1
    pool = mujoco.rollout.Rollout(nthread=threads)
    workers = [mujoco.MjData(model) for _ in range(threads)]
    held = np.repeat(ctrl[:, None], steps, axis=1)
    out = np.empty((len(start), steps, start.shape[1]))

    def run():
        pool.rollout(model, workers, start, held, nstep=steps, state=out)
        return out[:, -1, 1 : 1 + model.nq]

    return run
