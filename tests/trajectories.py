"""States of MuJoCo models, and the trajectories of MuJoCo C from there."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from eqsim import Generalized, State


def converged(model):
    """MuJoCo solves its problem as well as it can, as ours always does."""
    model.opt.tolerance, model.opt.iterations = 0.0, 200
    model.opt.ls_tolerance, model.opt.ls_iterations = 1e-12, 200
    return model


def draw(model, count, scale=1.0, seed=0):
    """States around the reference, and controls: `count` of `mujoco.MjData`."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(count):
        data = mujoco.MjData(model)
        mujoco.mj_integratePos(model, data.qpos, scale * rng.normal(size=model.nv), 0.5)
        data.qvel[:] = scale * rng.normal(size=model.nv)
        data.act[:] = 0.04 * rng.normal(size=model.na)
        data.ctrl[:] = rng.normal(size=model.nu)
        out.append(data)
    return out


def stacked(data):
    """The coordinates, velocities, activations and controls of some `mujoco.MjData`."""
    names = ("qpos", "qvel", "act", "ctrl")
    return tuple(jnp.asarray(np.stack([getattr(d, n) for d in data])) for n in names)


def follow(sys, data, count):
    """Coordinates, velocities and activations after each of `count` steps."""

    def one(q, qd, act, ctrl):
        step = lambda state, _: (Generalized().step(sys, state, ctrl),) * 2
        return jax.lax.scan(step, State(q, qd, act), None, length=count)[1]

    out = jax.jit(jax.vmap(one))(*stacked(data))
    return np.concatenate([out.q, out.qd, out.act], axis=-1)


def expected(model, data, count):
    """As `follow`, by MuJoCo."""
    paths = []
    for d in data:
        path = []
        for _ in range(count):
            mujoco.mj_step(model, d)
            path.append(np.concatenate([d.qpos, d.qvel, d.act]))
        paths.append(path)
    return np.array(paths)
