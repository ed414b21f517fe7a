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
    """A convex problem with cross and affine terms, drawn without compilation."""
    normal = np.random.default_rng(np.asarray(jr.key_data(key))).normal
    root = normal(size=(T + 1, nx + nu, nx + nu))
    joint = root @ root.swapaxes(1, 2) / (nx + nu) + 0.1 * np.eye(nx + nu)
    A, B = normal(size=(T, nx, nx)) / np.sqrt(nx), normal(size=(T, nx, nu))
    b, q, r = normal(size=(T, nx)), normal(size=(T + 1, nx)), normal(size=(T, nu))
    Q, R, N = joint[:, :nx, :nx], joint[:-1, nx:, nx:], joint[:-1, :nx, nx:]
    return control.LQProblem(*map(jnp.asarray, (A, B, b, Q, q, R, r, N)))


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
