r"""The finite-horizon linear-quadratic problem, by the Riccati recursion."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from .._errors import check_shape


class LQ(NamedTuple):
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


def solve_lq(lq: LQ, *, parallel: bool = False) -> LQSolution:
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
    _check(lq)
    with jax.default_matmul_precision("highest"):
        if parallel:
            return _parallel(lq)
        factors = factorize(lq)
        feedforward, slope = _backward(lq, factors)
        gain = -jnp.swapaxes(factors.cross_gain, 1, 2)
        return LQSolution(gain, feedforward, factors.value, slope)


def lq_rollout(
    lq: LQ, solution: LQSolution, start: Float[Array, " nx"]
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


def factorize(lq: LQ) -> Factors:
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


def _backward(lq: LQ, factors: Factors):
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


def linear_solution(lq: LQ, factors: Factors, start: Float[Array, " nx"]):
    """Solve for states, controls and costates, linearly in `b`, `q`, `r` and `start`."""
    feedforward, slope = _backward(lq, factors)
    gain = -jnp.swapaxes(factors.cross_gain, 1, 2)
    solution = LQSolution(gain, feedforward, factors.value, slope)
    xs, us = lq_rollout(lq, solution, start)
    return xs, us, jnp.einsum("tij,tj->ti", factors.value, xs) + slope


def _parallel(lq: LQ) -> LQSolution:
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


def _check(lq: LQ) -> None:
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
