r"""Constraints of states and controls, around the iterations of a solver."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ._constraints import (
    Multipliers,
    stage_constraints,
    terminal_constraints,
    updated,
    violation,
)
from ._iterations import End, iterate, Settings
from ._problem import Problem
from ._results import NONFINITE
from ._tangent import before, last


class Penalty(NamedTuple):
    """Settings of the augmented Lagrangian: largest number of updates, first weight and its
    growth, and tolerance of constraints."""

    max_steps: int
    first: Float[Array, ""]
    growth: Float[Array, ""]
    tolerance: Float[Array, ""]


def solve_constrained(
    settings: Settings,
    penalty: Penalty,
    problem: Problem,
    states,
    actions: Float[Array, "T nu"],
    factors: Multipliers,
):
    r"""Solve a problem, and update multipliers until its constraints hold.

    $\lambda \leftarrow \max(0, \lambda + \rho c)$, $\rho \leftarrow 10 \rho$.

    **Returns:** the end of the iterations, the multipliers, the largest violation, and the
    number of iterations.

    ??? cite "Reference"
        Howell, Jackson, Manchester, *ALTRO: a fast solver for constrained trajectory
        optimization*, 2019.
    """
    factors = factors._replace(penalty=penalty.first)
    if not problem.constraints:
        end = iterate(settings, problem, states, actions, factors)
        return end, factors, jnp.zeros((), actions.dtype), end.step

    def solve(count, steps, states, actions, factors):
        end = iterate(settings, problem, states, actions, factors)
        values = _values(problem, end)
        worst = _worst(problem, *values)
        return count + 1, steps + end.step, end, factors, worst

    def pending(now):
        count, _, end, _, worst = now
        return (
            (count < penalty.max_steps)
            & (worst > penalty.tolerance)
            & (end.code != NONFINITE)
        )

    def step(now):
        count, steps, end, factors, _ = now
        factors = _updated(problem, end, factors, penalty)
        return solve(count, steps, end.states, end.actions, factors)

    zero = jnp.zeros((), jnp.int32)
    begin = solve(zero, zero, states, actions, factors)
    _, steps, end, factors, worst = lax.while_loop(pending, step, begin)
    return end, factors, worst, steps


def _values(problem: Problem, end: End):
    stage = jax.vmap(problem.stage_values)(before(end.states), end.actions)
    return stage, problem.terminal_values(last(end.states))


def _worst(problem: Problem, stage, terminal):
    parts = violation(stage_constraints(problem.constraints), stage)
    parts += violation(terminal_constraints(problem.constraints), terminal)
    return jnp.max(jnp.stack(parts))


def _updated(
    problem: Problem, end: End, old: Multipliers, penalty: Penalty
) -> Multipliers:
    (stage, terminal), rho = _values(problem, end), old.penalty
    on_steps = stage_constraints(problem.constraints)
    at_end = terminal_constraints(problem.constraints)
    return Multipliers(
        updated(on_steps, stage, old.stage, rho),
        updated(at_end, terminal, old.terminal, rho),
        rho * penalty.growth,
    )
