r"""Rollouts of a feedback around a trajectory, all step sizes as one batch."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from .._batching import batch_last, over_batch
from .._loops import scan
from ._backward_pass import Feedback, SMALL
from ._constraints import Multipliers
from ._problem import Problem
from ._tangent import after, appended, before, last


class Candidate(NamedTuple):
    """A trajectory and its cost, infinite where a number is not finite."""

    states: Any
    actions: Float[Array, "T nu"]
    cost: Float[Array, ""]


def forward_pass(
    problem: Problem,
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


def open_loop(problem: Problem, start: Any, actions: Float[Array, "T nu"]) -> Any:
    """Compute the `T + 1` states that actions lead to."""
    step = lambda x, u: (problem.dynamics.step(x, u), x)
    end, passed = scan(step, start, actions)
    return appended(passed, end)


def trajectory_gaps(problem: Problem, states: Any, actions: Float[Array, "T nu"]):
    r"""Compute $f(x_t, u_t) \ominus x_{t+1}$."""
    dynamics = problem.dynamics
    gap = lambda x, u, y: dynamics.difference(y, dynamics.step(x, u))
    return jax.vmap(gap)(before(states), actions, after(states))


def total_cost(
    problem: Problem, states: Any, actions: Float[Array, "T nu"], factors: Multipliers
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


def line_search(problem: Problem, now: Search, feedback: Feedback, predicted):
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


def _attempt(problem: Problem, now: Search, feedback: Feedback, size) -> Candidate:
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


def _search(problem: Problem, now: Search, feedback: Feedback, predicted):
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


@batch_last
def _kernel(problem, now, feedback, predicted):
    args = problem, now, feedback, predicted
    return over_batch(_search, now.cost.ndim, *args)


def _closes_over_tracers(problem: Problem, now: Search) -> bool:
    """Tell whether functions of the problem hold values of an outer transformation, which
    a kernel cannot be given."""

    def values(problem: Problem, now: Search):
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
