"""Identify the double pendulum from recordings, and control another fit of it."""

import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import mujoco
import numpy as np
from _double_pendulum import DT
from _identify_pendulums import DOUBLE, unknowns_of_double

import eqsim
from eqsim import identify


class Robots(NamedTuple):
    """Two robots from different recordings of the same one.

    - `fitted`: identified from the training runs.
    - `other`: robot identified from the held-out runs.
    """

    fitted: identify.Result
    other: identify.Result


def robots(folder: pathlib.Path, seed: int, say: Callable) -> Robots:
    """Identify the robot C.1 twice, from each half of the runs with excitation.

    **Arguments:**

    - `folder`: recordings of the double pendulum.
    - `seed`: seed of the split.
    - `say`: called with a line for each evaluation.
    """
    runs = identify.load_recordings(
        folder / "identification_C1.npz", ctrl="tau_command", channels={"q": "q"}
    )
    sys = eqsim.load_mjcf(DOUBLE)

    def fit(chosen):
        return identify.fit(
            sys,
            chosen,
            unknowns_of_double(),
            windows=identify.Windows(1.0),
            loss=identify.CauchyLoss(1.0, per_window=True),
            progress=lambda values, cost, step: say(f"{step:3d} {cost:12.6g}"),
        )

    return Robots(*map(fit, identify.split(runs, 0.5, seed)))


def parameters_of(sys: eqsim.System) -> dict[str, float]:
    """Return parameters with the equations of motion of an identified robot."""
    joints, links = sys.joints, sys.links
    rotor = np.asarray(joints.armature, float)
    found = {"l1": 0.2, "l2": 0.3, "g": 9.81, "gr": 1.0, "Ir": float(rotor[1])}
    for k in range(2):
        m, r = float(links.mass[k]), float(-links.com[k, 2])
        found |= {f"m{k + 1}": m, f"r{k + 1}": r}
        found[f"I{k + 1}"] = float(links.inertia[k, 1]) + m * r**2
        found[f"b{k + 1}"] = float(joints.damping[k])
        # As the plant in NumPy has it: torque cf arctan(100 qd).
        found[f"cf{k + 1}"] = float(joints.frictionloss[k]) * 2.0 / math.pi
    # The inertia of the rotor at the shoulder adds to that of the link.
    found["I1"] += float(rotor[0] - rotor[1])
    return found


def latency(result: identify.Result) -> float:
    """Return the delay of commands, s."""
    return float(np.max(np.asarray(result.signals.delays["ctrl"], float)))


class MujocoPlant:
    """A plant simulated by MuJoCo C from the written MJCF.

    **Arguments:**

    - `sys`: the robot.
    """

    def __init__(self, sys: eqsim.System):
        # MuJoCo rejects a link whose inertia about the axis of motion exceeds the sum
        # of the other two, which are irrelevant for planar motion.
        inertia = lambda s: s.links.inertia
        about = inertia(sys)[:, 1:2]
        sys = eqx.tree_at(inertia, sys, inertia(sys).at[:, :3].set(about))
        self._model = mujoco.MjModel.from_xml_string(eqsim.io.write_mjcf(sys))
        self._model.opt.timestep = DT
        self._data = mujoco.MjData(self._model)

    def __call__(self, q, qd, torque) -> tuple[np.ndarray, np.ndarray]:
        """Take one time step."""
        data = self._data
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, qd, torque
        mujoco.mj_step(self._model, data)
        return data.qpos.copy(), data.qvel.copy()
