r"""Identification of the parameters of an ant from a recording, with `eqsim.identify`.

The recording is cut into short windows, in which chaotic errors stay small. The unknowns
are the parameters and the state at the start of each window.

When a foot touches down, MuJoCo's contact force jumps. The time step at which it jumps is
not differentiable, and a millimeter of noise can change it. The first fit therefore
downweights windows with large residuals (a Cauchy loss). The second fit is ordinary least
squares without the windows whose residuals noise cannot explain.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import eqsim
from eqsim import identify as library

from .recording import NOISE_Q, NOISE_QD, Recording
from .robot import changed


LENGTH = 5
"""Measurements per window."""
WIDE = 30.0
"""Standard deviation of the starts around the measured states, in units of the noise."""


class Fit(NamedTuple):
    """Result of a fit: `scales` of the parameters and `deviation` of their logarithms.

    `chi2` is the mean square of the residuals in units of the noise, per degree of
    freedom: 1 if model and noise are right.
    """

    scales: np.ndarray
    deviation: np.ndarray
    chi2: float
    kept: int
    windows: int
    steps: int


def identify(sys: eqsim.System, recording: Recording, count: int) -> Fit:
    """Fit `count` scales, starting from the parameters of the file."""
    windows = _windows(recording)
    first = _fit(sys, windows, count, library.CauchyLoss(1.0, per_window=True))
    rows, freedom = LENGTH * 2 * sys.nv, 2 * sys.nv * (LENGTH - 1)
    # Five standard deviations of the chi-squared distribution.
    usual = rows * first.misfit < freedom + 5 * np.sqrt(2 * freedom)
    kept = [window for window, keep in zip(windows, usual, strict=True) if keep]
    second = _fit(first.sys, kept, count, library.SquareLoss())
    chi2 = rows * second.misfit.sum() / (len(kept) * freedom - count)
    return Fit(
        scales=np.exp(first.values + second.values),
        deviation=second.sd,
        chi2=float(chi2),
        kept=len(kept),
        windows=len(windows),
        steps=first.steps + second.steps,
    )


def _windows(recording: Recording) -> list[library.Recording]:
    out = []
    for begin in range(0, len(recording.time) - LENGTH + 1, LENGTH):
        at = slice(begin, begin + LENGTH)
        channels = {"q": recording.q[at], "qd": recording.qd[at]}
        time, ctrl = recording.time[at], recording.ctrl[at]
        out.append(library.Recording(time, ctrl, channels, f"window-{begin}"))
    return out


def _fit(sys, windows: list[library.Recording], count: int, loss) -> library.Result:
    dt = windows[0].time[1] - windows[0].time[0]
    return library.fit(
        sys,
        windows,
        {"scales": library.Custom(_scaled, np.zeros(count))},
        measure=(library.JointPositions(), library.JointVelocities()),
        windows=library.Windows(
            LENGTH * dt, start=_start, start_sd=(WIDE * NOISE_Q, WIDE * NOISE_QD)
        ),
        noise={"q": NOISE_Q, "qd": NOISE_QD},
        loss=loss,
    )


def _scaled(sys: eqsim.System, logarithms) -> eqsim.System:
    return changed(sys, jnp.exp(logarithms))


def _start(recording: library.Recording, row: int) -> tuple[np.ndarray, np.ndarray]:
    return recording.channels["q"][row], recording.channels["qd"][row]
