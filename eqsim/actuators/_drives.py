"""Models between the force law and the joint: limits, friction, lag, and a PD servo."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import AbstractForceModel, ActuatorInputs
from ..model.arrays import as_array
from ..spatial import clamp


class TorqueSpeedLimit(AbstractForceModel):
    r"""Torque-speed curve of a motor: the largest force falls with speed.

    With the stall force $f_0$ and the no-load speed $v_0$, the force is limited to
    $-f_0 \min(1, \max(0, 1 + v/v_0)) \le f \le f_0 \min(1, \max(0, 1 - v/v_0))$.

    **Arguments:**

    - `stall_force`: largest force at rest, N or N m.
    - `no_load_speed`: speed at which the motor has no force left, in units of the
        actuator's velocity.
    """

    stall_force: Float[Array, ""] = eqx.field(converter=as_array)
    no_load_speed: Float[Array, ""] = eqx.field(converter=as_array)

    @property
    def num_states(self) -> int:
        """Zero: the model has no memory."""
        return 0

    def __call__(
        self, state: Float[Array, " 0"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " 0"], Float[Array, ""]]:
        speed = inputs.velocity / self.no_load_speed
        most = self.stall_force * clamp(1.0 - speed, 0.0, 1.0)
        least = -self.stall_force * clamp(1.0 + speed, 0.0, 1.0)
        return state, clamp(inputs.force, least, most)


class StribeckFriction(AbstractForceModel):
    r"""Friction of a gearbox: Coulomb, Stribeck and viscous friction, smooth at rest.

    $f - \left(f_C + (f_S - f_C) e^{-(v/v_S)^2}\right) \tanh(v/\epsilon) - b v$

    (Armstrong-Hélouvry, Dupont and Canudas de Wit, *A survey of models, analysis tools and
    compensation methods for the control of machines with friction*, 1994.) A joint does not
    stick: it creeps at speeds below $\epsilon$. `Joints.frictionloss` is exact stiction
    without the Stribeck effect.

    **Arguments:**

    - `coulomb`: Coulomb friction $f_C$, N or N m.
    - `static`: static friction $f_S$.
    - `stribeck_velocity`: $v_S$, in units of the actuator's velocity.
    - `viscous`: viscous coefficient $b$.
    - `width`: speed $\epsilon$ over which the sign changes.
    """

    coulomb: Float[Array, ""] = eqx.field(converter=as_array)
    static: Float[Array, ""] = eqx.field(converter=as_array)
    stribeck_velocity: Float[Array, ""] = eqx.field(converter=as_array)
    viscous: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    width: Float[Array, ""] = eqx.field(converter=as_array, default=0.01)

    @property
    def num_states(self) -> int:
        """Zero: the model has no memory."""
        return 0

    def __call__(
        self, state: Float[Array, " 0"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " 0"], Float[Array, ""]]:
        speed = inputs.velocity
        # Beyond this ratio the exponential is zero, and its square may overflow.
        ratio = clamp(speed / self.stribeck_velocity, -40.0, 40.0)
        level = self.coulomb + (self.static - self.coulomb) * jnp.exp(-ratio * ratio)
        friction = level * jnp.tanh(speed / self.width) + self.viscous * speed
        return state, inputs.force - friction


class TorqueLag(AbstractForceModel):
    r"""A lag of the force behind that of its law, $\dot y = (f - y)/\tau$, for the bandwidth
    of a current loop; exact for a force that is constant over a time step.

    The force during a step is that at its start.

    **Arguments:**

    - `time_constant`: $\tau$, s; must be positive.
    """

    time_constant: Float[Array, ""] = eqx.field(converter=as_array)

    @property
    def num_states(self) -> int:
        """One: the force."""
        return 1

    def __call__(
        self, state: Float[Array, " 1"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " 1"], Float[Array, ""]]:
        share = -jnp.expm1(-inputs.dt / self.time_constant)
        return state + share * (inputs.force - state), state[0]


class PDServo(AbstractForceModel):
    r"""A position servo with a limit in place of the force law:
    $f = \mathrm{clip}(k_p (u - \ell) - k_d \dot\ell, -f_{\max}, f_{\max})$.

    Attach it to a motor whose control is a setpoint; `inputs.force` is not read.

    **Arguments:**

    - `stiffness`, `damping`: gains $k_p$ and $k_d$.
    - `max_force`: $f_{\max}$, N or N m. Default: no limit.
    """

    stiffness: Float[Array, ""] = eqx.field(converter=as_array)
    damping: Float[Array, ""] = eqx.field(converter=as_array)
    max_force: Float[Array, ""] = eqx.field(converter=as_array, default=jnp.inf)

    @property
    def num_states(self) -> int:
        """Zero: the model has no memory."""
        return 0

    def __call__(
        self, state: Float[Array, " 0"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " 0"], Float[Array, ""]]:
        error = inputs.control - inputs.length
        force = self.stiffness * error - self.damping * inputs.velocity
        return state, clamp(force, -self.max_force, self.max_force)
