r"""Small quadratic programs with bounds, by projected Newton steps."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ._cholesky import cholesky, cholesky_solve


class BoxQP(NamedTuple):
    """The solution of a quadratic program with bounds.

    - `x`: the minimizer.
    - `free`: true for entries that are not held at a bound.
    - `chol`: lower Cholesky factor of the matrix, its free block and one elsewhere.
    - `converged`: true if the optimality conditions hold; false where the free block is
        not positive definite.
    """

    x: Float[Array, " n"]
    free: Bool[Array, " n"]
    chol: Float[Array, "n n"]
    converged: Bool[Array, ""]


_MAX_STEPS = 50
_STEP_SIZES = tuple(0.5**k for k in range(12))
_ARMIJO = 0.1


def box_qp(
    H: Float[Array, "n n"],
    g: Float[Array, " n"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    start: Float[Array, " n"],
) -> BoxQP:
    r"""Minimize $\tfrac12 x' H x + g' x$ subject to $l \le x \le u$.

    **Arguments:**

    - `H`, `g`: the quadratic; `H` positive definite.
    - `lower`, `upper`: bounds, may be infinite.
    - `start`: first guess; it is clipped to the bounds.

    **Returns:** the minimizer, which satisfies the bounds exactly, and its free set.

    ??? cite "Reference"
        Tassa, Mansard, Todorov, *Control-limited differential dynamic programming*,
        2014, appendix.
    """
    scale = 1.0 + jnp.max(jnp.abs(g), initial=0.0)
    tolerance = 100.0 * jnp.finfo(g.dtype).eps * scale

    def pending(now):
        k, _, _, _, done = now
        return (k < _MAX_STEPS) & ~done

    def step(now):
        k, x, _, _, _ = now
        slope = g + H @ x
        held = ((x <= lower) & (slope > 0)) | ((x >= upper) & (slope < 0))
        free = ~held
        chol = masked_cholesky(H, free)
        newton = -cholesky_solve(chol, jnp.where(free, slope, 0))
        newton = jnp.where(free, newton, 0)
        remaining = jnp.max(jnp.where(free, jnp.abs(slope), 0.0), initial=0.0)
        solved = (remaining <= tolerance) | ~jnp.all(jnp.isfinite(chol))
        sizes = jnp.asarray(_STEP_SIZES, g.dtype)[:, None]
        tried = jnp.clip(x[None] + sizes * newton[None], lower[None], upper[None])
        change = tried - x[None]
        gain = -(change @ slope + 0.5 * jnp.sum((change @ H) * change, 1))
        enough = gain >= -_ARMIJO * (change @ slope)
        # Without sufficient decrease rounding errors dominate: stop.
        best = tried[jnp.argmax(enough)]
        moved = jnp.any(enough) & jnp.any(best != x)
        new = jnp.where(solved | ~moved, x, best)
        return k + 1, new, free, chol, solved | ~moved

    first = jnp.clip(start, lower, upper)
    zero = jnp.zeros((), jnp.int32)
    begin = zero, first, jnp.ones(g.shape, bool), jnp.zeros_like(H), zero > 0
    _, x, free, chol, done = lax.while_loop(pending, step, begin)
    return BoxQP(x, free, chol, done & jnp.all(jnp.isfinite(chol)))


def masked_cholesky(H: Float[Array, "n n"], free: Bool[Array, " n"]):
    """Factorize the free block of a matrix, with ones on the rest of the diagonal."""
    both = free[:, None] & free[None, :]
    one = jnp.eye(H.shape[0], dtype=H.dtype)
    return cholesky(jnp.where(both, H, one))
