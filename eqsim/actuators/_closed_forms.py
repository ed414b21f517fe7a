"""Models with closed forms.

First those between `ctrl` and the actuator: delay, low-pass filter, backlash. Then those
between the force law and the joint: limits, friction, lag, rotor, and a PD servo.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._errors import check_count
from ..model import AbstractControlModel, AbstractForceModel, ActuatorInputs
from ..model.arrays import as_array
from ..spatial import clamp


# Between `ctrl` and the actuator.


# Tolerance, in time steps, when a delay is rounded up to whole time steps.
_ROUNDING = 1e-3


class Delay(AbstractControlModel):
    r"""A delay of the control: $u(t - \tau)$, from a list of the last controls.

    The controls of the last `num_samples` time steps are state variables, zero at the
    start. Delays beyond them are limited to `num_samples * dt`. With linear
    interpolation the derivative by the delay is $-\dot u$, so that delays can be
    identified; those of a delay that holds the previous control are zero. Stages of
    `Integrator.RK4` read controls at their times: a delay of at least one time step is reduced
    by the time since the start of the step, to at least one time step. Shorter delays are the
    same at all stages.

    **Arguments:**

    - `delay`: delay $\tau$, s.
    - `num_samples`: number of past controls that are kept. Default: as many as `delay`
        needs at a time step of `dt`.
    - `interpolation`: `"linear"` between two controls; `"previous"` for the last control
        that is at least as old as the delay; `"cubic"` for Catmull-Rom splines through
        the past controls, so that a delay lasts at least one time step. MuJoCo has all
        three.
    - `dt`: time step of the robot, s, from which the default of `num_samples` is computed.

    **Raises:** `ValueError` without `num_samples` and `dt`, for fewer than one sample, and for
    an unknown interpolation.
    """

    delay: Float[Array, ""] = eqx.field(converter=as_array)
    num_samples: int = eqx.field(static=True)
    interpolation: str = eqx.field(static=True)

    def __init__(
        self,
        delay: Float[Array, ""] | float,
        num_samples: int | None = None,
        interpolation: str = "linear",
        *,
        dt: float | None = None,
    ):
        if num_samples is None:
            if dt is None:
                raise ValueError(
                    "`Delay` needs `num_samples`, or the time step of the robot: "
                    "`Delay(0.01, dt=float(sys.dt))`."
                )
            num_samples = max(1, math.ceil(float(delay) / dt - _ROUNDING))
        check_count("Delay.num_samples", num_samples, 1)
        if interpolation not in _READERS:
            raise ValueError(
                f"`interpolation` must be one of {', '.join(_READERS)}, got "
                f"{interpolation!r}."
            )
        self.delay = as_array(delay)
        self.num_samples = num_samples
        self.interpolation = interpolation

    @property
    def num_states(self) -> int:
        """Number of past controls."""
        return self.num_samples

    def __call__(
        self, state: Float[Array, " num_samples"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " num_samples"], Float[Array, ""]]:
        # The newest control first: entry k was given k time steps ago.
        controls = jnp.concatenate([inputs.control[None], state])
        age = self.delay / inputs.dt
        if inputs.elapsed is not None:
            newest, now = clamp(age, 0.0, 1.0), age - inputs.elapsed / inputs.dt
            age = jnp.where(now >= newest, now, newest)
        age = clamp(age, 0.0, float(self.num_samples))
        return controls[:-1], _READERS[self.interpolation](controls, age)


def _ages(controls):
    return jnp.arange(len(controls), dtype=controls.dtype)


def _previous(controls, age):
    oldest = jnp.ceil(age - _ROUNDING)
    return jnp.sum(jnp.where(_ages(controls) == oldest, controls, 0.0))


def _linear(controls, age):
    # At a control, the derivative is that of the interval of older ones.
    last = len(controls) - 2.0
    newer = lax.stop_gradient(clamp(jnp.floor(age), 0.0, last))
    share, place = age - newer, _ages(controls) - newer
    weight = jnp.where(place == 0.0, 1.0 - share, jnp.where(place == 1.0, share, 0.0))
    return jnp.sum(weight * controls)


def _cubic(controls, age):
    """Interpolate as MuJoCo does: the present control is not read, and slopes are zero at
    the ends of the list."""
    past = controls[1:]
    if len(past) == 1:
        return past[0]
    slopes = jnp.concatenate([past[:1] * 0, 0.5 * (past[2:] - past[:-2]), past[:1] * 0])
    age = clamp(age - 1.0, 0.0, len(past) - 1.0)
    distance = age - _ages(past)
    inside = jnp.where(jnp.abs(distance) < 1.0, distance, 1.0)
    near = jnp.abs(inside)
    value = (2.0 * near - 3.0) * inside * inside + 1.0
    slope = inside * (1.0 - near) * (1.0 - near)
    return jnp.sum(value * past + slope * slopes)


_READERS = {"previous": _previous, "linear": _linear, "cubic": _cubic}


def _lagged(state, target, time):
    """Return the state and the output of a lag of first order; `time` is the time step in
    units of the time constant."""
    return state - jnp.expm1(-time) * (target - state), state[0]


class ControlFilter(AbstractControlModel):
    r"""A low-pass filter of first order, $\dot y = (u - y)/\tau$, exact for a control that is
    constant over a time step.

    The output during a step is that at its start.

    **Arguments:**

    - `time_constant`: $\tau$, s; must be positive.
    """

    time_constant: Float[Array, ""] = eqx.field(converter=as_array)

    @property
    def num_states(self) -> int:
        """One: the output."""
        return 1

    def __call__(
        self, state: Float[Array, " 1"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " 1"], Float[Array, ""]]:
        return _lagged(state, inputs.control, inputs.dt / self.time_constant)


class Backlash(AbstractControlModel):
    r"""Backlash of a position servo: the play operator,
    $y \leftarrow \min(\max(y, u - w/2), u + w/2)$.

    The output follows the control only when the gap is closed.

    **Arguments:**

    - `width`: width $w$ of the gap, in units of the control.
    """

    width: Float[Array, ""] = eqx.field(converter=as_array)

    @property
    def num_states(self) -> int:
        """One: the output."""
        return 1

    def __call__(
        self, state: Float[Array, " 1"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " 1"], Float[Array, ""]]:
        half = 0.5 * self.width
        output = clamp(state[0], inputs.control - half, inputs.control + half)
        return output[None], output


# Between the force law and the joint.


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
    - `static`: static friction $f_S$, N or N m.
    - `stribeck_velocity`: $v_S$, rad/s or m/s.
    - `viscous`: viscous coefficient $b$, N m s/rad or N s/m.
    - `width`: speed $\epsilon$ over which the sign changes, rad/s or m/s.
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
        return _lagged(state, inputs.force, inputs.dt / self.time_constant)


class OutputTorque(AbstractForceModel):
    r"""Torque behind the rotor of a motor, with a lag: that of the law less what accelerates
    the rotor, $\tau \dot y = f - J \dot v - y$ with the velocity $v$.

    The state is $z = y + J v/\tau$, so that no acceleration is needed:
    $\dot z = (f - y)/\tau$, exact for a force and velocity that are constant over a time
    step. It is zero at the start of an episode: with a velocity $v_0$ the torque begins with an
    error of $-J v_0/\tau$, which decays with $\tau$ (`identify.Windows.settle` leaves it out of
    fits). Drives that report torques at the output follow this law. $J$ is the inertia that
    `Joints.armature` describes otherwise: with both, it counts twice.

    **Arguments:**

    - `time_constant`: $\tau$, s; must be positive.
    - `inertia`: $J$, inertia of the rotor times the squared gear ratio, kg m$^2$ or kg.
    """

    time_constant: Float[Array, ""] = eqx.field(converter=as_array)
    inertia: Float[Array, ""] = eqx.field(converter=as_array)

    @property
    def num_states(self) -> int:
        """One: the torque, with the part of the velocity."""
        return 1

    def __call__(
        self, state: Float[Array, " 1"], inputs: ActuatorInputs
    ) -> tuple[Float[Array, " 1"], Float[Array, ""]]:
        inertial = self.inertia / self.time_constant * inputs.velocity
        time = inputs.dt / self.time_constant
        new, output = _lagged(state, inputs.force + inertial, time)
        return new, output - inertial


class PDServo(AbstractForceModel):
    r"""A position servo with a limit in place of the force law:
    $f = \mathrm{clip}(k_p (u - \ell) - k_d \dot\ell, -f_{\max}, f_{\max})$.

    Attach it to a motor whose control is a setpoint; `inputs.force` is not read, and the
    force range of the actuator does not apply.

    **Arguments:**

    - `stiffness`, `damping`: gains $k_p$, N m/rad or N/m, and $k_d$, N m s/rad or N s/m.
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
