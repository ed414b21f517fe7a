"""The result of a fit: parameters with their uncertainty, a posterior to draw robots from,
files, and a page with tables and plots."""

import base64
import dataclasses
import html
import io
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float, PRNGKeyArray

from ..io import write_mjcf
from ..model import System
from ._assessment import Covariance, Identifiability, prediction, quantile, Validation
from ._fit_problem import FitProblem, residuals
from ._recordings import Recording
from ._unknowns import AbstractUnknown, applied, Signals
from ._windows import Windows


class ParameterEstimate(NamedTuple):
    """One parameter.

    - `value`, `start`, `sd`: in the unit of the parameter.
    - `low`, `high`: 95 % interval.
    - `prior_sd`: standard deviation of its prior; None without one, and after `Adam`. `ratio`:
        `sd` over `prior_sd`.
    - `at_bound`: true if the solver stopped at a bound.
    - `clear`: true if the data tell this parameter by itself; None if not assessed.
    """

    name: str
    value: float
    start: float
    sd: float
    low: float
    high: float
    prior_sd: float | None
    ratio: float | None
    at_bound: bool
    clear: bool | None


class Posterior(eqx.Module):
    """A normal distribution of the parameters; a randomizer `(key, sys) -> sys`.

    **Arguments:**

    - `unknowns`, `sizes`: unknowns of the fit, and numbers of their free numbers.
    - `mean`, `factor`: free numbers, and a square root of their covariance.
    - `lower`, `upper`: bounds of the free numbers.
    """

    unknowns: tuple[AbstractUnknown, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    mean: Float[Array, " p"]
    factor: Float[Array, "p p"]
    lower: Float[Array, " p"]
    upper: Float[Array, " p"]

    def __call__(self, key: PRNGKeyArray, sys: System) -> System:
        """Draw parameters, and put them into a robot."""
        noise = jr.normal(key, self.mean.shape, self.mean.dtype)
        free = jnp.clip(self.mean + self.factor @ noise, self.lower, self.upper)
        return applied(sys, self.unknowns, self.sizes, free).sys


@dataclasses.dataclass(frozen=True)
class Result:
    """A fitted robot, with the uncertainty of its parameters.

    **Arguments:**

    - `sys`: the fitted robot. `signals`: gains, biases and delays by channel.
    - `names`, `values`: names of all parameters, and values in their own units.
    - `sigma`: noise of each channel and column.
    - `covariance`: covariance of the free numbers.
    - `identifiability`: combinations that the data cannot tell.
    - `validation`: errors on held-out recordings, if there are any.
    - `outcome`: `optimistix.RESULTS` of the solver.
    - `cost`, `steps`: cost, and number of evaluations.
    - `misfit`: mean square residual of each window in units of the noise. `window`: name
        of the recording and start, s, of each window.
    - `problem`, `theta`, `starts`: the problem, its free numbers, and the starts of
        windows in units of their priors.
    - `jacobian`: derivative of the values by the free numbers.
    - `bounds`: bounds of the free numbers. `prior_sd`: standard deviations of the priors
        of the values, infinite without one.
    - `held_out`: mean square errors of the iterates on the recordings of `EarlyStop`,
        relative to the first finite one.

    A fit by `Adam`, or one that `EarlyStop` ended before the minimum, has no covariances:
    those numbers are NaN. After `Adam`, `jacobian` and `prior_sd` are NaN as well, and
    identifiability is not assessed.
    """

    sys: System
    signals: Signals
    names: tuple[str, ...]
    values: np.ndarray
    sigma: dict[str, np.ndarray]
    covariance: Covariance
    identifiability: Identifiability
    validation: Validation | None
    outcome: optx.RESULTS
    cost: float
    steps: int
    misfit: np.ndarray
    window: tuple[tuple[str, float], ...]
    problem: FitProblem
    theta: np.ndarray
    starts: np.ndarray
    jacobian: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]
    prior_sd: np.ndarray
    held_out: tuple[float, ...] = ()

    @property
    def not_converged(self) -> str:
        """Why the solver stopped before a minimum, as printed; empty if it has converged."""
        if self.outcome == optx.RESULTS.successful:
            return ""
        if self.outcome == optx.RESULTS.nonlinear_max_steps_reached:
            reason = (
                "the solver reached its largest number of steps (`Solver.max_steps`)"
            )
        elif self.outcome == optx.RESULTS.nonlinear_divergence:
            reason = (
                "no step decreases the cost as its derivatives predict (kinks or wrong "
                "derivatives), or simulations fail"
            )
        else:
            reason = str(self.outcome)
        return f"not converged: {reason}. Values are not a minimum, and intervals are not valid."

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations of the values, in their own units."""
        if np.isnan(self.covariance.freedom).all():
            return np.full(len(self.values), np.nan)
        share = self.jacobian @ self.covariance.used
        return np.sqrt(np.maximum((share * self.jacobian).sum(axis=1), 0.0))

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Compute intervals of the values.

        Where each value depends on one free number, the interval is symmetric in that
        number, so that it stays positive or within bounds.
        """
        if np.isnan(self.covariance.freedom).all():
            return self.sd, self.sd
        times = quantile(level, self.covariance.freedom)
        off = self.jacobian - np.diag(np.diag(self.jacobian))
        if np.abs(off).max(initial=0.0) > 0:
            reach = times * self.sd
            return self.values - reach, self.values + reach
        sd = np.sqrt(np.diag(self.covariance.used))
        lower, upper = self.bounds
        # Directions without information: a factor of e^30 is as good as any.
        reach = np.minimum(times * sd, np.maximum(30.0, 1e3 * np.abs(self.theta)))
        ends = (self.theta - reach, self.theta + reach)
        at = lambda x: np.asarray(self.problem.values(jnp.asarray(x)))
        low, high = (at(np.clip(end, lower, upper)) for end in ends)
        return np.minimum(low, high), np.maximum(low, high)

    def table(self) -> list[ParameterEstimate]:
        """List all parameters with what is known of them."""
        start, sd = np.asarray(self.problem.values(self.problem.origin)), self.sd
        assessed = self.identifiability.assessed
        low, high = self.interval()
        lower, upper = self.bounds
        bound = (self.theta <= lower) | (self.theta >= upper)
        hidden = np.zeros(len(self.names), bool)
        for item in self.identifiability.unknown:
            hidden |= np.abs(item.direction) > 0.1 * np.abs(item.direction).max()
        rows = []
        for k, name in enumerate(self.names):
            prior = self.prior_sd[k] if np.isfinite(self.prior_sd[k]) else None
            ratio = None if prior is None else float(sd[k] / prior)
            row = ParameterEstimate(
                name,
                value=float(self.values[k]),
                start=float(start[k]),
                sd=float(sd[k]),
                low=float(low[k]),
                high=float(high[k]),
                prior_sd=prior,
                ratio=ratio,
                at_bound=bool(bound[k]),
                clear=not hidden[k] if assessed else None,
            )
            rows.append(row)
        return rows

    def __str__(self) -> str:
        width = max(map(len, self.names))
        lines = [self.not_converged] if self.not_converged else []
        title = "95 % interval" + (" (not valid)" if self.not_converged else "")
        lines.append(f"{'':{width}}  {'value':>11} {'start':>11} {'sd':>9}  {title}")
        for row in self.table():
            notes = " at a bound" if row.at_bound else ""
            notes += "" if row.clear is not False else " (not told by the data alone)"
            lines.append(
                f"{row.name:{width}}  {row.value:11.5g} {row.start:11.5g} {row.sd:9.2g}  "
                f"[{row.low:.4g}, {row.high:.4g}]{notes}"
            )
        for name, sigma in self.sigma.items():
            numbers = ", ".join(f"{x:.3g}" for x in np.ravel(sigma))
            lines.append(f"noise of {name}: {numbers}")
        lines.append(str(self.identifiability))
        if self.validation is not None:
            lines.append(str(self.validation))
        return "\n".join(lines)

    @property
    def posterior(self) -> Posterior:
        """The distribution of the parameters as a randomizer for
        `eqsim.DomainRandomization`.

        **Raises:** `ValueError` without a covariance: after `Adam`, or if `EarlyStop` ended
        the fit before the minimum.
        """
        if not np.isfinite(self.covariance.used).all():
            raise ValueError(
                "A fit by `Adam`, or one that `EarlyStop` ended before the minimum, has no "
                "covariance. Draw robots from an ensemble of fits: "
                "`identify.fit_ensemble(...).posterior`."
            )
        values, vectors = np.linalg.eigh(self.covariance.used)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))
        arrays = (self.theta, factor, *self.bounds)
        return Posterior(
            self.problem.unknowns, self.problem.sizes, *map(jnp.asarray, arrays)
        )

    def sample(self, key: PRNGKeyArray) -> System:
        """Draw a robot from the posterior."""
        return self.posterior(key, self.problem.sys)

    def prediction_errors(
        self,
        recordings: Sequence[Recording],
        windows: Windows,
        sys: System | None = None,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Compute errors of predictions, with neither signals nor fitted starts.

        **Arguments:**

        - `recordings`, `windows`: recordings to predict, and how they are cut.
        - `sys`: the robot that predicts; by default the fitted one.

        **Returns:** measured minus predicted values by channel, `(windows, samples,
        columns)`, and which samples are not padding.
        """
        problem, _ = prediction(self.problem, recordings, windows, 0.0)
        problem = dataclasses.replace(
            problem,
            sys=self.sys if sys is None else sys,
            unknowns=(),
            sizes=(),
            origin=jnp.zeros(0),
        )
        starts = jnp.zeros_like(problem.batch.sd)
        found = residuals(problem, jnp.zeros(0), starts)
        errors = {k: np.asarray(v) for k, v in found.items()}
        return errors, np.asarray(problem.batch.mask)

    def dictionary(self) -> dict[str, Any]:
        """Return everything that a JSON file can hold."""
        plain = lambda tree: jax.tree.map(lambda x: np.asarray(x).tolist(), tree)
        number = lambda x: None if isinstance(x, float) and not np.isfinite(x) else x
        rows = {row.name: row._asdict() for row in self.table()}
        assessed, unknown = self.identifiability.assessed, self.identifiability.unknown
        out: dict[str, Any] = {
            "parameters": {
                k: dict(zip(v, map(number, v.values()))) for k, v in rows.items()
            },
            "signals": plain(vars(self.signals)),
            "noise": plain(self.sigma),
            "cost": number(self.cost),
            "steps": self.steps,
            "outcome": self.not_converged or "successful",
            "clusters": self.covariance.clusters,
            "clustered_by_run": self.covariance.by_run,
            "condition": number(self.identifiability.condition),
            "not_identifiable": [c.text for c in unknown] if assessed else None,
        }
        if self.validation is not None:
            out["validation"] = {
                "runs": self.validation.runs,
                "windows": self.validation.windows,
                "horizons": [plain(h._asdict()) for h in self.validation.horizons],
            }
        return out

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted robot as MJCF (`.xml`) and the parameters as JSON beside it."""
        path = pathlib.Path(path)
        path.with_suffix(".xml").write_text(write_mjcf(self.sys))
        text = json.dumps(self.dictionary(), indent=1)
        path.with_suffix(".json").write_text(text + "\n")

    def report(self, path: str | os.PathLike) -> None:
        """Write a self-contained HTML page with tables and plots.

        **Raises:** `ImportError` if matplotlib is missing, which comes with the extra
        `cli`.
        """
        write_report(self, path)


_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;
padding:0 1rem;color:#222}table{border-collapse:collapse}td,th{padding:.2rem .7rem;
text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}
img{max-width:100%}.note{color:#a33}"""
_BLUE, _ORANGE = "#1f6fb2", "#d1701f"


def write_report(result: Result, path: str | os.PathLike) -> None:
    """Write tables and plots of a fit as one HTML file."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "A report needs matplotlib. Run `pip install 'eqsim[cli]'`."
        ) from error
    parts = ["<h1>Identification</h1>", _outcome(result), _parameters(result)]
    parts += [_identifiability(result)]
    parts += [_validation(result), "<h2>Fit</h2>", _image(_windows(Figure, result))]
    parts += [_image(_histogram(Figure, result))]
    head = "<!doctype html><meta charset='utf-8'><title>Identification</title>"
    page = f"{head}<style>{_STYLE}</style>{''.join(parts)}"
    pathlib.Path(path).write_text(page)


def _table(header: list[str], rows: list[list[str]]) -> str:
    line = lambda tag, row: "".join(f"<{tag}>{html.escape(x)}</{tag}>" for x in row)
    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><tr>{line('th', header)}</tr>{body}</table>"


def _outcome(result: Result) -> str:
    text = html.escape(result.not_converged)
    return f"<p class='note'>{text[0].upper()}{text[1:]}</p>" if text else ""


def _parameters(result: Result) -> str:
    title = "95 % interval" + (" (not valid)" if result.not_converged else "")
    header = ["parameter", "value", "start", "sd", title, "sd / prior sd", ""]
    rows = []
    for row in result.table():
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        notes = [*(["at a bound"] if row.at_bound else [])]
        notes += [] if row.clear is not False else ["not told by the data alone"]
        numbers = [f"{row.value:.5g}", f"{row.start:.5g}", f"{row.sd:.2g}"]
        interval = f"{row.low:.4g} to {row.high:.4g}"
        rows.append([row.name, *numbers, interval, ratio, ", ".join(notes)])
    return "<h2>Parameters</h2>" + _table(header, rows)


def _identifiability(result: Result) -> str:
    found = result.identifiability
    if not found.assessed:
        return "<h2>Identifiability</h2><p>Not assessed.</p>"
    text = f"<h2>Identifiability</h2><p>Condition number {found.condition:.3g}.</p>"
    if not found.unknown:
        return text + "<p>The data determine all parameters.</p>"
    rows = [[f"{c.singular_value:.2g}", c.text] for c in found.unknown]
    note = "<p class='note'>The data cannot tell these combinations:</p>"
    return text + note + _table(["information", "combination"], rows)


def _validation(result: Result) -> str:
    if result.validation is None:
        return ""
    rows = []
    for item in result.validation.horizons:
        for name in item.median:
            ratio, low, high = item.ratio[name]
            numbers = [f"{item.median[name]:.4g}", f"{item.baseline_median[name]:.4g}"]
            interval = f"{ratio:.3g} ({low:.3g} to {high:.3g})"
            rows.append([f"{item.horizon:.3g}", name, *numbers, interval])
    count = f"{result.validation.runs} runs, {result.validation.windows} windows"
    header = ["horizon, s", "channel", "median error", "as given", "ratio (95 %)"]
    return f"<h2>Held-out error</h2><p>{count}.</p>" + _table(header, rows)


def _windows(figure_type, result: Result):
    """Return the residuals of the worst, the median and the best window."""
    found = residuals(
        result.problem, jnp.asarray(result.theta), jnp.asarray(result.starts)
    )
    order = np.argsort(result.misfit)
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    figure = figure_type(figsize=(10, 2.4 * len(found)), layout="constrained")
    grid = figure.subplots(len(found), 3, squeeze=False)
    time, mask = (
        np.asarray(result.problem.batch.time),
        np.asarray(result.problem.batch.mask),
    )
    for row, (name, error) in zip(grid, found.items()):
        for axes, (label, k) in zip(row, chosen.items()):
            known = mask[k]
            axes.plot(time[k][known], np.asarray(error[k])[known], linewidth=1)
            axes.axhline(0, color="#888", linewidth=0.6)
            run, begin = result.window[k]
            axes.set_title(f"{label}: {run}, {begin:.2f} s", fontsize=9)
            axes.set_xlabel("s")
        row[0].set_ylabel(f"{name}: residual")
    return figure


def _histogram(figure_type, result: Result):
    figure = figure_type(figsize=(10, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(np.log10(np.maximum(result.misfit, 1e-12)), bins=30, color=_BLUE)
    left.set_xlabel("log10 of mean square residual, in units of the noise")
    left.set_ylabel("windows")
    values = np.maximum(result.identifiability.singular_values, 1e-12)
    right.semilogy(np.arange(1, len(values) + 1), values, "o-", color=_ORANGE)
    right.axhline(1.0, color="#888", linewidth=0.6)
    right.set_xlabel("combination of parameters")
    right.set_ylabel("information")
    return figure


def _image(figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    code = base64.b64encode(buffer.getvalue()).decode()
    return f"<p><img alt='' src='data:image/png;base64,{code}'></p>"
