import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model import State, System
from ..model._fields import as_array
from ..pipelines import AbstractPipeline
from ._parts import model, physics, square_cost, uniform_start
from ._task import AbstractTask


class Swimmer(AbstractTask):
    """A snake with three links in a fluid that learns to swim along x (Coulom 2002).

    Observation: coordinates without x and y of the head (3), velocities (5); 8 entries.

    Reward, a weighted sum: `forward`, the velocity of the head along x (m/s), and
    `ctrl`, minus the sum of squares of the action. Episodes never terminate.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `swimmer.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `forward_reward_weight`, `ctrl_cost_weight`: weights of the reward terms.
    - `reset_noise_scale`: half width of the uniform noise on coordinates and velocities
        of the initial state.
    - `exclude_current_positions_from_observation`: true to exclude x and y.

    ??? cite "Reference"
        Coulom, *Reinforcement learning using neural networks, with applications to motor
        control*, 2002. Gymnasium: `Swimmer-v5`.
    """

    sys: System = eqx.field(converter=model("swimmer.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)
    forward_reward_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1e-4)
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    exclude_current_positions_from_observation: bool = eqx.field(
        static=True, default=True
    )

    def initial(self, key: PRNGKeyArray) -> State:
        return uniform_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        skipped = 2 if self.exclude_current_positions_from_observation else 0
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
