import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model import State, System
from ..pipelines import AbstractPipeline, Generalized
from ._assets import gymnasium_model
from ._env import perturbed
from ._task import AbstractTask


class Ant(AbstractTask):
    """A four-legged robot that is to run along x (Schulman et al. 2016).

    Model, reset noise, termination, and the reward terms `forward`, `healthy` and
    `ctrl` are those of Gymnasium's `Ant-v5`. Contact forces are neither observed nor
    rewarded (`include_cfrc_ext_in_observation=False`, `contact_cost_weight=0`). `forward`
    uses the position after the step; Gymnasium's is that of the integrator's last stage.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `ant.xml`.
    - `pipeline`: the physics.
    - `frame_skip`: time steps per control step.
    - `ctrl_weight`, `healthy_reward`: weights of the reward.
    - `healthy_z`: heights of the torso between which the ant goes on, m.
    - `reset_noise`: scale of the noise of the first state.
    """

    sys: System
    pipeline: AbstractPipeline
    frame_skip: int = eqx.field(static=True)
    ctrl_weight: Float[Array, ""]
    healthy_reward: Float[Array, ""]
    healthy_z: Float[Array, "2"]
    reset_noise: float = eqx.field(static=True)

    def __init__(
        self,
        sys: System | None = None,
        pipeline: AbstractPipeline | None = None,
        frame_skip: int = 5,
        ctrl_weight: float = 0.5,
        healthy_reward: float = 1.0,
        healthy_z: tuple[float, float] = (0.2, 1.0),
        reset_noise: float = 0.1,
    ):
        self.sys = gymnasium_model("ant.xml") if sys is None else sys
        self.pipeline = Generalized() if pipeline is None else pipeline
        self.frame_skip = frame_skip
        self.ctrl_weight = jnp.asarray(ctrl_weight, float)
        self.healthy_reward = jnp.asarray(healthy_reward, float)
        self.healthy_z = jnp.asarray(healthy_z, float)
        self.reset_noise = reset_noise

    def initial(self, key: PRNGKeyArray) -> State:
        noise = self.reset_noise
        q, qd = perturbed(key, self.sys.joints.ref, self.sys.nv, noise, noise)
        return self.pipeline.init(self.sys, q, qd)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return jnp.concatenate([state.q[2:], state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        return {
            "forward": (new.q[0] - state.q[0]) / self.dt,
            "healthy": jnp.where(self.terminated(new), 0.0, self.healthy_reward),
            "ctrl": -self.ctrl_weight * jnp.sum(action**2),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        low, high = self.healthy_z
        finite = jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.qd))
        return ~(finite & (state.q[2] >= low) & (state.q[2] <= high))
