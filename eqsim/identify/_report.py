"""A self-contained page about a fit."""

import base64
import html
import io
import os
import pathlib

import jax.numpy as jnp
import numpy as np

from ._evaluate import residuals
from ._result import Result


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
    parts = ["<h1>Identification</h1>", _parameters(result), _identifiability(result)]
    parts += [_validation(result), "<h2>Fit</h2>", _image(_windows(Figure, result))]
    parts += [_image(_histogram(Figure, result))]
    head = "<!doctype html><meta charset='utf-8'><title>Identification</title>"
    page = f"{head}<style>{_STYLE}</style>{''.join(parts)}"
    pathlib.Path(path).write_text(page)


def _table(header: list[str], rows: list[list[str]]) -> str:
    line = lambda tag, row: "".join(f"<{tag}>{html.escape(x)}</{tag}>" for x in row)
    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><tr>{line('th', header)}</tr>{body}</table>"


def _parameters(result: Result) -> str:
    header = ["parameter", "value", "start", "sd", "95 % interval", "sd / prior sd", ""]
    rows = []
    for row in result.table():
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        notes = [*(["at a bound"] if row.at_bound else [])]
        notes += [] if row.clear else ["not told by the data alone"]
        numbers = [f"{row.value:.5g}", f"{row.start:.5g}", f"{row.sd:.2g}"]
        interval = f"{row.low:.4g} to {row.high:.4g}"
        rows.append([row.name, *numbers, interval, ratio, ", ".join(notes)])
    return "<h2>Parameters</h2>" + _table(header, rows)


def _identifiability(result: Result) -> str:
    found = result.identifiability
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
