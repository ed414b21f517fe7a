r"""The linear model of one time step, $x' = A x + B u$, at a state.

$x$ holds small changes of coordinates and velocities. A change of orientation has three
numbers, so with 14 degrees of freedom $x$ has 28 entries.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import lax

import eqsim
from eqsim import kinematics


class LinearModel(NamedTuple):
    A: np.ndarray
    B: np.ndarray


@jax.jit
def by_eqsim(sys: eqsim.System, q, qd, ctrl) -> LinearModel:
    """Exact derivatives of `Generalized.step`, in forward mode."""
    pipeline, nv = eqsim.Generalized(), sys.nv

    def change(x, u):
        moved = kinematics.integrate(sys, q, x[:nv])
        state = pipeline.init(sys, moved, qd + x[nv:])
        new = pipeline.step(sys, state, ctrl + u)
        # At x = 0, u = 0 this is zero; what is wanted is how it grows from there.
        after = lax.stop_gradient(new)
        return jnp.concatenate(
            [kinematics.difference(sys, after.q, new.q), new.qd - after.qd]
        )

    at = (jnp.zeros(2 * nv), jnp.zeros(sys.nu))
    return LinearModel(*jax.jacfwd(change, (0, 1))(*at))


def by_mujoco(model: mujoco.MjModel, q, qd, ctrl) -> LinearModel:
    """Central differences by `mjd_transitionFD`, of step 1e-6."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = q, qd, ctrl
    # A converged start for the solver of every difference.
    mujoco.mj_forward(model, data)
    A = np.zeros((2 * model.nv, 2 * model.nv))
    B = np.zeros((2 * model.nv, model.nu))
    mujoco.mjd_transitionFD(model, data, 1e-6, True, A, B, None, None)
    return LinearModel(A, B)


def labels(sys: eqsim.System) -> list[str]:
    """Names of the degrees of freedom."""
    free = ["x", "y", "z", "roll", "pitch", "yaw"]
    return free + [name.replace("_", " ") for name in sys.joints.names[1:]]
