"""Actuators: parameters of their laws, and the actuators of a robot."""

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from .arrays import as_array
from .kinds import Activation, ActivationState, Bias, Control, Gain, Transmission


# Laws.


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


class DiscretePIDs(eqx.Module):
    r"""PID servos whose force includes the error of the current time step (MuJoCo's
    plugin `mujoco.pid`).

    With the setpoint $u$, which is the control, or the activation if there is one, moved
    by at most $\dot u_{\max} \Delta t$ from that of the last step, and the error
    $e = u - \ell$:

    $f = k_p e + k_d (\dot u - \dot\ell) + k_i z', \qquad
    k_i z' = \mathrm{clip}(k_i (z + e\,\Delta t), -f_{\max}, f_{\max})$

    where $\dot u$ is the rate of the activation, zero if there is none. As in MuJoCo,
    implicit integrators do not include the derivative by velocity.

    **Arguments:**

    - `owners`: actuator of each row.
    - `proportional`, `integral`, `derivative`: gains $k_p$, $k_i$ and $k_d$. The integral
        has no effect if the actuator has no such state.
    - `max_integral`: largest force $f_{\max}$ of the integral; infinite for no bound.
    - `max_slew`: largest rate $\dot u_{\max}$ of the setpoint; no effect if the actuator has
        no such state.
    """

    owners: tuple[int, ...] = eqx.field(static=True)
    proportional: Float[Array, " n"] = eqx.field(converter=as_array)
    integral: Float[Array, " n"] = eqx.field(converter=as_array)
    derivative: Float[Array, " n"] = eqx.field(converter=as_array)
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


# Actuators.


class ActuatorStructure(NamedTuple):
    """The static structure of `Actuators`, as a cache key."""

    transmissions: tuple[Transmission, ...]
    targets: tuple[tuple[int, int], ...]
    gains: tuple[Gain, ...]
    biases: tuple[Bias, ...]
    activation: tuple[Activation, ...]
    inputs: tuple[tuple[Control, ...], ...]
    states: tuple[tuple[ActivationState, ...], ...]
    wraps: tuple[bool, ...]


