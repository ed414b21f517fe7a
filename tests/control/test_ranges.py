"""Settings out of their range are refused when they are made."""

import pytest

import eqsim
from eqsim import control, identify


ENV = eqsim.envs.PointMass()


@pytest.mark.parametrize(
    "make, message",
    (
        (lambda: control.MPPI(smoothing=0.0), r"`MPPI.smoothing` must be in \(0, 1\]"),
        (lambda: control.MPPI(temperature=-1.0), "`MPPI.temperature` must be positive"),
        (lambda: control.ILQR(atol=-1.0), "`ILQR.atol` must be at least 0"),
        (lambda: control.ILQR(rtol=float("nan")), "`ILQR.rtol` must be at least 0"),
        (lambda: control.ILQR(penalty=0.0), "`ILQR.penalty` must be positive"),
        (lambda: control.ILQR(penalty_growth=0.5), "`ILQR.penalty_growth` .* least 1"),
        (
            lambda: control.ILQR(constraint_tolerance=-1.0),
            "`ILQR.constraint_tolerance` must be at least 0",
        ),
        (
            lambda: eqsim.wrappers.NoisyObservation(ENV, noise=-0.1),
            "`NoisyObservation.noise` must be at least 0",
        ),
        (lambda: identify.HuberLoss(width=0.0), "`Huber.width` must be positive"),
        (lambda: identify.CauchyLoss(width=-1.0), "`Cauchy.width` must be positive"),
        (
            lambda: identify.GemanMcClureLoss(width=0.0),
            "`GemanMcClure.width` .*positive",
        ),
    ),
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "name, value",
    (("max_steps", 0), ("rounds", 0), ("restarts", -1), ("rtol", -1.0), ("damping", 0)),
)
def test_settings_of_the_fit_are_checked_first(name, value):
    solver = identify.Solver(**{name: value})
    with pytest.raises(ValueError, match=f"`Solver.{name}` must be"):
        identify.fit(ENV.sys, [], {}, solver=solver)
