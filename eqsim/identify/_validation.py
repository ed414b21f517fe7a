"""Errors of prediction on recordings that were not used to fit."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ._evaluate import Problem, residuals
from ._prediction import prediction
from ._recording import Recording
from ._windows import Windows


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


def validate(
    problem: Problem,
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
        rms[name], own = _errors(fitted[name], known)
        base_rms[name], base = _errors(baseline[name], known)
        median[name], base_median[name] = float(np.median(own)), float(np.median(base))
        ratio[name] = _ratio(own, base, run, seed)
    return HorizonError(horizon, rms, median, base_rms, base_median, ratio)


def _errors(error: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def split(
    recordings: Sequence[Recording], share: float = 0.25, seed: int = 0
) -> tuple[list[Recording], list[Recording]]:
    """Split recordings at random into those to fit and those to validate, by run.

    **Arguments:**

    - `share`: share of the runs that are held out; at least one run.

    **Raises:** `ValueError` if there is only one run.
    """
    runs = sorted({recording.run for recording in recordings})
    if len(runs) < 2:
        raise ValueError(
            f"All recordings belong to run {runs[0]!r}: at least two runs are required to "
            "hold one out. Give independent recordings different `run`."
        )
    count = min(max(1, round(share * len(runs))), len(runs) - 1)
    chosen = set(np.random.default_rng(seed).permutation(runs)[:count].tolist())
    held = [recording for recording in recordings if recording.run in chosen]
    return [r for r in recordings if r.run not in chosen], held