class Actuators(eqx.Module):
    r"""Actuators, which convert `ctrl` to joint forces.

    With input $u$ (the control, or the activation if there is one), length $\ell$ of the
    transmission and velocity $\dot\ell$, the force of an actuator with affine gain and
    bias is

    $f = (g_0 + g_1 \ell + g_2 \dot\ell)\, u + b_0 + b_1 \ell + b_2 \dot\ell,
    \qquad \tau = \left(\frac{\partial \ell}{\partial q}\right)^T f$

    On a hinge or slide, $\ell = \mathrm{gear}\, q$. A motor has $g_0 = 1$; a position servo
    $g_0 = k_p, b_1 = -k_p, b_2 = -k_v$; a velocity servo $g_0 = k_v, b_2 = -k_v$. For
    other laws see `Muscles`, `DCMotors`, `PIDs` and `DiscretePIDs`.

    `ctrl` contains the controls and `State.act` the activations, actuator by actuator.
    Most actuators have one control, and one activation or none. Orientation servos have
    three forces, all other actuators have one; `nout` is the number of forces.

    **Arguments:**

    - `names`, `transmissions`, `gains`, `biases`, `activation`: one entry per actuator.
    - `targets`: index of the joint, tendon, site or link that each actuator acts on; the
        second index is the reference site or the site of the slider, or -1.
    - `inputs`, `states`: meanings of the controls and of the activations.
    - `wraps`: true if a position servo on a rotation uses the nearest equivalent
        setpoint.
    - `enabled`: true if the actuator exerts a force. `active`: true if any actuator
        does; if false, activations are constant.
    - `has_velocity_gain`: true if the force of the actuator may depend on its velocity,
        as used by implicit integrators; false if $g_2 = b_2 = 0$.
    - `ctrl_limited` (per control), `force_limited`, `act_limited`: true for ranges that
        are enforced.
    - `act_early`: true if the force uses the activation at the end of the step.
    - `gear`: gear of each force: one number for hinges, slides, tendons and
        slider-cranks, three for ball joints, six for free joints and sites.
    - `gain`, `bias`: coefficients $g$ and $b$ of affine laws. An orientation servo has
        $k_p = g_0$ and $k_v = -b_2$.
    - `time_constant`: time constants of activation filters, s.
    - `ctrl_range` (per control), `force_range`, `act_range`: lower and upper limits.
    - `damping`, `damping_poly`, `armature`: damping and armature of actuators on joints
        and tendons, which are multiplied by the squared gear; no effect for orientation
        servos. None if no actuator has any. The polynomial has the coefficients of
        $\dot q |\dot q|, \dot q^3, \dots$
    - `crank_length`: length of the rod of each slider-crank, m.
    - `muscles`, `muscle_activations`, `motors`, `pids`, `discrete_pids`: parameters of
        other force laws.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    transmissions: tuple[Transmission, ...] = eqx.field(static=True)
    targets: tuple[tuple[int, int], ...] = eqx.field(static=True)
    gains: tuple[Gain, ...] = eqx.field(static=True)
    biases: tuple[Bias, ...] = eqx.field(static=True)
    activation: tuple[Activation, ...] = eqx.field(static=True)
    inputs: tuple[tuple[Control, ...], ...] = eqx.field(static=True)
    states: tuple[tuple[ActivationState, ...], ...] = eqx.field(static=True)
    wraps: tuple[bool, ...] = eqx.field(static=True)
    enabled: tuple[bool, ...] = eqx.field(static=True)
    active: bool = eqx.field(static=True)
    has_velocity_gain: tuple[bool, ...] = eqx.field(static=True)
    ctrl_limited: tuple[bool, ...] = eqx.field(static=True)
    force_limited: tuple[bool, ...] = eqx.field(static=True)
    act_limited: tuple[bool, ...] = eqx.field(static=True)
    act_early: tuple[bool, ...] = eqx.field(static=True)
    gear: Float[Array, "nout 6"] = eqx.field(converter=as_array)
    gain: Float[Array, "nactuator 3"] = eqx.field(converter=as_array)
    bias: Float[Array, "nactuator 3"] = eqx.field(converter=as_array)
    time_constant: Float[Array, " nactuator"] = eqx.field(converter=as_array)
    ctrl_range: Float[Array, "nu 2"] = eqx.field(converter=as_array)
    force_range: Float[Array, "nactuator 2"] = eqx.field(converter=as_array)
    act_range: Float[Array, "nactuator 2"] = eqx.field(converter=as_array)
    damping: Float[Array, " nactuator"] | None = eqx.field(
        converter=as_array, default=None
    )
    damping_poly: Float[Array, "nactuator order"] | None = eqx.field(
        converter=as_array, default=None
    )
    armature: Float[Array, " nactuator"] | None = eqx.field(
        converter=as_array, default=None
    )
    crank_length: Float[Array, " nactuator"] | None = eqx.field(
        converter=as_array, default=None
    )
    muscles: Muscles | None = None
    muscle_activations: MuscleActivations | None = None
    motors: DCMotors | None = None
    pids: PIDs | None = None
    discrete_pids: DiscretePIDs | None = None

    @property
    def structure(self) -> ActuatorStructure:
        """The structure that determines the code: transmissions, targets and force
        laws."""
        return ActuatorStructure(
            self.transmissions,
            self.targets,
            self.gains,
            self.biases,
            self.activation,
            self.inputs,
            self.states,
            self.wraps,
        )

    @property
    def na(self) -> int:
        """Number of activations."""
        return sum(map(len, self.states))

    @property
    def joints(self) -> tuple[int, ...]:
        """Joint of each actuator, or -1 if it does not act on a joint."""
        return tuple(
            target if on_joint(kind, other) else -1
            for kind, (target, other) in zip(self.transmissions, self.targets)
        )

    @property
    def num_outputs(self) -> tuple[int, ...]:
        """Number of forces of each actuator."""
        orientation = Transmission.ORIENTATION
        return tuple(3 if kind is orientation else 1 for kind in self.transmissions)

    @property
    def out_starts(self) -> tuple[int, ...]:
        """Start index of the forces of each actuator."""
        return _starts(self.num_outputs)

    @property
    def ctrl_starts(self) -> tuple[int, ...]:
        """Start index of the controls of each actuator in `ctrl`."""
        return _starts([len(row) for row in self.inputs])

    @property
    def act_starts(self) -> tuple[int, ...]:
        """Start index of the activations of each actuator in `State.act`."""
        return _starts([len(row) for row in self.states])

    @property
    def ctrl_names(self) -> tuple[str, ...]:
        """Names of the controls: the name of the actuator, with an index if it has
        several."""
        return tuple(
            name if len(row) == 1 else f"{name}:{k}"
            for name, row in zip(self.names, self.inputs)
            for k in range(len(row))
        )


def velocity_gains(gains, biases, gain, bias) -> tuple[bool, ...]:
    """Return which actuators have forces that depend on their velocities.

    **Arguments:** as the fields of `Actuators`, as NumPy arrays.
    """
    affine = zip(gains, biases, gain[:, 2], bias[:, 2], strict=True)
    known = Gain.AFFINE, Gain.DISCRETE_PID
    return tuple(
        g not in known or b is not Bias.AFFINE or bool(by_gain) or bool(by_bias)
        for g, b, by_gain, by_bias in affine
    )


def on_joint(kind: Transmission, other: int) -> bool:
    """Test if a transmission acts on a joint; `other` is its second target."""
    if kind is Transmission.ORIENTATION:
        return other == -1
    return kind in (Transmission.JOINT, Transmission.JOINT_IN_PARENT)


def _starts(sizes) -> tuple[int, ...]:
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return tuple(starts[:-1])
