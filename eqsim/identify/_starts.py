"""Estimates of the state at which a window starts, from the measurements around it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import kinematics
from ..model import System
from ._recording import Recording


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


def estimate_starts(
    sys: System,
    recording: Recording,
    rows: np.ndarray,
    channel: str,
    half: int,
    parts: Sequence[slice],
) -> Starts:
    """Fit a local cubic to the measured coordinates around each row.

    **Arguments:** see `local_fit`.
    """
    fit = local_fit(sys, recording, rows, channel, half, parts)
    sd = _WIDE * fit.sd
    # Velocities of Euler steps are those half a step before.
    lag = 0.5 * np.abs(fit.qdd) * float(sys.dt)
    sd[:, sys.nv :] = np.hypot(sd[:, sys.nv :], lag)
    return Starts(fit.q, fit.qd, sd)


def local_fit(
    sys: System,
    recording: Recording,
    rows: np.ndarray,
    channel: str,
    half: int,
    parts: Sequence[slice],
) -> LocalFit:
    """Fit a local cubic to the measured coordinates around each row.

    **Arguments:**

    - `channel`: channel of the recording with all coordinates.
    - `half`: samples on each side.
    - `parts`: uninterrupted parts of the recording; at their ends the fit is one-sided.
    """
    q = recording.channels[channel]
    if q.shape[1] != sys.nq:
        raise ValueError(
            f"Recording {recording.name!r}: channel {channel!r} has {q.shape[1]} columns, but "
            f"the robot has {sys.nq} coordinates."
        )
    out = []
    for part in parts:
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
