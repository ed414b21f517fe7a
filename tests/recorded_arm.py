"""Recordings of a simulated robot, made by MuJoCo C, for the tests of identification."""

import re

import mujoco
import numpy as np

from eqsim import identify


ARM = """
<mujoco>
  <option timestep="0.005" integrator="Euler"><flag contact="disable"/></option>
  <worldbody>
    <body name="upper">
      <joint name="shoulder" axis="0 -1 0" damping="0.05" frictionloss="0.1"
        armature="0.01"/>
      <inertial mass="0.6" pos="0 0 -0.15" diaginertia="0.01 0.01 0.005"/>
      <body name="lower" pos="0 0 -0.3">
        <joint name="elbow" axis="0 -1 0" damping="0.03" frictionloss="0.05"/>
        <inertial mass="0.4" pos="0 0 -0.1" diaginertia="0.004 0.004 0.002"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder"/><motor joint="elbow"/></actuator>
</mujoco>
"""
SMOOTH = re.sub(r'frictionloss="\S+"', "", ARM)
"""Without dry friction nothing is solved: programs compile in half the time."""


def excitation(rng: np.random.Generator, time: np.ndarray, size: int) -> np.ndarray:
    """Sums of five sines of 0.2 to 3 Hz."""
    frequency = rng.uniform(0.2, 3.0, (5, size))
    phase = rng.uniform(0, 2 * np.pi, (5, size))
    angle = 2 * np.pi * frequency * time[:, None, None] + phase
    return 0.7 * np.sin(angle).sum(axis=1)


def record(
    model: mujoco.MjModel, seed: int, duration: float, noise: float, name: str = ""
) -> identify.Recording:
    """Simulate a run with `mj_step`, and add normal noise to its coordinates."""
    rng = np.random.default_rng(seed)
    data = mujoco.MjData(model)
    data.qpos[:] = rng.uniform(-1, 1, model.nq)
    time = np.arange(round(duration / model.opt.timestep)) * model.opt.timestep
    ctrl, q = excitation(rng, time, model.nu), []
    for row in ctrl:
        q.append(data.qpos.copy())
        data.ctrl[:] = row
        mujoco.mj_step(model, data)
    measured = np.array(q) + rng.normal(0, noise, (len(q), model.nq))
    return identify.Recording(time, ctrl, {"q": measured}, name or f"run-{seed}")
