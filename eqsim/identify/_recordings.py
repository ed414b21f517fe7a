"""Recordings of a robot: times, commands and channels; their files."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..io import open_arrays


class Recording:
    """One run of a robot: commands and measurements with time stamps.

    **Arguments:**

    - `time`: time stamps, s; increasing, not necessarily evenly spaced.
    - `ctrl`: commands, one row per time stamp; without columns for a passive system.
    - `channels`: measurements by name, one row per time stamp. `"q"` and `"qd"` are read
        by `JointPositions` and `JointVelocities`.
    - `name`: name for messages and reports.
    - `run`: recordings of the same run, and copies of it, share this name: they are
        never split between training and validation, and count as one cluster in
        covariances. By default `name`.

    **Raises:** `ValueError` that names the recording and the row, for fewer than two
    samples, time stamps that do not increase, values that are not finite, and wrong
    shapes.
    """

    time: np.ndarray
    ctrl: np.ndarray
    channels: dict[str, np.ndarray]
    name: str
    run: str

    def __init__(
        self,
        time: Any,
        ctrl: Any,
        channels: Mapping[str, Any],
        name: str = "recording",
        run: str | None = None,
    ):
        self.name, self.run = str(name), str(name if run is None else run)
        self.time = np.asarray(time, float)
        _check_time(self.name, self.time)
        self.ctrl = _rows(self.name, "ctrl", ctrl, len(self.time))
        self.channels = {
            key: _rows(self.name, key, value, len(self.time))
            for key, value in channels.items()
        }
        if "ctrl" in self.channels:
            raise ValueError(
                f"Recording {self.name!r} has a channel named 'ctrl', which is the name "
                "of the commands. Rename the channel."
            )

    def __repr__(self) -> str:
        names = ", ".join(f"{k}: {v.shape[1]}" for k, v in self.channels.items())
        span = self.time[-1] - self.time[0]
        return (
            f"Recording({self.name!r}, {len(self.time)} samples, {span:.3g} s, {names})"
        )

    def cut(self, start: float, stop: float) -> "Recording":
        """Return the samples from `start` to `stop`, s, as a recording of the same run."""
        return self.rows((self.time >= start) & (self.time <= stop))

    def rows(
        self, rows: Any, derived: Mapping[str, np.ndarray] | None = None
    ) -> "Recording":
        """Return some samples as a recording of the same run.

        **Arguments:**

        - `rows`: indices or a mask of the samples.
        - `derived`: channels that are added, with one row for each of these samples.
        """
        channels = {key: value[rows] for key, value in self.channels.items()}
        channels |= derived or {}
        return Recording(
            self.time[rows], self.ctrl[rows], channels, self.name, self.run
        )

    def channel(self, name: str, columns: int | None = None) -> np.ndarray:
        """Return a channel.

        **Raises:** `ValueError` if it is missing, or has another number of columns.
        """
        if name not in self.channels:
            raise ValueError(
                f"Recording {self.name!r} has no channel {name!r}. Its channels are "
                f"{sorted(self.channels)}. Choose the one with the coordinates by "
                "`Windows(channel=...)`."
            )
        value = self.channels[name]
        if columns is not None and value.shape[1] != columns:
            raise ValueError(
                f"Recording {self.name!r}: channel {name!r} has {value.shape[1]} columns, "
                f"but the robot has {columns} coordinates."
            )
        return value


def uninterrupted(time: np.ndarray, gap: float | None) -> list[slice]:
    """Return the rows between interruptions.

    **Arguments:**

    - `gap`: interval between samples that interrupts a recording, s; by default ten times
        the median.
    """
    step = np.diff(time)
    longest = 10 * float(np.median(step)) if gap is None else gap
    ends = [0, *(np.flatnonzero(step > longest) + 1).tolist(), len(time)]
    return [slice(a, b) for a, b in zip(ends, ends[1:])]


def inner_rows(
    recording: Recording, gap: float | None, count: int, setting: str
) -> np.ndarray:
    """Return the rows with `count` samples on each side, without interruption.

    **Raises:** `ValueError` with the name of the setting, if there are fewer than two.
    """
    parts = uninterrupted(recording.time, gap)
    kept = [np.arange(part.start + count, part.stop - count) for part in parts]
    rows = np.concatenate(kept)
    if len(rows) < 2:
        raise ValueError(
            f"Recording {recording.name!r} has fewer than 2 rows with {count} samples on "
            f"each side. Choose a smaller `{setting}`, or a longer recording."
        )
    return rows


def several_runs(recordings: Sequence[Recording], purpose: str) -> list[str]:
    """Return the names of the runs in sorted order.

    **Raises:** `ValueError` with the purpose if there are fewer than two.
    """
    runs = sorted({recording.run for recording in recordings})
    if len(runs) < 2:
        raise ValueError(
            f"The recordings belong to the runs {runs}: at least two runs are required to "
            f"{purpose}. Give independent recordings different `run`."
        )
    return runs


def split(
    recordings: Sequence[Recording], share: float = 0.25, seed: int = 0
) -> tuple[list[Recording], list[Recording]]:
    """Split recordings at random into those to fit and those to validate, by run.

    **Arguments:**

    - `share`: share of the runs that are held out; at least one run.

    **Raises:** `ValueError` if there is only one run.
    """
    runs = several_runs(recordings, "hold one out")
    count = min(max(1, round(share * len(runs))), len(runs) - 1)
    chosen = set(np.random.default_rng(seed).permutation(runs)[:count].tolist())
    held = [recording for recording in recordings if recording.run in chosen]
    return [r for r in recordings if r.run not in chosen], held


def save_recordings(
    path: str | os.PathLike, recordings: Recording | Sequence[Recording]
) -> None:
    """Write recordings with the same channels to one `.npz` file, without pickles."""
    runs = [recordings] if isinstance(recordings, Recording) else list(recordings)
    if not runs:
        raise ValueError("`recordings` is empty: there is nothing to save.")
    names = list(runs[0].channels)
    for run in runs:
        if list(run.channels) != names:
            raise ValueError(
                f"Recording {run.name!r} has channels {list(run.channels)}, but "
                f"{runs[0].name!r} has {names}. Save them to separate files."
            )
    stack = lambda get: np.concatenate([get(run) for run in runs])
    arrays = {name: stack(lambda run: run.channels[name]) for name in names}
    arrays |= {
        "time": stack(lambda run: run.time),
        "ctrl": stack(lambda run: run.ctrl),
        "offsets": np.cumsum([0, *(len(run.time) for run in runs)]),
        "name": np.array([run.name for run in runs]),
        "run": np.array([run.run for run in runs]),
    }
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_recordings(
    path: str | os.PathLike,
    *,
    ctrl: str | None = "ctrl",
    channels: Mapping[str, str] | None = None,
    rate: float | None = None,
) -> list[Recording]:
    """Read recordings from an `.npz` file.

    The file has arrays with one row per sample. Optional arrays are `offsets` (run k is
    rows `offsets[k]` to `offsets[k + 1]`), `name` and `run` (one per run), and `rate`
    (Hz, in place of `time`).

    **Arguments:**

    - `path`: file, as written by `save_recordings` or with arrays under other names.
    - `ctrl`: array with the commands. None: there are none.
    - `channels`: array in the file for each channel; by default every other array with
        one row per sample.
    - `rate`: sampling rate, Hz, of a file without time stamps.

    **Raises:** `ValueError` if the file lacks an array, or a recording in it is invalid.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    try:
        with open_arrays(path) as archive:
            data = dict(archive)
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from error
    count = _count(path, data)
    offsets = _offsets(path, data, count)
    default = [f"{path.stem}-{k}" for k in range(len(offsets) - 1)]
    names = _names(path, "name", data.get("name", default), len(default))
    runs = _names(path, "run", data.get("run", names), len(default))
    if channels is None:
        known = {"time", "offsets", "name", "run", "rate", ctrl}
        rows = lambda x: x.ndim == 2 and len(x) == count
        channels = {k: k for k, x in data.items() if k not in known and rows(x)}
    wanted = [*channels.values(), *([ctrl] if ctrl is not None else [])]
    for key in wanted:
        if key not in data:
            raise ValueError(
                f"{str(path)!r} has no array {key!r}. Its arrays are {sorted(data)}."
            )
    out = []
    for k, (name, run) in enumerate(zip(names, runs)):
        at = slice(offsets[k], offsets[k + 1])
        time = _time(path, data, at, rate)
        part = lambda key: _numbers(path, key, data[key])[at]
        commands = np.zeros((len(time), 0)) if ctrl is None else part(ctrl)
        chosen = {channel: part(key) for channel, key in channels.items()}
        out.append(Recording(time, commands, chosen, name, run))
    return out


