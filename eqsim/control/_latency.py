"""Latency of commands: the state at which a new command acts."""

from typing import Any

from jaxtyping import Array, Float

from .._errors import check_shape
from .._loops import scan
from ._dynamics import as_dynamics


def predict(system: Any, state: Any, pending: Float[Array, "latency nu"]) -> Any:
    """Compute the state at which the next command acts, on a robot with latency.

    The model is rolled forward over the commands that have been sent and have not acted
    yet. Feedback of the predicted state in place of the measured one is, for an exact
    model, the feedback of a robot without latency (a Smith predictor in state space).

    **Arguments:**

    - `system`: an environment, a pair `(pipeline, sys)`, or an `AbstractDynamics`.
    - `state`: the measured state.
    - `pending`: commands sent and not applied yet, oldest first, one for each control
        step of latency. May be empty.

    **Returns:** the state after the last of them.

    **Raises:** `ValueError` if a shape is wrong.
    """
    dynamics = as_dynamics(system)
    latency = pending.shape[0] if pending.ndim else 0
    check_shape("pending", pending, {"latency": latency, "nu": dynamics.nu})
    dynamics.check(state)
    if not latency:
        return state
    return scan(lambda x, u: (dynamics.step(x, u), None), state, pending)[0]
