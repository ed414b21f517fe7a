r"""Many fits: comparison of classes of models by cross-validation, and ensembles.

More parameters fit the same recordings better, whether or not they describe the robot. `compare`
fits each candidate to some runs and predicts the others. Errors of candidates are paired: all
predict the same windows, so that differences between candidates are known far better than
errors. Intervals are those of the bootstrap over runs. Of several candidates, the one with the
fewest parameters is chosen whose error exceeds the least one by at most one standard error of
the difference.

`fit_ensemble` fits one candidate several times, to other runs and from other random weights.
The spread of its members is what the recordings leave open.

??? cite "References"
    Breiman, Friedman, Olshen, Stone, *Classification and Regression Trees*, 1984 (the rule of
    one standard error).

    Breiman, *Bagging predictors*, Machine Learning, 1996 (members, and the runs that a
    member has not seen).
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._errors import check_count
from ..model import System
from ._assessment import EarlyStop, prediction, window_errors
from ._channels import ChannelBias
from ._fit import fit, longest_delay
from ._fit_problem import residuals
from ._recordings import Recording, several_runs, split
from ._result import Result
from ._unknowns import AbstractUnknown, applied
from ._windows import Windows


class Candidate(NamedTuple):
    """A class of models.

    **Arguments:**

    - `sys`: the robot to start from, or a function of a key that returns it, for random
        initial weights.
    - `unknowns`: parameters by name. `options`: options of `fit` for this candidate alone.
    - `seeds`: number of fits from different keys; their errors are averaged.
    - `patience`: patience of an `EarlyStop` on a quarter of the runs of each fit; None: fits
        do not stop early.
    """

    sys: System | Callable[[PRNGKeyArray], System]
    unknowns: Mapping[str, AbstractUnknown]
    options: Mapping[str, Any] = MappingProxyType({})
    seeds: int = 1
    patience: int | None = None


class ModelScore(NamedTuple):
    """Held-out errors of one candidate.

    - `parameters`: number of free numbers.
    - `error`, `low`, `high`: mean over runs, with a 95 % interval.
    - `difference`, `difference_low`, `difference_high`: error minus that of the candidate
        with the least error, paired by run, with a 95 % interval.
    - `standard_error`: standard error of the difference.
    - `seed_sd`: standard deviation of the error over seeds; zero for one seed.
    - `windows`: error of each held-out window by run, averaged over seeds.
    - `rms`: root mean square of each column over all held-out windows, by channel.
    """

    name: str
    parameters: int
    error: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    standard_error: float
    seed_sd: float
    windows: dict[str, np.ndarray]
    rms: dict[str, np.ndarray]


class ModelComparison(NamedTuple):
    """Held-out errors of candidates, in their order.

    - `best`: candidate with the least error. `chosen`: candidate with the fewest parameters
        whose error is at most one standard error of the paired difference larger.
    """

    scores: tuple[ModelScore, ...]
    best: str
    chosen: str

    def __str__(self) -> str:
        width = max(len(score.name) for score in self.scores)
        lines = [
            f"{'':{width}}  numbers     error  95 % interval        minus the least, 95 %"
        ]
        for score in self.scores:
            notes = ["chosen"] if score.name == self.chosen else []
            notes += ["least error"] if score.name == self.best else []
            interval = f"[{score.low:.4g}, {score.high:.4g}]"
            paired = f"[{score.difference_low:.2g}, {score.difference_high:.2g}]"
            spread = f" seeds +-{score.seed_sd:.2g}" if score.seed_sd else ""
            lines.append(
                f"{score.name:{width}}  {score.parameters:7d} {score.error:9.4g}  "
                f"{interval:20} {score.difference:.2g} {paired}{spread} {', '.join(notes)}"
            )
        return "\n".join(line.rstrip() for line in lines)


Statistic = Callable[[np.ndarray], float]


def root_mean_square(errors: np.ndarray) -> float:
    """Compute the root mean square of the errors of windows."""
    return float(np.sqrt(np.mean(np.square(errors))))


def compare(
    candidates: Mapping[str, Candidate],
    recordings: Sequence[Recording],
    *,
    folds: int | np.integer | Sequence[Sequence[str]] | None = None,
    windows: Windows = Windows(0.5),
    horizon: float | None = None,
    adjust: Callable[[Result, list[Recording]], list[Recording]] | None = None,
    statistic: Statistic = root_mean_square,
    progress: Callable[[ModelScore], Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> ModelComparison:
    """Compare classes of models by their errors on runs that they were not fitted to.

    The error of a window is the root mean square over its samples and columns; with several
    channels, each is divided by the standard deviation of its measured values. Windows start
    from estimated states, which are not fitted. Errors are those of simulations, and of
    forces for `ActuatorForces`.

    **Arguments:**

    - `candidates`: classes of models by name, the simplest first.
    - `recordings`: recordings of at least two runs.
    - `folds`: number of parts into which the runs are divided at random, each of which is
        left out once; by default each run by itself. Or names of the runs of each part,
        without a run in two parts.
    - `windows`: windows of the fits.
    - `horizon`: length of the windows that are predicted, s; by default that of `windows`.
    - `adjust`: `(result, held_out) -> recordings` corrects held-out recordings for what is
        different in each run, such as the zero of an encoder.
    - `statistic`: error of a run from those of its windows.
    - `progress`: called with the score of each candidate; differences are still zero.
    - `seed`: random seed of folds, keys and intervals.
    - `options`: options of all fits, see `fit`.

    **Raises:** `ValueError` for unknown or repeated runs in `folds`, fewer than two runs or
    candidates without seeds; `FloatingPointError` if the held-out error of no candidate is
    finite; errors of `fit`, with the name of the candidate.
    """
    if not candidates:
        raise ValueError("`candidates` is empty: at least one candidate is required.")
    for name, one in candidates.items():
        check_count(f"seeds of candidate {name!r}", one.seeds)
    parts = _folds(recordings, folds, seed)
    size = windows.length if horizon is None else horizon
    predicted = windows._replace(length=size, stride=None, continuity=None)
    judge = _Judge(predicted, adjust, statistic, seed)
    scores = []
    for name, one in candidates.items():
        found = [
            _fold(name, one, recordings, held, windows, judge, options, seed)
            for held in parts
        ]
        scores.append(_score(name, found, judge))
        if progress is not None:
            progress(scores[-1])
    return _compared(scores, judge)


class _Judge(NamedTuple):
    windows: Windows
    adjust: Callable[[Result, list[Recording]], list[Recording]] | None
    statistic: Statistic
    seed: int


class _Predicted(NamedTuple):
    """Held-out errors of one fit: of windows by run, and sums of squares by channel."""

    parameters: int
    windows: dict[str, np.ndarray]
    squares: dict[str, tuple[np.ndarray, int]]


def _folds(
    recordings: Sequence[Recording],
    folds: int | np.integer | Sequence[Sequence[str]] | None,
    seed: int,
) -> list[set[str]]:
    """Return the names of the runs that each fold leaves out."""
    runs = several_runs(recordings, "leave one out")
    if folds is None or isinstance(folds, int | np.integer):
        count = len(runs) if folds is None else folds
        check_count("folds", count, 2)
        mixed = np.random.default_rng(seed).permutation(runs).tolist()
        return [set(mixed[k::count]) for k in range(min(count, len(runs)))]
    taken: set[str] = set()
    for part in folds:
        if twice := sorted({*part} & taken):
            raise ValueError(
                f"Run {twice[0]!r} is in two parts of `folds`. Leave out each run at most "
                "once."
            )
        taken |= {*part}
        if unknown := sorted({*part} - {*runs}):
            raise ValueError(
                f"`folds` names the unknown run {unknown[0]!r}. Runs: {runs}."
            )
        if not part or {*part} == {*runs}:
            raise ValueError(
                f"A part of `folds` must leave out some runs and keep others, got {[*part]} "
                f"of {runs}."
            )
    return [set(part) for part in folds]


def _fold(
    name: str,
    one: Candidate,
    recordings: Sequence[Recording],
    held: set[str],
    windows: Windows,
    judge: _Judge,
    options: Mapping[str, Any],
    seed: int,
) -> list[_Predicted]:
    """Fit a candidate to the runs of a fold, from each seed, and predict the others."""
    fitted = [r for r in recordings if r.run not in held]
    others = [r for r in recordings if r.run in held]
    merged, out = {**options, **one.options}, []
    try:
        if one.patience is not None:
            fitted, watched = split(fitted, seed=seed)
            merged["stop"] = EarlyStop(watched, one.patience)
        for k in range(one.seeds):
            sys = one.sys if isinstance(one.sys, System) else one.sys(jr.key(seed + k))
            result = fit(sys, fitted, one.unknowns, windows=windows, **merged)
            out.append(_predicted(result, others, one.unknowns, judge))
    except (ValueError, FloatingPointError) as error:
        kind = ValueError if isinstance(error, ValueError) else FloatingPointError
        raise kind(f"Candidate {name!r}: {error}") from error
    return out


def _predicted(
    result: Result,
    others: list[Recording],
    unknowns: Mapping[str, AbstractUnknown],
    judge: _Judge,
) -> _Predicted:
    adjusted = others if judge.adjust is None else judge.adjust(result, others)
    before = longest_delay(unknowns)
    problem, found = prediction(result.problem, adjusted, judge.windows, before)
    zero, theta = jnp.zeros_like(found.batch.sd), jnp.asarray(result.theta)
    errors = residuals(problem, theta, zero)
    known = np.asarray(found.batch.mask)
    squares, total = {}, np.zeros(len(known))
    for channel, error in errors.items():
        rms, window = window_errors(np.asarray(error), known)
        measured = np.asarray(found.batch.measured[channel])[known]
        scale = 1.0 if len(errors) == 1 else max(float(measured.std()), 1e-300)
        total += (window / scale) ** 2
        squares[channel] = rms**2 * known.sum(), int(known.sum())
    error = np.sqrt(total / len(errors))
    runs = np.array([adjusted[k].run for k in found.recording])
    by_run = {str(run): error[runs == run] for run in np.unique(runs)}
    return _Predicted(len(result.theta), by_run, squares)


def _score(name: str, folds: list[list[_Predicted]], judge: _Judge) -> ModelScore:
    """Average over seeds, and collect the runs of all folds."""
    windows: dict[str, np.ndarray] = {}
    for fold in folds:
        for run in fold[0].windows:
            windows[run] = np.mean([one.windows[run] for one in fold], axis=0)
    seeds = [
        np.mean(
            [judge.statistic(x) for fold in folds for x in fold[k].windows.values()]
        )
        for k in range(len(folds[0]))
    ]
    rms = {}
    for channel in folds[0][0].squares:
        own = [one.squares[channel] for fold in folds for one in fold]
        rms[channel] = np.sqrt(sum(x for x, _ in own) / sum(n for _, n in own))
    count = max(one.parameters for fold in folds for one in fold)
    sd = (
        float(np.std(seeds, ddof=1))
        if len(seeds) > 1 and np.isfinite(seeds).all()
        else 0.0
    )
    error, low, high, _ = _interval([*windows.values()], None, judge)
    return ModelScore(name, count, error, low, high, 0, 0, 0, 0, sd, windows, rms)


def _compared(scores: list[ModelScore], judge: _Judge) -> ModelComparison:
    # A simulation that fails has an infinite error.
    best = min(scores, key=lambda x: x.error if np.isfinite(x.error) else np.inf)
    if not np.isfinite(best.error):
        bad = [run for run, x in best.windows.items() if not np.isfinite(x).all()]
        raise FloatingPointError(
            f"No candidate has a finite held-out error. Candidate {best.name!r} fails on "
            f"run {(bad or [*best.windows])[0]!r}. Choose shorter windows, or reduce `sys.dt`."
        )
    out = []
    for score in scores:
        runs = [score.windows[run] for run in best.windows]
        paired = _interval(runs, [*best.windows.values()], judge)
        names = "difference", "difference_low", "difference_high", "standard_error"
        out.append(score._replace(**dict(zip(names, paired, strict=True))))
    near = lambda x: x.name == best.name or x.difference <= x.standard_error
    enough = [x for x in out if near(x)]
    chosen = min(enough, key=lambda score: score.parameters)
    return ModelComparison(tuple(out), best.name, chosen.name)


def _interval(
    runs: list[np.ndarray], minus: list[np.ndarray] | None, judge: _Judge
) -> tuple[float, float, float, float]:
    """Return a mean over runs, its 95 % interval by the bootstrap over runs (over windows if
    there is one run), and its standard error."""
    if len(runs) == 1:
        runs = [runs[0][k : k + 1] for k in range(len(runs[0]))]
        minus = minus and [minus[0][k : k + 1] for k in range(len(minus[0]))]
    values = np.array([judge.statistic(x) for x in runs])
    if minus is not None:
        values = values - np.array([judge.statistic(x) for x in minus])
    if not np.isfinite(values).all():
        return np.inf, np.inf, np.inf, 0.0
    rng = np.random.default_rng(judge.seed)
    draws = values[rng.integers(0, len(values), (2000, len(values)))].mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    error = float(spread / np.sqrt(len(values)))
    return float(values.mean()), float(low), float(high), error


class EnsemblePosterior(eqx.Module):
    """The members of an ensemble with equal probability; a randomizer `(key, sys) -> sys`.

    **Arguments:**

    - `unknowns`, `sizes`: unknowns of the fits, and numbers of their free numbers.
    - `members`: free numbers of each member.
    """

    unknowns: tuple[AbstractUnknown, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    members: Float[Array, "members p"]

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        """Draw a member, and put its parameters into a robot with the same models."""
        index = jr.randint(key, (), 0, self.members.shape[0])
        return applied(sys, self.unknowns, self.sizes, self.members[index]).sys


class Ensemble(NamedTuple):
    """Fits of one class of models.

    - `results`: one per member. No run is held out from all members, so the ensemble has
        no common validation set.
    """

    results: tuple[Result, ...]

    @property
    def posterior(self) -> EnsemblePosterior:
        """The members as a randomizer for `eqsim.DomainRandomization`."""
        first = self.results[0].problem
        members = jnp.stack([jnp.asarray(result.theta) for result in self.results])
        return EnsemblePosterior(first.unknowns, first.sizes, members)


def fit_ensemble(
    sys: System | Callable[[PRNGKeyArray], System],
    recordings: Sequence[Recording],
    unknowns: Mapping[str, AbstractUnknown],
    *,
    members: int = 5,
    patience: int = 5,
    seed: int = 0,
    **options: Any,
) -> Ensemble:
    """Fit several members, each to runs that are drawn with replacement, and from initial
    weights of its own. Each stops early on the runs that were not drawn.

    Members are fitted one after the other.

    **Arguments:**

    - `sys`: the robot, or a function of a key that returns it, with random initial weights.
    - `recordings`: recordings of at least two runs.
    - `unknowns`: see `fit`; parameters per run are not supported.
    - `members`: number of members. `patience`: see `EarlyStop`.
    - `options`: options of all fits, see `fit`.

    **Raises:** `ValueError` if all recordings belong to one run, or for parameters per run.
    """
    check_count("members", members)
    for name, unknown in unknowns.items():
        if isinstance(unknown, ChannelBias) and unknown.per_run:
            raise ValueError(
                f"Unknown {name!r} has a bias of each run, but members are fitted to "
                "different runs. Subtract the biases from the recordings, for instance those "
                "of a `fit` to all runs, and leave this unknown out."
            )
    runs = several_runs(recordings, "draw some")
    rng, results = np.random.default_rng(seed), []
    for key in jr.split(jr.key(seed), members):
        drawn = rng.choice(runs, len(runs))
        while len(set(drawn)) == len(runs):  # No run is left to stop on.
            drawn = rng.choice(runs, len(runs))
        fitted = [r for run in drawn for r in recordings if r.run == run]
        rest = [r for r in recordings if r.run not in set(drawn)]
        robot = sys if isinstance(sys, System) else sys(key)
        stop = EarlyStop(rest, patience)
        results.append(fit(robot, fitted, unknowns, stop=stop, **options))
    return Ensemble(tuple(results))
