r"""Trust in a fit: covariances, identifiability, and held-out errors.

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

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..estimate.stochastic_model import predicted_channels, tangent_widths
from ._fit_problem import FitProblem, residuals
from ._objectives import Given
from ._recordings import Recording
from ._solver import eliminate, informations, Iterate, scores
from ._windows import Cut, cut, start_channel, Windows


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
    sandwich = lambda labels: cluster_robust(
        inverse, matrix, score, information, contrasts, labels
    )
    by_run = sandwich(run)
    by_window = by_run if linked else sandwich(np.arange(len(run)))
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


class Combination(NamedTuple):
    """A direction in parameter space.

    - `singular_value`: information about a change by one unit of scale in this
        direction, in units of the noise: the data determine it to `1 / singular_value`.
    - `direction`: unit vector, in units of `scale`.
    - `text`: `"+0.71 friction -0.71 damping"`, in units of `scale`.
    """

    singular_value: float
    direction: np.ndarray
    text: str


class Identifiability(NamedTuple):
    """Combinations of parameters, and how well the data determine them.

    - `scale`: unit of each free number: standard deviation of its prior, or one (a factor
        of e for positive parameters), or its value.
    - `singular_values`: singular values of the reduced Jacobian in these units, largest
        first; empty if they were not assessed.
    - `unknown`: combinations that the data cannot tell: their standard deviation exceeds
        one unit of scale, or their information is rounding error.
    - `condition`: ratio of the largest and smallest singular value.
    """

    scale: np.ndarray
    singular_values: np.ndarray
    unknown: tuple[Combination, ...]
    condition: float

    @property
    def assessed(self) -> bool:
        """False after `Adam`, which has no Gauss-Newton matrix."""
        return len(self.singular_values) > 0

    def __str__(self) -> str:
        if not self.assessed:
            return "identifiability not assessed"
        lines = [f"condition number {self.condition:.3g}"]
        for item in self.unknown:
            lines.append(f"cannot be told ({item.singular_value:.2g}): {item.text}")
        return "\n".join(lines)


_ROUNDING = 1e-7
"""Singular values below this share of the largest one are rounding error."""


def identifiability(
    information: np.ndarray, scale: np.ndarray, labels: Sequence[str]
) -> Identifiability:
    """Find what can be told.

    **Arguments:**

    - `information`: Gauss-Newton matrix of the parameters after elimination of the
        starts, without priors of the parameters.
    - `scale`: unit of each free number.
    - `labels`: name of each free number.
    """
    values, vectors = np.linalg.eigh(information * scale * scale[:, None])
    order = np.argsort(values)[::-1]
    singular = np.sqrt(np.maximum(values[order], 0.0))
    largest = max(float(singular[0]), 1e-300)
    unknown = tuple(
        Combination(float(s), vectors[:, k], describe(vectors[:, k], labels))
        for s, k in zip(singular, order)
        if s < max(1.0, _ROUNDING * largest)
    )
    condition = largest / max(float(singular[-1]), 1e-16 * largest)
    return Identifiability(scale, singular, unknown, condition)


def describe(direction: np.ndarray, labels: Sequence[str]) -> str:
    """Write a direction as a sum of its largest parts."""
    order = np.argsort(-np.abs(direction))
    kept = [k for k in order if abs(direction[k]) > 0.1 * np.abs(direction).max()]
    sign = np.sign(direction[kept[0]])
    return " ".join(f"{sign * direction[k]:+.2f} {labels[k]}" for k in kept)


def prediction(
    problem: FitProblem,
    recordings: Sequence[Recording],
    windows: Windows,
    before: float,
) -> tuple[FitProblem, Cut]:
    """Return the problem of predicting windows of other recordings, with the predictor of
    the objective.

    **Arguments:**

    - `before`: time before the start of a window for which commands are kept, s.
    """
    sys, measure, objective = (
        problem.sys,
        problem.measure,
        problem.objective.predictor(),
    )
    widths = tangent_widths(sys, measure, predicted_channels(sys, measure))
    given = Given(sys, problem.pipeline, measure, list(recordings), windows, widths)
    recordings, channels, _ = objective.compare(given)
    found = cut(sys, list(recordings), channels, windows, before, problem.runs)
    new = dataclasses.replace(
        problem,
        batch=found.batch,
        start_channel=start_channel(windows),
        steps=found.steps,
        rows=found.rows,
        objective=objective,
    )
    return new, found


class EarlyStop(NamedTuple):
    """Stop a fit where the error on held-out recordings is least, and return this iterate.

    The noise is estimated at this iterate. Unless it is also where the solver converged, the
    cost is not at its minimum there, and covariances and intervals are NaN.

    **Arguments:**

    - `recordings`: held-out recordings, of other runs than those that are fitted, and than
        those of `validate`, whose errors would otherwise be too small.
    - `patience`: number of accepted steps (of `Adam`: of checks) without a smaller error
        after which the fit stops.
    """

    recordings: Recording | Sequence[Recording]
    patience: int = 5

    @property
    def runs(self) -> list[Recording]:
        """The recordings as a list."""
        given = self.recordings
        return [given] if isinstance(given, Recording) else [*given]


class HeldOut:
    """Held-out errors of the iterates of a fit, and the best of them.

    - `errors`: mean square errors over all columns, relative to those of the first iterate with
        finite errors; infinite if a simulation fails.
    - `best`: `theta` and `starts` with the least error.
    """

    errors: list[float]
    best: tuple[np.ndarray, np.ndarray] | None

    def __init__(
        self, problem: FitProblem, stop: EarlyStop, windows: Windows, before: float
    ):
        windows = windows._replace(continuity=None)
        self._problem, found = prediction(problem, stop.runs, windows, before)
        self._zero = jnp.zeros_like(found.batch.sd)
        self._known = np.asarray(found.batch.mask)
        self._patience = stop.patience
        self._scale: np.ndarray | None = None
        self.errors, self.best = [], None

    def take(self, theta: np.ndarray, starts: np.ndarray) -> bool:
        """Compare an iterate. Returns true if the fit should stop."""
        found = residuals(self._problem, jnp.asarray(theta), self._zero)
        rms = [window_errors(np.asarray(x), self._known)[0] for x in found.values()]
        square = np.concatenate(rms) ** 2
        error = np.inf
        if np.isfinite(square).all():
            if self._scale is None:
                self._scale = np.maximum(square, 1e-300)
            error = float(np.mean(square / self._scale))
        if not self.errors or error < min(self.errors):
            self.best = theta, starts
        self.errors.append(error)
        return self.over

    @property
    def over(self) -> bool:
        """True if the last iterates were not better than one before."""
        since = len(self.errors) - 1 - int(np.argmin(self.errors))
        return since >= self._patience


class HorizonError(NamedTuple):
    """Errors up to a time after the start of a window.

    - `horizon`: s.
    - `rms`: rms of each column over all windows, by channel.
    - `median`: median over windows of the norm of their rms over columns, by channel.
    - `baseline_rms`, `baseline_median`: the same of the system as given.
    - `ratio`: median of the fitted system over that of the baseline, by channel, with a
        95 % bootstrap interval over runs: `(ratio, low, high)`.
    """

    horizon: float
    rms: dict[str, np.ndarray]
    median: dict[str, float]
    baseline_rms: dict[str, np.ndarray]
    baseline_median: dict[str, float]
    ratio: dict[str, tuple[float, float, float]]


class Validation(NamedTuple):
    """Held-out errors by horizon, shortest first.

    - `runs`, `windows`: numbers of held-out runs and windows. With one run, intervals
        are over windows.
    """

    horizons: tuple[HorizonError, ...]
    runs: int
    windows: int

    def __str__(self) -> str:
        lines = [f"held out: {self.runs} runs, {self.windows} windows"]
        for item in self.horizons:
            for name, median in item.median.items():
                ratio = "{:.3g} [{:.3g}, {:.3g}]".format(*item.ratio[name])
                lines.append(
                    f"{item.horizon:.3g} s, {name}: median {median:.4g}, given "
                    f"{item.baseline_median[name]:.4g}, ratio {ratio}"
                )
        return "\n".join(lines)


def held_out_errors(
    problem: FitProblem,
    theta: np.ndarray,
    baseline: np.ndarray,
    recordings: Sequence[Recording],
    windows: Windows,
    horizons: Sequence[float],
    before: float,
    seed: int = 0,
) -> Validation:
    """Predict windows from their estimated starts, which are not fitted.

    **Arguments:**

    - `theta`, `baseline`: free numbers to be compared.
    - `horizons`: s; the windows have the length of the longest one.
    """
    if min(horizons) <= windows.settle:
        raise ValueError(
            f"`horizons` must be longer than `Windows.settle` ({windows.settle} s), got "
            f"{min(horizons)} s."
        )
    windows = windows._replace(length=max(horizons), stride=None, continuity=None)
    problem, found = prediction(problem, recordings, windows, before)
    zero = jnp.zeros_like(found.batch.sd)
    errors = [
        {k: np.asarray(v) for k, v in residuals(problem, jnp.asarray(x), zero).items()}
        for x in (theta, baseline)
    ]
    out = []
    for horizon in sorted(horizons):
        known = np.asarray(
            found.batch.mask & (found.batch.time <= horizon * (1 + 1e-9))
        )
        fitted, given = errors
        out.append(_horizon(horizon, fitted, given, known, found.run, seed))
    return Validation(tuple(out), len(np.unique(found.run)), len(found.run))


def _horizon(horizon, fitted, baseline, known, run, seed: int) -> HorizonError:
    rms, median, base_rms, base_median, ratio = {}, {}, {}, {}, {}
    for name in fitted:
        rms[name], own = window_errors(fitted[name], known)
        base_rms[name], base = window_errors(baseline[name], known)
        median[name], base_median[name] = float(np.median(own)), float(np.median(base))
        ratio[name] = _ratio(own, base, run, seed)
    return HorizonError(horizon, rms, median, base_rms, base_median, ratio)


def window_errors(
    error: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute root mean squares by column, and by window."""
    square = np.where(known[..., None], error**2, 0.0)
    square = np.nan_to_num(square, nan=np.inf)
    rms = np.sqrt(square.sum(axis=(0, 1)) / known.sum())
    window = square.sum(axis=1) / np.maximum(known.sum(axis=1), 1)[:, None]
    return rms, np.sqrt(window.mean(axis=1))


def _ratio(own, base, run, seed: int) -> tuple[float, float, float]:
    rng = np.random.default_rng(seed)
    several = len(np.unique(run)) > 1
    _, labels = np.unique(run if several else np.arange(len(run)), return_inverse=True)
    groups = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
    draws = []
    for _ in range(1000):
        chosen = rng.integers(0, len(groups), len(groups))
        rows = np.concatenate([groups[k] for k in chosen])
        draws.append(np.median(own[rows]) / max(np.median(base[rows]), 1e-300))
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(np.median(own) / max(np.median(base), 1e-300)), float(low), float(high)
