"""Identification of a real double pendulum from hardware recordings, if there are any.

The folder of recordings is `EQSIM_RECORDINGS`, or `--recordings`. It holds
`double_pendulum/identification_C1.npz`: five runs of a robot with two geared motors
(dfki-ric-underactuated-lab/double_pendulum, BSD-3).
"""

import pathlib

import eqsim
from eqsim import identify


MODEL = pathlib.Path(__file__).parents[1] / "double_pendulum_c1.xml"
"""Design C.1 with rough parameters, from which the fit starts."""


HORIZONS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Times after the start of a prediction at which held-out errors are compared, s."""


def file(folder: pathlib.Path | None) -> pathlib.Path | None:
    """Return the file with recordings; None if there is none."""
    path = folder and folder / "double_pendulum" / "identification_C1.npz"
    return path if path and path.is_file() else None


def fit(path: pathlib.Path) -> identify.Result:
    """Fit inertial parameters, friction and the latency of commands to three runs, and
    validate the fit with the other two."""
    runs = identify.load_recordings(path, ctrl="tau_command", channels={"q": "q"})
    fitted, held_out = identify.split(runs, 0.4, 0)
    return identify.fit(
        eqsim.load_mjcf(MODEL),
        fitted,
        _unknowns(),
        windows=identify.Windows(1.0),
        loss=identify.CauchyLoss(1.0, per_window=True),
        validate=held_out,
        horizons=HORIZONS,
    )


def _unknowns() -> dict:
    """Return the unknowns; the gain of the motors cannot be told from the masses."""
    free, positive = identify.Unbounded, identify.Positive
    log, normal = identify.LogNormalPrior, identify.NormalPrior
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
        "delay": identify.ChannelDelay(prior=normal(4e-3, 4e-3)),
    }
