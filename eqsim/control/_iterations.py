r"""The iterations of iterative LQR, for fixed multipliers."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ._backward_pass import backward_pass, expected_change, Feedback
from ._constraints import Multipliers
from ._expansion import expand, Expansion
from ._forward_pass import line_search, Search, total_cost, trajectory_gaps
from ._lanes import Loop, run
from ._problem import Problem
from ._results import MAX_STEPS, NONFINITE, PENDING, REGULARIZATION_LIMIT, SOLVED
from ._tangent import where


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
    - `code`: number of the result, see `_results.py`.
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
    problem: Problem,
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


def _first(problem: Problem, states, actions, factors) -> Iterate:
    cost = total_cost(problem, states, actions, factors)
    gaps = trajectory_gaps(problem, states, actions)
    # Rounding errors of states that were rolled out are no gaps.
    size = max(problem.dynamics.nx, 1)
    noise = 100.0 * size * jnp.finfo(gaps.dtype).eps
    gaps = jnp.where(jnp.max(jnp.abs(gaps), initial=0.0) < noise, 0.0, gaps)
    finite = jnp.isfinite(cost) & jnp.all(jnp.isfinite(gaps))
    T, nu, nx = *actions.shape, gaps.shape[1]
    zeros = lambda *shape: jnp.zeros(shape, actions.dtype)
    model = Expansion(
        zeros(T, nx, nx),
        zeros(T, nx, nu),
        zeros(T + 1, nx),
        zeros(T, nu),
        zeros(T + 1, nx, nx),
        zeros(T, nu, nx),
        zeros(T, nu, nu),
    )
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


def _step(settings: Settings, problem: Problem, now: Iterate) -> Iterate:
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
