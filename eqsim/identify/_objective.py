"""Comparisons of a model with one window of a recording."""

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._loops import scan
from ..kinematics import difference, integrate
from ..model import State, System
from ..pipelines import AbstractPipeline
from ._control import AbstractInterpolation, Linear
from ._geometry import interpolate
from ._measure import AbstractMeasurement, space_of
from ._recording import Recording
from ._signals import extended
from ._unknowns import Model, Signals
from ._windows import Batch, Windows


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


class Residuals(NamedTuple):
    """Residuals of one window.

    - `channels`: in the units of the channel, one row per measured time.
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
    ) -> Residuals:
        """Compute the residuals of one window.

        **Arguments:**

        - `start`: coordinates and velocities at the start.
        - `window`: one row of a batch.
        """


class Simulation(AbstractObjective):
    """Measured minus simulated values, from the start of the window to its end.

    The robot is simulated with steps of `sys.dt`; its *predictions* are interpolated
    to the measured times, so that measurements stay as they are.

    **Arguments:**

    - `control`: commands between their recorded times: `Linear()`, `Hold()` or
        `Cubic()`. Each step holds the command at its beginning.
    """

    control: AbstractInterpolation = Linear()

    def compare(self, given: Given) -> Comparison:
        return Comparison(given.recordings, tuple(given.widths), dict(given.widths))

    def residuals(
        self,
        physics: Physics,
        model: Model,
        start: tuple[Float[Array, " nq"], Float[Array, " nv"]],
        window: Batch,
    ) -> Residuals:
        sys, signals = model
        states, ctrl = simulate(physics, model, start, window, self.control)
        predict = lambda state, u: physics.measure.predict(sys, state, u)
        grid = jax.vmap(predict)(states, ctrl)
        channels = {
            name: _compared(physics, sys, signals, name, grid[name], window)
            for name in window.measured
        }
        return Residuals(channels, state_at(physics, sys, states, window.gap))


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
    if "ctrl" in signals.biases:
        ctrl = ctrl + extended(signals.biases["ctrl"], sys.nu, 0.0)[None]
    return ctrl


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
        if name in signals.biases:
            width = jax.eval_shape(space.difference, value, value).shape[0]
            bias = extended(signals.biases[name], width, 0.0)
            predicted = space.integrate(predicted, bias)
        return space.difference(predicted, value)

    error = jax.vmap(compare)(time, measured)
    return jnp.where(window.mask[:, None], error, 0.0)


def place(time: Array, dt: Array, steps: int) -> tuple[Array, Array]:
    """Return the step in which a time falls, and where in it."""
    at = time / dt
    k = jnp.clip(jnp.floor(at), 0, steps - 1)
    return k.astype(int), at - k
