"""A last search without derivatives, over whole recordings.

Where motion is chaotic, as after many impacts, the error of a long simulation is no smooth
function of the parameters. A few of them can still be improved by comparing values.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..model import System
from ._evaluate import Problem, residuals
from ._recording import Recording
from ._result import Result
from ._signals import Delay
from ._windows import cut, Windows


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
    result: Result,
    recordings: Sequence[Recording],
    windows: Windows,
    *,
    steps: Any = 0.1,
    evaluations: int = 60,
    score: Score = mean_error,
    progress: Callable[[np.ndarray, float, int], Any] | None = None,
) -> Result:
    """Improve a fit by predictions of long windows, from starts that are not fitted.

    **Arguments:**

    - `result`: result of `fit`. The change by the search is added to its covariance, as an
        estimate of the error of the model.
    - `recordings`, `windows`: recordings to predict, and how they are cut.
    - `steps`: first change of each free number (logarithms of positive parameters).
    - `evaluations`: simulations of all windows.
    - `score`: function to minimize; by default `mean_error`.
    - `progress`: called with free numbers, score and number of evaluations.
    """
    problem = _other(result.problem, recordings, windows)
    zero = jnp.zeros_like(problem.batch.sd)
    mask = np.asarray(problem.batch.mask)

    def cost(x: np.ndarray) -> float:
        found = residuals(problem, jnp.asarray(x), zero)
        return score({k: np.asarray(v) for k, v in found.items()}, mask)

    size = np.broadcast_to(np.asarray(steps, float), result.theta.shape)
    theta = nelder_mead(cost, result.theta, size, result.bounds, evaluations, progress)
    model = problem.model(jnp.asarray(theta))
    values = np.asarray(problem.values(jnp.asarray(theta)))
    change = theta - result.theta
    used = result.covariance.used + np.outer(change, change)
    return dataclasses.replace(
        result,
        sys=model.sys,
        signals=model.signals,
        values=values,
        theta=theta,
        covariance=result.covariance._replace(used=used),
    )


def predict(
    result: Result, sys: System, recordings: Sequence[Recording], windows: Windows
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Compute errors of predictions by a robot, with neither signals nor fitted starts.

    **Arguments:**

    - `result`: result of `fit`, with measurement and pipeline.
    - `sys`: the robot that predicts.

    **Returns:** measured minus predicted values by channel, `(windows, samples, columns)`,
    and which samples are not padding.
    """
    problem = _other(result.problem, recordings, windows)
    none = jnp.zeros(0)
    problem = dataclasses.replace(problem, sys=sys, unknowns=(), sizes=(), origin=none)
    found = residuals(problem, none, jnp.zeros_like(problem.batch.sd))
    return {k: np.asarray(v) for k, v in found.items()}, np.asarray(problem.batch.mask)


def _other(problem: Problem, recordings, windows: Windows) -> Problem:
    before = max(
        [x.upper for x in problem.unknowns if isinstance(x, Delay)], default=0.0
    )
    channels = list(problem.batch.measured)
    found = cut(problem.sys, list(recordings), channels, windows, before)
    return dataclasses.replace(problem, batch=found.batch, steps=found.steps)
