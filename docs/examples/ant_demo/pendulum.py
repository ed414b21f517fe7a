"""Identification of a real double pendulum from hardware recordings, if there are any.

The folder of recordings is `EQSIM_RECORDINGS`, or `--recordings`. It holds
`double_pendulum/identification_C1.npz`: five runs of a robot with two geared motors
(dfki-ric-underactuated-lab/double_pendulum, BSD-3).
"""

import pathlib
from typing import NamedTuple

import numpy as np

import eqsim
from eqsim import identify


MODEL = """<mujoco model="double_pendulum">
<option timestep="0.002" integrator="implicitfast"/>
<worldbody>
  <body name="upper">
    <joint name="shoulder" axis="0 -1 0" damping="0.005" frictionloss="0.25"
      armature="0.002"/>
    <inertial mass="0.52" pos="0 0 -0.2" diaginertia="0.011 0.011 0.011"/>
    <body name="lower" pos="0 0 -0.2">
      <joint name="elbow" axis="0 -1 0" damping="0.005" frictionloss="0.19"
        armature="0.002"/>
      <inertial mass="0.6256" pos="0 0 -0.2557" diaginertia="0.01 0.01 0.01"/>
    </body>
  </body>
</worldbody>
<actuator>
  <motor name="shoulder" joint="shoulder"/><motor name="elbow" joint="elbow"/>
</actuator>
</mujoco>"""
"""Design C.1 with rough parameters, from which the fit starts."""


class Fit(NamedTuple):
    """Result of a fit, and a motion on which it was not fitted.

    - `result`: result of `eqsim.identify.fit`.
    - `held_out`: measured run.
    - `before`, `after`: errors of predictions over windows of 1 s by the model before and
        after the fit, rad, with axes (window, time, joint); NaN for padding.
    """

    result: identify.Result
    held_out: identify.Recording
    before: np.ndarray
    after: np.ndarray


def file(folder: pathlib.Path | None) -> pathlib.Path | None:
    """Return the file with recordings; None if there is none."""
    path = folder and folder / "double_pendulum" / "identification_C1.npz"
    return path if path and path.is_file() else None


def fit(path: pathlib.Path) -> Fit:
    """Fit inertial parameters, friction and the latency of commands to four runs."""
    runs = identify.load(path, ctrl="tau_command", channels={"q": "q"})
    *fitted, held_out = runs
    sys, windows = eqsim.load_mjcf(MODEL), identify.Windows(1.0)
    result = identify.fit(
        sys,
        fitted,
        _unknowns(),
        windows=windows,
        loss=identify.Cauchy(1.0, per_window=True),
    )
    errors = [_errors(result, robot, held_out) for robot in (sys, result.sys)]
    return Fit(result, held_out, *errors)


def _unknowns() -> dict:
    """Return the unknowns; the gain of the motors cannot be told from the masses."""
    free, positive = identify.Free, identify.Positive
    log, normal = identify.LogNormal, identify.Normal
    center = lambda s: s.links.com
    return {
        "damping": positive(lambda s: s.joints.damping, prior=log(None, 2.0)),
        "dry friction": positive(lambda s: s.joints.frictionloss),
        "rotor inertia": positive(lambda s: s.joints.armature, prior=log(None, 1.0)),
        "mass": positive(lambda s: s.links.mass, prior=log(None, 0.2)),
        "center of mass": free(
            center, entries=((0, 2), (1, 2)), prior=normal(None, 0.05)
        ),
        "inertia": positive(
            lambda s: s.links.inertia,
            entries=((0, 1), (1, 1)),
            prior=log(None, 0.5),
        ),
        "delay": identify.Delay(prior=normal(4e-3, 4e-3)),
    }


def _errors(result, sys: eqsim.System, run: identify.Recording) -> np.ndarray:
    found, mask = identify.predict(result, sys, [run], identify.Windows(1.0))
    return np.where(mask[..., None], found["q"], np.nan)
