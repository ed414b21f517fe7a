r"""One-step-ahead predictions of a Kalman filter, for unstable plants and disturbances."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import check_numbers
from .._loops import scan
from ..kinematics import integrate
from ..model import State, System
from ..model._fields import as_array
from ._control import AbstractInterpolation, Linear
from ._geometry import AbstractSpace, interpolate
from ._measure import AbstractMeasurement, JointPositions, space_of
from ._objective import (
    AbstractObjective,
    commands,
    Comparison,
    grid,
    joined,
    Physics,
    Residuals,
    state_at,
)
from ._recording import Recording
from ._signals import extended
from ._unknowns import Model
from ._windows import Batch, step_of, Windows


class Innovations(AbstractObjective):
    r"""Measured coordinates minus their predictions by a Kalman filter.

    A filter follows the measurements: between them, the state is simulated; at each
    measured time, the innovation $e = y - \hat y$ corrects it. Errors do not grow over a
    window, so windows of an unstable or disturbed robot, such as a balancing one in closed
    loop, can be long. Residuals are $e \sqrt{r / s}$ with the variances $r$ of the
    measurement and $s$ of the innovation: for the true parameters, disturbance and noise they
    are independent, and `Result.sigma` is the noise of the measurement.

    The filter is an extended Kalman filter whose covariance is that of a double integrator:
    each degree of freedom is accelerated by white noise of spectral density
    `disturbance**2`, and over one sampling interval $\delta$ the covariance $P$ of a coordinate
    and its velocity becomes

    $$\begin{pmatrix} 1 & \delta \\ 0 & 1 \end{pmatrix} P
    \begin{pmatrix} 1 & 0 \\ \delta & 1 \end{pmatrix} + \mathrm{disturbance}^2
    \begin{pmatrix} \delta^3/3 & \delta^2/2 \\ \delta^2/2 & \delta \end{pmatrix}.$$

    So gains do not depend on the parameters, and derivatives are exact. The start of a window
    is an unknown as for `Simulation`; the disturbance begins there. Without disturbance this is
    `Simulation`. A large disturbance follows the measurements closely and hides errors of the
    parameters that act slowly.

    **Arguments:**

    - `disturbance`: unmodelled accelerations, rad/s$^2$ or m/s$^2$ per $\sqrt{\text{Hz}}$;
        one number, or one for each degree of freedom.
    - `noise`: standard deviation of measured coordinates, rad or m; likewise. Only the ratio
        of both matters.
    - `control`: commands between their recorded times.

    ??? cite "References"
        Ljung, *System Identification: Theory for the User*, 1999 (prediction error methods).

        Bar-Shalom, Li, Kirubarajan, *Estimation with Applications to Tracking and Navigation*,
        2001 (white-noise acceleration).
    """

    disturbance: Float[Array, "..."] = eqx.field(converter=as_array)
    noise: Float[Array, "..."] = eqx.field(converter=as_array)
    control: AbstractInterpolation = Linear()

    def __check_init__(self):
        check_numbers(
            "Innovations.disturbance",
            self.disturbance,
            lambda x: x >= 0,
            "not negative",
        )
        check_numbers("Innovations.noise", self.noise, lambda x: x > 0, "positive")

    def compare(
        self,
        sys: System,
        measure: AbstractMeasurement,
        recordings: Sequence[Recording],
        windows: Windows,
        widths: Mapping[str, int],
    ) -> Comparison:
        if not isinstance(measure, JointPositions):
            raise ValueError(
                f"`Innovations` corrects coordinates by measured coordinates: `measure` must "
                f"be `JointPositions()`, not {type(measure).__name__}. Use `Simulation` for "
                "other measurements."
            )
        for name in ("disturbance", "noise"):
            shape = vars(self)[name].shape
            if shape not in ((), (sys.nv,)):
                raise ValueError(
                    f"`Innovations.{name}` has shape {shape}, but one number or one for each "
                    f"of {sys.nv} degrees of freedom is required."
                )
        return Comparison(recordings, tuple(widths), dict(widths))

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> Residuals:
        sys = model.sys
        (name,) = window.measured
        sensor = _sensor(self, physics, model, name, start[0].dtype)
        step = step_of(window.time, sys.dt, physics.steps)
        index = jnp.arange(physics.steps)
        rows = jnp.searchsorted(step, index)[:, None] + jnp.arange(physics.rows)
        inside = jnp.clip(rows, 0, len(step) - 1)
        valid = (
            (inside == rows) & (step[inside] == index[:, None]) & window.mask[inside]
        )
        ctrl = commands(model, window, self.control, grid(physics, sys))
        first = physics.pipeline.init(sys, *start)
        zero = jnp.zeros(sys.nv, first.q.dtype)

        def advance(carry, x):
            state, spread = carry
            u, begin, rows, valid = x
            new = physics.pipeline.step(sys, state, u)
            now, errors = _Filter(zero, zero, spread, begin), []
            for row, known in zip(rows, valid, strict=True):
                at = now.to(window.time[row], sensor.disturbance)
                share = (window.time[row] - begin) / sys.dt
                value = interpolate(sensor.space, state.q, new.q, share)
                at, error = _corrected(at, sensor, value, window.measured[name][row])
                now = jax.tree.map(lambda a, b: jnp.where(known, a, b), at, now)
                errors.append(error)
            now = now.to(begin + sys.dt, sensor.disturbance)
            q = integrate(sys, new.q, now.dq)
            state = State(q, new.qd + now.dqd, new.act, new.aux)
            return (state, now.spread), (state, jnp.stack(errors))

        times = grid(physics, sys)[:-1]
        begin = first, (zero, zero, zero)
        _, (states, errors) = scan(advance, begin, (ctrl[:-1], times, inside, valid))
        place = jnp.arange(len(step)) - rows[step, 0]
        error = errors[step, jnp.clip(place, 0, physics.rows - 1)]
        error = jnp.where(window.mask[:, None], error, 0.0)
        states = jax.tree.map(joined, first, states)
        return Residuals({name: error}, state_at(physics, sys, states, window.gap))


class _Sensor(NamedTuple):
    """Space, gain and bias of the measured coordinates, and variances."""

    space: AbstractSpace
    gain: Array
    bias: Array
    noise: Array
    disturbance: Array


def _sensor(settings: Innovations, physics: Physics, model: Model, name: str, dtype):
    sys, signals = model
    if name in signals.delays or (name in signals.gains and sys.nq != sys.nv):
        raise ValueError(
            f"`Innovations` has no delay of {name!r}, and a gain only where all coordinates "
            "are numbers. Leave this unknown out, or use `Simulation`."
        )
    wide = lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), (sys.nv,))
    one = jnp.ones(1, dtype)
    gain = extended(signals.gains.get(name, one), sys.nv, 1.0)
    bias = extended(signals.biases.get(name, 0 * one), sys.nv, 0.0)
    noise, disturbance = wide(settings.noise), wide(settings.disturbance)
    space = space_of(physics.measure, sys, name)
    return _Sensor(space, gain, bias, noise**2, disturbance**2)


class _Filter(NamedTuple):
    """Corrections of a state by the filter at a time within a step.

    - `dq`, `dqd`: corrections of coordinates and velocities.
    - `spread`: variances of coordinates, covariances, and variances of velocities.
    """

    dq: Array
    dqd: Array
    spread: tuple[Array, Array, Array]
    time: Array

    def to(self, time: Array, disturbance: Array) -> "_Filter":
        """Return the filter at a later time."""
        delta, (qq, qv, vv) = time - self.time, self.spread
        spread = (
            qq + delta * (2 * qv + delta * vv) + disturbance * delta**3 / 3,
            qv + delta * vv + disturbance * delta**2 / 2,
            vv + disturbance * delta,
        )
        return _Filter(self.dq + delta * self.dqd, self.dqd, spread, time)


def _corrected(now: _Filter, sensor: _Sensor, value: Array, measured: Array) -> Any:
    """Correct by one measurement, of which the simulation predicts `value`.

    **Returns:** the filter, and the residual.
    """
    space, gain, bias, noise, _ = sensor
    value = space.integrate(value, now.dq)
    # Gains other than one belong to coordinates that are numbers.
    value = value * gain if value.shape == gain.shape else value
    error = space.difference(space.integrate(value, bias), measured)
    qq, qv, vv = now.spread
    variance = gain**2 * qq + noise
    k_q, k_v = gain * qq / variance, gain * qv / variance
    spread = qq - k_q * gain * qq, qv - k_q * gain * qv, vv - k_v * gain * qv
    moved = _Filter(now.dq + k_q * error, now.dqd + k_v * error, spread, now.time)
    return moved, error * jnp.sqrt(noise / variance)
