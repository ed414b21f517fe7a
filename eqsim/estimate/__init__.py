"""State estimation: states of a robot from its controls and measurements.

Files in reading order:

- `stochastic_model`: measurements as functions of a robot and its state; factors of
  covariances; the motion of a robot and its measurements with noise;
- `estimators`: their interface, extended and unscented Kalman filter, and their smoother;
- `moving_horizon`: most probable states of the last steps, by iterative LQR.

It uses models, kinematics, pipelines and `control`; `identify` uses it.
"""

from .estimators import (
    AbstractEstimator as AbstractEstimator,
    AbstractFilter as AbstractFilter,
    Estimate as Estimate,
    ExtendedKalmanFilter as ExtendedKalmanFilter,
    Innovation as Innovation,
    Moments as Moments,
    Track as Track,
    UnscentedKalmanFilter as UnscentedKalmanFilter,
)
from .moving_horizon import (
    HorizonMemory as HorizonMemory,
    MAP as MAP,
    MovingHorizon as MovingHorizon,
)
from .stochastic_model import (
    AbstractMeasurement as AbstractMeasurement,
    AbstractSpace as AbstractSpace,
    Coordinates as Coordinates,
    Euclidean as Euclidean,
    FreeBodyPose as FreeBodyPose,
    FunctionMeasurement as FunctionMeasurement,
    JointPositions as JointPositions,
    JointVelocities as JointVelocities,
    Orientation as Orientation,
    SensorMeasurement as SensorMeasurement,
    StochasticModel as StochasticModel,
)
