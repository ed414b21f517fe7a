import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model import State, System
from ..pipelines import AbstractPipeline, Generalized
from ._assets import gymnasium_model
from ._env import perturbed
from ._task import AbstractTask


class HalfCheetah(AbstractTask):
    """A planar runner that is to run along x (Wawrzyński 2009).

    Model, observation, reward terms and reset noise are those of Gymnasium's
    `HalfCheetah-v5`. It never terminates.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `half_cheetah.xml`.
    - `pipeline`: the physics.
    - `frame_skip`: time steps per control step.
    - `ctrl_weight`, `forward_weight`: weights of the reward.
    - `reset_noise`: scale of the noise of the first state.
    """

    sys: System
    pipeline: AbstractPipeline
    frame_skip: int = eqx.field(static=True)
    ctrl_weight: Float[Array, ""]
    forward_weight: Float[Array, ""]
    reset_noise: float = eqx.field(static=True)

    def __init__(
        self,
        sys: System | None = None,
        pipeline: AbstractPipeline | None = None,
        frame_skip: int = 5,
        ctrl_weight: float = 0.1,
        forward_weight: float = 1.0,
        reset_noise: float = 0.1,
    ):
        self.sys = gymnasium_model("half_cheetah.xml") if sys is None else sys
        self.pipeline = Generalized() if pipeline is None else pipeline
        self.frame_skip = frame_skip
        self.ctrl_weight = jnp.asarray(ctrl_weight, float)
        self.forward_weight = jnp.asarray(forward_weight, float)
        self.reset_noise = reset_noise

    def initial(self, key: PRNGKeyArray) -> State:
        noise = self.reset_noise
        q, qd = perturbed(key, self.sys.joints.ref, self.sys.nv, noise, noise)
        return self.pipeline.init(self.sys, q, qd)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q[1:], state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {
            "forward": self.forward_weight * (new.q[0] - state.q[0]) / self.dt,
            "ctrl": -self.ctrl_weight * jnp.sum(action**2),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)
