"""Recordings cut into windows of one padded length, with an estimate of each start."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .. import kinematics
from .._errors import check_count
from ..model import System
from ._recordings import Recording, uninterrupted


Start = Callable[[Recording, int], tuple[np.ndarray, np.ndarray]]
"""`(recording, row) -> (q, qd)`."""

_WIDE = 10.0
"""Standard deviations of the prior of a start, in units of the local fit's."""


class Starts(NamedTuple):
    """States at the starts of windows, and standard deviations of their priors."""

    q: np.ndarray
    qd: np.ndarray
    sd: np.ndarray


class LocalFit(NamedTuple):
    """Coordinates, velocities and accelerations of local polynomials.

    - `sd`: standard deviations of coordinates and velocities by the noise around them.
    """

    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    sd: np.ndarray


def local_fit(
    sys: System,
    recording: Recording,
    rows: np.ndarray,
    channel: str,
    half: int,
    gap: float | None,
) -> LocalFit:
    """Fit a local cubic to the measured coordinates around each row.

    **Arguments:**

    - `channel`: channel of the recording with all coordinates.
    - `half`: samples on each side.
    - `gap`: interval that interrupts the recording, s; there the fit is one-sided.
    """
    q, out = recording.channel(channel, sys.nq), []
    for part in uninterrupted(recording.time, gap):
        inside = rows[(rows >= part.start) & (rows < part.stop)]
        if len(inside):
            size = min(2 * half + 1, part.stop - part.start)
            first = np.clip(inside - half, part.start, part.stop - size)
            near = first[:, None] + np.arange(size)
            out.append(_cubics(sys, recording.time, q, inside, near))
    return LocalFit(*(np.concatenate(x) for x in zip(*out)))


def _cubics(sys: System, time, q, rows, near) -> LocalFit:
    """Fit cubics around rows to the samples `near`, `(rows, samples)`."""
    size = near.shape[1]
    steps = _differences(sys, q[rows], q[near])
    degree = min(3, size - 1)
    relative = time[near] - time[rows][:, None]
    scale = np.maximum(np.abs(relative).max(axis=1), 1e-12)[:, None]
    basis = (relative / scale)[..., None] ** np.arange(degree + 1)
    inverse = np.linalg.pinv(basis)
    coefficients = inverse @ steps
    residual = steps - basis @ coefficients
    freedom = max(size - degree - 1, 1)
    noise = np.sqrt((residual**2).sum(axis=1) / freedom)
    noise = np.maximum(noise, _floor(q, steps))
    # Variances of the coefficients of degree 0 and 1 per unit of noise.
    spread = np.sqrt((inverse**2).sum(axis=2))[:, :2]
    start = _moved(sys, q[rows], coefficients[:, 0])
    zero = np.zeros_like(coefficients[:, 0])
    velocity = coefficients[:, 1] / scale if degree else zero
    acceleration = 2 * coefficients[:, 2] / scale**2 if degree > 1 else zero
    slope = noise * spread[:, 1:2] / scale if degree else zero
    sd = np.concatenate([noise * spread[:, :1], slope], axis=1)
    return LocalFit(start, velocity, acceleration, sd)


def given_starts(
    sys: System,
    recording: Recording,
    rows: np.ndarray,
    start: Start,
    sd: tuple[float, float],
) -> Starts:
    """Take starts from a function of the user."""
    states = [start(recording, int(row)) for row in rows]
    q = np.array([np.asarray(state[0], float) for state in states])
    qd = np.array([np.asarray(state[1], float) for state in states])
    if q.shape[1:] != (sys.nq,) or qd.shape[1:] != (sys.nv,):
        raise ValueError(
            f"`start` returned coordinates of shape {q.shape[1:]} and velocities of shape "
            f"{qd.shape[1:]}; ({sys.nq},) and ({sys.nv},) are required."
        )
    return Starts(
        q, qd, np.broadcast_to(np.repeat(sd, sys.nv), (len(rows), 2 * sys.nv))
    )


def quantum(values: np.ndarray) -> float:
    """Estimate the resolution of a sensor: zero if most values differ."""
    levels = np.unique(values)
    if len(levels) < 2 or len(levels) > len(values) / 4:
        return 0.0
    return float(np.median(np.diff(levels)))


