"""Levenberg-Marquardt with bounds on the reduced (arrow) system."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from ._arrow import Arrow, assemble, eliminate
from ._evaluate import Blocks, evaluate, prior_terms, Problem


class Solver(NamedTuple):
    """Settings of the Levenberg-Marquardt solver.

    **Arguments:**

    - `max_steps`: evaluations of residuals and Jacobians per noise estimate.
    - `rtol`: relative decrease of the cost below which a fit has converged.
    - `damping`: initial damping, relative to the diagonal.
    - `rounds`: largest number of noise estimates.
    - `restarts`: largest number of times that the starts of badly fitted windows are
        searched again, see `docs/identification.md`.
    """

    max_steps: int = 40
    rtol: float = 1e-5
    damping: float = 1e-3
    rounds: int = 4
    restarts: int = 2


class Iterate(NamedTuple):
    """A point of the solver.

    - `cost`: data, priors and jumps.
    - `steps`: evaluations so far.
    """

    theta: np.ndarray
    starts: np.ndarray
    cost: float
    blocks: Blocks
    arrow: Arrow
    steps: int


Progress = Callable[[Iterate], Any]


def minimize(
    problem: Problem,
    theta: np.ndarray,
    starts: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    solver: Solver,
    progress: Progress,
) -> tuple[Iterate, optx.RESULTS]:
    """Minimize the cost of a problem.

    **Arguments:**

    - `bounds`: lower and upper bounds of `theta`.
    - `progress`: called with each accepted iterate.

    **Raises:** `FloatingPointError` if the cost of the start is not finite.
    """
    now = iterate_at(problem, theta, starts, 0)
    if not np.isfinite(now.cost):
        bad = np.flatnonzero(~np.isfinite(np.asarray(now.blocks.cost)))
        what = f"The simulation of window {int(bad[0])}" if len(bad) else "The cost"
        raise FloatingPointError(
            f"{what} or its derivative is not finite at the start of the fit. Check units "
            "and signs of the recording, reduce `sys.dt`, or choose shorter windows."
        )
    progress(now)
    damping, growth = solver.damping, 4.0
    while now.steps < solver.max_steps:
        step, slope = _step(now, bounds, damping)
        new = iterate_at(problem, *step, now.steps + 1)
        decrease = now.cost - new.cost
        if np.isfinite(new.cost) and decrease > 1e-3 * slope:
            small = decrease <= solver.rtol * (abs(now.cost) + 1e-12)
            ratio = decrease / max(slope, 1e-300)
            damping *= max(0.1, 1 - (2 * min(ratio, 1.5) - 1) ** 3)
            damping, growth, now = max(damping, 1e-9), 4.0, new
            progress(now)
            if small:
                return now, optx.RESULTS.successful
        else:
            if slope <= solver.rtol * (abs(now.cost) + 1e-12):
                return now._replace(steps=new.steps), optx.RESULTS.successful
            damping, growth = damping * growth, growth * 2
            now = now._replace(steps=new.steps)
            if damping > 1e12:
                return now, optx.RESULTS.nonlinear_divergence
    return now, optx.RESULTS.nonlinear_max_steps_reached


def iterate_at(problem: Problem, theta, starts, steps: int) -> Iterate:
    """Evaluate cost, derivatives and the Gauss-Newton matrix at a point."""
    blocks = evaluate(problem, jnp.asarray(theta), jnp.asarray(starts))
    blocks = jax.tree.map(np.asarray, blocks)
    continuity = bool(problem.gap_weight > 0)
    cost, gradient, hessian = _prior(problem, theta)
    total = float(blocks.cost.sum() + cost + 0.5 * (starts**2).sum())
    if continuity:
        total += 0.5 * float((blocks.gap**2).sum())
    arrow = assemble(blocks, starts, gradient, hessian, continuity)
    finite = all(np.isfinite(x).all() for x in arrow if x is not None)
    return Iterate(theta, starts, total if finite else np.inf, blocks, arrow, steps)


def _step(now: Iterate, bounds, damping: float):
    """Return the next point, and the decrease of the cost that the quadratic model
    predicts."""
    lower, upper = bounds
    reduced = eliminate(now.arrow, damping)
    diagonal = np.maximum(np.diag(now.arrow.theta), 1e-12)
    matrix = reduced.matrix + damping * np.diag(diagonal)
    theta, step = now.theta, np.zeros_like(now.theta)
    held = np.zeros(len(theta), bool)
    # Bounds are found one after the other: those that a step would leave are held.
    for _ in range(len(theta) + 1):
        free = ~held
        right = reduced.gradient[free] + matrix[np.ix_(free, held)] @ step[held]
        if free.any():
            step[free] = -_solved(matrix[np.ix_(free, free)], right)
        leaves = free & ((theta + step < lower) | (theta + step > upper))
        if not leaves.any():
            break
        step[leaves] = np.clip(theta + step, lower, upper)[leaves] - theta[leaves]
        held |= leaves
    starts = -(reduced.offset + reduced.border @ step)
    slope = -(now.arrow.theta_gradient @ step + (now.arrow.gradient * starts).sum())
    return (theta + step, now.starts + starts), 0.5 * max(float(slope), 0.0)


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix * scale * scale[:, None]
    return scale * np.linalg.lstsq(scaled, scale * right, rcond=1e-14)[0]


def _prior(problem: Problem, theta) -> tuple[float, np.ndarray, np.ndarray]:
    """Compute the cost of the priors, with gradient and positive semidefinite Hessian."""
    size = len(theta)
    if all(unknown.prior is None for unknown in problem.unknowns):
        return 0.0, np.zeros(size), np.zeros((size, size))
    cost, gradient, hessian = prior_terms(problem, jnp.asarray(theta))
    values, vectors = np.linalg.eigh(np.asarray(hessian))
    fixed = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return float(cost), np.asarray(gradient), fixed
