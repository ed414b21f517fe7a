"""New starts for windows that ended in a wrong minimum.

The cost of a long window of a fast motion has many minima in the state where the window
starts. Over a short horizon it has one. So the start is found again for a quarter of the
window, then for half of it, then for all, each time from the last one.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ._evaluate import Problem
from ._solver import Iterate, iterate_at


_RATIO = 4.0
"""Mean square residual, in units of the median, above which a window is tried again."""
_STEPS = 6
"""Steps for each horizon."""


def restarted(problem: Problem, now: Iterate) -> np.ndarray | None:
    """Find better starts of the windows that are fitted much worse than others, with
    parameters as they are.

    Losses per window discount such windows themselves, and continuity ties them to their
    neighbors; then nothing is tried.

    **Returns:** starts of all windows, or None if none is better.
    """
    if problem.loss.per_window or problem.gap_weight > 0:
        return None
    misfit = np.asarray(now.blocks.misfit)
    bad = misfit > _RATIO * np.median(misfit)
    if not bad.any():
        return None
    starts = np.where(bad[:, None], 0.0, now.starts)
    time, mask = problem.batch.time, problem.batch.mask
    end = jnp.max(jnp.where(mask, time, 0.0), axis=1, keepdims=True)
    for share in (0.25, 0.5, 1.0):
        near = eqx.tree_at(
            lambda p: p.batch.mask, problem, mask & (time <= share * end)
        )
        starts = _descended(near, now.theta, starts, bad)
    cost = _costs(iterate_at(problem, now.theta, starts, 0))
    better = bad & (cost < _costs(now) * (1 - 1e-3))
    if not better.any():
        return None
    return np.where(better[:, None], starts, now.starts)


def _descended(problem: Problem, theta, starts, moving) -> np.ndarray:
    """Take Levenberg-Marquardt steps of each start by itself."""
    cost, gradient, matrix = _state(problem, theta, starts)
    damping = np.full(len(starts), 1e-3)
    index = np.arange(starts.shape[1])
    for _ in range(_STEPS):
        damped = matrix.copy()
        damped[:, index, index] *= 1 + damping[:, None]
        step = -np.linalg.solve(damped, gradient[:, :, None])[..., 0]
        trial = np.where(moving[:, None], starts + step, starts)
        new = _state(problem, theta, trial)
        better = moving & (new[0] < cost)
        choose = lambda a, b: np.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b)
        starts = choose(trial, starts)
        old = cost, gradient, matrix
        cost, gradient, matrix = (choose(a, b) for a, b in zip(new, old, strict=True))
        damping = np.where(better, 0.3 * damping, 10 * damping)
    return starts


def _state(
    problem: Problem, theta, starts
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute cost, gradient and Gauss-Newton matrix of each start."""
    now = iterate_at(problem, theta, starts, 0)
    return _costs(now), now.arrow.gradient, now.arrow.diagonal


def _costs(now: Iterate) -> np.ndarray:
    """Compute costs of windows, with the priors of their starts."""
    return now.blocks.cost + 0.5 * (now.starts**2).sum(axis=1)