def _floor(q: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the least noise of each degree of freedom: resolution, or a small share of
    the range of motion."""
    if q.shape[1] == steps.shape[-1]:
        resolution = np.array([quantum(column) for column in q.T]) / np.sqrt(12)
        return np.maximum(resolution, 1e-6 * (np.ptp(q, axis=0) + 1e-3))
    return np.full(steps.shape[-1], 1e-6)


def _differences(sys: System, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute the steps from `a` (windows) to `b` (windows, samples)."""
    if sys.nq == sys.nv:
        return b - a[:, None]
    many = jax.vmap(jax.vmap(kinematics.difference, (None, None, 0)), (None, 0, 0))
    return np.asarray(many(sys, jnp.asarray(a), jnp.asarray(b)))


def _moved(sys: System, q: np.ndarray, step: np.ndarray) -> np.ndarray:
    if sys.nq == sys.nv:
        return q + step
    many = jax.vmap(kinematics.integrate, (None, 0, 0))
    return np.asarray(many(sys, jnp.asarray(q), jnp.asarray(step)))


class Windows(NamedTuple):
    """Settings of windows. The state at the start of each window is unknown.

    **Arguments:**

    - `length`: s. Short windows keep the problem nearly convex, and chaos has no time to
        grow; long ones see small parameters better.
    - `stride`: s from start to start; by default `length`. Windows that overlap count
        samples several times, so that intervals become too short: keep the default to fit.
    - `continuity`: standard deviation of the jump from the end of a window to the
        start of the next one, in units of the prior of that start (multiple shooting).
        None: windows are independent.
    - `start_sd`: standard deviations of the prior of the start, of coordinates and
        velocities. By default ten times those of the local fit.
    - `start`: `(recording, row) -> (q, qd)`. By default a local cubic is fitted to
        the channel `channel`.
    - `channel`: channel with all coordinates.
    - `half`: samples on each side of the start for the local fit.
    - `gap`: interval between samples, s, above which the recording counts as interrupted:
        no window and no local fit extends over it. By default ten times the median.
    - `min_samples`: windows with fewer samples after `settle` are left out.
    - `settle`: time at the start of each window that is simulated but not compared, s. Use it
        with activations (MJCF: `dyntype`) and with actuator models that have memory, which are
        zero at the start of a window.
    """

    length: float
    stride: float | None = None
    continuity: float | None = None
    start_sd: tuple[float, float] | None = None
    start: Start | None = None
    channel: str = "q"
    half: int = 7
    gap: float | None = None
    min_samples: int = 3
    settle: float = 0.0


def start_channel(windows: Windows) -> str | None:
    """Return the channel from which starts are estimated; None if they are given."""
    return windows.channel if windows.start is None else None


class Batch(eqx.Module):
    """Windows as arrays, with the windows along the first axis.

    **Arguments:**

    - `q`, `qd`, `sd`: start and standard deviations of its prior.
    - `ctrl_time`, `ctrl`: recorded commands from before the start to after the end; time
        is counted from the start, s.
    - `time`, `mask`: measured times, and which of them are not padding.
    - `measured`: channels.
    - `gap`: time of the start of the next window of the same run, and `linked`, whether
        there is one.
    - `run`: index of the run among those of the fit, -1 for others.
    """

    q: Float[Array, "k nq"]
    qd: Float[Array, "k nv"]
    sd: Float[Array, "k nx"]
    ctrl_time: Float[Array, "k c"]
    ctrl: Float[Array, "k c nu"]
    time: Float[Array, "k m"]
    mask: Bool[Array, "k m"]
    measured: dict[str, Float[Array, "k m _"]]
    gap: Float[Array, " k"]
    linked: Bool[Array, " k"]
    run: Int[Array, " k"]


class Cut(NamedTuple):
    """A batch, with the recording and the run of each window.

    - `steps`: steps of `sys.dt` that the longest window takes. `rows`: largest number of
        measured times within one step.
    """

    batch: Batch
    steps: int
    rows: int
    recording: np.ndarray
    run: np.ndarray
    begin: np.ndarray


class _Window(NamedTuple):
    recording: int
    rows: slice
    linked: bool


def cut(
    sys: System,
    recordings: Sequence[Recording],
    channels: Sequence[str],
    windows: Windows,
    before: float,
    runs: Sequence[str] = (),
) -> Cut:
    """Cut recordings into windows.

    **Arguments:**

    - `channels`: channels that are compared.
    - `before`: time before the start of a window for which commands are kept, s.
    - `runs`: names of the runs of the fit.

    **Raises:** `ValueError` if a recording lacks a channel, or no window has enough
    samples.
    """
    check_count("Windows.half", windows.half)
    check_count("Windows.min_samples", windows.min_samples)
    _check(sys, recordings, channels, windows)
    found = [w for k, rec in enumerate(recordings) for w in _of(k, rec, windows)]
    if not found:
        longest = max(
            recording.time[-1] - recording.time[0] for recording in recordings
        )
        raise ValueError(
            f"No window of {windows.length:g} s has {windows.min_samples} samples (the "
            f"longest recording has {longest:.3g} s). Choose longer windows."
        )
    starts = _starts(sys, recordings, found, windows)
    arrays = _padded(recordings, found, channels, before, float(sys.dt))
    end = max(float(np.max(arrays["time"])), float(np.max(arrays["gap"])))
    steps = int(np.ceil(end / float(sys.dt) - 1e-9))
    mask = arrays["mask"] & (arrays["time"] >= windows.settle)
    names = sorted({recording.run for recording in recordings})
    index = [window.recording for window in found]
    places = {run: k for k, run in enumerate(runs)}
    known = np.array([places.get(recordings[k].run, -1) for k in index], np.int32)
    batch = Batch(
        jnp.asarray(starts.q),
        jnp.asarray(starts.qd),
        jnp.asarray(starts.sd),
        jnp.asarray(arrays["ctrl_time"]),
        jnp.asarray(arrays["ctrl"]),
        jnp.asarray(arrays["time"]),
        jnp.asarray(mask),
        {name: jnp.asarray(arrays["measured"][name]) for name in channels},
        jnp.asarray(arrays["gap"]),
        jnp.asarray(np.array([window.linked for window in found])),
        jnp.asarray(known),
    )
    run = np.array([names.index(recordings[k].run) for k in index])
    begin = np.array([recordings[w.recording].time[w.rows.start] for w in found])
    steps = max(steps, 1)
    rows = _rows_per_step(arrays["time"], mask, float(sys.dt), steps)
    return Cut(batch, steps, rows, np.array(index), run, begin)


def _rows_per_step(time, mask, dt: float, steps: int) -> int:
    step = step_of(time, dt, steps)
    return max(int(np.bincount(row[ok]).max()) for row, ok in zip(step, mask))


def step_of(time: Any, dt: Any, steps: int) -> Any:
    """Return the step in which measured times fall; those on the grid end a step.

    **Arguments:**

    - `time`: arrays of NumPy or JAX.
    """
    # Times are differences of floating-point numbers. The negative floor is a ceiling.
    return (-((1e-6 - time / dt) // 1) - 1).clip(0, steps - 1).astype(int)


def _of(index: int, recording: Recording, windows: Windows) -> list[_Window]:
    """Return the windows of one recording."""
    out = []
    for part in uninterrupted(recording.time, windows.gap):
        found = [
            _Window(index, rows, False) for rows in _in_part(recording, part, windows)
        ]
        if windows.continuity is not None:
            for k in range(len(found) - 1):
                follows = found[k].rows.stop == found[k + 1].rows.start
                found[k] = found[k]._replace(linked=follows)
        out += found
    return out


def _in_part(recording: Recording, part: slice, windows: Windows) -> list[slice]:
    """Return the rows of the windows in an uninterrupted part of a recording."""
    time, out = recording.time[part], []
    stride = windows.length if windows.stride is None else windows.stride
    begin = time[0]
    while begin < time[-1]:
        first = int(np.searchsorted(time, begin))
        # Contiguous windows share no sample; a tolerance keeps even grids even.
        end = time[first] + windows.length * (1 - 1e-6)
        last = int(np.searchsorted(time, end))
        settled = int(np.searchsorted(time, time[first] + windows.settle))
        if last - max(first, settled) >= windows.min_samples:
            out.append(slice(part.start + first, part.start + last))
        begin = max(
            time[first] + stride * (1 - 1e-6), np.nextafter(time[first], np.inf)
        )
    return out


def _starts(sys, recordings, found, windows: Windows) -> Starts:
    parts = []
    for k, recording in enumerate(recordings):
        rows = np.array([w.rows.start for w in found if w.recording == k], int)
        if len(rows) == 0:
            continue
        if windows.start is not None:
            sd = windows.start_sd or (1.0, 10.0)
            parts.append(given_starts(sys, recording, rows, windows.start, sd))
            continue
        fit = local_fit(
            sys, recording, rows, windows.channel, windows.half, windows.gap
        )
        sd = _WIDE * fit.sd
        # Velocities of Euler steps are those half a step before.
        lag = 0.5 * np.abs(fit.qdd) * float(sys.dt)
        sd[:, sys.nv :] = np.hypot(sd[:, sys.nv :], lag)
        if windows.start_sd is not None:
            sd = np.broadcast_to(np.repeat(windows.start_sd, sys.nv), sd.shape)
        parts.append(Starts(fit.q, fit.qd, sd))
    return Starts(*(np.concatenate(x) for x in zip(*parts)))


def _padded(recordings, found, channels, before: float, dt: float) -> dict[str, Any]:
    times, gaps, commands, command_times = [], [], [], []
    for window in found:
        rec, rows = recordings[window.recording], window.rows
        origin = rec.time[rows.start]
        times.append(rec.time[rows] - origin)
        gaps.append(rec.time[rows.stop] - origin if window.linked else 0.0)
        end = max(times[-1][-1], gaps[-1]) + dt
        first = int(np.searchsorted(rec.time, origin - before, side="right")) - 1
        last = int(np.searchsorted(rec.time, origin + end)) + 1
        inside = slice(max(first, 0), max(last, first + 2))
        command_times.append(rec.time[inside] - origin)
        commands.append(rec.ctrl[inside])
    measured = {
        name: _pad([recordings[w.recording].channels[name][w.rows] for w in found])
        for name in channels
    }
    mask = _pad([np.ones(len(t), bool) for t in times], zero=True)
    return {
        "time": _pad(times),
        "mask": mask,
        "gap": np.array(gaps),
        "ctrl_time": _pad_times(command_times),
        "ctrl": _pad(commands),
        "measured": measured,
    }


def _pad(rows: list[np.ndarray], zero: bool = False) -> np.ndarray:
    """Stack, repeating the last row of each (or with zeros)."""
    size = max(map(len, rows))
    out = []
    for row in rows:
        fill = np.zeros_like(row[-1:]) if zero else row[-1:]
        out.append(np.concatenate([row, np.repeat(fill, size - len(row), axis=0)]))
    return np.stack(out)


def _pad_times(rows: list[np.ndarray]) -> np.ndarray:
    """Stack times, and continue each row with increasing times."""
    size = max(map(len, rows))
    return np.stack(
        [
            np.concatenate([row, row[-1] + 1.0 + np.arange(size - len(row))])
            for row in rows
        ]
    )


def _check(sys: System, recordings, channels, windows: Windows) -> None:
    if not recordings:
        raise ValueError("`recordings` is empty: at least one recording is required.")
    if not windows.length > 0:
        raise ValueError(f"`length` must be positive, got {windows.length}.")
    if not 0.0 <= windows.settle < windows.length:
        raise ValueError(
            f"`settle` must be at least 0 and less than `length` ({windows.length}), got "
            f"{windows.settle}."
        )
    if windows.gap is not None and not windows.gap > 0:
        raise ValueError(f"`gap` must be positive, got {windows.gap}.")
    needed = list(channels)
    needed += [windows.channel] if windows.start is None else []
    for recording in recordings:
        for name in needed:
            if name not in recording.channels:
                hint = "" if name in channels else " Or pass `Windows(start=...)`."
                raise ValueError(
                    f"Recording {recording.name!r} has no channel {name!r}, but "
                    f"{sorted(recording.channels)}.{hint}"
                )
        if recording.ctrl.shape[1] != sys.nu:
            raise ValueError(
                f"Recording {recording.name!r} has {recording.ctrl.shape[1]} columns of "
                f"commands, but the robot has {sys.nu} controls."
            )
