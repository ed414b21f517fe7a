r"""The iterations of iterative LQR, for fixed multipliers.

`iterate` expands the problem along a trajectory, solves for a feedback backward in time, and
searches for a step size along its rollout. In this order: rollouts and the line search; batches
of problems on lanes; the iterations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from .._batching import batch_last, over_batch
from .._errors import RESULTS
from .._loops import scan
from ._backward_pass import (
    backward_pass,
    expand,
    Expansion,
    expected_change,
    Feedback,
    SMALL,
)
from ._dynamics import after, appended, before, last, where
from ._problem import ControlProblem, Multipliers


# Results as loops carry them.
PENDING = -1
SOLVED, MAX_STEPS, REGULARIZATION_LIMIT, NONFINITE, INFEASIBLE = range(5)
_CODES = (
    RESULTS.successful,
    RESULTS.max_steps,
    RESULTS.regularization_limit,
    RESULTS.nonfinite_guess,
    RESULTS.infeasible,
)


def result_of(code) -> RESULTS:
    """Convert the number of a result, as loops carry it."""
    out = _CODES[0]
    for k, item in enumerate(_CODES[1:], 1):
        out = RESULTS.where(code == k, item, out)
    return out


class Candidate(NamedTuple):
    """A trajectory and its cost, infinite where a number is not finite."""

    states: Any
    actions: Float[Array, "T nu"]
    cost: Float[Array, ""]


def forward_pass(
    problem: ControlProblem,
    states: Any,
    actions: Float[Array, "T nu"],
    gaps: Float[Array, "T nx"],
    feedback: Feedback,
    size: Float[Array, ""],
    factors: Multipliers,
) -> Candidate:
    r"""Roll out $u_t + \alpha k_t + K_t (\hat x_t \ominus x_t)$, within the limits.

    Gaps shrink to $1 - \alpha$ of what they were.
    """
    dynamics = problem.dynamics

    def step(carry, now):
        new, total = carry
        old, action, gap, k, K, multipliers = now
        dx = dynamics.difference(old, new)
        action = problem.clip(action + size * k + K @ dx)
        residual = problem.stage_residual(new, action, multipliers, factors.penalty)
        moved = dynamics.retract(dynamics.step(new, action), (size - 1.0) * gap)
        return (moved, total + 0.5 * jnp.sum(residual**2)), (new, action)

    over = (
        before(states),
        actions,
        gaps,
        feedback.feedforward,
        feedback.gain,
        factors.stage,
    )
    first = jax.tree.map(lambda x: x[0], states)
    zero = jnp.zeros((), actions.dtype)
    (end, total), (passed, applied) = scan(step, (first, zero), over)
    residual = problem.terminal_residual(end, factors.terminal, factors.penalty)
    total = total + 0.5 * jnp.sum(residual**2)
    new = appended(passed, end)
    return Candidate(new, applied, finite_or_infinite(total, new))


def finite_or_infinite(total, states):
    """Replace a cost by infinity where it or a state is not finite."""
    finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(states)]
    finite = jnp.all(jnp.stack([jnp.isfinite(total), *finite]))
    return jnp.where(finite, total, jnp.inf)


def open_loop(
    problem: ControlProblem, start: Any, actions: Float[Array, "T nu"]
) -> Any:
    """Compute the `T + 1` states that actions lead to."""
    step = lambda x, u: (problem.dynamics.step(x, u), x)
    end, passed = scan(step, start, actions)
    return appended(passed, end)


def trajectory_gaps(
    problem: ControlProblem, states: Any, actions: Float[Array, "T nu"]
):
    r"""Compute $f(x_t, u_t) \ominus x_{t+1}$."""
    dynamics = problem.dynamics
    gap = lambda x, u, y: dynamics.difference(y, dynamics.step(x, u))
    return jax.vmap(gap)(before(states), actions, after(states))


def total_cost(
    problem: ControlProblem,
    states: Any,
    actions: Float[Array, "T nu"],
    factors: Multipliers,
) -> Float[Array, ""]:
    """Compute the cost of a trajectory with the terms of its constraints."""
    stage = lambda x, u, m: jnp.sum(
        problem.stage_residual(x, u, m, factors.penalty) ** 2
    )
    stages = jnp.sum(jax.vmap(stage)(before(states), actions, factors.stage))
    end = problem.terminal_residual(last(states), factors.terminal, factors.penalty)
    return finite_or_infinite(0.5 * (stages + jnp.sum(end**2)), states)


STEP_SIZES = tuple(0.5**k for k in range(10))


class Search(NamedTuple):
    """A trajectory from which to search, as in `Iterate`.

    - `active`: false for a problem of a batch that does not search; no step size of it is
        tried but the first.
    """

    states: Any
    actions: Float[Array, "T nu"]
    gaps: Float[Array, "T nx"]
    cost: Float[Array, ""]
    factors: Multipliers
    active: Bool[Array, ""]


def line_search(problem: ControlProblem, now: Search, feedback: Feedback, predicted):
    """Return the largest step size that decreases the cost enough.

    **Arguments:**

    - `now`: trajectory, gaps, cost and multipliers.
    - `predicted`: result of `expected_change`.

    **Returns:** the candidate, its step size, and whether it is accepted.
    """
    small = sum(feedback.gain.shape[-2:]) <= SMALL
    if small and not _closes_over_tracers(problem, now):
        return _kernel(problem, now, feedback, predicted)
    sizes = jnp.asarray(STEP_SIZES, now.actions.dtype)
    attempt = lambda size: _attempt(problem, now, feedback, size)
    many = jax.vmap(attempt)(sizes)
    accepted = _accepted(now.cost, many.cost, sizes, predicted)
    best = jnp.argmax(accepted)
    return jax.tree.map(lambda x: x[best], many), sizes[best], jnp.any(accepted)


def _attempt(
    problem: ControlProblem, now: Search, feedback: Feedback, size
) -> Candidate:
    return forward_pass(
        problem, now.states, now.actions, now.gaps, feedback, size, now.factors
    )


_SUFFICIENT, _RISE = 1e-4, 2.0


def _accepted(old, new, size, predicted):
    expected = -(size * predicted[0] + 0.5 * size**2 * predicted[1])
    # Of the order of rounding errors nothing can be asked for.
    slack = 8.0 * jnp.finfo(old.dtype).eps * (1.0 + jnp.abs(old))
    # While there are gaps the cost may rise, up to twice as much as predicted.
    factor = jnp.where(expected > 0.0, _SUFFICIENT, _RISE)
    return (old - new >= factor * expected - slack) & jnp.isfinite(new)


def _search(problem: ControlProblem, now: Search, feedback: Feedback, predicted):
    """Search for a step size sequentially, one after another."""

    def pending(carry):
        count, _, accepted = carry
        return (count < len(STEP_SIZES)) & ~accepted

    def step(carry):
        count, size, _ = carry
        size = jnp.where(count == 0, 1.0, 0.5 * size).astype(size.dtype)
        cost = _attempt(problem, now, feedback, size).cost
        return count + 1, size, _accepted(now.cost, cost, size, predicted)

    one = jnp.ones((), now.actions.dtype)
    begin = jnp.zeros((), jnp.int32), one, ~now.active
    _, size, accepted = lax.while_loop(pending, step, begin)
    return _attempt(problem, now, feedback, size), size, accepted


def _search_fn(problem, now, feedback, predicted):
    args = problem, now, feedback, predicted
    return over_batch(_search, now.cost.ndim, *args)


_kernel = batch_last(_search_fn)


def _closes_over_tracers(problem: ControlProblem, now: Search) -> bool:
    """Tell whether functions of the problem hold values of an outer transformation, which
    a kernel cannot be given."""

    def values(problem: ControlProblem, now: Search):
        state, action = jax.tree.map(lambda x: x[0], (now.states, now.actions))
        stage = jax.tree.map(lambda x: x[0], now.factors.stage)
        penalty = now.factors.penalty
        return (
            problem.stage_residual(state, action, stage, penalty),
            problem.terminal_residual(state, now.factors.terminal, penalty),
            problem.dynamics.step(state, action),
        )

    closed, _, _ = eqx.filter_make_jaxpr(values)(problem, now)
    return any(isinstance(x, Tracer) for x in closed.consts)


class Loop(NamedTuple):
    """An iteration of one problem.

    - `first(data)`: first state of the iteration, from the data of the problem.
    - `step(data, state)`: next state.
    - `pending(state)`: true while the problem has not ended.
    - `result(state)`: its result.
    """

    first: Callable[[Any], Any]
    step: Callable[[Any, Any], Any]
    pending: Callable[[Any], Any]
    result: Callable[[Any], Any]


def run(loop: Loop, data: Any, lanes: int | None) -> Any:
    """Iterate until a problem has ended.

    **Arguments:**

    - `data`: data of the problem; its arrays get batch axes under `jax.vmap`.
    - `lanes`: largest number of problems that a batch under `jax.vmap` iterates at the same
        time; None for all.

    **Returns:** the result, independent of `lanes`.
    """
    if lanes is None:
        return _one(loop, data)
    arrays, static = eqx.partition(data, eqx.is_array)

    @jax.custom_batching.custom_vmap
    def ended(arrays):
        return _one(loop, eqx.combine(arrays, static))

    @ended.def_vmap
    def _(size, batched, arrays):
        (batched,) = batched if isinstance(batched, tuple | list) else (batched,)
        axes = jax.tree.map(lambda has: 0 if has else None, batched)
        over = _Batch(loop, arrays, static, axes, size)
        found = over.whole() if size <= lanes else over.on_lanes(lanes)
        return found, jax.tree.map(lambda _: True, found)

    return ended(arrays)


def _one(loop: Loop, data: Any) -> Any:
    step = lambda state: loop.step(data, state)
    return loop.result(lax.while_loop(loop.pending, step, loop.first(data)))


class _Lanes(NamedTuple):
    """Problems in progress.

    - `index`: number of the problem on each lane; that of problems where a lane is empty.
    - `arrays`: their data. `state`: their states.
    - `following`: number of the next problem.
    - `found`: results of all problems.
    """

    index: Any
    arrays: Any
    state: Any
    following: Any
    found: Any


class _Batch(NamedTuple):
    """A batch of problems.

    - `arrays`, `static`: data of all problems. `axes`: batch axis of each array; None for
        those that are common to all problems.
    - `size`: number of problems.
    """

    loop: Loop
    arrays: Any
    static: Any
    axes: Any
    size: int

    def whole(self) -> Any:
        """Iterate all problems in one loop."""
        one = lambda arrays: _one(self.loop, eqx.combine(arrays, self.static))
        return jax.vmap(one, (self.axes,))(self.arrays)

    def on_lanes(self, lanes: int) -> Any:
        """Iterate as many problems as there are lanes."""
        index = jnp.arange(lanes, dtype=jnp.int32)
        arrays = self._at(index)
        state = self._first(arrays)
        kinds = jax.eval_shape(jax.vmap(self.loop.result), state)
        empty = lambda x: jnp.zeros((self.size, *x.shape[1:]), x.dtype)
        following = jnp.asarray(lanes, jnp.int32)
        found = jax.tree.map(empty, kinds)
        begin = _Lanes(index, arrays, state, following, found)
        occupied = lambda now: jnp.any(now.index < self.size)
        return lax.while_loop(occupied, self._advance, begin).found

    def _advance(self, now: _Lanes) -> _Lanes:
        """Take a step on each lane, and give lanes to other problems."""
        step = lambda arrays, state: self.loop.step(self._data(arrays), state)
        new = jax.vmap(step, (self.axes, 0))(now.arrays, now.state)
        new = _where(jax.vmap(self.loop.pending)(now.state), new, now.state)
        now = now._replace(state=new)
        ended = ~jax.vmap(self.loop.pending)(new) & (now.index < self.size)
        return lax.cond(jnp.any(ended), lambda: self._renewed(now, ended), lambda: now)

    def _renewed(self, now: _Lanes, ended) -> _Lanes:
        """Store the results of the problems that have ended, and start others."""
        result = jax.vmap(self.loop.result)(now.state)
        place = jnp.where(ended, now.index, self.size)
        store = lambda all_, own: all_.at[place].set(own, mode="drop")
        found = jax.tree.map(store, now.found, result)
        index = now.following + jnp.cumsum(ended, dtype=jnp.int32) - 1
        index = jnp.where(ended, jnp.minimum(index, self.size), now.index)
        starts = ended & (index < self.size)
        arrays = self._at(jnp.minimum(index, self.size - 1))
        state = _where(starts, self._first(arrays), now.state)
        following = now.following + jnp.sum(ended, dtype=jnp.int32)
        return _Lanes(index, arrays, state, following, found)

    def _first(self, arrays: Any) -> Any:
        first = lambda arrays: self.loop.first(self._data(arrays))
        return jax.vmap(first, (self.axes,))(arrays)

    def _data(self, arrays: Any) -> Any:
        return eqx.combine(arrays, self.static)

    def _at(self, index) -> Any:
        """Return the data of some problems."""
        pick = lambda axis, x: x if axis is None else x[index]
        none = lambda x: x is None
        return jax.tree.map(pick, self.axes, self.arrays, is_leaf=none)


def _where(condition, one: Any, other: Any) -> Any:
    """Choose by lane."""

    def choose(x, y):
        wide = condition.reshape(-1, *(1 for _ in x.shape[1:]))
        return jnp.where(wide, x, y)

    return jax.tree.map(choose, one, other)


class Settings(NamedTuple):
    """Limits of the iterations: their largest number, tolerances of controls (`atol`)
    and of the cost (`rtol`, relative), and the number of problems of a batch that are
    iterated at the same time (`lanes`; None for all)."""

    max_steps: int
    lanes: int | None
    atol: Float[Array, ""]
    rtol: Float[Array, ""]


class Iterate(NamedTuple):
    """A trajectory, its local model, and the state of the regularization.

    - `stale`: true if the model is that of an earlier trajectory.
    - `mu`, `delta`: regularization and the factor by which it changes.
    - `code`: number of the result.
    """

    states: Any
    actions: Float[Array, "T nu"]
    gaps: Float[Array, "T nx"]
    cost: Float[Array, ""]
    factors: Multipliers
    model: Expansion
    feedback: Feedback
    stale: Bool[Array, ""]
    mu: Float[Array, ""]
    delta: Float[Array, ""]
    step: Int[Array, ""]
    code: Int[Array, ""]


class End(NamedTuple):
    """The last iterate: trajectory, gains, number of the result, number of iterations."""

    states: Any
    actions: Float[Array, "T nu"]
    gain: Float[Array, "T nu nx"]
    code: Int[Array, ""]
    step: Int[Array, ""]


_FACTOR, _MU_MIN, _MU_MAX = 2.0, 1e-6, 1e10


def iterate(
    settings: Settings,
    problem: ControlProblem,
    states: Any,
    actions: Float[Array, "T nu"],
    factors: Multipliers,
) -> End:
    """Iterate until a tolerance, or a limit, is reached.

    **Arguments:**

    - `settings`: limits and tolerances.
    - `problem`, `factors`: the problem, and multipliers of its constraints.
    - `states`, `actions`: first guess; states need not follow the dynamics.
    """
    loop = Loop(
        first=lambda data: _first(*data[1:]),
        step=lambda data, now: _step(data[0], data[1], now),
        pending=lambda now: now.code == PENDING,
        result=lambda now: End(
            now.states, now.actions, now.feedback.gain, now.code, now.step
        ),
    )
    data = settings, problem, states, actions, factors
    return run(loop, data, settings.lanes)


def _first(problem: ControlProblem, states, actions, factors) -> Iterate:
    cost = total_cost(problem, states, actions, factors)
    gaps = trajectory_gaps(problem, states, actions)
    # Rounding errors of states that were rolled out are no gaps.
    size = max(problem.dynamics.nx, 1)
    noise = 100.0 * size * jnp.finfo(gaps.dtype).eps
    gaps = jnp.where(jnp.max(jnp.abs(gaps), initial=0.0) < noise, 0.0, gaps)
    finite = jnp.isfinite(cost) & jnp.all(jnp.isfinite(gaps))
    T, nu, nx = *actions.shape, gaps.shape[1]
    zeros = lambda *shape: jnp.zeros(shape, actions.dtype)
    jacobians = zeros(T, nx, nx), zeros(T, nx, nu)
    slopes = zeros(T + 1, nx), zeros(T, nu)
    hessians = zeros(T + 1, nx, nx), zeros(T, nu, nx), zeros(T, nu, nu)
    model = Expansion(*jacobians, *slopes, *hessians)
    false = jnp.zeros((), bool)
    feedback = Feedback(zeros(T, nu), zeros(T, nu, nx), zeros(), zeros(), false)
    return Iterate(
        states,
        actions,
        gaps,
        cost,
        factors,
        model,
        feedback,
        ~false,
        zeros(),
        zeros() + _FACTOR,
        jnp.zeros((), jnp.int32),
        jnp.where(finite, PENDING, NONFINITE),
    )


def _step(settings: Settings, problem: ControlProblem, now: Iterate) -> Iterate:
    renew = lambda: expand(problem, now.states, now.actions, now.factors)
    model = lax.cond(now.stale, renew, lambda: now.model)
    bounds = None
    if problem.limits is not None:
        lower, upper = problem.bounds(now.actions.dtype)
        bounds = lower[None] - now.actions, upper[None] - now.actions
    feedback = backward_pass(model, now.gaps, now.mu, bounds)
    now = now._replace(model=model, stale=jnp.zeros((), bool), step=now.step + 1)
    largest = jnp.max(jnp.abs(feedback.feedforward), initial=0.0)
    closed = jnp.all(now.gaps == 0.0)
    solved = feedback.finite & closed & (largest <= settings.atol) & (now.mu < 1e-5)

    searches = feedback.finite & ~solved

    def search():
        predicted = expected_change(model, now.gaps, feedback)
        # Batched, problems that have ended go through every iteration as well. Without
        # improvement they would try all step sizes, and the batch with them.
        active = searches & (now.code == PENDING)
        begin = Search(now.states, now.actions, now.gaps, now.cost, now.factors, active)
        found = line_search(problem, begin, feedback, predicted)
        return _moved(settings, now, feedback, *found)

    def stop():
        code = jnp.where(solved, SOLVED, PENDING).astype(now.code.dtype)
        kept = now._replace(code=code)
        kept = kept._replace(feedback=where(solved, feedback, kept.feedback))
        return where(solved, kept, _more_regularized(kept))

    new = lax.cond(searches, search, stop)
    ended = (new.code == PENDING) & (new.step >= settings.max_steps)
    return new._replace(code=jnp.where(ended, MAX_STEPS, new.code))


def _moved(settings, now: Iterate, feedback, candidate, size, accepted) -> Iterate:
    """Return the iterate after the line search."""
    delta = jnp.minimum(1.0 / _FACTOR, now.delta / _FACTOR)
    mu = now.mu * delta
    mu = jnp.where(mu >= _MU_MIN, mu, 0.0)
    gaps = jnp.where(size == 1.0, 0.0, (1.0 - size) * now.gaps)
    little = jnp.abs(now.cost - candidate.cost) < settings.rtol * jnp.abs(now.cost)
    converged = little & jnp.all(now.gaps == 0.0) & (size == 1.0) & (now.mu < 1e-5)
    moved = now._replace(
        states=candidate.states,
        actions=candidate.actions,
        cost=candidate.cost,
        gaps=gaps,
        feedback=feedback,
        stale=jnp.ones((), bool),
        mu=mu,
        delta=delta,
        code=jnp.where(converged, SOLVED, now.code),
    )
    return where(accepted, moved, _more_regularized(now))


def _more_regularized(now: Iterate) -> Iterate:
    delta = jnp.maximum(_FACTOR, now.delta * _FACTOR)
    mu = jnp.maximum(_MU_MIN, now.mu * delta)
    code = jnp.where(mu > _MU_MAX, REGULARIZATION_LIMIT, now.code)
    return now._replace(mu=mu, delta=delta, code=code)
