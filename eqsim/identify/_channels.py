r"""Signals of a recording: commands between their recorded times, and unknown gains, biases
and delays of channels and commands."""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..model import System
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
    """A cubic Hermite spline with slopes of neighbors: continuously differentiable, so
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
