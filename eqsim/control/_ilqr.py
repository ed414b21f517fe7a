r"""Iterative LQR with control limits, gaps, constraints and annealed contacts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from .._errors import check_count, check_numbers, check_shape
from ..model.arrays import as_array
from ._augmented_lagrangian import Penalty, solve_constrained
from ._constraints import Multipliers
from ._dynamics import with_smoothing
from ._forward_pass import open_loop
from ._iterations import Settings
from ._problem import Problem
from ._results import INFEASIBLE, result_of, RESULTS, SOLVED
from ._sensitivity import differentiable


class Plan(eqx.Module):
    r"""A solution of an optimal control problem.

    **Arguments:**

    - `states`: `T + 1` states, with a leading axis of time.
    - `actions`: `T` actions, within the limits.
    - `gains`: feedback $K_t$ of $u_t = \bar u_t + K_t (x_t \ominus \bar x_t)$; zero
        for controls at a limit.
    - `value`: cost of the plan, without terms of constraints.
    - `result`: result code of the solver.
    - `violation`: largest violation of a constraint; zero without constraints.
    - `multipliers`: multipliers of the constraints.
    - `steps`: number of iterations.
    """

    states: Any
    actions: Float[Array, "T nu"]
    gains: Float[Array, "T nu nx"]
    value: Float[Array, ""]
    result: RESULTS
    violation: Float[Array, ""]
    multipliers: Multipliers
    steps: Int[Array, ""]


class Anneal(eqx.Module):
    """A schedule of contact smoothing: solve with wide contacts first.

    Exact contacts have no gradient before they touch. The plan with one width is the
    guess for the next, geometrically from `start` to `end`.

    **Arguments:**

    - `start`, `end`: first and last width, m; `end` may be zero, for the exact model.
    - `stages`: number of widths.
    """

    start: float = eqx.field(static=True)
    end: float = eqx.field(static=True, default=0.0)
    stages: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        check_count("Anneal.stages", self.stages, 2)
        if not 0.0 <= self.end < self.start < np.inf:
            raise ValueError(
                f"`Anneal` needs 0 <= `end` < `start`, got start={self.start} and "
                f"end={self.end}."
            )

    def widths(self) -> Float[np.ndarray, " stages"]:
        """Return the smoothing widths, m."""
        if self.end > 0.0:
            return np.geomspace(self.start, self.end, self.stages)
        # A factor of 4 a stage, then the exact model.
        positive = self.start * 0.25 ** np.arange(self.stages - 1)
        return np.concatenate([positive, [0.0]])


class ILQR(eqx.Module):
    r"""Iterative LQR (differential dynamic programming with Gauss-Newton Hessians).

    Each iteration linearizes the dynamics exactly in tangent coordinates, solves for a
    feedback backward in time, and rolls it out with ten step sizes as one batch. Control
    limits are met exactly, by a projected Newton method in the backward pass; guesses may
    hold states that the dynamics do not connect (gaps, as in FDDP).

    `solve` can be batched by `eqx.filter_vmap` (problems, starts, guesses), and
    differentiated in forward and reverse mode.

    **Arguments:**

    - `max_steps`: iterations at most, per update of multipliers and width of contacts.
    - `atol`: solved when no control would change by more.
    - `rtol`: solved when an iteration changes the cost by a smaller share, at least 8
        units of rounding; 0 to iterate until `atol`.
    - `contact`: smoothing of contacts, from wide to exact; that of the pipeline by
        default.
    - `max_penalty_steps`: updates of multipliers at most.
    - `penalty`, `penalty_growth`: first penalty weight of constraints, and its growth.
    - `constraint_tolerance`: largest violation of a constraint that is accepted.
    - `lanes`: largest number of problems of a batch that are iterated at the same time. A
        batch runs until its last problem is solved; with lanes, the next problem takes the
        place of one that is solved. On a CPU, 8 per core. None: all, as on a GPU.

    ??? cite "Reference"
        Tassa, Erez, Todorov 2012 (regularization), Tassa, Mansard, Todorov 2014 (control
        limits), Mastalli et al. 2020 (gaps), Howell et al. 2019 (constraints).
    """

    max_steps: int = eqx.field(static=True, default=100)
    atol: Float[Array, ""] = eqx.field(converter=as_array, default=1e-6)
    rtol: Float[Array, ""] = eqx.field(converter=as_array, default=1e-8)
    contact: Anneal | None = eqx.field(static=True, default=None)
    max_penalty_steps: int = eqx.field(static=True, default=10)
    penalty: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    penalty_growth: Float[Array, ""] = eqx.field(converter=as_array, default=10.0)
    constraint_tolerance: Float[Array, ""] = eqx.field(converter=as_array, default=1e-5)
    lanes: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_count("ILQR.max_steps", self.max_steps)
        check_count("ILQR.max_penalty_steps", self.max_penalty_steps)
        check_count("ILQR.lanes", self.lanes, or_none="a number that fits the batch")
        not_negative = lambda x: x >= 0.0
        for name, accepted, expected in (
            ("atol", not_negative, "at least 0"),
            ("rtol", not_negative, "at least 0"),
            ("penalty", lambda x: x > 0.0, "positive"),
            ("penalty_growth", lambda x: x >= 1.0, "at least 1"),
            ("constraint_tolerance", not_negative, "at least 0"),
        ):
            check_numbers(f"ILQR.{name}", vars(self)[name], accepted, expected)

    def solve(self, problem: Problem, state: Any, guess: Any = None) -> Plan:
        """Find a locally optimal plan.

        **Arguments:**

        - `problem`: the problem to solve.
        - `state`: first state of the plan.
        - `guess`: actions `(T, nu)`, or a pair `(states, actions)` with `T + 1` states,
            which need not follow the dynamics; the first is replaced by `state`. By
            default the control within the limits that is nearest to zero.

        **Returns:** a `Plan`; whether it is optimal stands in `plan.result`. Under
        differentiation, `states`, `actions` and `value` follow the optimum (by the
        implicit function theorem, controls at a limit stay there); `gains` and
        `multipliers` are constants.

        **Raises:** `ValueError` if a shape is wrong, or a number of the state or the
        guess is not finite and its value is known, which it is not while JAX traces.
        """
        problem.dynamics.check(state)
        states, actions = _guess(problem, state, guess)
        return _solved(self, problem, state, states, actions)


@eqx.filter_jit
def _solved(solver: ILQR, problem: Problem, state, states, actions) -> Plan:
    found = _constant(solver, problem, state, states, actions)
    states, actions = differentiable(problem, state, found.states, found.actions)
    value = problem.value(states, actions)
    optimum = lambda p: (p.states, p.actions, p.value)
    return eqx.tree_at(optimum, found, (states, actions, value))


def _constant(solver: ILQR, problem: Problem, state, states, actions) -> Plan:
    """Return the plan as a constant under differentiation."""
    stop = lambda x: lax.stop_gradient(x) if eqx.is_array(x) else x
    args = jax.tree.map(stop, (solver, problem, state, states, actions))
    solver, problem, state, states, actions = args
    actions = jax.vmap(problem.clip)(actions)
    if states is None:
        widest = (
            problem
            if solver.contact is None
            else _smoothed(problem, jnp.asarray(solver.contact.start, actions.dtype))
        )
        states = open_loop(widest, state, actions)
    # A zero-size state has no first entry to replace.
    put = lambda many, one: many.at[0].set(one)
    states = jax.tree.map(put, states, state)
    cast = lambda x: x.astype(actions.dtype)
    # Changes below rounding errors cannot be seen.
    least = 8.0 * jnp.finfo(actions.dtype).eps
    rtol = jnp.where(solver.rtol > 0.0, jnp.maximum(cast(solver.rtol), least), 0.0)
    settings = Settings(solver.max_steps, solver.lanes, cast(solver.atol), rtol)
    penalty = Penalty(
        solver.max_penalty_steps,
        cast(solver.penalty),
        cast(solver.penalty_growth),
        cast(solver.constraint_tolerance),
    )
    factors = problem.multipliers(state)
    solve = lambda problem, states, actions: solve_constrained(
        settings, penalty, problem, states, actions, factors
    )
    if solver.contact is None:
        end, factors, worst, steps = solve(problem, states, actions)
    else:
        widths = jnp.asarray(solver.contact.widths(), actions.dtype)

        def stage(guess, width):
            out = solve(_smoothed(problem, width), *guess)
            return (out[0].states, out[0].actions), out

        _, out = lax.scan(stage, (states, actions), widths)
        end, factors, worst = jax.tree.map(lambda x: x[-1], out[:3])
        steps = jnp.sum(out[3])
    value = problem.value(end.states, end.actions)
    violated = (end.code == SOLVED) & (worst > penalty.tolerance)
    code = jnp.where(violated, INFEASIBLE, end.code)
    return Plan(
        end.states,
        end.actions,
        end.gain,
        value,
        result_of(code),
        worst,
        factors,
        steps,
    )


def _smoothed(problem: Problem, width) -> Problem:
    dynamics = with_smoothing(problem.dynamics, width)
    return eqx.tree_at(lambda p: p.dynamics, problem, dynamics)


def _guess(problem: Problem, state, guess):
    dtype = jax.tree.leaves(state)[0].dtype
    T, nu = problem.horizon, problem.dynamics.nu
    states = None
    if guess is None:
        guess = jnp.zeros((T, nu), dtype)
    elif isinstance(guess, tuple):
        states, guess = guess
    check_shape("guess", guess, {"horizon": T, "nu": nu})
    for name, value in (("actions", guess), ("states", states)):
        for leaf in jax.tree.leaves(value):
            if not isinstance(leaf, Tracer) and not np.all(np.isfinite(leaf)):
                bad = np.argwhere(~np.isfinite(np.asarray(leaf)))[0]
                raise ValueError(
                    f"The {name} of `guess` must be finite; entry {tuple(map(int, bad))} "
                    f"is {np.asarray(leaf)[tuple(bad)]}."
                )
    if states is not None:
        structure = jax.tree.structure
        lengths = {len(leaf) for leaf in jax.tree.leaves(states)}
        if structure(states) != structure(state) or lengths != {T + 1}:
            raise ValueError(
                f"The states of `guess` must have the structure of `state` and a leading "
                f"axis of horizon + 1 = {T + 1}, got lengths {sorted(lengths)}."
            )
    return states, guess
