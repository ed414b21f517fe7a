"""Gains, biases and delays of commands and of sensors."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import System
from ._entries import check_start
from ._priors import AbstractPrior
from ._transforms import AbstractTransform, Box, Identity, Log, magnitudes
from ._unknowns import AbstractUnknown, Context, Model


class Gain(AbstractUnknown):
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

    def labels(self, name: str, context: Context) -> tuple[str, ...]:
        return _labels(self, name, context)

    def start(self, name: str, context: Context) -> np.ndarray:
        return _start(self, name, context, Log())

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Log().bounds(start)

    def values(self, free: Float[Array, " n"]) -> Float[Array, " values"]:
        return jnp.exp(free)

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        signals = model.signals
        old = signals.gains.get(self.channel)
        new = signals.gains | {self.channel: _scatter(self, jnp.exp(free), old, 1.0)}
        return model._replace(signals=dataclasses.replace(signals, gains=new))

    def scales(self, value: np.ndarray) -> np.ndarray:
        return value

    def inactive(self, mask: System) -> np.ndarray | None:
        return None


class Bias(AbstractUnknown):
    """Offsets that are added to a channel, or to the commands.

    **Arguments:** see `Gain`; on `"q"` an offset is a step in tangent coordinates.
    """

    channel: str = eqx.field(static=True)
    columns: tuple[int, ...] | None = eqx.field(static=True, default=None)
    shared: bool = eqx.field(static=True, default=False)
    initial: float = eqx.field(static=True, default=0.0)
    prior: AbstractPrior | None = None

    def labels(self, name: str, context: Context) -> tuple[str, ...]:
        return _labels(self, name, context)

    def start(self, name: str, context: Context) -> np.ndarray:
        return _start(self, name, context, Identity())

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Identity().bounds(start)

    def values(self, free: Float[Array, " n"]) -> Float[Array, " values"]:
        return free

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        signals = model.signals
        old = signals.biases.get(self.channel)
        new = signals.biases | {self.channel: _scatter(self, free, old, 0.0)}
        return model._replace(signals=dataclasses.replace(signals, biases=new))

    def scales(self, value: np.ndarray) -> np.ndarray:
        return magnitudes(value)

    def inactive(self, mask: System) -> np.ndarray | None:
        return None


class Delay(AbstractUnknown):
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

    def labels(self, name: str, context: Context) -> tuple[str, ...]:
        _width(self.channel, name, context)
        return (name,)

    def start(self, name: str, context: Context) -> np.ndarray:
        value = np.array([self.initial])
        check_start(name, (name,), value, Box(self.lower, self.upper))
        return value

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Box(self.lower, self.upper).bounds(start)

    def values(self, free: Float[Array, " n"]) -> Float[Array, " values"]:
        return free

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        signals = model.signals
        new = signals.delays | {self.channel: free[0]}
        return model._replace(signals=dataclasses.replace(signals, delays=new))

    def scales(self, value: np.ndarray) -> np.ndarray:
        return Box(self.lower, self.upper).scales(value)

    def inactive(self, mask: System) -> np.ndarray | None:
        return None


def _width(channel: str, name: str, context: Context) -> int:
    if channel not in context.widths:
        raise ValueError(
            f"Unknown {name!r} belongs to channel {channel!r}, which is not measured. "
            f"Measured channels: {sorted(context.widths)}."
        )
    return context.widths[channel]


def _columns(unknown: Gain | Bias, name: str, context: Context) -> tuple[int, ...]:
    width = _width(unknown.channel, name, context)
    columns = tuple(range(width)) if unknown.columns is None else unknown.columns
    if not columns or not all(0 <= k < width for k in columns):
        raise ValueError(
            f"Unknown {name!r} has columns {columns} of channel {unknown.channel!r}, "
            f"which has only {width} columns."
        )
    return columns


def _labels(unknown: Gain | Bias, name: str, context: Context) -> tuple[str, ...]:
    columns = _columns(unknown, name, context)
    if unknown.shared or len(columns) == 1:
        return (name,)
    return tuple(f"{name}[{k}]" for k in columns)


def _start(
    unknown: Gain | Bias, name: str, context: Context, transform: AbstractTransform
) -> np.ndarray:
    labels = _labels(unknown, name, context)
    value = np.full(len(labels), unknown.initial)
    check_start(name, labels, value, transform)
    return transform.free(value)


def _scatter(unknown: Gain | Bias, value: Array, old: Array | None, neutral: float):
    """Put values into their columns. Without `columns`, one per column or one for all."""
    if unknown.columns is None:
        return value
    # At least two: a vector of size one counts for all columns.
    size = max(2, max(unknown.columns) + 1)
    if old is None:
        full = jnp.full(size, neutral, value.dtype)
    else:
        full = jnp.pad(old, (0, max(0, size - old.shape[0])), constant_values=neutral)
    return full.at[jnp.array(unknown.columns)].set(
        jnp.broadcast_to(value, (len(unknown.columns),))
    )


def extended(vector: Array, width: int, neutral: float) -> Array:
    """Return one number per column; a vector of size one counts for all."""
    size = vector.shape[0]
    if size == width or size == 1:
        return jnp.broadcast_to(vector, (width,))
    if size > width:
        return vector[:width]
    return jnp.pad(vector, (0, width - size), constant_values=neutral)
