"""Parameters of uncommon force laws and activations: one row per actuator that has the
law."""

import equinox as eqx
from jaxtyping import Array, Float

from ._fields import as_array


class Muscles(eqx.Module):
    r"""Force laws of muscles: force over length and velocity.

    Lengths are in units of the optimal length $L_0$, which is derived from `range` and
    `length_range`. With peak force $F_0$, input $u$, normalized length $L$ and velocity
    $V$, the force is $-F_0 (F_L(L) F_V(V) u + F_P(L))$ (MuJoCo documentation,
    *Modeling*, "Muscles").

    **Arguments:**

    - `gain_rows`, `bias_rows`: rows of the active force $F_L F_V$ and of the passive force
        $F_P$ of each actuator, or -1. Usually the same row.
    - `owners`: actuator of each row.
    - `scaled`: true if the peak force of a row is `scale` divided by the norm of the
        joint accelerations caused by a unit force at the reference coordinates; false
        if it is `force`.
    - `length_range`: shortest and longest length of the actuator.
    - `range`: shortest and longest length in units of $L_0$.
    - `force`, `scale`: peak force and its scale, see `scaled`.
    - `shortest`, `longest`: lengths beyond which $F_L$ is zero, in units of $L_0$.
    - `max_speed`: shortening velocity at which $F_V$ is zero, $L_0$/s.
    - `max_passive`: twice the value of $F_P$ midway between 1 and `longest`.
    - `max_lengthening`: $F_V$ at saturating lengthening velocity.
    """

    gain_rows: tuple[int, ...] = eqx.field(static=True)
    bias_rows: tuple[int, ...] = eqx.field(static=True)
    owners: tuple[int, ...] = eqx.field(static=True)
    scaled: tuple[bool, ...] = eqx.field(static=True)
    length_range: Float[Array, "nmuscle 2"] = eqx.field(converter=as_array)
    range: Float[Array, "nmuscle 2"] = eqx.field(converter=as_array)
    force: Float[Array, " nmuscle"] = eqx.field(converter=as_array)
    scale: Float[Array, " nmuscle"] = eqx.field(converter=as_array)
    shortest: Float[Array, " nmuscle"] = eqx.field(converter=as_array)
    longest: Float[Array, " nmuscle"] = eqx.field(converter=as_array)
    max_speed: Float[Array, " nmuscle"] = eqx.field(converter=as_array)
    max_passive: Float[Array, " nmuscle"] = eqx.field(converter=as_array)
    max_lengthening: Float[Array, " nmuscle"] = eqx.field(converter=as_array)

    @property
    def nmuscle(self) -> int:
        """Number of rows."""
        return len(self.owners)


class MuscleActivations(eqx.Module):
    r"""Activation dynamics of muscles, $\dot a = (u - a)/\tau(u, a)$ (Millard et al.,
    2013).

    **Arguments:**

    - `owners`: actuator of each row.
    - `rise`, `fall`: time constants of activation and deactivation, s.
    - `smoothing`: width of the smooth transition between both time constants around $u
        = a$; 0 for a discontinuous one.
    """

    owners: tuple[int, ...] = eqx.field(static=True)
    rise: Float[Array, " n"] = eqx.field(converter=as_array)
    fall: Float[Array, " n"] = eqx.field(converter=as_array)
    smoothing: Float[Array, " n"] = eqx.field(converter=as_array)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.owners)


class PIDs(eqx.Module):
    r"""PID servos. The proportional and derivative gains are those of the affine bias,
    $k_p = -b_1$ and $k_v = -b_2$.

    **Arguments:**

    - `owners`: actuator of each row.
    - `integral_gain`: integral gain $k_i$.
    - `max_integral`: bound of the integral of the error; 0 for none.
    - `max_slew`: largest rate of the setpoint; no effect if the actuator has no such
        state.
    """

    owners: tuple[int, ...] = eqx.field(static=True)
    integral_gain: Float[Array, " n"] = eqx.field(converter=as_array)
    max_integral: Float[Array, " n"] = eqx.field(converter=as_array)
    max_slew: Float[Array, " n"] = eqx.field(converter=as_array)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.owners)


class DCMotors(eqx.Module):
    r"""DC motors: electrical circuit, temperature, cogging and LuGre friction.

    The effects of each motor are static (`Actuators.states` and `Actuators.inputs`).
    Parameters of effects that a motor lacks are not used (MuJoCo documentation, XML
    reference, "dcmotor").

    **Arguments:**

    - `owners`: actuator of each row.
    - `resistance`: resistance at the reference temperature, Ohm.
    - `torque_constant`: $K$, N m/A, also the back-EMF constant.
    - `temperature_coefficient`, `reference_temperature`, `ambient_temperature`:
        temperature coefficient of the resistance, 1/K, and temperatures, K.
    - `proportional`, `integral`, `derivative`: controller gains, from errors to torque.
    - `max_voltage`: largest voltage of the controller; 0 for no bound.
    - `max_integral`: bound of the integral of the error; 0 for none.
    - `max_slew`: largest rate of the first control.
    - `time_constant`: electrical time constant, s.
    - `max_current_rate`: largest rate of the current, A/s; 0 for no bound.
    - `thermal_resistance`, `thermal_capacitance`: thermal resistance, K/W, and heat
        capacity, J/K.
    - `cogging`, `cogging_periods`, `cogging_phase`: amplitude, periods per unit of
        length, and phase of the cogging torque.
    - `bristle_stiffness`, `bristle_damping`: $\sigma_0$ and $\sigma_1$ of LuGre friction.
    - `coulomb_friction`, `static_friction`, `stribeck_velocity`: parameters of LuGre
        friction.
    """

    owners: tuple[int, ...] = eqx.field(static=True)
    resistance: Float[Array, " n"] = eqx.field(converter=as_array)
    torque_constant: Float[Array, " n"] = eqx.field(converter=as_array)
    temperature_coefficient: Float[Array, " n"] = eqx.field(converter=as_array)
    reference_temperature: Float[Array, " n"] = eqx.field(converter=as_array)
    ambient_temperature: Float[Array, " n"] = eqx.field(converter=as_array)
    proportional: Float[Array, " n"] = eqx.field(converter=as_array)
    integral: Float[Array, " n"] = eqx.field(converter=as_array)
    derivative: Float[Array, " n"] = eqx.field(converter=as_array)
    max_voltage: Float[Array, " n"] = eqx.field(converter=as_array)
    max_integral: Float[Array, " n"] = eqx.field(converter=as_array)
    max_slew: Float[Array, " n"] = eqx.field(converter=as_array)
    time_constant: Float[Array, " n"] = eqx.field(converter=as_array)
    max_current_rate: Float[Array, " n"] = eqx.field(converter=as_array)
    thermal_resistance: Float[Array, " n"] = eqx.field(converter=as_array)
    thermal_capacitance: Float[Array, " n"] = eqx.field(converter=as_array)
    cogging: Float[Array, " n"] = eqx.field(converter=as_array)
    cogging_periods: Float[Array, " n"] = eqx.field(converter=as_array)
    cogging_phase: Float[Array, " n"] = eqx.field(converter=as_array)
    bristle_stiffness: Float[Array, " n"] = eqx.field(converter=as_array)
    bristle_damping: Float[Array, " n"] = eqx.field(converter=as_array)
    coulomb_friction: Float[Array, " n"] = eqx.field(converter=as_array)
    static_friction: Float[Array, " n"] = eqx.field(converter=as_array)
    stribeck_velocity: Float[Array, " n"] = eqx.field(converter=as_array)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.owners)
