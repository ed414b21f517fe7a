"""Moving-horizon estimation: the most probable states of the last steps."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._errors import check_count, RESULTS
from .._loops import scan
from ..control import (
    AbstractDynamics,
    AbstractTrajectoryCost,
    ControlProblem,
    ILQR,
    retract,
    state_difference,
    Timed,
)
from ..model import State, System
from .estimators import (
    AbstractEstimator,
    advanced,
    check_rows,
    Estimate,
    ExtendedKalmanFilter,
    first_estimate,
    Innovation,
)
from .stochastic_model import (
    channels_of,
    choose,
    correct,
    dot,
    push_forward,
    States,
    StochasticModel,
)


class HorizonMemory(eqx.Module):
    """The memory of `MovingHorizon`: a window of the last `N` steps.

    **Arguments:**

    - `arrival`: estimate before the first measurement of the window.
    - `latest`: estimate at its end.
    - `states`: `N + 1` states of the window. `noise`: `N + 1` standardized deviations.
    - `ctrl`, `measured`, `valid`: data of the window.
    - `active`: false for steps before the first measurement.
    - `converged`: true if the solver has converged.
    """

    arrival: Estimate
    latest: Estimate
    states: State
    noise: Float[Array, "*batch N1 nx"]
    ctrl: Float[Array, "*batch N nu"]
    measured: dict[str, Float[Array, "..."]]
    valid: Bool[Array, "*batch N m"]
    active: Bool[Array, "*batch N"]
    converged: Bool[Array, "*batch"]


class MAP(NamedTuple):
    r"""The most probable states of a recording.

    - `states`: `T + 1` states.
    - `noise`: standardized deviations, `(T + 1, nx)`: that of the first state from the given
        estimate, and the process noise of each step.
    - `value`: half the sum of their squares and of those of standardized measurement residuals.
    - `result`: result code of the solver.
    """

    states: State
    noise: Float[Array, "T1 nx"]
    value: Float[Array, ""]
    result: RESULTS


class MovingHorizon(AbstractEstimator):
    r"""Moving-horizon estimation: the most probable states of the last `horizon` steps.

    With the factors $S$ of the arrival cost and $G$ of the process noise, the unknowns are
    standardized deviations $w$,

    $$\min_w \; \tfrac12 \sum_{t=-1}^{N-1} |w_t|^2 + \tfrac12 \sum_{t=1}^{N}
    |R^{-1/2} (y_t \ominus h(x_t))|^2, \qquad x_0 = \bar x_0 \oplus S w_{-1}, \quad
    x_{t+1} = f(x_t, u_t) \oplus G w_t.$$

    This is an optimal control problem, solved by `eqsim.control.ILQR` (Gauss-Newton in
    multiple shooting, with a line search), which also has its derivatives by the implicit
    function theorem. The first state that leaves the window becomes the arrival cost by an
    extended Kalman filter. The covariance of the latest state is that of a filter that is
    linearized along the solution. For linear models the estimates are those of a Kalman filter.
    Limits of states or noise, and other constraints, are not supported. Steps whose solver has
    not converged are those where `Track.converged` is false. The tolerance of the solver, `atol`
    in standard deviations, is at least eight rounding errors of the measured values: in single
    precision angles of 1 rad with a noise of 1 mrad are resolved to 0.001.

    **Arguments:**

    - `model`: motion and measurements with their noise.
    - `horizon`: number of steps $N$.
    - `solver`: settings of the iterations.

    ??? cite "Reference"
        Rao, Rawlings, Mayne, *Constrained state estimation for nonlinear discrete-time systems:
        stability and moving horizon approximations*, 2003.
    """

    model: StochasticModel  # pyright: ignore
    horizon: int = eqx.field(static=True, default=20)
    solver: ILQR = eqx.field(default_factory=lambda: ILQR(max_steps=20))

    def __check_init__(self):
        check_count("MovingHorizon.horizon", self.horizon)

    def init(self, sys: System, state: State, sd: Any) -> HorizonMemory:
        channels = channels_of(self.model, sys)
        first = first_estimate(sys, state, sd)
        N, dtype, m = self.horizon, state.q.dtype, sum(channels.widths)
        repeat = lambda x: jnp.broadcast_to(x[None], (N + 1, *x.shape))
        return HorizonMemory(
            first,
            first,
            jax.tree.map(repeat, first.state),
            jnp.zeros((N + 1, first.factor.shape[0]), dtype),
            jnp.zeros((N, sys.nu), dtype),
            {
                k: jnp.zeros((N, *shape), dtype)
                for k, shape in zip(channels.spaces, channels.shapes)
            },
            jnp.zeros((N, m), bool),
            jnp.zeros(N, bool),
            jnp.ones((), bool),
        )

    def estimate(self, memory: HorizonMemory) -> Estimate:
        return memory.latest

    def converged(self, memory: HorizonMemory) -> Bool[Array, "*batch"]:
        return memory.converged

    def step(
        self,
        sys: System,
        memory: HorizonMemory,
        ctrl: Float[Array, " nu"],
        measured: Mapping[str, Array],
        valid: Any = None,
    ) -> tuple[HorizonMemory, Innovation]:
        filter, channels = (
            ExtendedKalmanFilter(self.model),
            channels_of(self.model, sys),
        )
        ahead = filter.predict(sys, memory.latest, ctrl)
        _, innovation = filter.update(sys, ahead, ctrl, measured, valid)
        # The oldest step leaves the window.
        old = memory.ctrl[0], {k: x[0] for k, x in memory.measured.items()}
        arrival, _ = filter.step(
            sys, memory.arrival, *old, channels.split(memory.valid[0])
        )
        arrival = choose(memory.active[0], arrival, memory.arrival)
        put = lambda many, one: jnp.concatenate(
            [many[1:], one[None].astype(many.dtype)]
        )
        window = Window(
            sys,
            self.model.process_factor(sys),
            arrival,
            put(memory.ctrl, ctrl),
            {k: put(x, jnp.asarray(measured[k])) for k, x in memory.measured.items()},
            put(memory.valid, channels.mask(valid)),
            put(memory.active, jnp.ones((), bool)),
        )
        states = jax.tree.map(put, memory.states, ahead.state)
        noise = put(memory.noise, jnp.zeros_like(memory.noise[0]))
        found = _most_probable(self, window, states, noise)
        end = Estimate(
            jax.tree.map(lambda x: x[-1], found.states),
            _end_factor(self.model, window, found.states),
        )
        done = found.result == RESULTS.successful
        data = window.ctrl, window.measured, window.valid, window.active
        return (
            HorizonMemory(arrival, end, found.states, found.noise, *data, done),
            innovation,
        )

    def solve(
        self,
        sys: System,
        estimate: Estimate | HorizonMemory,
        ctrl: Float[Array, "T nu"],
        measured: Mapping[str, Array],
        valid: Any = None,
    ) -> MAP:
        """Compute the most probable states of a whole recording, whatever the horizon.

        The smoother of an extended Kalman filter is the first guess.

        **Arguments:** as for `track`; `estimate` is that before the first step: an `Estimate`,
        or the memory that `init` returns.

        **Raises:** as `track`.
        """
        if isinstance(estimate, HorizonMemory):
            estimate = self.estimate(estimate)
        T = check_rows(sys, ctrl, measured, valid)
        channels = channels_of(self.model, sys)
        filter = ExtendedKalmanFilter(self.model)
        guess = filter.smooth(sys, estimate, ctrl, measured, valid).state
        mask = jax.vmap(channels.mask, axis_size=T)(valid)
        active = jnp.ones(T, bool)
        process = self.model.process_factor(sys)
        window = Window(sys, process, estimate, ctrl, dict(measured), mask, active)
        noise = jnp.zeros((T + 1, estimate.factor.shape[0]), estimate.factor.dtype)
        return _most_probable(self, window, guess, noise)


class Window(NamedTuple):
    """The data of a problem with `N` steps, see `HorizonMemory`.

    - `process`: a factor of the covariance of the process noise.
    """

    sys: System
    process: Float[Array, "nx nx"]
    arrival: Estimate
    ctrl: Float[Array, "N nu"]
    measured: dict[str, Float[Array, "..."]]
    valid: Bool[Array, "N m"]
    active: Bool[Array, " N"]


class WindowDynamics(AbstractDynamics):
    """A robot driven by standardized noise. Its first step, from any state, leads to the first
    state of the window; states are `Timed`.

    **Arguments:**

    - `model`: motion and measurements.
    - `sys`: the window.
    """

    model: StochasticModel
    sys: Any

    @property
    def nx(self) -> int:
        return self.sys.arrival.factor.shape[0]

    @property
    def nu(self) -> int:
        return self.nx

    @property
    def limits(self) -> Float[Array, "nu 2"]:
        # Values that are known while JAX traces: a problem with infinite limits has none.
        with jax.ensure_compile_time_eval():
            high = jnp.full(self.nx, jnp.inf, self.sys.arrival.factor.dtype)
            return jnp.stack([-high, high], 1)

    def step(self, state: Timed, action: Float[Array, " nu"]) -> Timed:
        sys, process, arrival, ctrl, _, _, active = self.sys
        first = retract(sys, arrival.state, dot(arrival.factor, action))
        k = jnp.clip(state.step - 1, 0, len(active) - 1)
        new = self.model.step(sys, state.state, ctrl[k])
        new = retract(sys, new, dot(process, action))
        new = choose(active[k], new, state.state)
        return Timed(choose(state.step == 0, first, new), state.step + 1)

    def retract(self, state: Timed, change: Float[Array, " nx"]) -> Timed:
        return Timed(retract(self.sys.sys, state.state, change), state.step)

    def difference(self, start: Timed, end: Timed) -> Float[Array, " nx"]:
        return state_difference(self.sys.sys, start.state, end.state)

    def linearize(self, state: Timed, action: Float[Array, " nu"]):
        def step(change):
            moved = self.retract(state, change[: self.nx])
            return self.step(moved, action + change[self.nx :]).state

        zero = jnp.zeros(2 * self.nx, action.dtype)
        _, slope = push_forward(step, States(self.sys.sys), zero)
        return slope[:, : self.nx], slope[:, self.nx :]

    def check(self, state: Timed) -> None:
        del state


class WindowCost(AbstractTrajectoryCost):
    """Standardized deviations and measurement residuals of a window.

    **Arguments:**

    - `model`: motion and measurements.
    """

    model: StochasticModel

    def stage(self, sys: Window, state: Timed, action: Float[Array, " nu"]):
        return jnp.concatenate([action, self.terminal(sys, state)])

    def terminal(self, sys: Window, state: Timed):
        channels = channels_of(self.model, sys.sys)
        k = jnp.clip(state.step - 2, 0, len(sys.active) - 1)
        mask = sys.valid[k] & sys.active[k] & (state.step >= 2)
        predicted = self.model.predict(sys.sys, state.state, sys.ctrl[k])
        measured = {name: x[k] for name, x in sys.measured.items()}
        return channels.error(predicted, measured, mask) / channels.noise


def _most_probable(estimator: MovingHorizon, window: Window, states, noise) -> MAP:
    model, start = estimator.model, window.arrival.state
    dynamics = WindowDynamics(model, window)
    problem = ControlProblem(dynamics, WindowCost(model), len(window.active) + 1)
    join = lambda one, many: jnp.concatenate([one[None], many])
    states = jax.tree.map(join, start, states)
    count = jnp.arange(len(window.active) + 2)
    guess = Timed(states, count), noise
    least = _resolution(model, window)
    raised = lambda atol: jnp.maximum(atol.astype(noise.dtype), least)
    solver = eqx.tree_at(lambda s: s.atol, estimator.solver, replace_fn=raised)
    plan = solver.solve(problem, Timed(start, count[0]), guess)
    found = jax.tree.map(lambda x: x[1:], plan.states.state)
    return MAP(found, plan.actions, plan.value, plan.result)


def _resolution(model: StochasticModel, window: Window) -> Array:
    """Compute eight units of rounding of the measured values, in standard deviations of their
    noise, which residuals have as well: no smaller changes of deviations can be seen."""
    dtype = window.arrival.factor.dtype
    valid = jax.vmap(channels_of(model, window.sys).split)(window.valid)
    sizes = []
    for name, x in window.measured.items():
        known, x = valid[name], jnp.abs(x.astype(dtype))
        noise = model.noise[name].astype(dtype)
        if known.shape != x.shape:  # Coordinates with quaternions.
            known, noise = (
                jnp.any(known, 1, keepdims=True) & jnp.isfinite(x),
                jnp.min(noise),
            )
        noise = jnp.broadcast_to(noise, x.shape)
        sizes.append(jnp.max(jnp.where(known, x, 0.0) / noise))
    return 8.0 * float(jnp.finfo(dtype).eps) * jnp.max(jnp.stack(sizes))


def _end_factor(model: StochasticModel, window: Window, states: State) -> Array:
    """Compute the factor of the last state, by a filter along given states. Each factor is
    used in tangent coordinates of the given state: exact for vector spaces, and of first order
    in the distance from the filter's own mean on manifolds."""
    sys, filter = window.sys, ExtendedKalmanFilter(model)
    channels = channels_of(model, sys)

    def advance(factor, now):
        start, end, ctrl, valid, active = now
        ahead = advanced(filter, sys, Estimate(start, factor), ctrl)[0]
        seen = lambda state: model.predict(sys, state, ctrl)
        moments = filter.transform(sys, Estimate(end, ahead.factor), seen, channels)
        spread = jnp.where(valid[:, None], moments.spread, 0.0)
        noise = jnp.where(valid, channels.noise, 1.0)
        new = correct(moments.source, spread, noise).factor
        return jnp.where(active, new, factor), None

    first = jax.tree.map(lambda x: x[:-1], states)
    last = jax.tree.map(lambda x: x[1:], states)
    over = first, last, window.ctrl, window.valid, window.active
    return scan(advance, window.arrival.factor, over)[0]
