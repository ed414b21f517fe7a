r"""Derivatives of optimal plans, by the implicit function theorem.

At an optimum the gradients of the Lagrangian vanish. A change of the start, of the cost
or of the robot moves the solution such that they still do: one linear-quadratic problem,
with exact second derivatives of cost and dynamics. A control at a limit moves with the
limit.

Amos, Rodriguez, Sacks, Boots, Kolter, *Differentiable MPC for end-to-end planning and
control*, 2018.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ._finite_lq import factorize, linear_solution, LQ
from ._problem import Problem
from ._tangent import after, appended, before, last, push


def differentiable(
    problem: Problem, start: Any, states: Any, actions: Float[Array, "T nu"]
) -> tuple[Any, Float[Array, "T nu"]]:
    """Make an optimal plan a differentiable function of its problem and its start.

    **Arguments:**

    - `problem`, `start`: the problem that is solved, and where the plan begins.
    - `states`, `actions`: the solution.

    **Returns:** states and actions, unchanged.

    **Raises:** `ValueError` where it is differentiated and the problem has constraints;
    a run-time error if a Hessian of the controls is not positive definite.
    """
    return _attached((problem, start), states=states, actions=actions)


@eqx.filter_custom_jvp
def _attached(parameters, *, states, actions):
    del parameters
    return states, actions


@_attached.def_jvp
def _attached_jvp(primals, tangents, *, states, actions):
    (parameters,), (change,) = primals, tangents
    if parameters[0].constraints:
        raise ValueError(
            "Plans of problems with `constraints` cannot be differentiated; limits of "
            "controls can. Put the constraints into the cost."
        )
    # The plan follows the parameters here too, for derivatives of higher order.
    states, actions = _attached(parameters, states=states, actions=actions)
    dx, du = _moved(parameters, change, states, actions)
    retract = parameters[0].dynamics.retract
    many = lambda change: jax.vmap(retract)(states, change)
    _, new = jax.jvp(many, (jnp.zeros_like(dx),), (dx,))
    return (states, actions), (new, du)


def _moved(parameters, change, states, actions):
    """Return changes of states and actions, in tangent coordinates."""
    problem = parameters[0]
    nx = problem.dynamics.nx
    A, B = jax.vmap(problem.dynamics.linearize)(before(states), actions)
    slope, end = _cost_gradients(problem, states, actions)
    adjoint = lambda later, now: (now[0] + now[1].T @ later,) * 2
    _, costate = lax.scan(adjoint, end, (slope[:, :nx], A), reverse=True)
    costate = appended(costate, end)
    H, end_H = _hessians(problem, states, actions, costate)
    conditions = lambda p: _conditions(p[0], p[1], states, actions, costate)
    _, moved = push(conditions, parameters, change)
    rx, ru, rf, first, lower, upper = moved
    # Controls at a limit are no unknowns.
    low, high = (bound[None] for bound in problem.bounds(actions.dtype))
    at_low, at_high = actions <= low, actions >= high
    held = at_low | at_high
    given = jnp.where(at_low, lower, jnp.where(at_high, upper, 0.0))
    Hxx, Hxu, Huu = H[:, :nx, :nx], H[:, :nx, nx:], H[:, nx:, nx:]
    apply = lambda M, x: jnp.einsum("tij,tj->ti", M, x)
    rx = rx.at[:-1].add(apply(Hxu, given))
    ru = jnp.where(held, 0.0, ru + apply(Huu, given))
    rf = rf + apply(B, given)
    free = ~held[:, :, None] & ~held[:, None, :]
    one = jnp.eye(actions.shape[1], dtype=actions.dtype)
    lq = LQ(
        A,
        jnp.where(held[:, None], 0.0, B),
        rf,
        jnp.concatenate([Hxx, end_H[None]]),
        rx,
        jnp.where(free, Huu, one[None]),
        ru,
        jnp.where(held[:, None], 0.0, Hxu),
    )
    factors = factorize(lq)
    singular = ~jnp.all(jnp.isfinite(factors.chol))
    factors = eqx.error_if(factors, singular, _SINGULAR)
    dx, du, _ = linear_solution(lq, factors, first)
    return dx, du + given


_SINGULAR = (
    "The optimal plan has no derivative: the Hessian of the controls is not positive "
    "definite. Iterate until the plan is optimal, or give every control a cost."
)


def _cost_gradients(problem: Problem, states, actions):
    stage = lambda x, u: jax.grad(lambda z: _stage_cost(problem, x, u, z))(
        jnp.zeros(problem.dynamics.nx + u.size, u.dtype)
    )
    end = jax.grad(lambda z: _end_cost(problem, last(states), z))
    zero = jnp.zeros(problem.dynamics.nx, actions.dtype)
    return jax.vmap(stage)(before(states), actions), end(zero)


def _stage_cost(problem: Problem, x, u, change):
    dx, du = jnp.split(change, (problem.dynamics.nx,))
    moved = problem.dynamics.retract(x, dx)
    return 0.5 * jnp.sum(problem.cost.stage(problem.dynamics.sys, moved, u + du) ** 2)


def _end_cost(problem: Problem, x, change):
    moved = problem.dynamics.retract(x, change)
    return 0.5 * jnp.sum(problem.cost.terminal(problem.dynamics.sys, moved) ** 2)


def _hamiltonian(problem: Problem, x, u, later, costate, change):
    dx, du = jnp.split(change, (problem.dynamics.nx,))
    dynamics = problem.dynamics
    new = dynamics.step(dynamics.retract(x, dx), u + du)
    cost = _stage_cost(problem, x, u, change)
    return cost + costate @ dynamics.difference(later, new)


def _hessians(problem: Problem, states, actions, costate):
    nx, nu = problem.dynamics.nx, actions.shape[1]

    def stage(x, u, y, multiplier):
        of = lambda z: _hamiltonian(problem, x, u, y, multiplier, z)
        return jax.hessian(of)(jnp.zeros(nx + nu, u.dtype))

    end = jax.hessian(lambda z: _end_cost(problem, last(states), z))
    many = jax.vmap(stage)(before(states), actions, after(states), costate[1:])
    return many, end(jnp.zeros(nx, actions.dtype))


def _conditions(problem: Problem, start, states, actions, costate):
    """Return the optimality conditions, which vanish up to constants, and the limits."""
    first = jax.tree.map(lambda x: x[0], states)
    nx, nu = problem.dynamics.nx, actions.shape[1]

    def stage(x, u, y, multiplier):
        of = lambda z: _hamiltonian(problem, x, u, y, multiplier, z)
        slope = jax.grad(of)(jnp.zeros(nx + nu, u.dtype))
        gap = problem.dynamics.difference(y, problem.dynamics.step(x, u))
        return slope[:nx], slope[nx:], gap

    zero = jnp.zeros(nx, actions.dtype)
    end = jax.grad(lambda z: _end_cost(problem, last(states), z))(zero)
    rows = before(states), actions, after(states), costate[1:]
    rx, ru, rf = jax.vmap(stage)(*rows)
    moved = problem.dynamics.difference(first, start)
    rx = appended(rx, end)
    lower, upper = problem.bounds(actions.dtype)
    tile = lambda x: jnp.broadcast_to(x, actions.shape)
    return rx, ru, rf, moved, tile(lower), tile(upper)
