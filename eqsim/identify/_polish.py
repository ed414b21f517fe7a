"""A last search without derivatives, over whole recordings.

Where motion is chaotic, as after many impacts, the error of a long simulation is no smooth
function of the parameters. A few of them can still be improved by comparing values.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ._evaluate import Problem, residuals


Score = Callable[[dict[str, np.ndarray], np.ndarray], float]
"""`(residuals by channel, mask) -> cost`."""


def mean_error(errors: dict[str, np.ndarray], mask: np.ndarray) -> float:
    """Compute the mean over recordings of the mean norm of the error, summed over
    channels."""
    total = 0.0
    for error in errors.values():
        norm = np.linalg.norm(np.nan_to_num(error, nan=1e3), axis=2)
        total += float(((norm * mask).sum(axis=1) / mask.sum(axis=1)).mean())
    return total


def nelder_mead(
    cost: Callable[[np.ndarray], float],
    start: np.ndarray,
    steps: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    evaluations: int,
    progress: Callable[[np.ndarray, float, int], Any] | None = None,
) -> np.ndarray:
    """Minimize a function of a few numbers (Nelder and Mead, 1965), within bounds.

    **Arguments:**

    - `steps`: size of the first simplex along each axis.
    - `evaluations`: at most about so many values are computed.
    """
    count = 0

    def value(x: np.ndarray) -> float:
        nonlocal count
        count += 1
        found = cost(x)
        return found if np.isfinite(found) else np.inf

    clip = lambda x: np.clip(x, *bounds)
    points = [clip(start)] + [clip(start + row) for row in np.diag(steps)]
    values = [value(x) for x in points]
    while count < evaluations:
        order = np.argsort(values, kind="stable")
        points, values = [points[k] for k in order], [values[k] for k in order]
        if progress is not None:
            progress(points[0], values[0], count)
        center, worst = np.mean(points[:-1], axis=0), points[-1]
        reflected = clip(center + (center - worst))
        new = value(reflected)
        if new < values[0]:
            further = clip(center + 2 * (center - worst))
            beyond = value(further)
            best = (further, beyond) if beyond < new else (reflected, new)
        elif new < values[-2]:
            best = reflected, new
        else:
            toward = reflected if new < values[-1] else worst
            inside = clip(center + 0.5 * (toward - center))
            best = inside, value(inside)
            if best[1] >= min(new, values[-1]):
                points = [clip(points[0] + 0.5 * (x - points[0])) for x in points]
                values = values[:1] + [value(x) for x in points[1:]]
                continue
        points[-1], values[-1] = best
    return points[int(np.argmin(values))]


def polish(
    problem: Problem,
    theta: np.ndarray,
    steps: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    evaluations: int,
    score: Score = mean_error,
    progress: Callable[[np.ndarray, float, int], Any] | None = None,
) -> np.ndarray:
    """Search parameters for which predictions from the estimated starts are best.

    **Arguments:**

    - `problem`: its batch holds the recordings that are predicted.
    - `theta`: free numbers to start from. `steps`: size of the search along each.
    - `score`: what is minimized.

    **Returns:** free numbers.
    """
    zero = jnp.zeros_like(problem.batch.sd)
    mask = np.asarray(problem.batch.mask)

    def cost(x: np.ndarray) -> float:
        found = residuals(problem, jnp.asarray(x), zero)
        return score({k: np.asarray(v) for k, v in found.items()}, mask)

    return nelder_mead(cost, theta, steps, bounds, evaluations, progress)


def polished(result: Any, batch, steps: int, theta: np.ndarray) -> Any:
    """Put other parameters into a result, whose intervals stay as they are."""
    problem = dataclasses.replace(result.problem, batch=batch, steps=steps)
    model = problem.model(jnp.asarray(theta))
    values = np.asarray(problem.values(jnp.asarray(theta)))
    return dataclasses.replace(
        result, sys=model.sys, signals=model.signals, values=values, theta=theta
    )
