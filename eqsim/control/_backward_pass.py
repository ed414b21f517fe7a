r"""The backward pass of iterative LQR, with regularization, control limits and gaps.

In this order: Cholesky factors of small matrices, entry by entry where a kernel can hold them;
quadratic programs with bounds; the local model of a problem along a trajectory; the pass.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float

from .._batching import batch_last, over_batch
from ._dynamics import before, last
from ._problem import ControlProblem, Multipliers


LARGEST_UNROLLED = 6
"""Largest matrix that is factorized entry by entry, without a call of LAPACK."""


def cholesky(H: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Compute the lower Cholesky factor, NaN where `H` is not positive definite."""
    n = H.shape[0]
    if not 0 < n <= LARGEST_UNROLLED:
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
    if not 0 < n <= LARGEST_UNROLLED:
        return cho_solve((L, True), b)
    x = list(b)
    for i in range(n):
        x[i] = (x[i] - sum((L[i, k] * x[k] for k in range(i)), 0.0 * x[i])) / L[i, i]
    for i in reversed(range(n)):
        later = sum((L[k, i] * x[k] for k in range(i + 1, n)), 0.0 * x[i])
        x[i] = (x[i] - later) / L[i, i]
    return jnp.stack(x)


class BoxQP(NamedTuple):
    """The solution of a quadratic program with bounds.

    - `x`: the minimizer.
    - `free`: true for entries that are not held at a bound.
    - `chol`: lower Cholesky factor of the matrix, its free block and one elsewhere.
    - `converged`: true if the optimality conditions hold, or no step decreases the cost,
        as happens far from the minimum if the condition number of `H` is above 1e5; false
        where the free block is not positive definite.
    """

    x: Float[Array, " n"]
    free: Bool[Array, " n"]
    chol: Float[Array, "n n"]
    converged: Bool[Array, ""]


