r"""The backward pass of iterative LQR, with regularization, control limits and gaps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._batching import batch_last, over_batch
from ._box_qp import box_qp
from ._cholesky import cholesky, cholesky_solve
from ._expansion import Expansion


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


@batch_last
def _kernel(model, gaps, mu, bounds):
    return over_batch(_backward, mu.ndim, model, gaps, mu, bounds)


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
