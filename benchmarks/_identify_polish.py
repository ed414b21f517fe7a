"""A last search without derivatives, over whole recordings.

Where motion is chaotic, as after many impacts, the error of a long simulation is no smooth
function of the parameters. A few of them can still be improved by comparing values.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize, OptimizeResult

from eqsim.identify import Recording, Result, Windows


def polish(
    result: Result,
    recordings: Sequence[Recording],
    windows: Windows,
    score: Callable[[dict[str, np.ndarray], np.ndarray], float],
    *,
    steps: Sequence[float],
    evaluations: int,
    progress: Callable[[np.ndarray, float, int], Any],
) -> Result:
    """Improve a fit by predictions of long windows, by the method of Nelder and Mead.

    **Arguments:**

    - `result`: result of `fit`, without signals. The change by the search is added to its
        covariance, as an estimate of the error of the model.
    - `recordings`, `windows`: recordings to predict, and how they are cut.
    - `score`: `(errors by channel, mask) -> cost` to minimize.
    - `steps`: first change of each free number (logarithms of positive parameters).
    - `evaluations`: simulations of all windows.
    - `progress`: called with free numbers, score and number of evaluations.
    """
    robot = lambda x: result.problem.model(jnp.asarray(x)).sys
    count = 0

    def cost(x: np.ndarray) -> float:
        nonlocal count
        count += 1
        found = score(*result.prediction_errors(recordings, windows, robot(x)))
        return found if np.isfinite(found) else np.inf

    def told(intermediate_result: OptimizeResult) -> None:
        progress(intermediate_result.x, intermediate_result.fun, count)

    start, bounds = result.theta, result.bounds
    moves = np.vstack([np.zeros(len(steps)), np.diag(steps)])
    simplex = np.clip(start + moves, *bounds)
    options = {"initial_simplex": simplex, "maxfev": evaluations}
    options |= {"xatol": 1e-6, "fatol": 1e-9}
    pairs = list(zip(*bounds, strict=True))
    theta = minimize(
        cost, start, method="Nelder-Mead", bounds=pairs, callback=told, options=options
    ).x
    change = theta - result.theta
    used = result.covariance.used + np.outer(change, change)
    return dataclasses.replace(
        result,
        sys=robot(theta),
        values=np.asarray(result.problem.values(jnp.asarray(theta))),
        theta=theta,
        covariance=result.covariance._replace(used=used),
    )
