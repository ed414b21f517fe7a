import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model import State, System
from ..model._fields import as_array
from ..pipelines import AbstractPipeline
from ._parts import model, normal_start, physics, square_cost
from ._task import AbstractTask


class HalfCheetah(AbstractTask):
    """A planar runner that learns to run along x (Wawrzyński 2009).

    Observation: coordinates without x (8), velocities (9); 17 entries.

    Reward, a weighted sum: `forward`, the velocity of the torso along x (m/s), and
    `ctrl`, minus the sum of squares of the action. Episodes never terminate.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `half_cheetah.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `forward_reward_weight`, `ctrl_cost_weight`: weights of the reward terms.
    - `reset_noise_scale`: noise of the initial state: half width of the uniform noise
        on coordinates, and standard deviation of the normal noise on velocities.
    - `exclude_current_positions_from_observation`: true to exclude x.

    ??? cite "Reference"
        Wawrzyński, *A cat-like robot real-time learning to run*, 2009. Gymnasium:
        `HalfCheetah-v5`.
    """

    sys: System = eqx.field(converter=model("half_cheetah.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    forward_reward_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    exclude_current_positions_from_observation: bool = eqx.field(
        static=True, default=True
    )

    def initial(self, key: PRNGKeyArray) -> State:
        return normal_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        skipped = 1 if self.exclude_current_positions_from_observation else 0
        return jnp.concatenate([state.q[skipped:], state.qd])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        speed = (new.q[0] - state.q[0]) / self.dt
        return {
            "forward": self.forward_reward_weight * speed,
            "ctrl": square_cost(self.ctrl_cost_weight, action),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)
