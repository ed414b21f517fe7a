"""Learning curves of runs, and a page about one run: curves, evaluations, videos, settings."""

import html
import json
import os
import pathlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from .folders import read_config, VIDEOS
from .metrics import BEGIN, END, read_metrics
from .offline import Offline


STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
    "savefig.dpi": 110,
}
_COLORS = (
    *("#1f6fb2", "#d1701f", "#3a8f4d", "#8a5fb0", "#b8392f", "#7a6a58", "#c2669e"),
    *("#5d6470", "#8f8f1f", "#2f9aa8"),
)
_PANELS = 8
"""Maximum number of panels for other metrics."""


class Series(NamedTuple):
    """Metrics of the members of a run that differ only in their seeds.

    - `label`: name of the run, with the fields in which the agent differs from others.
    - `columns`: arrays by name, with the axes (member, turn); NaN where unknown.
    """

    label: str
    columns: dict[str, np.ndarray]

    def known(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the turns in which a metric is known for some member, and its values there,
        with the axes (member, turn)."""
        values = self.columns.get(name, np.full((1, 0), np.nan))
        turns = np.flatnonzero(np.isfinite(values).any(axis=0))
        return turns, values[:, turns]


class Summary(NamedTuple):
    """Progress and returns of a group of members.

    - `steps`, `seconds`: control steps of each member, and seconds since the start.
    - `rate`: control steps per second of all members, the median over turns.
    - `last`, `best`: returns of the last and the best evaluation, mean and best over members;
        None without evaluations.
    """

    steps: int
    seconds: float
    rate: float
    last: float | None
    best: float | None

    @staticmethod
    def of(one: Series) -> "Summary":
        """Summarize metrics."""
        steps, seconds = (
            int(one.columns["steps"][0, -1]),
            one.columns["seconds"][0, -1],
        )
        # The first turn compiles.
        rates = one.columns["rate"][0]
        rate = float(np.median(rates[1:] if len(rates) > 1 else rates))
        turns, values = one.known("eval/return")
        last = best = None
        if turns.size:
            last = float(_over_members(values)[0][-1])
            best = float(np.max(np.where(np.isfinite(values), values, -np.inf)))
        return Summary(steps, float(seconds), rate, last, best)

    def texts(self) -> tuple[str, ...]:
        """Return the entries of a row with the columns `COLUMNS`."""
        found = ["none" if x is None else f"{x:.4g}" for x in (self.last, self.best)]
        numbers = f"{self.steps:,}", f"{self.seconds:,.0f}", f"{self.rate:,.0f}"
        return *numbers, *found

    COLUMNS = "steps", "seconds", "steps/s", "return (last)", "return (best)"


def read_series(folder: str | os.PathLike) -> list[Series]:
    """Read the metrics of a run, grouped by agent.

    **Raises:** `FileNotFoundError` if there is no run; `ValueError` if its files cannot be
    read or have no rows yet.
    """
    folder = pathlib.Path(folder)
    rows = read_metrics(folder)
    if not rows:
        raise ValueError(f"The run in {str(folder)!r} has no metrics yet.")
    groups: dict[str, list[int]] = {}
    for member, label in enumerate(_labels(folder, rows)):
        groups.setdefault(label, []).append(member)
    many = lambda own: f" ({len(own)} seeds)" if len(own) > 1 else ""
    return [_series(rows, name + many(own), own) for name, own in groups.items()]


def write_curves(
    folders: Sequence[str | os.PathLike], path: str | os.PathLike
) -> list[Series]:
    """Plot runs. Dots are evaluations, thin lines are training returns. Bands are the 95 %
    confidence interval of a single member, or the range over several members.

    **Arguments:**

    - `folders`: folders of runs. The other metrics are plotted if there is only one.
    - `path`: path of the image file.

    **Returns:** the plotted series.

    **Raises:** `ImportError` without matplotlib; the exceptions of `read_series`.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError as error:
        raise ImportError(
            "Curves need matplotlib. Run `pip install 'eqsim-zoo[cli]'`."
        ) from error
    series = [one for folder in folders for one in read_series(folder)]
    names = _others(series) if len(folders) == 1 else []
    across = min(max(len(names), 1), 4)
    lower = -(-len(names) // across)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12.5, 4.4 + 2.3 * lower))
        heights = [2.0] + [1.0] * lower
        grid = figure.add_gridspec(1 + lower, 12, height_ratios=heights)
        left = figure.add_subplot(grid[0, :6])
        right = figure.add_subplot(grid[0, 6:], sharey=left)
        for axes, name, text in (
            (left, "steps", "steps"),
            (right, "seconds", "time, s"),
        ):
            for number, one in enumerate(series):
                _returns(axes, one, name, _COLORS[number % len(_COLORS)])
            axes.set_title("return")
            axes.set_xlabel(text)
            axes.set_xlim(left=0)
        left.xaxis.set_major_formatter(EngFormatter(sep=""))
        _name(figure, left, series)
        for number, name in enumerate(names):
            row, column = divmod(number, across)
            span = slice(column * 12 // across, (column + 1) * 12 // across)
            axes = figure.add_subplot(grid[1 + row, span])
            _metric(axes, series, name)
            axes.locator_params(axis="x", nbins=5)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        figure.savefig(path)
    return series


def _name(figure: Any, axes: Any, series: list[Series]) -> None:
    """Add a title for one series, or a legend above the panels for several."""
    if len(series) == 1:
        figure.suptitle(series[0].label, x=0.01, ha="left", fontsize=13)
        return
    lines = axes.get_legend_handles_labels()
    figure.legend(*lines, loc="outside upper left", ncols=3, fontsize=9)


def _labels(folder: pathlib.Path, rows: list[dict[str, Any]]) -> list[str]:
    """Return, for each member, the name of the run and its fields without the seed."""
    count = 1 + max(row["member"] for row in rows)
    try:
        members = json.loads((folder / "config.json").read_text())["members"]
    except (OSError, ValueError, KeyError):
        members = [{} for _ in range(count)]
    fields = lambda m: ", ".join(f"{k} {v}" for k, v in m.items() if k != "seed")
    name = folder.resolve().name
    return [" ".join(filter(None, (name, fields(m)))) for m in members[:count]]


def _series(rows: list[dict[str, Any]], label: str, own: list[int]) -> Series:
    turns = sorted({row["turn"] for row in rows})
    place = {turn: k for k, turn in enumerate(turns)}
    names = {name: None for row in rows for name in row}
    columns = {name: np.full((len(own), len(turns)), np.nan) for name in names}
    for row in rows:
        if row["member"] in own:
            where = own.index(row["member"]), place[row["turn"]]
            for name, value in row.items():
                columns[name][where] = value
    return Series(label, columns)


def _others(series: list[Series]) -> list[str]:
    known = {*BEGIN, *END, "return", "length"}
    names = [k for one in series for k in one.columns if k not in known]
    unique = sorted({*names}, key=lambda name: ("loss" not in name, name))
    return unique[:_PANELS]


def _over_members(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, minimum and maximum over finite members; each turn has at least one."""
    fine = np.isfinite(values)
    mean = np.where(fine, values, 0.0).sum(axis=0) / fine.sum(axis=0)
    low = np.where(fine, values, np.inf).min(axis=0)
    high = np.where(fine, values, -np.inf).max(axis=0)
    return mean, low, high


def _returns(axes: Any, one: Series, against: str, color: str) -> None:
    places = one.columns[against][0]
    (turns, values), evaluated = one.known("return"), one.known("eval/return")
    if turns.size:
        label = None if evaluated[0].size else one.label
        mean, style = _over_members(values)[0], {"alpha": 0.35, "lw": 1}
        axes.plot(places[turns], mean, color=color, label=label, **style)
    turns, values = evaluated
    if not turns.size:
        return
    mean, low, high = _over_members(values)
    if len(values) == 1:
        error = np.nan_to_num(one.columns["eval/error"][0, turns])
        low, high = mean - error, mean + error
    axes.plot(places[turns], mean, "o-", color=color, ms=4, lw=1.8, label=one.label)
    axes.fill_between(places[turns], low, high, color=color, alpha=0.18, lw=0)


def _metric(axes: Any, series: list[Series], name: str) -> None:
    for number, one in enumerate(series):
        turns, values = one.known(name)
        if turns.size:
            mean, low, high = _over_members(values)
            color, places = (
                _COLORS[number % len(_COLORS)],
                one.columns["steps"][0, turns],
            )
            axes.plot(places, mean, color=color, lw=1.2)
            if len(values) > 1:
                axes.fill_between(places, low, high, color=color, alpha=0.18, lw=0)
    axes.set_title(name, fontsize=10)
    axes.tick_params(labelsize=8)
    axes.margins(x=0.02)


# The page of a run.


def write_page(folder: str | os.PathLike) -> pathlib.Path:
    """Draw `curves.png` in the folder of a run, and write the page `index.html` there: progress,
    curves, evaluations, videos and other pictures in the folder, settings, and commands for
    this run.

    **Returns:** the path of the page.

    **Raises:** `FileNotFoundError` if there is no run; `ValueError` if its files cannot be
    read or have no rows yet; `ImportError` without matplotlib.
    """
    folder = pathlib.Path(folder)
    series = write_curves([folder], folder / "curves.png")
    config = read_config(folder)
    parts = [*_head(folder, config, series), *_evaluations(series)]
    parts += [*_training(series), *_pictures(folder), *_settings(config)]
    parts += _commands(folder, _share(config, series) < 1.0)
    title = html.escape(folder.resolve().name)
    head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>'
    path = folder / "index.html"
    part = path.with_name(path.name + ".part")
    part.write_text(
        "\n".join([head, f"<style>{_CSS}</style>", *parts, "</html>\n"]),
        encoding="utf-8",
    )
    os.replace(part, path)
    return path


_CSS = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1180px; margin: 2em auto;
  padding: 0 1em; color: #1c2733 }
h1 { margin-bottom: 0 } h2 { margin-top: 1.6em } img { max-width: 100% }
table { border-collapse: collapse } td, th { padding: 2px 14px 2px 0; text-align: right }
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid #b8c0c8 }
figure { display: inline-block; margin: 0 1em 1em 0 } figcaption { color: #56616c }
pre { background: #f3f5f7; padding: 0.8em; overflow-x: auto }
"""


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = lambda kind, row: "".join(
        f"<{kind}>{html.escape(str(x))}</{kind}>" for x in row
    )
    lines = [f"<tr>{cells('td', row)}</tr>" for row in rows]
    return "\n".join(
        ["<table>", f"<tr>{cells('th', columns)}</tr>", *lines, "</table>"]
    )


def _head(folder: pathlib.Path, config: Any, series: list[Series]) -> Iterator[str]:
    held = lambda agent: agent["fields"] if agent["class"] == Offline.__name__ else {}
    names = [held(x).get("agent.class", x["class"]) for x in config["agents"]]
    agents = dict.fromkeys(names)
    what = f"{', '.join(agents)} on {config['env']}"
    share = _share(config, series)
    yield f"<h1>{html.escape(folder.resolve().name)}</h1>"
    steps = f"{100 * min(share, 1.0):.0f} % of {config['run']['steps']:,} steps"
    yield f"<p>{html.escape(what)}: {steps}.</p>"
    rows = [(one.label, *Summary.of(one).texts()) for one in series]
    yield _table(("run", *Summary.COLUMNS), rows)
    yield '<p><img src="curves.png" alt="Returns over steps and time, and other metrics"></p>'


def _share(config: Any, series: list[Series]) -> float:
    """Return the share of the steps of a run that were taken."""
    return max(Summary.of(one).steps for one in series) / config["run"]["steps"]


def _evaluations(series: list[Series]) -> Iterator[str]:
    """Return a table of the evaluations of each agent: means over seeds and their range, or
    the 95 % confidence interval of a single one."""
    for one in series:
        turns, values = one.known("eval/return")
        if not turns.size:
            continue
        mean, low, high = _over_members(values)
        steps = one.columns["steps"][0, turns]
        lengths = one.columns.get("eval/length", np.full(values.shape, np.nan))
        single = len(values) == 1
        spread = ["± (95 %)"] if single else ["lowest seed", "highest seed"]
        columns = ["steps", "return", *spread, "length"]
        rows = []
        for k, turn in enumerate(turns):
            error = one.columns["eval/error"][0, turn]
            numbers = [mean[k], *([error] if single else [low[k], high[k]])]
            numbers.append(_mean(lengths[:, turn]))
            rows.append([f"{steps[k]:,.0f}", *(f"{x:.4g}" for x in numbers)])
        yield f"<h2>Evaluations of {html.escape(one.label)}</h2>"
        yield _table(columns, rows)


def _training(series: list[Series]) -> Iterator[str]:
    """Return a table of what the task reports, in the last turn of training."""
    names = {k: None for one in series for k in one.columns if k.startswith("task/")}
    if not names:
        return
    yield "<h2>Task, in the last turn of training</h2>"
    last = lambda one, name: _mean(
        one.columns.get(name, np.full((1, 1), np.nan))[:, -1]
    )
    rows = [(one.label, *(f"{last(one, k):.4g}" for k in names)) for one in series]
    yield _table(("run", *(name.removeprefix("task/") for name in names)), rows)


def _mean(values: np.ndarray) -> float:
    fine = values[np.isfinite(values)]
    return float(np.mean(fine)) if fine.size else np.nan


def _pictures(folder: pathlib.Path) -> Iterator[str]:
    """Show animations in the order of their steps, then other pictures."""
    videos = sorted((folder / VIDEOS).glob("steps_*.gif"))
    others = [folder / "episode.gif", *sorted(folder.glob("skills*.png"))]
    found = [path for path in (*videos, *others) if path.is_file()]
    if found:
        yield "<h2>Episodes</h2>"
    for path in found:
        name = html.escape(quote(path.relative_to(folder).as_posix()))
        text = path.stem.removeprefix("steps_").lstrip("0") or "0"
        text = f"{int(text):,} steps" if text.isdigit() else path.name
        image = f'<img src="{name}" alt="{html.escape(text)}" loading="lazy">'
        yield f"<figure>{image}<figcaption>{html.escape(text)}</figcaption></figure>"


def _settings(config: Any) -> Iterator[str]:
    """Show fields of the agents, in a column for each of those that differ, the run, and
    versions."""
    agents = config["agents"]
    unique = [one for k, one in enumerate(agents) if one not in agents[:k]]
    names = dict.fromkeys(name for one in unique for name in one["fields"])
    yield "<h2>Settings</h2>"
    rows = [(name, *(one["fields"].get(name, "") for one in unique)) for name in names]
    yield _table(("agent", *(one["class"] for one in unique)), rows)
    named = config["run"] | {"env": None}
    run = {k: x for k, x in named.items() if x not in (None, {})}
    yield "<h2>Run</h2>"
    about = {"environment": config["env"], **run}
    about |= {f"version of {k}": x for k, x in config.get("versions", {}).items()}
    about["devices"] = ", ".join(config.get("devices", ()))
    yield _table(("", "value"), about.items())


def _commands(folder: pathlib.Path, resumes: bool) -> Iterator[str]:
    name = html.escape(shlex.quote(str(folder)))
    words = ("eval", "view", "resume") if resumes else ("eval", "view")
    yield "<h2>Commands</h2>"
    lines = [f"eqsim {word} {name}" for word in words]
    yield "<pre>" + "\n".join(lines) + "</pre>"
