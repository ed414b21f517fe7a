r"""The infinite-horizon linear-quadratic regulator."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float

from .._errors import check_finite, check_shape


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
