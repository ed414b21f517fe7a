"""An environment, a pipeline and an agent that are found by their names."""

from ._ball_beam import BallBeam as BallBeam
from ._cross_entropy import CrossEntropy as CrossEntropy
from ._richardson import Richardson as Richardson


# Written for this version of eqsim's API.
__eqsim_api__ = "1.0"
