r"""The linear model of one time step, $x' = A x + B u$, at a state.

$x$ holds small changes of coordinates and velocities. A change of orientation has three
numbers, so with 14 degrees of freedom $x$ has 28 entries.
"""

from typing import NamedTuple

import jax
import mujoco
import numpy as np

import eqsim
from eqsim.control import linearize_step


class LinearModel(NamedTuple):
    A: np.ndarray
    B: np.ndarray


@jax.jit
def by_eqsim(sys: eqsim.System, q, qd, ctrl) -> LinearModel:
    """Compute exact derivatives of `Generalized.step`."""
    pipeline = eqsim.Generalized()
    state = pipeline.init(sys, q, qd)
    return LinearModel(*linearize_step(pipeline, sys, state, ctrl))


def by_mujoco(model: mujoco.MjModel, q, qd, ctrl) -> LinearModel:
    """Compute central differences by `mjd_transitionFD`, with a step of 1e-6."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = q, qd, ctrl
    # A converged start for the solver of every difference.
    mujoco.mj_forward(model, data)
    A = np.zeros((2 * model.nv, 2 * model.nv))
    B = np.zeros((2 * model.nv, model.nu))
    mujoco.mjd_transitionFD(model, data, 1e-6, True, A, B, None, None)
    return LinearModel(A, B)


def labels(sys: eqsim.System) -> list[str]:
    """Return the names of the degrees of freedom."""
    free = ["x", "y", "z", "roll", "pitch", "yaw"]
    return free + [name.replace("_", " ") for name in sys.joints.names[1:]]
