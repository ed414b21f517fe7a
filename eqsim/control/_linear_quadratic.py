r"""Linear-quadratic problems: infinite and finite horizon, and along a trajectory."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from .._errors import check_finite, check_shape
from ._dynamics import as_dynamics, before


class LQR(NamedTuple):
    r"""A linear state feedback $u = K x$ and its cost $\tfrac12 x' V x$.

    - `gain`: $K$, `(nu, nx)`; with a leading axis of time from `tvlqr`.
    - `value`: $V$, `(nx, nx)`; `(T + 1, nx, nx)` from `tvlqr`.
    """

    gain: Float[Array, "*T nu nx"]
    value: Float[Array, "*T1 nx nx"]


def lqr(
    A: Float[Array, "nx nx"],
    B: Float[Array, "nx nu"],
    Q: Float[Array, "nx nx"],
    R: Float[Array, "nu nu"],
    N: Float[Array, "nx nu"] | None = None,
) -> LQR:
    r"""Compute the discrete-time infinite-horizon linear-quadratic regulator.

    The feedback $u = K x$ minimizes
    $\sum_t \tfrac12 x_t' Q x_t + \tfrac12 u_t' R u_t + x_t' N u_t$ along
    $x_{t+1} = A x_t + B u_t$. The algebraic Riccati equation is solved by
    structure-preserving doubling, which converges quadratically, and can be
    differentiated in forward and reverse mode.

    **Arguments:**

    - `A`, `B`: dynamics, for instance of `eqsim.linearize`.
    - `Q`, `R`: weights of states and controls; `R` positive definite.
    - `N`: cross weight; zero by default.

    **Returns:** gain and value matrix.

    **Raises:** `ValueError` if a shape is wrong, a number is not finite, `R` is not
    positive definite, `(A, B)` is not stabilizable, or the optimal feedback does not
    stabilize (a mode on the unit circle without cost). Values are checked where they are
    known, not while JAX traces; there, the result of such a problem is not finite or not
    stabilizing.

    ??? cite "Reference"
        Chu, Fan, Lin, Wang, *Structure-preserving algorithms for periodic discrete-time
        algebraic Riccati equations*, 2004.
    """
    N = jnp.zeros_like(B) if N is None else N
    _check(A, B, Q, R, N)
    with jax.default_matmul_precision("highest"):
        result = _solved(A, B, Q, R, N)
    if not isinstance(result.gain, Tracer):
        _check_stable(A, B, result)
    return result


_DOUBLINGS = 30
"""Doublings of the horizon: enough for a spectral radius of 1 - 1e-7."""


@jax.jit
def _solved(A, B, Q, R, N) -> LQR:
    one = jnp.eye(A.shape[0], dtype=A.dtype)
    RB, RN = jnp.linalg.solve(R, B.T), jnp.linalg.solve(R, N.T)
    start = A - B @ RN, B @ RB, Q - N @ RN

    def double(now, _):
        A, G, H = now
        n = A.shape[0]
        # (1 + G H)^-1 applied to A and G.
        both = jnp.linalg.solve(one + G @ H, jnp.concatenate([A, G], 1))
        WA, WG = both[:, :n], both[:, n:]
        G = G + A @ WG @ A.T
        H = H + A.T @ H @ WA
        return (A @ WA, 0.5 * (G + G.T), 0.5 * (H + H.T)), None

    (_, _, V), _ = lax.scan(double, start, length=_DOUBLINGS)
    gain = -jnp.linalg.solve(R + B.T @ V @ B, B.T @ V @ A + N.T)
    return LQR(gain, V)


def _check(A, B, Q, R, N) -> None:
    if jnp.ndim(B) != 2:
        raise ValueError(
            f"`B` must have shape (nx, nu), but its shape is {jnp.shape(B)}."
        )
    nx, nu = B.shape
    check_shape("A", A, {"nx": nx, "nx ": nx})
    check_shape("B", B, {"nx": nx, "nu": nu})
    check_shape("Q", Q, {"nx": nx, "nx ": nx})
    check_shape("R", R, {"nu": nu, "nu ": nu})
    check_shape("N", N, {"nx": nx, "nu": nu})
    if any(isinstance(x, Tracer) for x in (A, B, Q, R, N)):
        return
    for name, value in {"A": A, "B": B, "Q": Q, "R": R, "N": N}.items():
        check_finite(name, value)
    least = float(np.min(np.linalg.eigvalsh(np.asarray(R)), initial=np.inf))
    if not least > 0.0:
        raise ValueError(
            f"`R` must be positive definite; its smallest eigenvalue is {least:.3g}."
        )
    _check_stabilizable(np.asarray(A, np.float64), np.asarray(B, np.float64))


def _check_stabilizable(A, B) -> None:
    """Raise an error unless [A - s 1, B] has full rank at each unstable mode
    (Popov-Belevitch-Hautus test)."""
    size, eps = A.shape[0], 1e-9
    for mode in np.linalg.eigvals(A):
        if abs(mode) < 1.0 - 1e-9:
            continue
        pencil = np.concatenate([A - mode * np.eye(size), B], 1)
        singular = np.linalg.svd(pencil, compute_uv=False)
        if singular[-1] <= eps * max(singular[0], 1.0):
            raise ValueError(
                f"`(A, B)` is not stabilizable: no control reaches the mode of `A` with "
                f"eigenvalue {mode:.6g} (modulus {abs(mode):.6g}, at least 1). Remove "
                "that mode from the state, or add an actuator that moves it."
            )


def _check_stable(A, B, result: LQR) -> None:
    gain = np.asarray(result.gain)
    if np.all(np.isfinite(gain)):
        closed = np.asarray(A) + np.asarray(B) @ gain
        radius = float(np.max(np.abs(np.linalg.eigvals(closed)), initial=0.0))
        if radius < 1.0:
            return
        reason = f"the closed loop has spectral radius {radius:.9g}"
    else:
        reason = "the Riccati equation has no finite solution"
    raise ValueError(
        f"No stabilizing feedback was found: {reason}. A mode of `A` on or outside the "
        "unit circle has no cost in `Q`, or `Q` is not positive semidefinite."
    )


class LQProblem(NamedTuple):
    r"""A finite-horizon linear-quadratic problem.

    Minimize over $u_0, \dots, u_{T-1}$
    $$\sum_{t<T} \tfrac12 x_t' Q_t x_t + q_t' x_t + \tfrac12 u_t' R_t u_t + r_t' u_t
    + x_t' N_t u_t \; + \tfrac12 x_T' Q_T x_T + q_T' x_T, \qquad
    x_{t+1} = A_t x_t + B_t u_t + b_t.$$

    - `A`, `B`, `b`: dynamics, `(T, nx, nx)`, `(T, nx, nu)`, `(T, nx)`.
    - `Q`, `q`: cost of states, `(T + 1, nx, nx)`, `(T + 1, nx)`; the last is terminal.
    - `R`, `r`: cost of controls, `(T, nu, nu)`, `(T, nu)`.
    - `N`: cross terms, `(T, nx, nu)`.
    """

    A: Float[Array, "T nx nx"]
    B: Float[Array, "T nx nu"]
    b: Float[Array, "T nx"]
    Q: Float[Array, "T1 nx nx"]
    q: Float[Array, "T1 nx"]
    R: Float[Array, "T nu nu"]
    r: Float[Array, "T nu"]
    N: Float[Array, "T nx nu"]


class LQSolution(NamedTuple):
    r"""The optimal feedback $u_t = k_t + K_t x_t$ and the value function
    $\tfrac12 x' V_t x + v_t' x$ (up to a constant).

    - `gain`: $K_t$, `(T, nu, nx)`.
    - `feedforward`: $k_t$, `(T, nu)`.
    - `value`: $V_t$, `(T + 1, nx, nx)`.
    - `slope`: $v_t$, `(T + 1, nx)`.
    """

    gain: Float[Array, "T nu nx"]
    feedforward: Float[Array, "T nu"]
    value: Float[Array, "T1 nx nx"]
    slope: Float[Array, "T1 nx"]


def solve_lq(lq: LQProblem, *, parallel: bool = False) -> LQSolution:
    r"""Solve a finite-horizon linear-quadratic problem.

    **Arguments:**

    - `lq`: the problem; $R_t + B_t' V_{t+1} B_t$ must be positive definite.
    - `parallel`: true to use an associative scan over time, of logarithmic depth and
        about ten times the arithmetic: for one long problem on a GPU. Every $R_t$ must
        then be positive definite itself.

    **Returns:** the optimal feedback and the value function. Where a matrix is not
    positive definite, they are NaN.

    **Raises:** `ValueError` if a shape is wrong.

    ??? cite "Reference"
        Särkkä, García-Fernández, *Temporal parallelization of dynamic programming and
        linear quadratic control*, 2023, for `parallel`.
    """
    _check_finite_lq(lq)
    with jax.default_matmul_precision("highest"):
        if parallel:
            return _parallel(lq)
        factors = factorize(lq)
        feedforward, slope = _backward(lq, factors)
        gain = -jnp.swapaxes(factors.cross_gain, 1, 2)
        return LQSolution(gain, feedforward, factors.value, slope)


def rollout_lq(
    lq: LQProblem, solution: LQSolution, start: Float[Array, " nx"]
) -> tuple[Float[Array, "T1 nx"], Float[Array, "T nu"]]:
    """Compute the optimal states and controls of a linear-quadratic problem.

    **Arguments:**

    - `lq`, `solution`: the problem, and what `solve_lq` returned.
    - `start`: the first state.

    **Returns:** all `T + 1` states and `T` controls.
    """

    def step(x, now):
        A, B, b, K, k = now
        u = K @ x + k
        return A @ x + B @ u + b, (x, u)

    with jax.default_matmul_precision("highest"):
        over = lq.A, lq.B, lq.b, solution.gain, solution.feedforward
        end, (xs, us) = lax.scan(step, start, over)
    return jnp.concatenate([xs, end[None]]), us


class Factors(NamedTuple):
    """The part of the recursion that depends on matrices alone.

    - `chol`: lower Cholesky factors of $R + B'VB$.
    - `cross_gain`: $-K_t'$, `(T, nx, nu)`.
    - `value`: $V_t$.
    """

    chol: Float[Array, "T nu nu"]
    cross_gain: Float[Array, "T nx nu"]
    value: Float[Array, "T1 nx nx"]


def factorize(lq: LQProblem) -> Factors:
    """Compute the Riccati recursion of the matrices."""

    def step(V, now):
        A, B, Q, R, N = now
        VB = V @ B
        chol, _ = cho_factor(_symmetric(R + B.T @ VB), lower=True)
        cross = N + A.T @ VB
        gain = cho_solve((chol, True), cross.T).T
        new = _symmetric(Q + A.T @ V @ A - gain @ cross.T)
        return new, (jnp.tril(chol), gain, new)

    last = _symmetric(lq.Q[-1])
    over = lq.A, lq.B, lq.Q[:-1], lq.R, lq.N
    _, (chol, gain, values) = lax.scan(step, last, over, reverse=True)
    return Factors(chol, gain, jnp.concatenate([values, last[None]]))


def _backward(lq: LQProblem, factors: Factors):
    """Run the backward recursion of the linear terms, which is linear in them."""

    def step(v, now):
        A, B, b, q, r, V, chol, gain = now
        ahead = v + V @ b
        slope = r + B.T @ ahead
        new = q + A.T @ ahead - gain @ slope
        return new, (-cho_solve((chol, True), slope), new)

    over = lq.A, lq.B, lq.b, lq.q[:-1], lq.r, factors.value[1:], *factors[:2]
    _, (feedforward, slopes) = lax.scan(step, lq.q[-1], over, reverse=True)
    return feedforward, jnp.concatenate([slopes, lq.q[-1:]])


def linear_solution(lq: LQProblem, factors: Factors, start: Float[Array, " nx"]):
    """Solve for states, controls and costates, linearly in `b`, `q`, `r` and `start`."""
    feedforward, slope = _backward(lq, factors)
    gain = -jnp.swapaxes(factors.cross_gain, 1, 2)
    solution = LQSolution(gain, feedforward, factors.value, slope)
    xs, us = rollout_lq(lq, solution, start)
    return xs, us, jnp.einsum("tij,tj->ti", factors.value, xs) + slope


def _parallel(lq: LQProblem) -> LQSolution:
    chol = jnp.linalg.cholesky(lq.R)
    over = lambda x: jax.vmap(lambda c, y: cho_solve((c, True), y))(chol, x)
    # Without cross and linear terms of controls: u = w - R^-1 (N'x + r).
    Rr, RN = over(lq.r), over(jnp.swapaxes(lq.N, 1, 2))
    A = lq.A - lq.B @ RN
    b = lq.b - jnp.einsum("tij,tj->ti", lq.B, Rr)
    C = lq.B @ over(jnp.swapaxes(lq.B, 1, 2))
    J = lq.Q[:-1] - lq.N @ RN
    eta = -(lq.q[:-1] - jnp.einsum("tij,tj->ti", lq.N, Rr))
    zero = jnp.zeros_like(lq.Q[-1:])
    end = zero, jnp.zeros_like(lq.q[-1:]), zero, -lq.q[-1:], lq.Q[-1:]
    elements = tuple(map(lambda x, y: jnp.concatenate([x, y]), (A, b, C, eta, J), end))
    combine = jax.vmap(lambda later, earlier: _combined(earlier, later))
    *_, eta, V = lax.associative_scan(combine, elements, reverse=True)
    v = -eta
    ahead = v[1:] + jnp.einsum("tij,tj->ti", V[1:], lq.b)
    BV = jnp.swapaxes(lq.B, 1, 2) @ V[1:]
    chol = jnp.linalg.cholesky(_symmetric(lq.R + BV @ lq.B))
    slope = lq.r + jnp.einsum("tji,tj->ti", lq.B, ahead)
    cross = jnp.swapaxes(lq.N, 1, 2) + BV @ lq.A
    solve = jax.vmap(lambda c, y: -cho_solve((c, True), y))
    return LQSolution(solve(chol, cross), solve(chol, slope), V, v)


def _combined(earlier, later):
    """Combine two consecutive conditional value functions (Särkkä, García-Fernández,
    equation 28)."""
    (Ai, bi, Ci, etai, Ji), (Aj, bj, Cj, etaj, Jj) = earlier, later
    one = jnp.eye(Ai.shape[0], dtype=Ai.dtype)
    matrix = one + Ci @ Jj
    right = jnp.concatenate([Ai, Ci, (bi + Ci @ etaj)[:, None]], 1)
    MA, MC, Mb = jnp.split(jnp.linalg.solve(matrix, right), (len(one), 2 * len(one)), 1)
    return (
        Aj @ MA,
        Aj @ Mb[:, 0] + bj,
        _symmetric(Aj @ MC @ Aj.T + Cj),
        MA.T @ (etaj - Jj @ bi) + etai,
        _symmetric(MA.T @ Jj @ Ai + Ji),
    )


def _symmetric(x):
    return 0.5 * (x + jnp.swapaxes(x, -1, -2))


def _check_finite_lq(lq: LQProblem) -> None:
    if jnp.ndim(lq.B) != 3:
        raise ValueError(
            f"`B` must have shape (T, nx, nu), but its shape is {jnp.shape(lq.B)}."
        )
    T, nx, nu = lq.B.shape
    x, u = {"nx": nx}, {"nu": nu}
    each, all_ = {"T": T}, {"T + 1": T + 1}
    for name, value, dims in (
        ("A", lq.A, {**each, **x, "nx ": nx}),
        ("b", lq.b, each | x),
        ("Q", lq.Q, {**all_, **x, "nx ": nx}),
        ("q", lq.q, all_ | x),
        ("R", lq.R, {**each, **u, "nu ": nu}),
        ("r", lq.r, each | u),
        ("N", lq.N, each | x | u),
    ):
        check_shape(name, value, dims)


def tvlqr(
    system: Any,
    states: Any,
    actions: Float[Array, "T nu"],
    Q: Float[Array, "nx nx"],
    R: Float[Array, "nu nu"],
    terminal: Float[Array, "nx nx"] | None = None,
    *,
    parallel: bool = False,
) -> LQR:
    r"""Compute the time-varying linear-quadratic regulator along a trajectory.

    The feedback $u_t = \bar u_t + K_t (x_t \ominus \bar x_t)$ minimizes the sum of
    $\tfrac12 \delta x' Q \delta x + \tfrac12 \delta u' R \delta u$ for the dynamics
    linearized along the trajectory, in tangent coordinates.

    **Arguments:**

    - `system`: an environment, a pair `(pipeline, sys)`, or an `AbstractDynamics`.
    - `states`, `actions`: the trajectory, as in `Plan`: `T + 1` states, `T` actions.
    - `Q`, `R`: weights of states (tangent coordinates) and actions.
    - `terminal`: weight of the last state, for instance the value matrix of `lqr`
        there; `Q` by default.
    - `parallel`: see `solve_lq`.

    **Returns:** gains `(T, nu, nx)` and value matrices `(T + 1, nx, nx)`.

    **Raises:** `ValueError` if a shape is wrong.
    """
    dynamics = as_dynamics(system)
    nx, nu = dynamics.nx, dynamics.nu
    T = jnp.shape(actions)[0]
    check_shape("actions", actions, {"T": T, "nu": nu})
    check_shape("Q", Q, {"nx": nx, "nx ": nx})
    check_shape("R", R, {"nu": nu, "nu ": nu})
    terminal = Q if terminal is None else terminal
    check_shape("terminal", terminal, {"nx": nx, "nx ": nx})
    lengths = {len(leaf) for leaf in jax.tree.leaves(states)}
    if lengths - {T + 1}:
        raise ValueError(
            f"`states` must hold T + 1 = {T + 1} states, one more than `actions`; got "
            f"{sorted(lengths)}."
        )
    many = eqx.filter_vmap(lambda d, x, u: d.linearize(x, u), in_axes=(None, 0, 0))
    A, B = many(dynamics, before(states), actions)
    tile = lambda x, n: jnp.broadcast_to(x, (n, *x.shape))
    zero = jnp.zeros((), A.dtype)
    lq = LQProblem(
        A,
        B,
        jnp.broadcast_to(zero, (T, nx)),
        jnp.concatenate([tile(Q, T), terminal[None]]),
        jnp.broadcast_to(zero, (T + 1, nx)),
        tile(R, T),
        jnp.broadcast_to(zero, (T, nu)),
        jnp.broadcast_to(zero, (T, nx, nu)),
    )
    solution = solve_lq(lq, parallel=parallel)
    return LQR(solution.gain, solution.value)