def _offsets(path: pathlib.Path, data: dict[str, np.ndarray], count: int) -> list[int]:
    """Return the rows at which runs begin and end."""
    offsets = np.asarray(data.get("offsets", [0, count]))
    fits = offsets.ndim == 1 and len(offsets) > 1 and offsets.dtype.kind in "iu"
    ends = offsets.tolist() if fits else []
    if not fits or ends[0] < 0 or ends[-1] > count or sorted(ends) != ends:
        raise ValueError(
            f"{str(path)!r}: `offsets` must be increasing integers from 0 to the "
            f"number of rows, {count}, got {offsets.tolist()}."
        )
    return ends


def _names(path: pathlib.Path, key: str, names: Any, count: int) -> list[str]:
    array = np.asarray(names)
    if array.shape != (count,):
        raise ValueError(
            f"{str(path)!r}: `{key}` has shape {array.shape}, but the file has {count} "
            "runs. One name per run is required."
        )
    return [str(name) for name in array]


def _count(path: pathlib.Path, data: dict[str, np.ndarray]) -> int:
    if "time" in data:
        if data["time"].ndim != 1:
            raise ValueError(
                f"{str(path)!r}: `time` has shape {data['time'].shape}: one axis is "
                "required."
            )
        return len(data["time"])
    if "offsets" in data:
        offsets = data["offsets"]
        known = offsets.ndim == 1 and offsets.size > 0 and offsets.dtype.kind in "iu"
        return int(offsets[-1]) if known else 0
    raise ValueError(
        f"{str(path)!r} has neither `time` nor `offsets`. Its arrays are "
        f"{sorted(data)}."
    )


