import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model import State, System
from ..model._fields import as_array
from ..pipelines import AbstractPipeline
from ..spatial import clamp
from ._parts import inside, model, physics, reward_if, square_cost, uniform_start
from ._task import AbstractTask


class Hopper(AbstractTask):
    """A planar robot with one leg that learns to hop along x (Erez, Tassa, Todorov
    2011).

    Observation: coordinates without x (5), velocities clipped to [-10, 10] (6); 11
    entries.

    Reward, a weighted sum: `forward`, the velocity of the torso along x (m/s);
    `healthy`, 1 while the robot is healthy; `ctrl`, minus the sum of squares of the
    action. The robot is healthy while height and angle of the torso, and all
    coordinates and velocities except x and the height, are in their ranges.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `hopper.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `forward_reward_weight`, `ctrl_cost_weight`, `healthy_reward`: weights of the
        reward terms.
    - `terminate_when_unhealthy`: true to terminate the episode when the robot is
        unhealthy.
    - `healthy_state_range`: range of healthy coordinates and velocities.
    - `healthy_z_range`, `healthy_angle_range`: ranges of healthy heights (m) and angles
        (rad) of the torso.
    - `reset_noise_scale`: half width of the uniform noise on coordinates and velocities
        of the initial state.
    - `exclude_current_positions_from_observation`: true to exclude x.

    ??? cite "Reference"
        Erez, Tassa, Todorov, *Infinite-horizon model predictive control for periodic
        tasks with contacts*, 2011. Gymnasium: `Hopper-v5`.
    """

    sys: System = eqx.field(converter=model("hopper.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)
    forward_reward_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1e-3)
    healthy_reward: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    terminate_when_unhealthy: bool = eqx.field(static=True, default=True)
    healthy_state_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(-100.0, 100.0)
    )
    healthy_z_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(0.7, jnp.inf)
    )
    healthy_angle_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(-0.2, 0.2)
    )
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=5e-3)
    exclude_current_positions_from_observation: bool = eqx.field(
        static=True, default=True
    )

    def initial(self, key: PRNGKeyArray) -> State:
        return uniform_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        skipped = 1 if self.exclude_current_positions_from_observation else 0
        return jnp.concatenate([state.q[skipped:], clamp(state.qd, -10.0, 10.0)])

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        speed = (new.q[0] - state.q[0]) / self.dt
        return {
            "forward": self.forward_reward_weight * speed,
            "healthy": reward_if(self._healthy(new), self.healthy_reward),
            "ctrl": square_cost(self.ctrl_cost_weight, action),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return ~self._healthy(state) & self.terminate_when_unhealthy

    def _healthy(self, state: State) -> Bool[Array, ""]:
        rest = jnp.concatenate([state.q[2:], state.qd])
        return (
            jnp.all(inside(rest, self.healthy_state_range))
            & inside(state.q[1], self.healthy_z_range)
            & inside(state.q[2], self.healthy_angle_range)
        )
