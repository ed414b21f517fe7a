import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..kinematics import forward
from ..model import State, System
from ..model._fields import as_array
from ..pipelines import AbstractPipeline
from ._parts import (
    finite,
    link_number,
    model,
    normal_start,
    physics,
    reward_if,
    square_cost,
    wrenches,
)
from ._task import AbstractTask


class Ant(AbstractTask):
    r"""A four-legged robot that is to run along x (Schulman et al. 2016).

    Observation: coordinates without x and y of the torso (13), velocities (14), and of
    each of the 13 links the torque (N m) and the force (N) of its contacts, clipped
    (78); 105 numbers.

    Reward: `forward`, the velocity of the main body along x (m/s); `healthy`, where the
    robot is; `ctrl`, minus the sum of the squares of the action; `contact`, minus that
    of the clipped contact forces and torques; each weighted. It is healthy while its
    state is finite and its torso at a height in `healthy_z_range`.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `ant.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `forward_reward_weight`, `ctrl_cost_weight`, `contact_cost_weight`,
        `healthy_reward`: weights of the reward.
    - `main_body`: whose velocity counts, by name or number, the first link being 1.
    - `terminate_when_unhealthy`: whether the task ends then.
    - `healthy_z_range`: heights of the torso, m.
    - `contact_force_range`: to which contact forces and torques are clipped, N and N m.
    - `reset_noise_scale`: of the first state: half width of the uniform noise on
        coordinates, standard deviation of the normal noise on velocities.
    - `exclude_current_positions_from_observation`: whether x and y are left out.
    - `include_cfrc_ext_in_observation`: whether contacts are observed.

    ??? cite "Reference"
        Schulman, Moritz, Levine, Jordan, Abbeel, *High-dimensional continuous control
        using generalized advantage estimation*, 2016. Gymnasium: `Ant-v5`.
    """

    sys: System = eqx.field(converter=model("ant.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    forward_reward_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.5)
    contact_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=5e-4)
    healthy_reward: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    main_body: int | str = eqx.field(static=True, default=1)
    terminate_when_unhealthy: bool = eqx.field(static=True, default=True)
    healthy_z_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(0.2, 1.0)
    )
    contact_force_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(-1.0, 1.0)
    )
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    exclude_current_positions_from_observation: bool = eqx.field(
        static=True, default=True
    )
    include_cfrc_ext_in_observation: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        link_number(self.sys, self.main_body)

    def initial(self, key: PRNGKeyArray) -> State:
        return normal_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        skipped = 2 if self.exclude_current_positions_from_observation else 0
        parts = [state.q[skipped:], state.qd]
        if self.include_cfrc_ext_in_observation:
            parts.append(self._contact(state, action).ravel())
        return jnp.concatenate(parts)

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        link = link_number(self.sys, self.main_body)
        before, after = (forward(self.sys, s.q).pos[link, 0] for s in (state, new))
        # Gymnasium clips and counts the world too, on which nothing acts.
        world = jnp.clip(jnp.zeros_like(new.q[:6]), *self.contact_force_range)
        force = jnp.concatenate([world, self._contact(new, action).ravel()])
        return {
            "forward": self.forward_reward_weight * (after - before) / self.dt,
            "healthy": reward_if(self._healthy(new), self.healthy_reward),
            "ctrl": square_cost(self.ctrl_cost_weight, action),
            "contact": square_cost(self.contact_cost_weight, force),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return ~self._healthy(state) & self.terminate_when_unhealthy

    def _healthy(self, state: State) -> Bool[Array, ""]:
        low, high = self.healthy_z_range
        return finite(state) & (state.q[2] >= low) & (state.q[2] <= high)

    def _contact(self, state: State, action) -> Float[Array, "nlink 6"]:
        return jnp.clip(wrenches(self, state, action), *self.contact_force_range)
