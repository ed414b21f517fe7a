r"""How well parameters are known.

The inverse Hessian $H^{-1}$ is right if residuals are independent and the model is true.
Simulation errors are neither: the sandwich
$H^{-1} (\sum_c g_c g_c^\top) H^{-1}$, with the gradient $g_c$ of one cluster of residuals,
needs only that clusters are independent.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ._arrow import eliminate, scores
from ._solver import Iterate


class Covariance(NamedTuple):
    """Covariances of the free numbers.

    - `hessian`: inverse Hessian. `sandwich`: clustered.
    - `clusters`: number of clusters, which are runs, or windows where there are too
        few runs; `by_run`: which of both.
    - `used`: the one behind intervals: the sandwich where there are enough clusters,
        but no variance is taken to be less than that of the inverse Hessian.
    - `freedom`: degrees of freedom of Student's t of the intervals.
    """

    hessian: np.ndarray
    sandwich: np.ndarray
    used: np.ndarray
    clusters: int
    by_run: bool
    freedom: int


def covariance(now: Iterate, run: np.ndarray, samples: int) -> Covariance:
    """Estimate covariances of the free numbers at a minimum.

    **Arguments:**

    - `run`: number of the run of each window.
    - `samples`: number of residuals.
    """
    eliminated = eliminate(now.arrow)
    inverse = pseudo_inverse(eliminated.matrix)
    p, windows = len(now.theta), len(run)
    runs = len(np.unique(run))
    by_run = runs >= max(20, 3 * p)
    labels = run if by_run else np.arange(windows)
    per_window = scores(now.arrow, eliminated)
    _, cluster = np.unique(labels, return_inverse=True)
    summed = np.zeros((cluster.max() + 1, p))
    np.add.at(summed, cluster, per_window)
    count = len(summed)
    summed = summed - summed.mean(axis=0)
    middle = summed.T @ summed * count / max(count - 1, 1)
    sandwich = inverse @ middle @ inverse
    enough = count >= 2 * p + 5
    used = _at_least(sandwich, inverse) if enough else inverse
    freedom = max(count - p, 1) if enough else max(samples - p, 1)
    return Covariance(inverse, sandwich, used, count, by_run, freedom)


def pseudo_inverse(matrix: np.ndarray) -> np.ndarray:
    """Invert a positive semidefinite matrix. Directions without information have a very
    large, finite variance."""
    diagonal = np.diag(matrix)
    known = diagonal > 1e-18 * max(diagonal.max(initial=0.0), 1e-300)
    out = np.diag(np.where(known, 0.0, _NO_INFORMATION))
    scale = 1 / np.sqrt(diagonal[known])
    values, vectors = np.linalg.eigh(
        matrix[np.ix_(known, known)] * scale * scale[:, None]
    )
    values = np.maximum(values, 1e-12)
    out[np.ix_(known, known)] = (
        scale * ((vectors / values) @ vectors.T) * scale[:, None]
    )
    return out


_NO_INFORMATION = 1e6
"""Variance of a free number on which nothing depends."""


def _at_least(sandwich: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Scale up the sandwich where its variances are less than those of the Hessian."""
    ratio = np.diag(inverse) / np.maximum(np.diag(sandwich), 1e-300)
    scale = np.sqrt(np.maximum(ratio, 1.0))
    return sandwich * scale * scale[:, None]


def quantile(level: float, freedom: int) -> float:
    """Compute the two-sided quantile of Student's t, by Cornish and Fisher's expansion."""
    z, n = NormalDist().inv_cdf(0.5 + level / 2), max(freedom, 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / n ** (k + 1) for k, term in enumerate(terms))
