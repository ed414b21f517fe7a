r"""Covariances of parameters, and degrees of freedom of their intervals.

The inverse Hessian $H^{-1}$ is the covariance if residuals are independent and the model is
true. Residuals of simulations are autocorrelated. The sandwich
$H^{-1} (\sum_c g_c g_c^\top) H^{-1}$, with the gradient $g_c$ of one cluster of residuals,
only needs independent clusters. It has two errors where clusters are few: gradients at the
minimum are smaller than those at the true parameters, and a variance estimated from few
clusters is uncertain. Both are corrected as by Bell and McCaffrey, so that the sandwich is
unbiased and intervals of Student's t have their level if residuals are independent as well:

- With the information $H_c = R_c^2$ of one cluster, its gradient is multiplied by
  $R_c (1 - R_c H^{-1} R_c)^{-1/2} R_c^{-1}$ (called CR2).
- The degrees of freedom of a value are those of a $\chi^2$ with the mean and the variance that
  its estimated variance would have (Satterthwaite). They are fewer than the clusters, and few
  where a few clusters have most of the information about a value.

Priors of parameters are known: they add their information to $H$ and to the sum, not to the
uncertainty of the variance.

??? cite "References"
    Bell and McCaffrey, *Bias reduction in standard errors for linear regression with
    multi-stage samples*, Survey Methodology, 2002.

    Cameron and Miller, *A practitioner's guide to cluster-robust inference*, Journal of
    Human Resources, 2015.

    Tipton, *Small sample adjustments for robust variance estimation with meta-regression*,
    Psychological Methods, 2015 (intervals need at least 4 degrees of freedom).
"""

from typing import NamedTuple

import numpy as np

from ._arrow import eliminate, informations, scores
from ._solver import Iterate


class Covariance(NamedTuple):
    """Covariances of the free numbers.

    - `hessian`: inverse Hessian. `sandwich`: clustered, with the correction CR2.
    - `used`: the covariance behind intervals. It is the sandwich clustered by run if all
        values have at least 4 degrees of freedom then; otherwise the sandwich clustered by
        window if they have them then; otherwise the inverse Hessian.
    - `clusters`: number of clusters of the sandwich. `by_run`: true if they are runs.
    - `freedom`: degrees of freedom of Student's t of the interval of each value.
    """

    hessian: np.ndarray
    sandwich: np.ndarray
    used: np.ndarray
    clusters: int
    by_run: bool
    freedom: np.ndarray


class Robust(NamedTuple):
    """A sandwich covariance, and degrees of freedom of each contrast.

    - `unbiased`: true if each contrast has the variance of the inverse Hessian if residuals
        are independent. It has not if one cluster alone determines it.
    """

    matrix: np.ndarray
    freedom: np.ndarray
    unbiased: np.ndarray

    @property
    def reliable(self) -> bool:
        """True if the intervals of all contrasts can be trusted."""
        return bool((self.unbiased & (self.freedom >= _LEAST)).all())


_LEAST = 4.0
_MOST = 1e6
"""Degrees of freedom beyond which Student's t is normal."""
_NO_INFORMATION = 1e6
"""Variance of a free number on which nothing depends."""


def covariance(
    now: Iterate, run: np.ndarray, samples: int, contrasts: np.ndarray, linked: bool
) -> Covariance:
    """Estimate covariances of the free numbers at a minimum.

    **Arguments:**

    - `run`: number of the run of each window.
    - `samples`: number of residuals.
    - `contrasts`: derivative of each value by the free numbers.
    - `linked`: true if jumps between windows are penalized, so that windows of a run
        depend on each other.
    """
    eliminated = eliminate(now.arrow)
    score = scores(now.arrow, eliminated)
    information = informations(now.arrow, eliminated)
    inverse, matrix = pseudo_inverse(eliminated.matrix)
    args = inverse, matrix, score, information, contrasts
    by_run = cluster_robust(*args, run)
    single = np.arange(len(run))
    by_window = by_run if linked else cluster_robust(*args, single)
    chosen = by_run if by_run.reliable else by_window
    if chosen.reliable:
        used, freedom = chosen.matrix, chosen.freedom
    else:
        left = min(max(samples - len(now.theta), 1), _MOST)
        used, freedom = inverse, np.full(len(contrasts), float(left))
    is_run = linked or chosen is by_run
    count = len(np.unique(run)) if is_run else len(run)
    return Covariance(inverse, chosen.matrix, used, count, is_run, freedom)


