"""State estimation: states of a robot from its controls and measurements.

Files in reading order:

- `stochastic_model`: how a robot and its state become measured numbers; covariances as
  factors; the motion of a robot and its measurements with noise;
- `estimators`: extended and unscented Kalman filter, their smoother, and moving-horizon
  estimation.

It uses models, kinematics, pipelines and `control`; `identify` uses it.
"""

from .estimators import (
    AbstractEstimator as AbstractEstimator,
    AbstractFilter as AbstractFilter,
    Estimate as Estimate,
    ExtendedKalmanFilter as ExtendedKalmanFilter,
    HorizonMemory as HorizonMemory,
    Innovation as Innovation,
    MAP as MAP,
    Moments as Moments,
    MovingHorizon as MovingHorizon,
    Track as Track,
    UnscentedKalmanFilter as UnscentedKalmanFilter,
)
from .stochastic_model import (
    AbstractMeasurement as AbstractMeasurement,
    AbstractSpace as AbstractSpace,
    FreeBodyPose as FreeBodyPose,
    FunctionMeasurement as FunctionMeasurement,
    JointPositions as JointPositions,
    JointVelocities as JointVelocities,
    Orientation as Orientation,
    SensorMeasurement as SensorMeasurement,
    Space as Space,
    StochasticModel as StochasticModel,
)
