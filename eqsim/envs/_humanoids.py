"""The humanoid: walking, and standing up."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..kinematics import center_of_mass
from ..model import State, System
from ..model.arrays import as_array
from ..pipelines import AbstractPipeline
from ._task import AbstractTask
from .gymnasium_parts import (
    humanoid_observation,
    impact_cost,
    inside,
    model,
    physics,
    reward_if,
    square_cost,
    uniform_start,
    wrenches,
)


class Humanoid(AbstractTask):
    r"""A humanoid that learns to walk along x (Tassa, Erez, Todorov 2012).

    Observation: coordinates without x and y of the torso (22), velocities (23); inertia
    (10, see `eqsim.dynamics.centered_inertias`) and velocity (6, see
    `eqsim.dynamics.centered_velocities`) of each of the 13 links; joint forces of the
    actuators (17, N m); contact torque and force of each link (6, see
    `AbstractPipeline.contact_wrenches`); 348 entries.

    Reward, a weighted sum: `forward`, the velocity of the center of mass along x (m/s);
    `healthy`, 1 while the robot is healthy; `ctrl`, minus the sum of squares of the
    action; `contact`, minus the clipped sum of squares of all contact forces and
    torques. The robot is healthy while the height of its torso is in `healthy_z_range`.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `humanoid.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `forward_reward_weight`, `ctrl_cost_weight`, `contact_cost_weight`,
        `healthy_reward`: weights of the reward terms.
    - `contact_cost_range`: range to which the contact cost is clipped.
    - `terminate_when_unhealthy`: true to terminate the episode when the robot is
        unhealthy.
    - `healthy_z_range`: range of healthy heights of the torso, m.
    - `reset_noise_scale`: half width of the uniform noise on coordinates and velocities
        of the initial state.
    - `exclude_current_positions_from_observation`: true to exclude x and y.
    - `include_cinert_in_observation`, `include_cvel_in_observation`,
        `include_qfrc_actuator_in_observation`, `include_cfrc_ext_in_observation`: true
        to observe inertias and velocities of links, actuator forces, and contact
        wrenches.

    ??? cite "Reference"
        Tassa, Erez, Todorov, *Synthesis and stabilization of complex behaviors through
        online trajectory optimization*, 2012. Gymnasium: `Humanoid-v5`.
    """

    sys: System = eqx.field(converter=model("humanoid.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    forward_reward_weight: Float[Array, ""] = eqx.field(
        converter=as_array, default=1.25
    )
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    contact_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=5e-7)
    contact_cost_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(-jnp.inf, 10.0)
    )
    healthy_reward: Float[Array, ""] = eqx.field(converter=as_array, default=5.0)
    terminate_when_unhealthy: bool = eqx.field(static=True, default=True)
    healthy_z_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(1.0, 2.0)
    )
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=1e-2)
    exclude_current_positions_from_observation: bool = eqx.field(
        static=True, default=True
    )
    include_cinert_in_observation: bool = eqx.field(static=True, default=True)
    include_cvel_in_observation: bool = eqx.field(static=True, default=True)
    include_qfrc_actuator_in_observation: bool = eqx.field(static=True, default=True)
    include_cfrc_ext_in_observation: bool = eqx.field(static=True, default=True)

    def initial(self, key: PRNGKeyArray) -> State:
        return uniform_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return humanoid_observation(
            self,
            state,
            action,
            place=not self.exclude_current_positions_from_observation,
            inertia=self.include_cinert_in_observation,
            velocity=self.include_cvel_in_observation,
            drive=self.include_qfrc_actuator_in_observation,
            contact=self.include_cfrc_ext_in_observation,
        )

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        before, after = (center_of_mass(self.sys, s.q)[0] for s in (state, new))
        force, weight = wrenches(self, new, action), self.contact_cost_weight
        return {
            "forward": self.forward_reward_weight * (after - before) / self.dt,
            "healthy": reward_if(self._healthy(new), self.healthy_reward),
            "ctrl": square_cost(self.ctrl_cost_weight, action),
            "contact": impact_cost(weight, self.contact_cost_range, force),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return ~self._healthy(state) & self.terminate_when_unhealthy

    def _healthy(self, state: State) -> Bool[Array, ""]:
        return inside(state.q[2], self.healthy_z_range)


class HumanoidStandup(AbstractTask):
    r"""A humanoid that starts on its back and learns to stand up (Tassa, Erez, Todorov
    2012).

    Observation: coordinates without x and y of the torso (22), velocities (23); inertia
    (10, see `eqsim.dynamics.centered_inertias`) and velocity (6, see
    `eqsim.dynamics.centered_velocities`) of each of the 13 links; joint forces of the
    actuators (17, N m); contact torque and force of each link (6, see
    `AbstractPipeline.contact_wrenches`); 348 entries.

    Reward, a weighted sum: `up`, the height of the torso divided by the time step of
    the simulation (m/s); `ctrl`, minus the sum of squares of the action; `impact`,
    minus the clipped sum of squares of all contact forces and torques; and `constant`,
    1. Episodes never terminate.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `humanoidstandup.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `uph_cost_weight`, `ctrl_cost_weight`, `impact_cost_weight`: weights of the reward
        terms. Gymnasium accepts `uph_cost_weight`, but does not use it.
    - `impact_cost_range`: range to which the contact cost is clipped.
    - `reset_noise_scale`: half width of the uniform noise on coordinates and velocities
        of the initial state.
    - `exclude_current_positions_from_observation`: true to exclude x and y.
    - `include_cinert_in_observation`, `include_cvel_in_observation`,
        `include_qfrc_actuator_in_observation`, `include_cfrc_ext_in_observation`: true
        to observe inertias and velocities of links, actuator forces, and contact
        wrenches.

    ??? cite "Reference"
        Tassa, Erez, Todorov, *Synthesis and stabilization of complex behaviors through
        online trajectory optimization*, 2012. Gymnasium: `HumanoidStandup-v5`.
    """

    sys: System = eqx.field(converter=model("humanoidstandup.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=5)
    uph_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    impact_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=0.5e-6)
    impact_cost_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(-jnp.inf, 10.0)
    )
    reset_noise_scale: Float[Array, ""] = eqx.field(converter=as_array, default=1e-2)
    exclude_current_positions_from_observation: bool = eqx.field(
        static=True, default=True
    )
    include_cinert_in_observation: bool = eqx.field(static=True, default=True)
    include_cvel_in_observation: bool = eqx.field(static=True, default=True)
    include_qfrc_actuator_in_observation: bool = eqx.field(static=True, default=True)
    include_cfrc_ext_in_observation: bool = eqx.field(static=True, default=True)

    def initial(self, key: PRNGKeyArray) -> State:
        return uniform_start(self, key, self.reset_noise_scale)

    def observe(
        self, state: State, action: Float[Array, " nu"]
    ) -> Float[Array, " nobs"]:
        return humanoid_observation(
            self,
            state,
            action,
            place=not self.exclude_current_positions_from_observation,
            inertia=self.include_cinert_in_observation,
            velocity=self.include_cvel_in_observation,
            drive=self.include_qfrc_actuator_in_observation,
            contact=self.include_cfrc_ext_in_observation,
        )

    def rewards(
        self, state: State, action: Float[Array, " nu"], new: State
    ) -> dict[str, Float[Array, ""]]:
        force, weight = wrenches(self, new, action), self.impact_cost_weight
        return {
            "up": self.uph_cost_weight * new.q[2] / self.sys.dt,
            "ctrl": square_cost(self.ctrl_cost_weight, action),
            "impact": impact_cost(weight, self.impact_cost_range, force),
            "constant": jnp.ones_like(new.q[2]),
        }

    def terminated(self, state: State) -> Bool[Array, ""]:
        return jnp.zeros((), bool)
