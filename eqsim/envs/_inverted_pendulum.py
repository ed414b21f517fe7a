import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model import State, System
from ..pipelines import AbstractPipeline, Generalized
from ._assets import gymnasium_model
from ._task import AbstractTask


class InvertedPendulum(AbstractTask):
    """A pole on a cart that is to be kept upright (Barto, Sutton and Anderson 1983).

    Model, observation, reward, termination and reset noise are those of Gymnasium's
    `InvertedPendulum-v5`.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `inverted_pendulum.xml`.
    - `pipeline`: the physics.
    - `frame_skip`: time steps per control step.
    - `reset_noise`: scale of the noise of the first state.
    """

    sys: System
    pipeline: AbstractPipeline
    frame_skip: int = eqx.field(static=True)
    reset_noise: float = eqx.field(static=True)

    def __init__(
        self,
        sys: System | None = None,
        pipeline: AbstractPipeline | None = None,
        frame_skip: int = 2,
        reset_noise: float = 0.01,
    ):
        self.sys = gymnasium_model("inverted_pendulum.xml") if sys is None else sys
        self.pipeline = Generalized() if pipeline is None else pipeline
        self.frame_skip = frame_skip
        self.reset_noise = reset_noise

    def initial(self, key: PRNGKeyArray) -> State:
        ref, noise = self.sys.joints.ref, self.reset_noise
        key_q, key_qd = jr.split(key)
        q = ref + jr.uniform(key_q, ref.shape, ref.dtype, -noise, noise)
        qd = jr.uniform(key_qd, (self.sys.nv,), ref.dtype, -noise, noise)
        return self.pipeline.init(self.sys, q, qd)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q, state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {
            "upright": jnp.where(self.terminated(new), 0.0, 1.0).astype(new.q.dtype)
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        finite = jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.qd))
        return ~(finite & (jnp.abs(state.q[1]) <= 0.2))
