r"""Channels of a recording: how a robot and its state become measured numbers.

In this order: the spaces in which values are compared (numbers, coordinates, orientations);
measurements, which predict channels from a state; the interpolation of recorded commands; and
unknown gains, biases and delays of channels and commands.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import kinematics
from ..kinematics import forward
from ..model import SensorKind, State, System
from ..pipelines import Generalized
from ..spatial import integrate as turn, logarithm, Mat3, multiply, Vec3
from ..spatial.rotations import matrix_quaternion
from ._unknowns import (
    AbstractPrior,
    AbstractTransform,
    AbstractUnknown,
    Box,
    Identity,
    Log,
    Model,
    RUNS,
    Signals,
    Widths,
)


class AbstractSpace(eqx.Module):
    """The space in which one channel is measured."""

    @abc.abstractmethod
    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        r"""Compute the step from `a` to `b`, $b \ominus a$."""

    @abc.abstractmethod
    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        r"""Move `a` by a step, $a \oplus \mathrm{step}$."""


class Euclidean(AbstractSpace):
    """Numbers that are subtracted."""

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        return b - a

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return a + step


class Coordinates(AbstractSpace):
    """Coordinates of a robot, in which orientations are unit quaternions.

    **Arguments:**

    - `sys`: the robot; only its structure is read.
    """

    sys: System

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        return kinematics.difference(self.sys, a, b)

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return kinematics.integrate(self.sys, a, step)


class Orientation(AbstractSpace):
    """A unit quaternion, scalar first; steps are rotation vectors in body axes, rad."""

    def difference(self, a: Float[Array, " n"], b: Float[Array, " n"]) -> Array:
        w, x, y, z = _entries(a / jnp.linalg.norm(a))
        product = multiply((w, -x, -y, -z), _entries(b / jnp.linalg.norm(b)))
        return jnp.concatenate(tuple(logarithm(product)))

    def integrate(self, a: Float[Array, " n"], step: Array) -> Float[Array, " n"]:
        return jnp.concatenate(turn(_entries(a), Vec3(*_entries(step)), 1.0))


def _entries(x: Array) -> tuple[Array, ...]:
    return tuple(x[k : k + 1] for k in range(x.shape[0]))


def interpolate(space: AbstractSpace, a: Array, b: Array, weight: Array) -> Array:
    """Compute the value between `a` (weight 0) and `b` (weight 1)."""
    return space.integrate(a, weight * space.difference(a, b))


class AbstractMeasurement(eqx.Module):
    """A prediction of one or more channels of a recording."""

    @abc.abstractmethod
    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        """Compute the value of each channel in a state."""

    @abc.abstractmethod
    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        """Return the space of each channel that is not Euclidean."""


class JointPositions(AbstractMeasurement):
    """All coordinates; orientations are compared as rotations.

    **Arguments:**

    - `channel`: name of the channel in recordings.
    """

    channel: str = eqx.field(static=True, default="q")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        return {self.channel: state.q}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {self.channel: Coordinates(sys)} if sys.nq != sys.nv else {}


class JointVelocities(AbstractMeasurement):
    """All velocities.

    **Arguments:**

    - `channel`: name of the channel in recordings.
    """

    channel: str = eqx.field(static=True, default="qd")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        return {self.channel: state.qd}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {}


class FreeBodyPose(AbstractMeasurement):
    """Position of the origin of a link, m, and its orientation, as motion capture
    reports them.

    **Arguments:**

    - `link`: name of the link.
    - `position`, `orientation`: names of the channels, of three and four columns.
    """

    link: str = eqx.field(static=True)
    position: str = eqx.field(static=True, default="pos")
    orientation: str = eqx.field(static=True, default="quat")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        poses = forward(sys, state.q)
        k = sys.link(self.link).index
        quat = jnp.stack(matrix_quaternion(Mat3(*jnp.ravel(poses.rot[k]))))
        return {self.position: poses.pos[k], self.orientation: quat}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {self.orientation: Orientation()}


_QUATERNIONS = (SensorKind.BALL_QUATERNION, SensorKind.FRAME_QUATERNION)


class SensorMeasurement(AbstractMeasurement):
    """Sensors of the robot (MJCF: `sensor`), one channel each.

    **Arguments:**

    - `names`: names of sensors; by default all.
    - `pipeline`: physics for forces and accelerations.
    """

    names: tuple[str, ...] | None = eqx.field(static=True, default=None)
    pipeline: Generalized = eqx.field(default_factory=Generalized)

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        values = self.pipeline.sensors(sys, state, ctrl)
        names = sys.sensors.names if self.names is None else self.names
        return {name: jnp.atleast_1d(values[name]) for name in names}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        names = sys.sensors.names if self.names is None else self.names
        kinds = dict(zip(sys.sensors.names, sys.sensors.kinds, strict=True))
        for name in names:
            if name not in kinds:
                raise ValueError(
                    f"There is no sensor {name!r}. Sensors: {list(sys.sensors.names)}."
                )
        return {name: Orientation() for name in names if kinds[name] in _QUATERNIONS}


class FunctionMeasurement(AbstractMeasurement):
    """Any function of robot and state.

    **Arguments:**

    - `fn`: `(sys, state) -> {channel: array}`. Recompiles if it is another function.
    - `orientations`: channels that are unit quaternions.
    """

    fn: Callable[[System, State], dict[str, Any]] = eqx.field(static=True)
    orientations: tuple[str, ...] = eqx.field(static=True, default=())

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        return {k: jnp.atleast_1d(v) for k, v in self.fn(sys, state).items()}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {name: Orientation() for name in self.orientations}


class Joined(AbstractMeasurement):
    """Several measurements.

    **Arguments:**

    - `parts`: measurements whose channels have different names.
    """

    parts: tuple[AbstractMeasurement, ...]

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        out: dict[str, Array] = {}
        for part in self.parts:
            out |= part.predict(sys, state, ctrl)
        return out

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        out: dict[str, AbstractSpace] = {}
        for part in self.parts:
            out |= part.spaces(sys)
        return out


def measurement(value: Any) -> AbstractMeasurement:
    """Return a measurement from one, several, or a function."""
    if isinstance(value, AbstractMeasurement):
        return value
    if isinstance(value, Sequence):
        return Joined(tuple(measurement(part) for part in value))
    if callable(value):
        fn: Any = value
        return FunctionMeasurement(fn)
    raise TypeError(
        "`measure` must be a measurement such as `JointPositions()`, a tuple of them, "
        f"or a function (sys, state) -> {{channel: array}}, got {value!r}."
    )


def space_of(measure: AbstractMeasurement, sys: System, channel: str) -> AbstractSpace:
    """Return the space of a channel."""
    return measure.spaces(sys).get(channel, Euclidean())


def predicted_channels(
    sys: System, measure: AbstractMeasurement
) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape of each predicted channel."""
    measure.spaces(sys)
    q, qd = jnp.asarray(sys.joints.ref), jnp.zeros(sys.nv, sys.joints.ref.dtype)
    state, ctrl = State(q, qd, jnp.zeros(sys.na, q.dtype)), jnp.zeros(sys.nu, q.dtype)
    return jax.eval_shape(lambda: measure.predict(sys, state, ctrl))


