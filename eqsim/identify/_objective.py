"""Comparisons of a model with one window of a recording."""

import abc
from typing import NamedTuple

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
from ._signals import extended
from ._unknowns import Model, Signals
from ._windows import Batch


class Physics(NamedTuple):
    """The simulation and measurement of a window.

    - `steps`: steps of `sys.dt` per window.
    """

    pipeline: AbstractPipeline
    measure: AbstractMeasurement
    steps: int


class Residuals(NamedTuple):
    """Residuals of one window.

    - `channels`: in the units of the channel, one row per measured time.
    - `end`: coordinates and velocities at the time `window.gap`.
    """

    channels: dict[str, Array]
    end: tuple[Array, Array]


class AbstractObjective(eqx.Module):
    """A comparison of a window of a recording with a model."""

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
        k, share = _place(window.gap, sys.dt, physics.steps)
        q, qd = states.q, states.qd
        end_q = integrate(sys, q[k], share * difference(sys, q[k], q[k + 1]))
        end = end_q, qd[k] + share * (qd[k + 1] - qd[k])
        return Residuals(channels, end)


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
    ctrl = commands(physics, model, window, control)

    def step(state, u):
        new = physics.pipeline.step(sys, state, u)
        return new, new

    _, rest = scan(step, first, ctrl[:-1])
    join = lambda a, b: jnp.concatenate([a[None], b])
    return jax.tree.map(join, first, rest), ctrl


def commands(
    physics: Physics, model: Model, window: Batch, control: AbstractInterpolation
) -> Float[Array, "steps nu"]:
    """Compute the commands at multiples of `sys.dt`."""
    sys, signals = model
    time = jnp.arange(physics.steps + 1, dtype=sys.dt.dtype) * sys.dt
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
    """Measured minus simulated values of one channel, one row per measured time."""
    space, measured = space_of(physics.measure, sys, name), window.measured[name]
    time = window.time
    if name in signals.delays:
        time = time - signals.delays[name]
    if name in signals.gains:
        grid = grid * extended(signals.gains[name], grid.shape[1], 1.0)[None]

    def compare(at, value):
        k, share = _place(at, sys.dt, physics.steps)
        predicted = interpolate(space, grid[k], grid[k + 1], share)
        if name in signals.biases:
            width = jax.eval_shape(space.difference, value, value).shape[0]
            bias = extended(signals.biases[name], width, 0.0)
            predicted = space.integrate(predicted, bias)
        return space.difference(predicted, value)

    error = jax.vmap(compare)(time, measured)
    return jnp.where(window.mask[:, None], error, 0.0)


def _place(time: Array, dt: Array, steps: int) -> tuple[Array, Array]:
    """Return the step in which a time falls, and where in it."""
    at = time / dt
    k = jnp.clip(jnp.floor(at), 0, steps - 1)
    return k.astype(int), at - k
