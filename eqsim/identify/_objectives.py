r"""Objectives: what a fit compares in one window of a recording.

`Simulation` compares a simulation of the window, `ActuatorForces` and `Inverse` forces and
accelerations, without simulation, and `Innovations` the predictions of a Kalman filter;
`Violation`, of the laws of contact, has its own file. In this order: the interface,
`Simulation` and functions for all, `ActuatorForces`, `Inverse`, `Innovations`.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import check_numbers
from .._loops import scan
from ..dynamics.actuation import actuation_at
from ..dynamics.force_laws import advance_activation
from ..estimate import AbstractMeasurement, JointPositions
from ..estimate.stochastic_model import (
    AbstractSpace,
    acceleration_factor,
    compress,
    Coordinates,
    correct,
    dot,
    Euclidean,
    interpolate,
    space_of,
)
from ..kinematics import difference, integrate
from ..model import State, System, Transmission
from ..model.arrays import as_array
from ..pipelines import AbstractPipeline
from ._channels import (
    AbstractInterpolation,
    bias_of,
    extended,
    LinearInterpolation,
    ZeroOrderHold,
)
from ._recordings import inner_rows, Recording
from ._unknowns import Model, Signals
from ._windows import Batch, local_fit, step_of, Windows


class Physics(NamedTuple):
    """The simulation and measurement of a window.

    - `steps`: steps of `sys.dt` per window. `rows`: largest number of measured times within
        one step.
    """

    pipeline: AbstractPipeline
    measure: AbstractMeasurement
    steps: int
    rows: int


class Given(NamedTuple):
    """Robot, physics, measurements and data of a fit, before the first simulation.

    - `widths`: number of degrees of freedom of each channel that `measure` predicts.
    """

    sys: System
    pipeline: AbstractPipeline
    measure: AbstractMeasurement
    recordings: Sequence[Recording]
    windows: Windows
    widths: Mapping[str, int]


class Comparison(NamedTuple):
    """Data of an objective.

    - `recordings`: recordings, possibly with channels that are derived from others.
    - `channels`: channels that the objective reads.
    - `widths`: number of residuals of each channel per measured time.
    """

    recordings: Sequence[Recording]
    channels: tuple[str, ...]
    widths: dict[str, int]


class WindowResiduals(NamedTuple):
    """Residuals of one window.

    - `channels`: values in the units of the channel, one row per measured time.
    - `end`: coordinates and velocities at the time `window.gap`.
    """

    channels: dict[str, Array]
    end: tuple[Array, Array]


class AbstractObjective(eqx.Module):
    """A comparison of a window of a recording with a model.

    **Arguments:**

    - `control`: commands between their recorded times.
    """

    if TYPE_CHECKING:
        # Type checkers would take an `AbstractVar` for the first argument of subclasses.
        control: ClassVar[AbstractInterpolation]
    else:
        control: eqx.AbstractVar[AbstractInterpolation]

    @abc.abstractmethod
    def compare(self, given: Given) -> Comparison:
        """Choose or derive the channels that are compared, once before a fit.

        **Raises:** `ValueError` if the objective cannot use these data.
        """

    @abc.abstractmethod
    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> WindowResiduals:
        """Compute the residuals of one window.

        **Arguments:**

        - `start`: coordinates and velocities at the start.
        - `window`: one row of a batch.
        """

    @abc.abstractmethod
    def predictor(self) -> "AbstractObjective":
        """Return the objective whose residuals are the held-out errors of a fit.

        Usually `Simulation(self.control)`, or `self` if its residuals are errors of
        predictions. It compares single windows, without `continuity`.
        """


def refuse_continuity(windows: Windows, objective: str) -> None:
    """Raise `ValueError` if windows are connected, for objectives without simulation."""
    if windows.continuity is not None:
        raise ValueError(
            f"`{objective}` does not simulate, so windows cannot be connected. Leave out "
            "`continuity`."
        )


def refuse_memory(sys: System, objective: str) -> None:
    """Raise `ValueError` if actuator models of a robot have memory."""
    models = [own.model for own in sys.actuator_models if own.num_states]
    if models:
        names = ", ".join(type(model).__name__ for model in models)
        raise ValueError(
            f"`{objective}` does not simulate, so the memory of actuator models ({names}) is "
            "not known. Use `Simulation`."
        )


class Simulation(AbstractObjective):
    """Measured minus simulated values, from the start of the window to its end.

    The robot is simulated with steps of `sys.dt`; its *predictions* are interpolated
    to the measured times, so that measurements stay as they are.

    **Arguments:**

    - `control`: commands between their recorded times: `LinearInterpolation()`,
        `ZeroOrderHold()` or `CubicInterpolation()`. Each step holds the command at its beginning.
    """

    control: AbstractInterpolation = LinearInterpolation()

    def compare(self, given: Given) -> Comparison:
        return Comparison(given.recordings, tuple(given.widths), dict(given.widths))

    def predictor(self) -> AbstractObjective:
        return self

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> WindowResiduals:
        sys, signals = model
        states, ctrl = simulate(physics, model, start, window, self.control)
        predict = lambda state, u: physics.measure.predict(sys, state, u)
        grid = jax.vmap(predict)(states, ctrl)
        channels = {
            name: _compared(physics, sys, signals, name, grid[name], window)
            for name in window.measured
        }
        return WindowResiduals(channels, state_at(physics, sys, states, window.gap))


def simulate(
    physics: Physics,
    model: Model,
    start: tuple[Array, Array],
    window: Batch,
    control: AbstractInterpolation,
) -> tuple[State, Array]:
    """Simulate a window.

    **Returns:** the states at multiples of `sys.dt`, `steps + 1` of them, and the
    commands there.
    """
    sys = model.sys
    first = physics.pipeline.init(sys, *start)
    ctrl = commands(model, window, control, grid(physics, sys))

    def step(state, u):
        new = physics.pipeline.step(sys, state, u)
        return new, new

    _, rest = scan(step, first, ctrl[:-1])
    return jax.tree.map(joined, first, rest), ctrl


def joined(first: Array, rest: Array) -> Array:
    """Put one row before others."""
    return jnp.concatenate([first[None], rest])


def grid(physics: Physics, sys: System) -> Float[Array, " steps"]:
    """Return the multiples of `sys.dt` within a window, s."""
    return jnp.arange(physics.steps + 1, dtype=sys.dt.dtype) * sys.dt


def state_at(
    physics: Physics, sys: System, states: State, time: Float[Array, ""]
) -> tuple[Array, Array]:
    """Interpolate coordinates and velocities of the states on the grid."""
    k, share = place(time, sys.dt, physics.steps)
    q, qd = states.q, states.qd
    moved = integrate(sys, q[k], share * difference(sys, q[k], q[k + 1]))
    return moved, qd[k] + share * (qd[k + 1] - qd[k])


def commands(
    model: Model,
    window: Batch,
    control: AbstractInterpolation,
    time: Float[Array, " n"],
) -> Float[Array, "n nu"]:
    """Compute the commands that act at some times after the start of a window."""
    sys, signals = model
    if "ctrl" in signals.delays:
        time = time - signals.delays["ctrl"]
    at = jax.vmap(control, (None, None, 0))
    ctrl = at(window.ctrl_time, window.ctrl, time)
    if "ctrl" in signals.gains:
        ctrl = ctrl * extended(signals.gains["ctrl"], sys.nu, 1.0)[None]
    bias = bias_of(signals, "ctrl", window.run, sys.nu)
    return ctrl if bias is None else ctrl + bias[None]


def _compared(
    physics: Physics, sys: System, signals: Signals, name: str, grid: Array, window
):
    """Return measured minus simulated values of one channel, one row per measured time."""
    space, measured = space_of(physics.measure, sys, name), window.measured[name]
    time = window.time
    if name in signals.delays:
        time = time - signals.delays[name]
    if name in signals.gains:
        grid = grid * extended(signals.gains[name], grid.shape[1], 1.0)[None]

    def compare(at, value):
        k, share = place(at, sys.dt, physics.steps)
        predicted = interpolate(space, grid[k], grid[k + 1], share)
        width = jax.eval_shape(space.difference, value, value).shape[0]
        bias = bias_of(signals, name, window.run, width)
        if bias is not None:
            predicted = space.integrate(predicted, bias)
        return space.difference(predicted, value)

    error = jax.vmap(compare)(time, measured)
    return jnp.where(window.mask[:, None], error, 0.0)


def place(time: Array, dt: Array, steps: int) -> tuple[Array, Array]:
    """Return the step in which a time falls, and where in it."""
    at = time / dt
    k = jnp.clip(jnp.floor(at), 0, steps - 1)
    return k.astype(int), at - k


_Q, _QD, QDD = "local q", "local qd", "qdd"


class ActuatorForces(AbstractObjective):
    r"""Measured minus predicted forces of actuators, without simulation.

    The actuators alone, with their models, follow the recorded motion: at each step of
    `sys.dt` they read the command and the recorded coordinates and velocities, and their
    activations and the memory of models advance as in a simulation. A fitted model is part
    of `Result.sys`, and so of its simulations.

    Coordinates and velocities are those of local cubics through the channel
    `Windows.channel`. Memory is zero at the start of a window: leave out the first samples
    with `Windows.settle`. Residuals do not depend on the starts of windows, and held-out
    errors are errors of these forces. Gains, biases and delays of commands are supported,
    those of sensors have no influence.

    Forces that are computed from measured currents leave out friction and inertia of the
    gearbox behind the motor.

    **Arguments:**

    - `channel`: channel of the recordings with the measured forces, one column per force
        as in `ActuatorStates.force`: N m or N, before the gear.
    - `control`: commands between their recorded times.
    """

    channel: str = eqx.field(static=True, default="force")
    control: AbstractInterpolation = ZeroOrderHold()

    def compare(self, given: Given) -> Comparison:
        sys, windows = given.sys, given.windows
        refuse_continuity(windows, "ActuatorForces")
        if Transmission.BODY in sys.actuators.transmissions:
            raise ValueError(
                "`ActuatorForces` does not know contacts, but an actuator acts through the "
                "contacts of a link. Use `Simulation`."
            )
        derived = []
        for recording in given.recordings:
            found = recording.channels.get(self.channel)
            if found is None or found.shape[1] != sys.nout:
                has = (
                    "no such channel" if found is None else f"{found.shape[1]} columns"
                )
                raise ValueError(
                    f"`ActuatorForces` needs measured forces in channel {self.channel!r}, "
                    f"{sys.nout} columns, one for each force of {[*sys.actuators.names]}. "
                    f"Recording {recording.name!r} has {has}; its channels are "
                    f"{sorted(recording.channels)}."
                )
            rows = np.arange(len(recording.time))
            fit = local_fit(
                sys, recording, rows, windows.channel, windows.half, windows.gap
            )
            derived.append(recording.rows(rows, {_Q: fit.q, _QD: fit.qd}))
        return Comparison(derived, (_Q, _QD, self.channel), {self.channel: sys.nout})

    def predictor(self) -> AbstractObjective:
        return self

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> WindowResiduals:
        sys, times = model.sys, grid(physics, model.sys)
        ctrl = commands(model, window, self.control, times)
        rows = window.measured
        space = Coordinates(sys) if sys.nq != sys.nv else Euclidean()
        between = lambda space, name: _between(space, window.time, rows[name], times)
        motion = between(space, _Q), between(Euclidean(), _QD), ctrl

        def advance(act, x):
            now = actuation_at(sys, x[0], x[1], act, x[2])
            kept = now.length, now.velocity, now.model_states
            return advance_activation(sys, act, now.act_rate, *kept), now.force

        _, force = scan(advance, jnp.zeros(sys.na, ctrl.dtype), motion)
        k, share = place(window.time, sys.dt, physics.steps)
        predicted = force[k] + share[:, None] * (force[k + 1] - force[k])
        error = jnp.where(window.mask[:, None], rows[self.channel] - predicted, 0.0)
        return WindowResiduals({self.channel: error}, start)


def _between(space: AbstractSpace, time: Array, values: Array, at: Array) -> Array:
    """Interpolate measured values to other times; before and after them they are
    constant."""
    k = jnp.clip(jnp.searchsorted(time, at, side="right") - 1, 0, len(time) - 2)
    # Padding repeats the last time.
    span = jnp.maximum(time[k + 1] - time[k], jnp.finfo(time.dtype).tiny)
    share = jnp.clip((at - time[k]) / span, 0.0, 1.0)
    own = lambda a, b, share: interpolate(space, a, b, share)
    return jax.vmap(own)(values[k], values[k + 1], share)


class Inverse(AbstractObjective):
    r"""Inverse dynamics without simulation, a fast first guess.

    The residual at each measured time is the error of inverse dynamics as an acceleration,

    $$M^{-1} (M \ddot q + c - \tau - J^\top f) = \ddot q - \ddot q(q, \dot q, \tau),$$

    with bias forces $c$, forces $\tau$ of actuators and passive elements, and constraint
    forces $f$. Local cubics through the measured coordinates (`Windows.channel`,
    `Windows.half` samples on each side) give $q$, $\dot q$ and $\ddot q$; rows without all
    neighbors are left out. Residuals do not depend on the starts of windows, so the cost has
    few local minima, far fewer than that of `Simulation`.

    Noise in $\ddot q$ has no effect on average, because $\ddot q$ enters linearly, unlike in
    a regression of forces on accelerations, which finds too small inertias. Noise in $\dot q$
    and $q$, and the smoothing of fast motions by the filter, do bias the parameters: fit with
    `Simulation` from the result. The channel of the residuals is `"qdd"`. Gains, biases and
    delays of sensors have no influence; those of `"ctrl"` do.

    **Arguments:**

    - `control`: commands between their recorded times, which matters with a `ChannelDelay`.

    ??? cite "Reference"
        Swevers, Verdonck, De Schutter, *Dynamic model identification for industrial robots*,
        IEEE Control Systems Magazine, 2007.
    """

    control: AbstractInterpolation = LinearInterpolation()

    def compare(self, given: Given) -> Comparison:
        refuse_continuity(given.windows, "Inverse")
        refuse_memory(given.sys, "Inverse")
        derived = [
            _filtered(given.sys, recording, given.windows)
            for recording in given.recordings
        ]
        return Comparison(derived, (_Q, _QD, QDD), {QDD: given.sys.nv})

    def predictor(self) -> AbstractObjective:
        return Simulation(self.control)

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> WindowResiduals:
        sys = model.sys
        ctrl = commands(model, window, self.control, window.time)

        def error(q, qd, qdd, u):
            state = State(q, qd, jnp.zeros(sys.na, q.dtype))
            return qdd - physics.pipeline.acceleration(sys, state, u)

        rows = window.measured
        found = jax.vmap(error)(rows[_Q], rows[_QD], rows[QDD], ctrl)
        return WindowResiduals(
            {QDD: jnp.where(window.mask[:, None], found, 0.0)}, start
        )


def _filtered(sys: System, recording: Recording, windows: Windows) -> Recording:
    """Add filtered coordinates, velocities and accelerations, and leave out rows without
    all neighbors."""
    channel, half = windows.channel, windows.half
    rows = inner_rows(recording, windows.gap, half, "Windows.half")
    fit = local_fit(sys, recording, rows, channel, half, windows.gap)
    return recording.rows(rows, {_Q: fit.q, _QD: fit.qd, QDD: fit.qdd})


class Innovations(AbstractObjective):
    r"""Measured coordinates minus their predictions by a Kalman filter.

    A filter follows the measurements: between them, the state is simulated; at each
    measured time, the innovation $e = y - \hat y$ corrects it. Errors do not grow over a
    window, so windows of an unstable or disturbed robot, such as a balancing one in closed
    loop, can be long. Residuals are $\sqrt{R}\, L^{-1} e$ with the covariance $R$ of the
    measurement and $L L^\top$ of the innovation: with true parameters, disturbance and noise
    they are independent, and `Result.sigma` is the noise of the measurement.

    The filter is that of `eqsim.estimate.ExtendedKalmanFilter`, with white-noise accelerations.
    Its $F$ is the derivative of a step of the robot *as given* along the measured coordinates,
    computed once. So gains do not depend on the parameters, and derivatives are exact. Gains of
    another robot make predictions worse and, in closed loop, bias the parameters: fit again
    from `Result.sys` if much has changed.

    The start of a window is an unknown as for `Simulation`; the disturbance begins there.
    Without disturbance this is `Simulation`. A large disturbance follows the measurements
    closely, and hides parameters that act slowly.

    **Arguments:**

    - `disturbance`: unmodelled accelerations, white noise, rad/s$^2$ or m/s$^2$ per
        $\sqrt{\text{Hz}}$; one number, or one for each degree of freedom.
    - `noise`: standard deviation of measured coordinates, rad or m; likewise. Only the ratio
        of both matters.
    - `control`: commands between their recorded times.

    ??? cite "References"
        Ljung, *System Identification: Theory for the User*, 1999 (prediction error methods,
        and their bias in closed loop).

        Bar-Shalom, Li, Kirubarajan, *Estimation with Applications to Tracking and Navigation*,
        2001 (white-noise acceleration).
    """

    disturbance: Float[Array, "..."] = eqx.field(converter=as_array)
    noise: Float[Array, "..."] = eqx.field(converter=as_array)
    control: AbstractInterpolation = LinearInterpolation()

    def __check_init__(self):
        is_size = lambda x: x >= 0
        check_numbers(
            "Innovations.disturbance", self.disturbance, is_size, "not negative"
        )
        check_numbers("Innovations.noise", self.noise, lambda x: x > 0, "positive")

    def compare(self, given: Given) -> Comparison:
        sys, pipeline, measure, recordings, windows, widths = given
        if not isinstance(measure, JointPositions):
            raise ValueError(
                "`Innovations` corrects coordinates by measured coordinates: `measure` must "
                f"be `JointPositions()`, not {type(measure).__name__}. Use `Simulation` for "
                "other measurements."
            )
        for name in ("disturbance", "noise"):
            shape = vars(self)[name].shape
            if shape not in ((), (sys.nv,)):
                raise ValueError(
                    f"`Innovations.{name}` must be one number, or one for each of "
                    f"{sys.nv} degrees of freedom, got shape {shape}."
                )
        derived = []
        for recording in recordings:
            rows = np.arange(len(recording.time))
            fit = local_fit(
                sys, recording, rows, measure.channel, windows.half, windows.gap
            )
            linear = _transitions(sys, pipeline, fit.q, fit.qd, recording.ctrl)
            derived.append(recording.rows(rows, {_TRANSITION: np.asarray(linear)}))
        return Comparison(derived, (measure.channel, _TRANSITION), dict(widths))

    def predictor(self) -> AbstractObjective:
        return Simulation(self.control)

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> WindowResiduals:
        sys = model.sys
        (name,) = set(window.measured) - {_TRANSITION}
        sensor = _sensor(physics, model, name, window.run)
        measured = window.measured[sensor.name]
        slots = _slots(physics, sys, window)
        gains = _gains(self, sensor.gain, sys, window, slots)
        ctrl = commands(model, window, self.control, grid(physics, sys))
        first = physics.pipeline.init(sys, *start)

        def advance(state, x):
            u, gains, slot = x
            new = physics.pipeline.step(sys, state, u)
            step, errors = jnp.zeros(2 * sys.nv, state.q.dtype), []
            for k, row in enumerate(slot.rows):
                value = interpolate(sensor.space, state.q, new.q, slot.share[k])
                moved = gains.move[k] @ step
                error = sensor.error(value, moved[: sys.nv], measured[row])
                step = jnp.where(slot.valid[k], moved + gains.gain[k] @ error, step)
                errors.append(gains.white[k] @ error)
            step = gains.rest @ step
            q = integrate(sys, new.q, step[: sys.nv])
            state = State(q, new.qd + step[sys.nv :], new.act, new.aux)
            return state, (state, jnp.stack(errors))

        _, (states, errors) = scan(advance, first, (ctrl[:-1], gains, slots.by_step))
        error = errors[slots.step, slots.place]
        error = jnp.where(window.mask[:, None], error, 0.0)
        states = jax.tree.map(joined, first, states)
        end = state_at(physics, sys, states, window.gap)
        return WindowResiduals({sensor.name: error}, end)


_TRANSITION = "transition"


@eqx.filter_jit
def _transitions(sys: System, pipeline: AbstractPipeline, q, qd, ctrl):
    """Compute derivatives of a step with respect to the state in tangent coordinates,
    one flat matrix per row."""
    nv = sys.nv

    def transition(q, qd, u):
        step = lambda q, qd: pipeline.step(sys, pipeline.init(sys, q, qd), u)
        new = step(q, qd)

        def moved(change):
            other = step(integrate(sys, q, change[:nv]), qd + change[nv:])
            return jnp.concatenate([difference(sys, new.q, other.q), other.qd - new.qd])

        return jnp.ravel(jax.jacfwd(moved)(jnp.zeros(2 * nv, q.dtype)))

    return jax.vmap(transition)(*map(jnp.asarray, (q, qd, ctrl)))


class _Sensor(NamedTuple):
    """Space, gain and bias of the measured coordinates."""

    name: str
    space: AbstractSpace
    gain: Array
    bias: Array

    def error(self, value: Array, moved: Array, measured: Array) -> Array:
        """Compute the innovation of predicted coordinates that are moved by the filter."""
        value = self.space.integrate(value, moved)
        # Gains other than one belong to coordinates that are numbers.
        value = value * self.gain if value.shape == self.gain.shape else value
        return self.space.difference(self.space.integrate(value, self.bias), measured)


def _sensor(physics: Physics, model: Model, name: str, run: Array) -> _Sensor:
    sys, signals = model
    if name in signals.delays or (name in signals.gains and sys.nq != sys.nv):
        raise ValueError(
            f"`Innovations` does not support a delay of {name!r}, and supports a gain "
            "only if all coordinates are scalars. Leave this unknown out, or use "
            "`Simulation`."
        )
    one = jnp.ones(1, sys.dt.dtype)
    gain = extended(signals.gains.get(name, one), sys.nv, 1.0)
    bias = bias_of(signals, name, run, sys.nv)
    bias = jnp.zeros(sys.nv, sys.dt.dtype) if bias is None else bias
    return _Sensor(name, space_of(physics.measure, sys, name), gain, bias)


class _Slot(NamedTuple):
    """Measured times in a step, at most `Physics.rows` of them.

    - `rows`: rows of the window. `valid`: true for those in this step.
    - `share`: share of the step before them.
    """

    rows: Array
    valid: Array
    share: Array


class _Slots(NamedTuple):
    """Measured times of each step, and the step and the place in it of each row."""

    by_step: _Slot
    step: Array
    place: Array


def _slots(physics: Physics, sys: System, window: Batch) -> _Slots:
    step = step_of(window.time, sys.dt, physics.steps)
    index = jnp.arange(physics.steps)
    first = jnp.searchsorted(step, index).astype(step.dtype)
    rows = first[:, None] + jnp.arange(physics.rows)[None]
    inside = jnp.clip(rows, 0, len(step) - 1)
    own = (step[inside] == index[:, None]) & window.mask[inside]
    begin = index.astype(sys.dt.dtype)[:, None]
    share = jnp.clip(window.time[inside] / sys.dt - begin, 0.0, 1.0)
    place = jnp.clip(jnp.arange(len(step)) - first[step], 0, physics.rows - 1)
    return _Slots(_Slot(inside, (inside == rows) & own, share), step, place)


class _Gains(NamedTuple):
    """Matrices of the filter in one step.

    - `move`: transition from the measured time before, or the start of the step, to each
        measured time; `rest`: transition from the last one to the end of the step.
    - `gain`: Kalman gain at each measured time. `white`: makes innovations independent,
        with the size of the noise.
    """

    move: Array
    rest: Array
    gain: Array
    white: Array


def _gains(
    settings: Innovations, slope: Array, sys: System, window: Batch, slots
) -> _Gains:
    """Compute the gains of all steps, which do not depend on the parameters of the robot."""
    nv, dt = sys.nv, sys.dt
    wide = lambda x: jnp.broadcast_to(x.astype(dt.dtype), (nv,))
    noise, disturbance = wide(settings.noise), wide(settings.disturbance)
    one = jnp.eye(2 * nv, dtype=dt.dtype)
    seen = jnp.concatenate([jnp.diag(slope), jnp.zeros((nv, nv), dt.dtype)], axis=1)
    linear = window.measured[_TRANSITION].reshape(-1, 2 * nv, 2 * nv)
    # The state before the first measurement of a step.
    linear = linear[jnp.maximum(slots.by_step.rows[:, 0] - 1, 0)]

    def over(factor, full, share):
        """Return the transition, and a factor of the covariance, after a share of a step."""
        move = one + share * (full - one)
        added = acceleration_factor(disturbance, share * dt)
        return move, compress(jnp.concatenate([dot(move, factor), added], 1))

    def advance(factor, x):
        full, slot = x
        at, out = jnp.zeros((), dt.dtype), []
        for share, valid in zip(slot.share, slot.valid, strict=True):
            move, grown = over(factor, full, jnp.maximum(share - at, 0.0))
            root, gain, new = correct(grown, dot(seen, grown), noise)
            inverse = jax.scipy.linalg.solve_triangular(root, one[:nv, :nv], lower=True)
            out.append((move, gain, noise[:, None] * inverse))
            factor = jnp.where(valid, new, factor)
            at = jnp.where(valid, share, at)
        rest, factor = over(factor, full, 1 - at)
        move, gain, white = (jnp.stack(parts) for parts in zip(*out, strict=True))
        return factor, _Gains(move, rest, gain, white)

    return scan(advance, 0 * one, (linear, slots.by_step))[1]