def tangent_widths(
    sys: System,
    measure: AbstractMeasurement,
    predicted: Mapping[str, jax.ShapeDtypeStruct],
) -> dict[str, int]:
    """Return the number of residuals of each channel: three for an orientation."""
    widths = {}
    for name, value in predicted.items():
        space = space_of(measure, sys, name)
        widths[name] = jax.eval_shape(space.difference, value, value).shape[0]
    return widths


class AbstractInterpolation(eqx.Module):
    """The command as a function of time."""

    @abc.abstractmethod
    def __call__(
        self, time: Float[Array, " c"], ctrl: Float[Array, "c nu"], at: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        """Compute the command at a time.

        **Arguments:**

        - `time`, `ctrl`: recorded, at increasing times.
        - `at`: s; before and after the recording the first and last command hold.
        """


class ZeroOrderHold(AbstractInterpolation):
    """The command holds until the next one. Its derivative by a delay is zero."""

    def __call__(
        self, time: Float[Array, " c"], ctrl: Float[Array, "c nu"], at: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        # Times are differences of floating-point numbers.
        found = jnp.searchsorted(time, at + 1e-9, side="right") - 1
        return ctrl[jnp.clip(found, 0, time.shape[0] - 1)]


class LinearInterpolation(AbstractInterpolation):
    """The command changes linearly from one to the next: continuous in time."""

    def __call__(
        self, time: Float[Array, " c"], ctrl: Float[Array, "c nu"], at: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        k = _interval(time, at)
        share = jnp.clip((at - time[k]) / (time[k + 1] - time[k]), 0.0, 1.0)
        return ctrl[k] + share * (ctrl[k + 1] - ctrl[k])


class CubicInterpolation(AbstractInterpolation):
    """A cubic Hermite spline with slopes of neighbours: continuously differentiable, so
    that derivatives by a delay are continuous."""

    def __call__(
        self, time: Float[Array, " c"], ctrl: Float[Array, "c nu"], at: Float[Array, ""]
    ) -> Float[Array, " nu"]:
        k = _interval(time, at)
        step = time[k + 1] - time[k]
        share = jnp.clip((at - time[k]) / step, 0.0, 1.0)
        a, b = ctrl[k], ctrl[k + 1]
        slope_a, slope_b = _slope(time, ctrl, k), _slope(time, ctrl, k + 1)
        rest = 1.0 - share
        return (
            rest**2 * (1.0 + 2.0 * share) * a
            + share**2 * (1.0 + 2.0 * rest) * b
            + share * rest * step * (rest * slope_a - share * slope_b)
        )


def _interval(time: Array, at: Array) -> Array:
    found = jnp.searchsorted(time, at, side="right") - 1
    return jnp.clip(found, 0, time.shape[0] - 2)


def _slope(time: Array, ctrl: Array, k: Array) -> Array:
    low, high = jnp.maximum(k - 1, 0), jnp.minimum(k + 1, time.shape[0] - 1)
    return (ctrl[high] - ctrl[low]) / (time[high] - time[low])


class ChannelGain(AbstractUnknown):
    """Factors of a channel: of what the simulation predicts, or of the commands.

    **Arguments:**

    - `channel`: name of a channel, or `"ctrl"` for the commands.
    - `columns`: columns of the channel; by default all.
    - `shared`: true for one factor of all these columns.
    - `initial`: first value.
    - `prior`: prior of the factors.
    """

    channel: str = eqx.field(static=True)
    columns: tuple[int, ...] | None = eqx.field(static=True, default=None)
    shared: bool = eqx.field(static=True, default=False)
    initial: float = eqx.field(static=True, default=1.0)
    prior: AbstractPrior | None = None

    @property
    def transform(self) -> AbstractTransform:
        """The transform from the parameter to the coordinate of the fit."""
        return Log()

    def labels(self, name: str, sys: System, widths: Widths) -> tuple[str, ...]:
        return _labels(self, name, widths)

    def initial_values(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        return np.full(len(_labels(self, name, widths)), self.initial)

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        signals = model.signals
        gain = _scattered(self, jnp.exp(free), signals.gains, 1.0)
        return model._replace(signals=dataclasses.replace(signals, gains=gain))

    def inactive(self, mask: System) -> np.ndarray | None:
        return None


class ChannelBias(AbstractUnknown):
    """Offsets that are added to a channel, or to the commands.

    An offset of `Windows.channel` also moves the starts of windows that are estimated from it.

    **Arguments:** see `ChannelGain`; on `"q"` an offset is a step in tangent coordinates.

    - `per_run`: true for a separate offset per run (`Recording.run`, in sorted order), such
        as that of an encoder that is set to zero before each run. Other runs, such as those
        held out, have none.
    """

    channel: str = eqx.field(static=True)
    columns: tuple[int, ...] | None = eqx.field(static=True, default=None)
    shared: bool = eqx.field(static=True, default=False)
    initial: float = eqx.field(static=True, default=0.0)
    prior: AbstractPrior | None = None
    per_run: bool = eqx.field(static=True, default=False)

    @property
    def transform(self) -> AbstractTransform:
        """The transform from the parameter to the coordinate of the fit."""
        return Identity()

    def labels(self, name: str, sys: System, widths: Widths) -> tuple[str, ...]:
        own = _labels(self, name, widths)
        if not self.per_run:
            return own
        return tuple(f"run {k}: {x}" for k in range(widths[RUNS]) for x in own)

    def initial_values(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        return np.full(len(self.labels(name, sys, widths)), self.initial)

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        signals = model.signals
        if self.per_run and signals.num_runs == 0:
            # A posterior describes robots alone.
            return model
        if self.per_run:
            rows, old = free.reshape(signals.num_runs, -1), signals.run_biases
            before = {k: x[:-1] for k, x in old.items() if k == self.channel}
            scatter = lambda row, known: _scattered(self, row, known, 0.0)[self.channel]
            rows = jax.vmap(scatter)(rows, before)
            # The last row is that of other runs.
            rows = jnp.concatenate([rows, jnp.zeros_like(rows[:1])])
            bias = signals.run_biases | {self.channel: rows}
            new = dataclasses.replace(signals, run_biases=bias)
            return model._replace(signals=new)
        bias = _scattered(self, free, signals.biases, 0.0)
        return model._replace(signals=dataclasses.replace(signals, biases=bias))

    def inactive(self, mask: System) -> np.ndarray | None:
        return None


class ChannelDelay(AbstractUnknown):
    """A delay: a command acts later than recorded, or a sensor measured earlier.

    Commands are interpolated in the recording, sensors in the simulation; both are
    differentiable by the delay.

    **Arguments:**

    - `channel`: name of a channel; by default the commands.
    - `initial`: first value, s.
    - `lower`, `upper`: bounds, s.
    - `prior`: prior of the delay.
    """

    channel: str = eqx.field(static=True, default="ctrl")
    initial: float = eqx.field(static=True, default=2e-3)
    lower: float = eqx.field(static=True, default=0.0)
    upper: float = eqx.field(static=True, default=2e-2)
    prior: AbstractPrior | None = None

    @property
    def transform(self) -> AbstractTransform:
        """The transform from the parameter to the coordinate of the fit."""
        return Box(self.lower, self.upper)

    def labels(self, name: str, sys: System, widths: Widths) -> tuple[str, ...]:
        _width(self.channel, name, widths)
        return (name,)

    def initial_values(self, name: str, sys: System, widths: Widths) -> np.ndarray:
        return np.array([self.initial])

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        signals = model.signals
        new = signals.delays | {self.channel: free[0]}
        return model._replace(signals=dataclasses.replace(signals, delays=new))

    def inactive(self, mask: System) -> np.ndarray | None:
        return None


def _width(channel: str, name: str, widths: Widths) -> int:
    if channel not in widths:
        raise ValueError(
            f"Unknown {name!r} belongs to channel {channel!r}, which is not measured. "
            f"Measured channels: {sorted({*widths} - {RUNS})}."
        )
    return widths[channel]


def _labels(
    unknown: ChannelGain | ChannelBias, name: str, widths: Widths
) -> tuple[str, ...]:
    width = _width(unknown.channel, name, widths)
    columns = tuple(range(width)) if unknown.columns is None else unknown.columns
    if not columns or not all(0 <= k < width for k in columns):
        raise ValueError(
            f"Unknown {name!r} has columns {columns} of channel {unknown.channel!r}, "
            f"which has only {width} columns."
        )
    if unknown.shared or len(columns) == 1:
        return (name,)
    return tuple(f"{name}[{k}]" for k in columns)


def _scattered(
    unknown: ChannelGain | ChannelBias,
    value: Array,
    by_channel: dict[str, Array],
    neutral: float,
) -> dict[str, Array]:
    """Put values into their columns. Without `columns`, one per column or one for all."""
    channel, columns = unknown.channel, unknown.columns
    if columns is None:
        return by_channel | {channel: value}
    # At least two: a vector of size one counts for all columns.
    size, old = max(2, max(columns) + 1), by_channel.get(channel)
    if old is None:
        full = jnp.full(size, neutral, value.dtype)
    else:
        full = jnp.pad(old, (0, max(0, size - old.shape[0])), constant_values=neutral)
    value = jnp.broadcast_to(value, (len(columns),))
    return by_channel | {channel: full.at[jnp.array(columns)].set(value)}


def bias_of(
    signals: Signals, channel: str, run: Int[Array, ""], width: int
) -> Float[Array, " width"] | None:
    """Return the offset of a channel, or of the commands, in a window; None if it has none.

    **Arguments:**

    - `run`: index of the run of the window.
    - `width`: number of columns.
    """
    found = [signals.biases.get(channel)]
    if channel in signals.run_biases:
        found.append(signals.run_biases[channel][run])
    known = [extended(bias, width, 0.0) for bias in found if bias is not None]
    return sum(known[1:], known[0]) if known else None


def extended(vector: Array, width: int, neutral: float) -> Array:
    """Return one number per column; a vector of size one counts for all."""
    size = vector.shape[0]
    if size == width or size == 1:
        return jnp.broadcast_to(vector, (width,))
    if size > width:
        return vector[:width]
    return jnp.pad(vector, (0, width - size), constant_values=neutral)
