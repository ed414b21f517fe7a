"""Cholesky factors of small matrices, entry by entry where a kernel can hold them."""

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float


SMALL = 6
"""Largest matrix that is factorized entry by entry, without a call of LAPACK."""


def cholesky(H: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Compute the lower Cholesky factor, NaN where `H` is not positive definite."""
    n = H.shape[0]
    if not 0 < n <= SMALL:
        return jnp.linalg.cholesky(H)
    zero = jnp.zeros_like(H[0, 0])
    L = [[zero] * n for _ in range(n)]
    for j in range(n):
        square = H[j, j] - sum((L[j][k] ** 2 for k in range(j)), zero)
        L[j][j] = jnp.sqrt(jnp.where(square > 0.0, square, jnp.nan))
        for i in range(j + 1, n):
            rest = H[i, j] - sum((L[i][k] * L[j][k] for k in range(j)), zero)
            L[i][j] = rest / L[j][j]
    return jnp.stack([jnp.stack(row) for row in L])


def cholesky_solve(L: Float[Array, "n n"], b: Float[Array, "n *m"]):
    """Solve `L L' x = b`."""
    n = L.shape[0]
    if not 0 < n <= SMALL:
        return cho_solve((L, True), b)
    x = list(b)
    for i in range(n):
        x[i] = (x[i] - sum((L[i, k] * x[k] for k in range(i)), 0.0 * x[i])) / L[i, i]
    for i in reversed(range(n)):
        later = sum((L[k, i] * x[k] for k in range(i + 1, n)), 0.0 * x[i])
        x[i] = (x[i] - later) / L[i, i]
    return jnp.stack(x)
