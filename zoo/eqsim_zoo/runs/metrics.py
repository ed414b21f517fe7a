"""Metrics files, with one row per turn and member."""

import csv
import errno
import io
import json
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any


Row = dict[str, Any]

METRICS = "metrics.jsonl"
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
        file = _Appender(folder / METRICS, turn, _turn_of_json)
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
    path = pathlib.Path(folder) / METRICS
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
