import equinox as eqx
from jaxtyping import Array, Float, PyTree


class State(eqx.Module):
    """The state that the next step needs; the same type in every pipeline.

    **Arguments:**

    - `q`: coordinates, as MuJoCo's `qpos` (m, rad, unit quaternions scalar first).
    - `qd`: velocities, as MuJoCo's `qvel`. Free joints: linear in world axes, angular
        in body axes.
    - `act`: activations, actuator by actuator.
    - `aux`: private data of a pipeline, which never affects a converged result.
    """

    q: Float[Array, " nq"]
    qd: Float[Array, " nv"]
    act: Float[Array, " na"]
    aux: PyTree = None
