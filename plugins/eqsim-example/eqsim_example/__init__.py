"""An example package: an environment, a pipeline and an agent, registered by name."""

from ._ball_beam import BallBeam as BallBeam
from ._cross_entropy import CrossEntropy as CrossEntropy
from ._richardson import Richardson as Richardson


# Version of eqsim's plugin API.
__eqsim_api__ = "1.0"
