"""Metrics files, with one row per turn and member, and the learning curves drawn from
them.
"""

import csv
import errno
import io
import json
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


Row = dict[str, Any]

BEGIN = ("turn", "member", "iterations", "steps", "seconds", "rate")
END = (
    *("eval/return", "eval/deviation", "eval/error", "eval/length"),
    *("eval/diversity", "eval/score"),
)


_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk and of an exceeded quota."""


class MetricsFile:
    """A metrics file to which the rows of each turn are appended.

    **Arguments:**

    - `file`: file to append to.
    - `text_of`: function that formats rows as text.
    """

    def __init__(self, file: "_Appender", text_of: Callable[[Sequence[Row]], str]):
        self._file, self._text_of, self._said = file, text_of, ""

    @staticmethod
    def json_lines(folder: pathlib.Path, turn: int) -> "MetricsFile":
        """Open `metrics.jsonl`, without the rows after `turn`."""
        lines = lambda rows: "".join(json.dumps(_json(row)) + "\n" for row in rows)
        file = _Appender(folder / "metrics.jsonl", turn, _turn_of_json)
        return MetricsFile(file, lines)

    @staticmethod
    def csv(folder: pathlib.Path, turn: int) -> "MetricsFile":
        """Open `metrics.csv`, without the rows after `turn`."""
        file = _Appender(folder / "metrics.csv", turn, _turn_of_csv)
        first = file.first_line().rstrip("\r\n")
        return MetricsFile(file, _Table(next(csv.reader([first]), [])))

    def write(self, rows: Sequence[Row], warn: Callable[[str], None]) -> str:
        """Append rows. After a failure, warn and retry with the next rows.

        **Returns:** the error message if the disk is full; otherwise an empty string.
        """
        error = self._file.append(self._text_of(rows))
        why = "" if error is None else str(error)
        if why and why != self._said:
            warn(
                f"Metrics could not be written ({why}). The run continues and retries in "
                "each turn."
            )
        self._said = why
        return why if error is not None and error.errno in _FULL else ""


class _Table:
    """Formats rows as CSV, after a header line."""

    def __init__(self, columns: list[str]):
        self._columns = columns

    def __call__(self, rows: Sequence[Row]) -> str:
        out = io.StringIO()
        if not self._columns:
            own = sorted({name for row in rows for name in row} - {*BEGIN, *END})
            self._columns = [*BEGIN, *own, *END]
            csv.writer(out, lineterminator="\n").writerow(self._columns)
        writer = csv.DictWriter(
            out, self._columns, lineterminator="\n", extrasaction="ignore"
        )
        writer.writerows(rows)
        return out.getvalue()


def read_metrics(folder: str | os.PathLike) -> list[Row]:
    """Read the rows of `metrics.jsonl` in the folder of a run; null becomes NaN.

    **Raises:** `FileNotFoundError` if there is no such file; `ValueError` if a line is
    invalid. An incomplete last line is ignored.
    """
    path = pathlib.Path(folder) / "metrics.jsonl"
    if not path.is_file():
        raise FileNotFoundError(
            f"No metrics file {str(path)!r}. Pass the folder of a run."
        )
    rows = []
    lines = path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ValueError(f"{str(path)!r}, line {number}: {error}") from error
        rows.append({k: math.nan if x is None else x for k, x in row.items()})
    return rows


def _json(row: Row) -> Row:
    finite = lambda x: not isinstance(x, float) or math.isfinite(x)
    return {name: x if finite(x) else None for name, x in row.items()}


def _turn_of_json(line: str) -> int:
    return json.loads(line)["turn"]


def _turn_of_csv(line: str) -> int:
    first = line.split(",")[0]
    return -1 if first == BEGIN[0] else int(first)


class _Appender:
    """A file with atomic appends; failed ones are retried with the next."""

    def __init__(self, path: pathlib.Path, turn: int, turn_of: Any):
        self._path, self._pending = path, b""
        self._size = _size_until(path, turn, turn_of)

    def first_line(self) -> str:
        """Return the first line; empty if there is none."""
        if not self._size:
            return ""
        with open(self._path) as file:
            return file.readline()

    def append(self, text: str) -> OSError | None:
        """Append text; return the error, None on success."""
        self._pending += text.encode()
        try:
            with open(self._path, "r+b" if self._path.exists() else "wb") as file:
                file.seek(self._size)
                file.write(self._pending)
                file.truncate()
        except OSError as error:
            return error
        self._size += len(self._pending)
        self._pending = b""
        return None


def _size_until(path: pathlib.Path, turn: int, turn_of: Any) -> int:
    """Return the length in bytes of the complete lines up to `turn`."""
    size = 0
    if path.is_file():
        for line in path.read_bytes().splitlines(keepends=True):
            try:
                later = turn_of(line.decode()) > turn
            except (ValueError, KeyError, TypeError):
                break
            if later or not line.endswith(b"\n"):
                break
            size += len(line)
    return size


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
    return [" ".join(filter(None, (folder.name, fields(m)))) for m in members[:count]]


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
    turns, values = one.known("return")
    if turns.size:
        axes.plot(
            places[turns], _over_members(values)[0], color=color, alpha=0.35, lw=1
        )
    turns, values = one.known("eval/return")
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
