"""Random linear-quadratic problems."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from eqsim import control


def positive(key, size: int, least: float = 0.1) -> Array:
    """A random positive definite matrix."""
    root = jr.normal(key, (size, size))
    return root @ root.T / size + least * jnp.eye(size)


def random_lq(key, T: int, nx: int, nu: int) -> control.LQProblem:
    """A convex problem with cross and affine terms."""
    keys = iter(jr.split(key, 6 + T))
    joint = jnp.stack([positive(next(keys), nx + nu) for _ in range(T)])
    Q = jnp.concatenate([joint[:, :nx, :nx], positive(next(keys), nx)[None]])
    A = jr.normal(next(keys), (T, nx, nx)) / np.sqrt(nx)
    B, b = jr.normal(next(keys), (T, nx, nu)), jr.normal(next(keys), (T, nx))
    q, r = jr.normal(next(keys), (T + 1, nx)), jr.normal(next(keys), (T, nu))
    return control.LQProblem(A, B, b, Q, q, joint[:, nx:, nx:], r, joint[:, :nx, nx:])


def dense(lq: control.LQProblem, start) -> tuple[np.ndarray, np.ndarray]:
    """Hessian and gradient of the cost by all controls, states eliminated."""
    lq = control.LQProblem(*map(np.asarray, lq))
    T, nx, nu = lq.B.shape
    # x_t = M_t U + c_t.
    M, c = np.zeros((nx, T * nu)), np.asarray(start)
    H, g = np.zeros((T * nu, T * nu)), np.zeros(T * nu)
    for t in range(T + 1):
        H += M.T @ lq.Q[t] @ M
        g += M.T @ (lq.Q[t] @ c + lq.q[t])
        if t == T:
            break
        E = np.zeros((nu, T * nu))
        E[:, t * nu : (t + 1) * nu] = np.eye(nu)
        H += E.T @ lq.R[t] @ E + M.T @ lq.N[t] @ E + E.T @ lq.N[t].T @ M
        g += E.T @ (lq.r[t] + lq.N[t].T @ c)
        M, c = lq.A[t] @ M + lq.B[t] @ E, lq.A[t] @ c + lq.b[t]
    return H, g