def cluster_robust(
    inverse: np.ndarray,
    matrix: np.ndarray,
    score: np.ndarray,
    information: np.ndarray,
    contrasts: np.ndarray,
    labels: np.ndarray,
) -> Robust:
    """Compute the sandwich covariance, corrected for few clusters.

    **Arguments:**

    - `inverse`, `matrix`: inverse Hessian, and the matrix of which it is the inverse.
    - `score`, `information`: gradient `(k, p)` and information `(k, p, p)` by window,
        without priors of the parameters.
    - `contrasts`: combinations of parameters that get an interval, `(n, p)`.
    - `labels`: cluster of each window.
    """
    # Units in which information is of order one.
    unit = 1 / np.sqrt(np.diag(matrix))
    inverse = inverse / unit / unit[:, None]
    gradient = _summed(score * unit, labels)
    by_cluster = _summed(information * unit * unit[:, None], labels)
    root = _power(by_cluster, 0.5)
    rest = matrix * unit * unit[:, None] - (root @ root).sum(axis=0)
    known, vectors = np.linalg.eigh(0.5 * (rest + rest.T))
    rest = (vectors * np.maximum(known, 0.0)) @ vectors.T
    free = np.eye(len(inverse)) - root @ inverse @ root
    corrected = root @ _power(free, -0.5)
    adjusted = np.einsum("kab,kb->ka", corrected @ _power(by_cluster, -0.5), gradient)
    sandwich = inverse @ (adjusted.T @ adjusted + rest) @ inverse
    # The estimated variance of a contrast is a sum of squares of correlated numbers, one
    # per cluster. Their covariance is diagonal less `seen inverse seen'`.
    z = inverse @ (contrasts * unit).T
    diagonal = np.einsum("an,kab,bn->nk", z, root @ _power(free, -1.0) @ root, z)
    seen = np.einsum("kab,bn->nka", corrected @ root, z)
    common = np.einsum("nka,ab,nkb->nk", seen, inverse, seen)
    outer = np.einsum("nka,nkb->nab", seen, seen) @ inverse
    spread = (diagonal**2 - 2 * diagonal * common).sum(axis=1)
    spread += np.einsum("nab,nba->n", outer, outer)
    mean = (diagonal - common).sum(axis=1) + np.einsum("an,ab,bn->n", z, rest, z)
    unbiased = mean >= 0.99 * np.einsum("an,an->n", (contrasts * unit).T, z)
    freedom = 1 / np.maximum(spread / np.maximum(mean**2, 1e-300), 1 / _MOST)
    return Robust(sandwich * unit * unit[:, None], freedom, unbiased)


def pseudo_inverse(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Invert a positive semidefinite matrix. Directions without information have a very
    large, finite variance.

    **Returns:** the inverse, and the matrix of which it is the inverse.
    """
    diagonal = np.diag(matrix)
    known = diagonal > 1e-18 * max(diagonal.max(initial=0.0), 1e-300)
    at = np.ix_(known, known)
    inverse = np.diag(np.where(known, 0.0, _NO_INFORMATION))
    complete = np.diag(np.where(known, 0.0, 1 / _NO_INFORMATION))
    scale = np.sqrt(diagonal[known])
    values, vectors = np.linalg.eigh(matrix[at] / scale / scale[:, None])
    values = np.maximum(values, 1e-12)
    inverse[at] = ((vectors / values) @ vectors.T) / scale / scale[:, None]
    complete[at] = ((vectors * values) @ vectors.T) * scale * scale[:, None]
    return inverse, complete


def quantile(level: float, freedom: np.ndarray) -> np.ndarray:
    """Compute two-sided quantiles of Student's t."""
    # Here, because it takes longer to import than the rest of eqsim.
    from scipy.special import stdtrit

    return stdtrit(freedom, 0.5 + level / 2)


def _summed(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Sum rows of the same cluster."""
    _, cluster = np.unique(labels, return_inverse=True)
    out = np.zeros((cluster.max() + 1, *values.shape[1:]))
    np.add.at(out, cluster, values)
    return out


def _power(matrices: np.ndarray, power: float) -> np.ndarray:
    """Compute powers of positive semidefinite matrices of order one, zero where they are
    singular."""
    values, vectors = np.linalg.eigh(0.5 * (matrices + matrices.swapaxes(1, 2)))
    regular = values > 1e-8
    powers = np.where(regular, np.where(regular, values, 1.0) ** power, 0.0)
    return (vectors * powers[:, None, :]) @ vectors.swapaxes(1, 2)
