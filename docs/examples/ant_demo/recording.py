"""Noisy measurements of an ant in MuJoCo C under smooth random controls."""

from typing import NamedTuple

import mujoco
import numpy as np


NOISE_Q = 1e-3
"""Standard deviation of measured coordinates, m and rad."""
NOISE_QD = 5e-3
"""Standard deviation of measured velocities, m/s and rad/s."""


class Recording(NamedTuple):
    """Measurements, one row per time step. The `true_` values are only for plots."""

    time: np.ndarray
    ctrl: np.ndarray
    q: np.ndarray
    qd: np.ndarray
    true_q: np.ndarray
    true_qd: np.ndarray
    touching: np.ndarray


def record(model: mujoco.MjModel, duration: float, seed: int) -> Recording:
    """Simulate with `mj_step`, and add normal noise to every coordinate and velocity.

    Noise on the torso's orientation is a small rotation.
    """
    rng = np.random.default_rng(seed)
    steps = round(duration / model.opt.timestep)
    time = np.arange(steps) * model.opt.timestep
    ctrl = _smooth_random(rng, time, model.nu)
    true_q, true_qd, touching = _simulate(model, ctrl)
    q = true_q.copy()
    for row, step in zip(q, rng.normal(0, NOISE_Q, true_qd.shape), strict=True):
        mujoco.mj_integratePos(model, row, step, 1.0)
    qd = true_qd + rng.normal(0, NOISE_QD, true_qd.shape)
    return Recording(time, ctrl, q, qd, true_q, true_qd, touching)


def _simulate(model: mujoco.MjModel, ctrl: np.ndarray):
    data = mujoco.MjData(model)
    # Standing, the feet just above the ground.
    data.qpos[2], data.qpos[8::2] = 0.56, (1, -1, -1, 1)
    q, qd, touching = [], [], []
    for row in ctrl:
        q.append(data.qpos.copy())
        qd.append(data.qvel.copy())
        data.ctrl[:] = row
        mujoco.mj_step(model, data)
        touching.append(data.ncon > 0)
    return np.array(q), np.array(qd), np.array(touching)


def _smooth_random(rng, time: np.ndarray, nu: int) -> np.ndarray:
    """Draw sums of four sines of 0.5 to 4 Hz, at about a third of the full range, so
    that feet push, slide and leave the ground."""
    frequency = rng.uniform(0.5, 4.0, (4, nu))
    phase = rng.uniform(0, 2 * np.pi, (4, nu))
    angle = 2 * np.pi * frequency * time[:, None, None] + phase
    return np.clip(0.15 * np.sin(angle).sum(axis=1), -1, 1)