def _time(path, data, at: slice, rate: float | None) -> np.ndarray:
    if "time" in data:
        return np.asarray(_numbers(path, "time", data["time"])[at], float)
    hertz = np.asarray(data.get("rate") if rate is None else rate)
    if hertz.dtype.kind == "O":
        raise ValueError(
            f"{str(path)!r} has no time stamps. Pass `rate`, the sampling rate in Hz."
        )
    if hertz.size != 1 or hertz.dtype.kind not in "iuf" or not 0 < hertz < np.inf:
        raise ValueError(
            f"{str(path)!r}: `rate` must be a positive number, in Hz, got "
            f"{hertz.tolist()}."
        )
    return np.arange(at.stop - at.start) / float(hertz.item())


def _numbers(path: pathlib.Path, key: str, array: np.ndarray) -> np.ndarray:
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{str(path)!r}: `{key}` has shape {array.shape} and type {array.dtype}: rows "
            "of real numbers are required."
        )
    return array


def _check_time(name: str, time: np.ndarray) -> None:
    if time.ndim != 1 or len(time) < 2:
        raise ValueError(
            f"Recording {name!r} has time stamps of shape {time.shape}: one axis with at "
            "least 2 samples is required."
        )
    if not np.isfinite(time).all():
        row = int(np.argmin(np.isfinite(time)))
        raise ValueError(
            f"Recording {name!r}: `time` must be finite, but row {row} is {time[row]}."
        )
    back = np.flatnonzero(np.diff(time) <= 0)
    if len(back):
        row = int(back[0]) + 1
        raise ValueError(
            f"Recording {name!r}: `time` does not increase at row {row} "
            f"({time[row - 1]:.6g} s, then {time[row]:.6g} s). Sort the rows, or split the "
            "recording there."
        )


def _rows(name: str, key: str, value: Any, count: int) -> np.ndarray:
    array = np.asarray(value, float)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != count:
        raise ValueError(
            f"Recording {name!r}: `{key}` has shape {array.shape}, but there are {count} "
            "time stamps. One row per time stamp is required."
        )
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise ValueError(
            f"Recording {name!r}: `{key}` is {array[row, column]} in row {row}, column "
            f"{column} ({int(bad.any(axis=1).sum())} rows in all are not finite). Remove "
            "these rows, or the channel."
        )
    return array