_MAX_STEPS = 50
_STEP_SIZES = tuple(0.5**k for k in range(12))
_ARMIJO = 0.1
_NEAR = 0.1
"""Fraction of the Newton step of one variable alone within which a bound counts as near."""


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
        2014, appendix. Variables that move toward a near bound are left out of the Newton
        step, as otherwise its projection may increase the cost at every size: Bertsekas,
        *Projected Newton methods for optimization problems with simple constraints*,
        1982.
    """
    diagonal = jnp.diagonal(H)
    diagonal = jnp.where(diagonal > 0.0, diagonal, 1.0)
    scale = 1.0 + jnp.max(jnp.abs(g), initial=0.0)
    tolerance = 100.0 * jnp.finfo(g.dtype).eps * scale

    def pending(now):
        k, _, _, _, done = now
        return (k < _MAX_STEPS) & ~done

    def step(now):
        k, x, _, _, _ = now
        slope = g + H @ x
        alone = slope / diagonal
        low = (x - lower <= _NEAR * alone) & (slope > 0)
        high = (x - upper >= _NEAR * alone) & (slope < 0)
        free = ~(low | high)
        chol = masked_cholesky(H, free)
        newton = -cholesky_solve(chol, jnp.where(free, slope, 0))
        newton = jnp.where(free, newton, -alone)
        met = jnp.all(free | (x == jnp.where(low, lower, upper)))
        remaining = jnp.max(jnp.where(free, jnp.abs(slope), 0.0), initial=0.0)
        solved = ((remaining <= tolerance) & met) | ~jnp.all(jnp.isfinite(chol))
        sizes = jnp.asarray(_STEP_SIZES, g.dtype)[:, None]
        tried = jnp.clip(x[None] + sizes * newton[None], lower[None], upper[None])
        change = tried - x[None]
        gain = -(change @ slope + 0.5 * jnp.sum((change @ H) * change, 1))
        enough = gain >= -_ARMIJO * (change @ slope)
        # Without sufficient decrease, rounding errors dominate, or H is ill-conditioned.
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


class Expansion(NamedTuple):
    r"""Dynamics to first order and Gauss-Newton costs to second order, in tangent
    coordinates, at `T` steps and at the last state.

    - `A`, `B`: derivatives of a step.
    - `lx`, `lu`: gradients of the cost; `lx` at `T + 1` states.
    - `lxx`, `lux`, `luu`: Gauss-Newton Hessians; `lxx` at `T + 1` states.
    """

    A: Float[Array, "T nx nx"]
    B: Float[Array, "T nx nu"]
    lx: Float[Array, "T1 nx"]
    lu: Float[Array, "T nu"]
    lxx: Float[Array, "T1 nx nx"]
    lux: Float[Array, "T nu nx"]
    luu: Float[Array, "T nu nu"]


def expand(
    problem: ControlProblem,
    states: Any,
    actions: Float[Array, "T nu"],
    factors: Multipliers,
) -> Expansion:
    """Compute the local model of a problem along a trajectory.

    **Arguments:**

    - `problem`: the problem.
    - `states`, `actions`: the trajectory.
    - `factors`: multipliers of the constraints.
    """
    dynamics, penalty = problem.dynamics, factors.penalty
    nx, nu = dynamics.nx, dynamics.nu

    def stage(x, u, multipliers):
        def residual(change):
            dx, du = jnp.split(change, (nx,))
            moved = dynamics.retract(x, dx)
            return problem.stage_residual(moved, u + du, multipliers, penalty)

        A, B = dynamics.linearize(x, u)
        return A, B, *_gauss_newton(residual, jnp.zeros(nx + nu, u.dtype))

    def end(x):
        residual = lambda dx: problem.terminal_residual(
            dynamics.retract(x, dx), factors.terminal, penalty
        )
        return _gauss_newton(residual, jnp.zeros(nx, actions.dtype))

    A, B, slope, H = jax.vmap(stage)(before(states), actions, factors.stage)
    last_slope, last_H = end(last(states))
    lx = jnp.concatenate([slope[:, :nx], last_slope[None]])
    lxx = jnp.concatenate([H[:, :nx, :nx], last_H[None]])
    return Expansion(A, B, lx, slope[:, nx:], lxx, H[:, nx:, :nx], H[:, nx:, nx:])


def _gauss_newton(residual, zero):
    """Compute gradient and Gauss-Newton Hessian of half the sum of squares."""
    with_value = lambda change: (residual(change),) * 2
    J, r = jax.jacfwd(with_value, has_aux=True)(zero)
    return J.T @ r, J.T @ J


class Feedback(NamedTuple):
    r"""Results of the backward pass.

    - `feedforward`, `gain`: $k_t$, $K_t$.
    - `linear`, `quadratic`: $\sum_t k_t' Q_u$, $\sum_t k_t' Q_{uu} k_t$.
    - `finite`: true if every matrix was positive definite and all numbers are finite.
    """

    feedforward: Float[Array, "T nu"]
    gain: Float[Array, "T nu nx"]
    linear: Float[Array, ""]
    quadratic: Float[Array, ""]
    finite: Bool[Array, ""]


def backward_pass(
    model: Expansion,
    gaps: Float[Array, "T nx"],
    mu: Float[Array, ""],
    bounds: tuple[Float[Array, "T nu"], Float[Array, "T nu"]] | None,
) -> Feedback:
    r"""Compute the feedback that minimizes the local model.

    **Arguments:**

    - `model`: dynamics and cost along the trajectory.
    - `gaps`: $f(x_t, u_t) \ominus x_{t+1}$; zero for a feasible trajectory.
    - `mu`: weight of changes of controls. Weights of states, the other choice in the
        reference, make gains that controls at a limit cannot follow.
    - `bounds`: lower and upper bounds of changes of controls; None without limits.

    ??? cite "Reference"
        Tassa, Erez, Todorov, *Synthesis and stabilization of complex behaviors through
        online trajectory optimization*, 2012, equations 10 and 11; Mastalli et al.,
        *Crocoddyl*, 2020, for gaps.
    """
    if sum(model.lux.shape[-2:]) <= SMALL:
        return _kernel(model, gaps, mu, bounds)
    return _backward(model, gaps, mu, bounds)


SMALL = 16
"""Number of states and controls up to which a pass over time is one kernel on the CPU.
Larger matrices are not worth unrolling."""


def _backward_fn(model, gaps, mu, bounds):
    return over_batch(_backward, mu.ndim, model, gaps, mu, bounds)


_kernel = batch_last(_backward_fn)


def _backward(model: Expansion, gaps, mu, bounds) -> Feedback:
    def step(carry, now):
        V, v, guess = carry
        A, B, lx, lu, lxx, lux, luu, gap, limit = now
        v = v + V @ gap
        VA, VB = V @ A, V @ B
        Qx, Qu = lx + A.T @ v, lu + B.T @ v
        Qxx, Qux, Quu = lxx + A.T @ VA, lux + B.T @ VA, luu + B.T @ VB
        Quu_mu = Quu + mu * one
        k, K = _controls(Quu_mu, Qux, Qu, guess, limit)
        KQ = K.T @ Quu + Qux.T
        v = Qx + KQ @ k + K.T @ Qu
        V = Qxx + KQ @ K + K.T @ Qux
        V = 0.5 * (V + V.T)
        return (V, v, k), (k, K, k @ Qu, k @ Quu @ k)

    one = jnp.eye(model.lu.shape[1], dtype=model.lu.dtype)
    begin = model.lxx[-1], model.lx[-1], jnp.zeros_like(model.lu[0])
    over: Any = (*_stages(model), gaps, bounds)
    with jax.default_matmul_precision("highest"):
        (V, v, _), out = lax.scan(step, begin, over, reverse=True)
    k, K, linear, quadratic = out
    finite = jnp.all(jnp.isfinite(K)) & jnp.all(jnp.isfinite(k))
    finite = finite & jnp.all(jnp.isfinite(V)) & jnp.all(jnp.isfinite(v))
    return Feedback(k, K, jnp.sum(linear), jnp.sum(quadratic), finite)


def _stages(model: Expansion):
    """Return the local model at all control steps, without the last state."""
    return model._replace(lx=model.lx[:-1], lxx=model.lxx[:-1])


def _controls(Quu, Qux, Qu, guess, limit):
    """Compute the best change of a control and its feedback; both are zero where the
    change meets a limit."""
    if limit is None:
        chol = cholesky(Quu)
        both = -cholesky_solve(chol, jnp.concatenate([Qu[:, None], Qux], 1))
        return both[:, 0], both[:, 1:]
    solution = box_qp(Quu, Qu, limit[0], limit[1], guess)
    free = solution.free[:, None]
    K = -cholesky_solve(solution.chol, jnp.where(free, Qux, 0.0))
    return solution.x, jnp.where(free, K, 0.0)


def expected_change(
    model: Expansion, gaps: Float[Array, "T nx"], feedback: Feedback
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Compute $\Delta_1$, $\Delta_2$ of the change of the cost
    $\alpha \Delta_1 + \tfrac12 \alpha^2 \Delta_2$ that the local model predicts for a
    step size $\alpha$.

    With gaps, the step is followed through the linear dynamics; without, both are sums
    that the backward pass has computed.
    """

    def through_gaps():
        def step(dx, now):
            A, B, lx, lu, lxx, lux, luu, k, K, gap = now
            du = k + K @ dx
            first = lx @ dx + lu @ du
            second = dx @ lxx @ dx + 2.0 * (du @ lux @ dx) + du @ luu @ du
            return A @ dx + B @ du + gap, (first, second)

        over = (*_stages(model), feedback.feedforward, feedback.gain, gaps)
        dx, (first, second) = lax.scan(step, jnp.zeros_like(gaps[0]), over)
        last = dx @ model.lxx[-1] @ dx
        return jnp.sum(first) + model.lx[-1] @ dx, jnp.sum(second) + last

    without = lambda: (feedback.linear, feedback.quadratic)
    return lax.cond(jnp.any(gaps != 0.0), through_gaps, without)
