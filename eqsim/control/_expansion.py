r"""Local models of dynamics and cost along a trajectory."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._constraints import Multipliers
from ._problem import Problem
from ._tangent import before, last


class Expansion(NamedTuple):
    r"""Dynamics to first order and Gauss-Newton costs to second order, in tangent
    coordinates, at `T` steps and at the last state.

    - `A`, `B`: derivatives of a step.
    - `lx`, `lu`: gradients of the cost; `lx` at `T + 1` states.
    - `lxx`, `lux`, `luu`: Gauss-Newton Hessians; `lxx` at `T + 1` states.
    """

    A: Float[Array, "T nx nx"]
    B: Float[Array, "T nx nu"]
    lx: Float[Array, "T1 nx"]
    lu: Float[Array, "T nu"]
    lxx: Float[Array, "T1 nx nx"]
    lux: Float[Array, "T nu nx"]
    luu: Float[Array, "T nu nu"]


def expand(
    problem: Problem, states: Any, actions: Float[Array, "T nu"], factors: Multipliers
) -> Expansion:
    """Compute the local model of a problem along a trajectory.

    **Arguments:**

    - `problem`: the problem.
    - `states`, `actions`: the trajectory.
    - `factors`: multipliers of the constraints.
    """
    dynamics, penalty = problem.dynamics, factors.penalty
    nx, nu = dynamics.nx, dynamics.nu

    def stage(x, u, multipliers):
        def residual(change):
            dx, du = jnp.split(change, (nx,))
            moved = dynamics.retract(x, dx)
            return problem.stage_residual(moved, u + du, multipliers, penalty)

        A, B = dynamics.linearize(x, u)
        return A, B, *_gauss_newton(residual, jnp.zeros(nx + nu, u.dtype))

    def end(x):
        residual = lambda dx: problem.terminal_residual(
            dynamics.retract(x, dx), factors.terminal, penalty
        )
        return _gauss_newton(residual, jnp.zeros(nx, actions.dtype))

    A, B, slope, H = jax.vmap(stage)(before(states), actions, factors.stage)
    last_slope, last_H = end(last(states))
    lx = jnp.concatenate([slope[:, :nx], last_slope[None]])
    lxx = jnp.concatenate([H[:, :nx, :nx], last_H[None]])
    return Expansion(A, B, lx, slope[:, nx:], lxx, H[:, nx:, :nx], H[:, nx:, nx:])


def _gauss_newton(residual, zero):
    """Compute gradient and Gauss-Newton Hessian of half the sum of squares."""
    with_value = lambda change: (residual(change),) * 2
    J, r = jax.jacfwd(with_value, has_aux=True)(zero)
    return J.T @ r, J.T @ J
