"""Simulation of the whole recording from its first state."""

import jax
import jax.numpy as jnp
import numpy as np

import eqsim

from .recording import Recording
from .robot import changed


def replay(sys: eqsim.System, recording: Recording, scales) -> np.ndarray:
    """Simulate robots with different parameters under the same controls.

    **Arguments:**

    - `scales`: one row per robot.

    **Returns:** `(robots, time, nq)`.
    """
    start = recording.true_q[0], recording.true_qd[0]
    args = (*start, recording.ctrl, np.asarray(scales))
    return np.asarray(_replay(sys, *(jnp.asarray(x) for x in args)))


@jax.jit
def _replay(sys, q, qd, ctrl, scales):
    pipeline = eqsim.Generalized()

    def single(scales):
        robot = changed(sys, scales)
        step = lambda state, u: (pipeline.step(robot, state, u), state.q)
        return eqsim.scan(step, pipeline.init(robot, q, qd), ctrl)[1]

    return jax.vmap(single)(scales)
