r"""Model predictive control: planners that draw many plans (CEM, MPPI, predictive sampling), a
solver or planner as a policy with memory, and latency of commands."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_count, check_numbers, check_shape
from .._loops import scan
from .._policies import AbstractController
from ..model.arrays import as_array
from ._dynamics import as_dynamics, Timed, TimedDynamics, where
from ._ilqr import ILQR
from ._iterations import open_loop, total_cost
from ._problem import ControlProblem


# Planners that draw many plans.


class AbstractPlanner(eqx.Module):
    """A planner that draws many plans and compares their costs.

    The plan of before is always among those that are tried, and a plan whose cost is not
    finite is never followed.
    """

    @abc.abstractmethod
    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        """Improve a plan.

        **Arguments:**

        - `cost`: cost of a plan, JAX code, which may be a rollout.
        - `start`: the plan to improve.
        - `key`: a key of `jax.random.key`; equal keys draw equal noise.
        - `project`: maps an action to the nearest allowed one.

        **Returns:** the plan and its cost.
        """

    def init(self, problem: ControlProblem, state: Any) -> Float[Array, "horizon nu"]:
        """Return the first plan: the controls within the limits nearest to zero."""
        dtype = jax.tree.leaves(state)[0].dtype
        rest = problem.clip(jnp.zeros(problem.dynamics.nu, dtype))
        return jnp.tile(rest, (problem.horizon, 1))

    def shift(
        self, plan: Float[Array, "horizon n"], steps: int = 1
    ) -> Float[Array, "horizon n"]:
        """Advance a plan in time; its last action is repeated."""
        return shifted(plan, steps)

    def solve(
        self,
        problem: ControlProblem,
        state: Any,
        key: PRNGKeyArray,
        guess: Float[Array, "horizon nu"] | None = None,
    ) -> tuple[Float[Array, "horizon nu"], Float[Array, ""]]:
        """Plan actions for an optimal control problem.

        **Arguments:**

        - `problem`, `state`: the problem, and the first state of the plan.
        - `key`: a key of `jax.random.key`.
        - `guess`: actions to begin with; those of `init` by default.

        **Returns:** actions within the limits, and their cost. Constraints enter as
        quadratic penalties, see `plan_cost`.
        """
        problem.dynamics.check(state)
        start = self.init(problem, state) if guess is None else guess
        clip = jax.vmap(problem.clip)
        cost = plan_cost(problem, state)
        return self.plan(cost, clip(start), key, project=problem.clip)


def plan_cost(
    problem: ControlProblem, state: Any, penalty: float = 1e4
) -> Callable[[Float[Array, "horizon nu"]], Float[Array, ""]]:
    """Make the cost of actions, by a rollout, as planners take it.

    **Arguments:**

    - `problem`, `state`: the problem, and the first state of plans.
    - `penalty`: weight of half the squared violations of constraints.

    **Returns:** a function of actions; infinite where a rollout is not finite.
    """
    factors = problem.multipliers(state)
    weight = jnp.asarray(penalty, factors.penalty.dtype)
    factors = factors._replace(penalty=weight)

    def cost(actions):
        states = open_loop(problem, state, actions)
        return total_cost(problem, states, actions, factors)

    return cost


def evaluated(cost: Callable, plans: Float[Array, "samples horizon n"]):
    """Compute the costs of plans, infinite where they are not finite."""
    costs = jax.vmap(cost)(plans)
    return jnp.where(jnp.isfinite(costs), costs, jnp.inf)


def shifted(tree: Any, steps: int) -> Any:
    """Advance arrays in time by some steps; the last row is repeated."""
    one = lambda x: jnp.concatenate([x[steps:], jnp.repeat(x[-1:], steps, 0)])
    return jax.tree.map(lambda x: one(x) if steps else x, tree)


def colored_noise(
    key: PRNGKeyArray, shape: tuple[int, int, int], exponent, dtype
) -> Float[Array, "samples horizon n"]:
    r"""Draw noise of unit variance whose power falls with frequency as
    $1/f^\beta$.

    **Arguments:**

    - `shape`: samples, horizon, controls.
    - `exponent`: $\beta$: 0 white, 1 pink, 2 Brownian.

    ??? cite "Reference"
        Timmer, König, *On generating power law noise*, 1995, as in Pinneri et al.,
        *Sample-efficient cross-entropy method*, 2020 (iCEM).
    """
    samples, horizon, n = shape
    if horizon == 1:
        return jr.normal(key, shape, dtype)
    frequency = np.fft.rfftfreq(horizon)
    # The lowest frequency stands for the mean too.
    frequency[0] = frequency[1]
    scale = jnp.asarray(frequency, dtype) ** (-0.5 * exponent)
    parts = jr.normal(key, (2, samples, len(frequency), n), dtype)
    parts = parts * scale[None, None, :, None]
    spectrum = lax.complex(parts[0], parts[1])
    noise = jnp.fft.irfft(spectrum, n=horizon, axis=1)
    # The variance of each sum of waves; mean and Nyquist frequency have no sine.
    weight = np.full(len(frequency), 2.0)
    weight[0] = 0.5
    if horizon % 2 == 0:
        weight[-1] = 0.5
    power = jnp.asarray(2.0 * weight, dtype) * scale**2
    return noise * horizon / jnp.sqrt(jnp.sum(power))


def check_planner(planner: Any, sizes: tuple[str, ...], positive: tuple[str, ...]):
    """Raise `ValueError` unless sizes are at least 1, and numbers positive."""
    name = type(planner).__name__
    for field in sizes:
        check_count(f"{name}.{field}", vars(planner)[field])
    for field in positive:
        check_field(planner, field, lambda x: x > 0.0, "positive")


def check_field(planner: Any, field: str, accepted: Callable, expected: str) -> None:
    """Raise `ValueError` unless the numbers of a field are accepted."""
    name = f"{type(planner).__name__}.{field}"
    check_numbers(name, vars(planner)[field], accepted, expected)


class CEM(AbstractPlanner):
    r"""The cross-entropy method: fit a normal distribution to the best plans.

    In each iteration `samples` plans are drawn, and mean and standard deviation move to
    those of the `elites` with the lowest cost,
    $\mu \leftarrow \alpha \mu + (1 - \alpha) \mu_{elite}$, likewise $\sigma$. The best
    plan of all iterations is returned, so that the cost never rises.

    **Arguments:**

    - `samples`: plans per iteration, the mean and the best plan so far among them.
    - `elites`: number of best plans.
    - `iterations`: number of fits of the distribution.
    - `std`: first standard deviation, one number or one per control.
    - `momentum`: $\alpha$, at least 0 and below 1.
    - `color`: exponent of the noise over time: 0 white; 2 slow changes.

    **Raises:** `ValueError` if a number is out of its range.

    ??? cite "Reference"
        Pinneri et al., *Sample-efficient cross-entropy method for real-time planning*,
        2020.
    """

    samples: int = eqx.field(static=True, default=64)
    elites: int = eqx.field(static=True, default=8)
    iterations: int = eqx.field(static=True, default=5)
    std: Float[Array, "..."] = eqx.field(converter=as_array, default=0.5)
    momentum: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    color: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        check_planner(self, ("samples", "elites", "iterations"), ("std",))
        check_field(self, "momentum", lambda x: (x >= 0) & (x < 1), "in [0, 1)")
        check_field(self, "color", lambda x: x >= 0, "at least 0")
        if self.samples < 3 or self.elites > self.samples:
            raise ValueError(
                "`CEM` needs at least 3 samples and at most as many elites, got "
                f"samples={self.samples}, elites={self.elites}."
            )

    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        std = jnp.broadcast_to(self.std.astype(start.dtype), start.shape[1:])
        std = jnp.broadcast_to(std, start.shape)
        first = cost(start)
        first = jnp.where(jnp.isfinite(first), first, jnp.inf)

        def improve(now, key):
            return self._improved(cost, project, now, key), None

        begin = start, std, start, first
        keys = jr.split(key, self.iterations)
        (_, _, best, least), _ = lax.scan(improve, begin, keys)
        return best, least

    def _improved(self, cost, project, now, key):
        mean, std, best, least = now
        shape = self.samples - 2, *mean.shape
        noise = colored_noise(key, shape, self.color.astype(mean.dtype), mean.dtype)
        plans = jnp.concatenate(
            [mean[None], best[None], mean[None] + std[None] * noise]
        )
        plans = jax.vmap(jax.vmap(project))(plans)
        costs = evaluated(cost, plans)
        order = jnp.argsort(costs)[: self.elites]
        elite, good = plans[order], jnp.isfinite(costs[order])
        number = jnp.maximum(jnp.sum(good), 1)
        average = lambda x: (
            jnp.sum(jnp.where(good[:, None, None], x, 0.0), 0)
            / number.astype(mean.dtype)
        )
        center = average(elite)
        spread = jnp.sqrt(average((elite - center[None]) ** 2))
        alpha = self.momentum.astype(mean.dtype)
        any_ = jnp.any(good)
        mix = lambda old, new: jnp.where(any_, alpha * old + (1 - alpha) * new, old)
        better = costs[order[0]] < least
        best = jnp.where(better, elite[0], best)
        least = jnp.where(better, costs[order[0]], least)
        return mix(mean, center), mix(std, spread), best, least


class MPPI(AbstractPlanner):
    r"""Model predictive path integral control: the mean of many plans, weighted by
    their costs.

    In each iteration `samples` plans with costs $J$ are drawn around the mean $\mu$,

    $$u^k_t = \mu_t + \epsilon^k_t, \quad
    \epsilon^k_t = \beta\,\sigma\,n^k_t + (1 - \beta)\,\epsilon^k_{t-1}, \quad
    w_k \propto \exp\left(-\frac{J^k - \min J}{\lambda\,s}\right), \quad
    \mu \leftarrow \sum_k w_k u^k,$$

    with normal noise $n$ and $s = \mathrm{median}\,J - \min J$, so that neither the scale
    of the cost nor the costs of the worst plans matter. The previous mean is one of the
    plans; the result is a mean of projected actions.

    **Arguments:**

    - `samples`: plans per iteration, the previous mean among them.
    - `iterations`: number of updates of the mean.
    - `std`: $\sigma$, one number or one per control; at least 0.
    - `temperature`: $\lambda$, positive; a lower one gives the best plan more weight.
    - `smoothing`: $\beta$ in (0, 1]; a lower one makes noise change more slowly in time.

    **Raises:** `ValueError` if a number is out of its range.

    ??? cite "Reference"
        Williams, Aldrich, Theodorou, *Model predictive path integral control: from theory
        to parallel computation*, 2017, algorithm 2. The smoothing is that of Nagabandi,
        Konolige, Levine, Kumar, *Deep dynamics models for learning dexterous
        manipulation*, 2019, equation 3.
    """

    samples: int = eqx.field(static=True, default=64)
    iterations: int = eqx.field(static=True, default=8)
    std: Float[Array, "..."] = eqx.field(converter=as_array, default=0.5)
    temperature: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    smoothing: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        check_planner(self, ("samples", "iterations"), ("temperature",))
        check_field(self, "std", lambda x: x >= 0, "at least 0")
        check_field(self, "smoothing", lambda x: (x > 0) & (x <= 1), "in (0, 1]")

    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        keys = jr.split(key, self.iterations)
        improve = lambda mean, key: (self._improved(cost, mean, key, project), None)
        mean, _ = lax.scan(improve, start, keys)
        return mean, cost(mean)

    def _improved(self, cost, mean, key, project):
        plans = jax.vmap(jax.vmap(project))(mean[None] + self._noise(mean, key))
        costs = jax.vmap(cost)(plans)
        good = jnp.isfinite(costs)
        least = jnp.min(jnp.where(good, costs, jnp.inf))
        spread = jnp.nanmedian(jnp.where(good, costs, jnp.nan)) - least
        # Where all plans cost the same all count the same.
        tiny = jnp.finfo(costs.dtype).tiny
        scale = jnp.maximum(self.temperature.astype(costs.dtype) * spread, tiny)
        weights = jax.nn.softmax(jnp.where(good, (least - costs) / scale, -jnp.inf))
        return jnp.where(jnp.any(good), jnp.tensordot(weights, plans, 1), mean)

    def _noise(self, mean, key):
        """Return the deviations of all plans from the mean; the first plan is the mean."""
        shape = self.samples - 1, *mean.shape
        std = jnp.broadcast_to(self.std.astype(mean.dtype), mean.shape[1:])
        normal = jr.normal(key, shape, mean.dtype) * std[None, None]
        beta = self.smoothing.astype(mean.dtype)

        def step(before, now):
            noise = beta * now + (1.0 - beta) * before
            return noise, noise

        first = jnp.zeros_like(normal[:, 0])
        _, noise = lax.scan(step, first, jnp.moveaxis(normal, 1, 0))
        none = jnp.zeros_like(mean)[None]
        return jnp.concatenate([none, jnp.moveaxis(noise, 0, 1)])


class PredictiveSampling(AbstractPlanner):
    """Predictive sampling: follow the best of many noisy splines.

    A plan is a spline through `knots`, spread evenly over the horizon. In each iteration
    noise is added to the knots, and the plan with the lowest cost wins; the plan of
    before is among them.

    **Arguments:**

    - `samples`: plans per iteration, the plan of before among them.
    - `iterations`: number of improvements.
    - `knots`: number of knots.
    - `degree`: 0 holds each knot, 1 interpolates linearly, 3 by cubic Hermite splines.
    - `std`: standard deviation at the knots, one number or one per control.

    **Raises:** `ValueError` if a number is out of its range.

    ??? cite "Reference"
        Howell et al., *Predictive sampling: real-time behaviour synthesis with MuJoCo*,
        2022.
    """

    samples: int = eqx.field(static=True, default=64)
    iterations: int = eqx.field(static=True, default=1)
    knots: int = eqx.field(static=True, default=5)
    degree: int = eqx.field(static=True, default=3)
    std: Float[Array, "..."] = eqx.field(converter=as_array, default=0.5)

    def __check_init__(self):
        check_planner(self, ("samples", "iterations", "knots"), ("std",))
        if self.degree not in (0, 1, 3):
            raise ValueError(
                f"`PredictiveSampling.degree` must be 0, 1 or 3, got {self.degree}."
            )

    def plan(
        self,
        cost: Callable[[Float[Array, "horizon n"]], Float[Array, ""]],
        start: Float[Array, "horizon n"],
        key: PRNGKeyArray,
        *,
        project: Callable[[Float[Array, " n"]], Float[Array, " n"]] = lambda u: u,
    ) -> tuple[Float[Array, "horizon n"], Float[Array, ""]]:
        horizon, n = start.shape
        knots = min(self.knots, horizon)
        spline = jnp.asarray(_spline(horizon, knots, self.degree), start.dtype)
        at = np.round(np.linspace(0, horizon - 1, knots)).astype(int)
        std = jnp.broadcast_to(self.std.astype(start.dtype), (n,))
        many = jax.vmap(jax.vmap(project))

        def improve(now, key):
            best, least = now
            noise = std[None, None] * jr.normal(
                key, (self.samples - 1, knots, n), best.dtype
            )
            plans = many(jnp.einsum("tk,skn->stn", spline, best[at][None] + noise))
            costs = evaluated(cost, plans)
            k = jnp.argmin(costs)
            better = costs[k] < least
            best = jnp.where(better, plans[k], best)
            return (best, jnp.where(better, costs[k], least)), None

        first = cost(start)
        begin = start, jnp.where(jnp.isfinite(first), first, jnp.inf)
        if self.samples == 1:
            return begin
        return lax.scan(improve, begin, jr.split(key, self.iterations))[0]


def _spline(horizon: int, knots: int, degree: int) -> np.ndarray:
    """Return the matrix from values at knots to values at all times."""
    one = np.eye(knots)
    if knots == 1:
        return np.ones((horizon, 1))
    time = np.linspace(0.0, knots - 1.0, horizon)
    left = np.clip(np.floor(time + 1e-9).astype(int), 0, knots - 2)
    s = (time - left)[:, None]
    if degree == 0:
        return one[np.clip(np.floor(time + 1e-9).astype(int), 0, knots - 1)]
    if degree == 1:
        return (1 - s) * one[left] + s * one[left + 1]
    slopes = np.gradient(one, axis=0)
    return (
        (1 + 2 * s) * (1 - s) ** 2 * one[left]
        + s * (1 - s) ** 2 * slopes[left]
        + s**2 * (3 - 2 * s) * one[left + 1]
        + s**2 * (s - 1) * slopes[left + 1]
    )


# Latency, and policies.


def predict(system: Any, state: Any, pending: Float[Array, "latency nu"]) -> Any:
    """Compute the state at which the next command acts, on a robot with latency.

    The model is rolled forward over the commands that have been sent and have not acted
    yet. Feedback of the predicted state in place of the measured one is, for an exact
    model, the feedback of a robot without latency (a Smith predictor in state space).

    **Arguments:**

    - `system`: an environment, a pair `(pipeline, sys)`, or an `AbstractDynamics`.
    - `state`: the measured state.
    - `pending`: commands sent and not applied yet, oldest first, one for each control
        step of latency. May be empty.

    **Returns:** the state after the last of them.

    **Raises:** `ValueError` if a shape is wrong.
    """
    dynamics = as_dynamics(system)
    latency = pending.shape[0] if pending.ndim else 0
    check_shape("pending", pending, {"latency": latency, "nu": dynamics.nu})
    dynamics.check(state)
    if not latency:
        return state
    return scan(lambda x, u: (dynamics.step(x, u), None), state, pending)[0]


class MPC(AbstractController):
    """Model predictive control: replan at every control step from the last plan.

    A policy for `eqsim.rollout`; one compiled call is `act`. The plan is advanced by one
    control step, improved, and its first action is applied. A plan that is not finite is
    discarded, and the last one is continued.

    **Arguments:**

    - `planner`: `ILQR(max_steps=1)` for one iteration a step, `CEM()`,
        `PredictiveSampling()` or `MPPI()`.
    - `problem`: the problem to solve at each step; its control step is that of the
        environment.
    - `delay`: control steps that computing takes: `act` returns the action that was
        computed so many calls ago. The first ones are those of the first plan.
    - `first_planner`: planner of the first plan; by default `planner`, with at least 100
        iterations of `ILQR`.
    - `latency`: control steps from sending an action until it acts on the robot. Until
        the first one acts, the control within the limits that is nearest to zero does.

    With either, the plan begins at the state that `predict` computes for the time at
    which its first action acts. For `TimedDynamics`, steps are counted from the call of
    `init`, unless states are `Timed`.

    **Raises:** `ValueError` if the delay is negative or longer than the horizon, or the
    latency is negative.
    """

    planner: ILQR | AbstractPlanner
    problem: ControlProblem
    delay: int = eqx.field(static=True, default=0)
    first_planner: ILQR | AbstractPlanner | None = None
    latency: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        horizon = self.problem.horizon
        check_count("MPC.delay", self.delay, 0)
        check_count("MPC.latency", self.latency, 0)
        if self.delay > horizon:
            raise ValueError(
                f"`MPC.delay` must be from 0 to the horizon ({horizon}), got {self.delay}."
            )

    def init(self, state: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Compute the first plan.

        **Arguments:** as of `AbstractController`.

        **Returns:** the plan (states and actions), and the actions that have not acted
        yet, `(latency + delay, nu)`, oldest first.
        """
        T, nu = self.problem.horizon, self.problem.dynamics.nu
        zeros = jnp.zeros((T, nu), jax.tree.leaves(state)[0].dtype)
        actions = jax.vmap(self.problem.clip)(zeros)
        idle = jnp.tile(self.problem.clip(zeros[0])[None], (self.latency, 1))
        if isinstance(self.problem.dynamics, TimedDynamics):
            state = state if isinstance(state, Timed) else Timed(state)
        state = predict(self.problem.dynamics, state, idle)
        plan = open_loop(self.problem, state, actions), actions
        plan = _improved(self._first(), self.problem, state, plan, key)
        if not self.delay:
            return _back(plan), idle
        first = plan[1][: self.delay]
        return shifted(plan, self.delay - 1), jnp.concatenate([idle, first])

    def _first(self) -> ILQR | AbstractPlanner:
        if self.first_planner is not None:
            return self.first_planner
        if isinstance(self.planner, ILQR):
            steps = max(self.planner.max_steps, 100)
            return dataclasses.replace(self.planner, max_steps=steps)
        return self.planner

    def act(
        self, memory: tuple[Any, Any], state: Any, obs: Any, key: PRNGKeyArray
    ) -> tuple[tuple[Any, Any], Float[Array, " nu"]]:
        """Advance and improve the plan, and return its action.

        **Arguments:** as of `AbstractController`; `obs` is not read.
        """
        del obs
        plan, pending = memory
        plan = shifted(plan, 1)
        if isinstance(plan[0], Timed) and not isinstance(state, Timed):
            state = Timed(state, plan[0].step[0] - len(pending))
        start = predict(self.problem.dynamics, state, pending)
        plan = _from(start, plan)
        plan = _improved(self.planner, self.problem, start, plan, key)
        pending = jnp.concatenate([pending, plan[1][:1]])
        return (plan, pending[1:]), pending[self.latency]


def _from(start, plan):
    """Set the times of a plan that begins at a state."""
    states, actions = plan
    if not isinstance(states, Timed):
        return plan
    step = start.step + jnp.arange(len(states.step), dtype=start.step.dtype)
    return Timed(states.state, step), actions


def _back(plan):
    """Shift a plan one step back; the first call of `act` advances it again."""
    return jax.tree.map(lambda x: jnp.concatenate([x[:1], x[:-1]]), plan)


def _improved(planner, problem: ControlProblem, state, plan, key):
    if isinstance(planner, ILQR):
        found = planner.solve(problem, state, plan)
        new = found.states, found.actions
        finite = jnp.isfinite(found.value) & jnp.all(jnp.isfinite(found.actions))
        return where(finite, new, plan)
    key, _ = jr.split(key)
    actions, _ = planner.solve(problem, state, key, plan[1])
    return plan[0], actions
