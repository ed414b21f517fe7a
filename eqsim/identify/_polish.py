"""A last search without derivatives, over whole recordings.

Where motion is chaotic, as after many impacts, the error of a long simulation is no smooth
function of the parameters. A few of them can still be improved by comparing values.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import check_count
from ..model import System
from ._evaluate import Problem, residuals
from ._prediction import prediction
from ._recording import Recording
from ._result import Result
from ._signals import Delay
from ._windows import Windows


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
    """Minimize a function of a few numbers within bounds (Nelder and Mead, 1965).

    **Arguments:**

    - `cost`: values that are not finite are worse than all others.
    - `steps`: size of the first simplex along each axis.
    - `evaluations`: at most so many values are computed.
    """
    # Here, because it takes long to import.
    from scipy.optimize import minimize, OptimizeResult

    count = 0

    def value(x: np.ndarray) -> float:
        nonlocal count
        count += 1
        found = cost(x)
        return found if np.isfinite(found) else np.inf

    def told(intermediate_result: OptimizeResult) -> None:
        if progress is not None:
            progress(intermediate_result.x, intermediate_result.fun, count)

    simplex = np.clip(start + np.vstack([0 * steps, np.diag(steps)]), *bounds)
    options = {"initial_simplex": simplex, "maxfev": evaluations}
    options |= {"xatol": 1e-6, "fatol": 1e-9}
    return minimize(
        value,
        start,
        method="Nelder-Mead",
        bounds=list(zip(*bounds, strict=True)),
        callback=told,
        options=options,
    ).x


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
    check_count("evaluations", evaluations)
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
    return prediction(problem, recordings, windows, before)[0]
