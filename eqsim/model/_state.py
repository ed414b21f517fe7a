import equinox as eqx
from jaxtyping import Array, Float, PyTree


class State(eqx.Module):
    """What the next step reads, and nothing else; one type for every pipeline.

    **Arguments:**

    - `q`: coordinates, as MuJoCo's `qpos` (m, rad, unit quaternions scalar first).
    - `qd`: velocities, as MuJoCo's `qvel`. Free joints: linear in world axes, angular
        in body axes.
    - `act`: activations of the actuators that have dynamics, actuator by actuator.
    - `aux`: private to a pipeline; never changes a converged result.
    """

    q: Float[Array, " nq"]
    qd: Float[Array, " nv"]
    act: Float[Array, " na"]
    aux: PyTree = None
