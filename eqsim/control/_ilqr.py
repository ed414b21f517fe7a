r"""Iterative LQR with control limits, gaps, constraints and annealed contacts.

In reading order: the solver `ILQR` and its plans; constraints by the augmented Lagrangian,
around the iterations of `_iterations.py`; derivatives of plans.

At an optimum the gradients of the Lagrangian vanish. A change of the start, of the cost or of
the robot moves the solution such that they still do: one linear-quadratic problem, with exact
second derivatives of cost and dynamics. A control at a limit moves with the limit (Amos,
Rodriguez, Sacks, Boots, Kolter, *Differentiable MPC for end-to-end planning and control*, 2018).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from .._errors import check_count, check_numbers, check_shape, RESULTS
from ..model.arrays import as_array
from ._dynamics import after, appended, before, last, push, with_smoothing
from ._iterations import (
    End,
    INFEASIBLE,
    iterate,
    NONFINITE,
    open_loop,
    result_of,
    Settings,
    SOLVED,
)
from ._linear_quadratic import factorize, linear_solution, LQProblem
from ._problem import (
    ControlProblem,
    Multipliers,
    stage_constraints,
    terminal_constraints,
    updated,
    violation,
)


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

    def solve(self, problem: ControlProblem, state: Any, guess: Any = None) -> Plan:
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
def _solved(solver: ILQR, problem: ControlProblem, state, states, actions) -> Plan:
    found = _constant(solver, problem, state, states, actions)
    states, actions = differentiable(problem, state, found.states, found.actions)
    value = problem.value(states, actions)
    optimum = lambda p: (p.states, p.actions, p.value)
    return eqx.tree_at(optimum, found, (states, actions, value))


def _constant(solver: ILQR, problem: ControlProblem, state, states, actions) -> Plan:
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


def _smoothed(problem: ControlProblem, width) -> ControlProblem:
    dynamics = with_smoothing(problem.dynamics, width)
    return eqx.tree_at(lambda p: p.dynamics, problem, dynamics)


def _guess(problem: ControlProblem, state, guess):
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
    problem: ControlProblem,
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


def _values(problem: ControlProblem, end: End):
    stage = jax.vmap(problem.stage_values)(before(end.states), end.actions)
    return stage, problem.terminal_values(last(end.states))


def _worst(problem: ControlProblem, stage, terminal):
    parts = violation(stage_constraints(problem.constraints), stage)
    parts += violation(terminal_constraints(problem.constraints), terminal)
    return jnp.max(jnp.stack(parts))


def _updated(
    problem: ControlProblem, end: End, old: Multipliers, penalty: Penalty
) -> Multipliers:
    (stage, terminal), rho = _values(problem, end), old.penalty
    on_steps = stage_constraints(problem.constraints)
    at_end = terminal_constraints(problem.constraints)
    return Multipliers(
        updated(on_steps, stage, old.stage, rho),
        updated(at_end, terminal, old.terminal, rho),
        rho * penalty.growth,
    )


def differentiable(
    problem: ControlProblem, start: Any, states: Any, actions: Float[Array, "T nu"]
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
    lq = LQProblem(
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


def _cost_gradients(problem: ControlProblem, states, actions):
    stage = lambda x, u: jax.grad(lambda z: _stage_cost(problem, x, u, z))(
        jnp.zeros(problem.dynamics.nx + u.size, u.dtype)
    )
    end = jax.grad(lambda z: _end_cost(problem, last(states), z))
    zero = jnp.zeros(problem.dynamics.nx, actions.dtype)
    return jax.vmap(stage)(before(states), actions), end(zero)


def _stage_cost(problem: ControlProblem, x, u, change):
    dx, du = jnp.split(change, (problem.dynamics.nx,))
    moved = problem.dynamics.retract(x, dx)
    return 0.5 * jnp.sum(problem.cost.stage(problem.dynamics.sys, moved, u + du) ** 2)


def _end_cost(problem: ControlProblem, x, change):
    moved = problem.dynamics.retract(x, change)
    return 0.5 * jnp.sum(problem.cost.terminal(problem.dynamics.sys, moved) ** 2)


def _hamiltonian(problem: ControlProblem, x, u, later, costate, change):
    dx, du = jnp.split(change, (problem.dynamics.nx,))
    dynamics = problem.dynamics
    new = dynamics.step(dynamics.retract(x, dx), u + du)
    cost = _stage_cost(problem, x, u, change)
    return cost + costate @ dynamics.difference(later, new)


def _hessians(problem: ControlProblem, states, actions, costate):
    nx, nu = problem.dynamics.nx, actions.shape[1]

    def stage(x, u, y, multiplier):
        of = lambda z: _hamiltonian(problem, x, u, y, multiplier, z)
        return jax.hessian(of)(jnp.zeros(nx + nu, u.dtype))

    end = jax.hessian(lambda z: _end_cost(problem, last(states), z))
    many = jax.vmap(stage)(before(states), actions, after(states), costate[1:])
    return many, end(jnp.zeros(nx, actions.dtype))


def _conditions(problem: ControlProblem, start, states, actions, costate):
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
