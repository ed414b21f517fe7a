"""Robots that move forward: hopper, walker, half-cheetah, swimmer, ant and humanoid, which also
stands up."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..kinematics import center_of_mass, forward
from ..model import State, System
from ..model.arrays import as_array
from ..pipelines import AbstractPipeline
from ..spatial import clamp
from ._env import AbstractTask
from .gymnasium_parts import (
    finite,
    humanoid_observation,
    impact_cost,
    inside,
    link_number,
    model,
    normal_start,
    physics,
    reward_if,
    square_cost,
    uniform_start,
    wrenches,
)


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


class Walker2d(AbstractTask):
    """A planar robot with two legs that learns to walk along x (Erez, Tassa, Todorov
    2011).

    Observation: coordinates without x (8), velocities clipped to [-10, 10] (9); 17
    entries.

    Reward, a weighted sum: `forward`, the velocity of the torso along x (m/s);
    `healthy`, 1 while the robot is healthy; `ctrl`, minus the sum of squares of the
    action. The robot is healthy while height and angle of the torso are in their
    ranges.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `walker2d_v5.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `forward_reward_weight`, `ctrl_cost_weight`, `healthy_reward`: weights of the
        reward terms.
    - `terminate_when_unhealthy`: true to terminate the episode when the robot is
        unhealthy.
    - `healthy_z_range`, `healthy_angle_range`: ranges of healthy heights (m) and angles
        (rad) of the torso.
    - `reset_noise_scale`: half width of the uniform noise on coordinates and velocities
        of the initial state.
    - `exclude_current_positions_from_observation`: true to exclude x.

    ??? cite "Reference"
        Erez, Tassa, Todorov, *Infinite-horizon model predictive control for periodic
        tasks with contacts*, 2011. Gymnasium: `Walker2d-v5`.
    """

    sys: System = eqx.field(converter=model("walker2d_v5.xml"), default=None)
    pipeline: AbstractPipeline = eqx.field(converter=physics, default=None)
    frame_skip: int = eqx.field(static=True, default=4)
    forward_reward_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    ctrl_cost_weight: Float[Array, ""] = eqx.field(converter=as_array, default=1e-3)
    healthy_reward: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    terminate_when_unhealthy: bool = eqx.field(static=True, default=True)
    healthy_z_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(0.8, 2.0)
    )
    healthy_angle_range: Float[Array, "2"] = eqx.field(
        converter=as_array, default=(-1.0, 1.0)
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
        upright = inside(state.q[2], self.healthy_angle_range)
        return inside(state.q[1], self.healthy_z_range) & upright


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


class Ant(AbstractTask):
    r"""A four-legged robot that learns to run along x (Schulman et al. 2016).

    Observation: coordinates without x and y of the torso (13), velocities (14), and the
    contact torque (N m) and force (N) of each of the 13 links, clipped (78); 105
    entries.

    Reward, a weighted sum: `forward`, the velocity of the main body along x (m/s);
    `healthy`, 1 while the robot is healthy; `ctrl`, minus the sum of squares of the
    action; `contact`, minus the sum of squares of the clipped contact forces and
    torques. The robot is healthy while its state is finite and the height of its torso
    is in `healthy_z_range`.

    **Arguments:**

    - `sys`: the robot; by default Gymnasium's `ant.xml`.
    - `pipeline`: the physics; by default `Generalized()`.
    - `frame_skip`: time steps per control step.
    - `forward_reward_weight`, `ctrl_cost_weight`, `contact_cost_weight`,
        `healthy_reward`: weights of the reward terms.
    - `main_body`: body whose velocity is rewarded, by name or by number; the first link
        is 1.
    - `terminate_when_unhealthy`: true to terminate the episode when the robot is
        unhealthy.
    - `healthy_z_range`: range of healthy heights of the torso, m.
    - `contact_force_range`: range to which contact forces (N) and torques (N m) are
        clipped.
    - `reset_noise_scale`: noise of the initial state: half width of the uniform noise
        on coordinates, and standard deviation of the normal noise on velocities.
    - `exclude_current_positions_from_observation`: true to exclude x and y.
    - `include_cfrc_ext_in_observation`: true to observe contact torques and forces.

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
        # Gymnasium clips and counts the world body too, on which no force acts.
        world = clamp(jnp.zeros_like(new.q[:6]), *self.contact_force_range)
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
        return clamp(wrenches(self, state, action), *self.contact_force_range)


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
