import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model import State, System
from ..model._fields import as_array
from ..pipelines import AbstractPipeline
from ._parts import finite, model, physics, uniform_start
from ._task import AbstractTask


class InvertedPendulum(AbstractTask):
    """A cart with a pole to be kept upright (Barto, Sutton, Anderson 1983).

    Observation: position of the cart (m), angle of the pole (rad), and their
    velocities; 4 entries.

    Reward: `healthy`, 1 while the state is finite and the angle is at most 0.2 rad.
    Otherwise, the episode terminates.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `inverted_pendulum.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `reset_noise_scale`: half width of the uniform noise on coordinates and velocities
        of the initial state.

    ??? cite "Reference"
        Barto, Sutton, Anderson, *Neuronlike adaptive elements that can solve difficult
        learning control problems*, 1983. Gymnasium: `InvertedPendulum-v5`.
    """

    sys: System = eqx.field(converter=model("inverted_pendulum.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=2)
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=0.01)

    def initial(self, key: PRNGKeyArray) -> State:
        return uniform_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q, state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {"healthy": 1.0 - self.terminated(new).astype(new.q.dtype)}

    def terminated(self, state: State) -> Bool[Array, ""]:
        return ~(finite(state) & (jnp.abs(state.q[1]) <= 0.2))
