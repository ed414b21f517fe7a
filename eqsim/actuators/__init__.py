"""Models of actuators beyond MuJoCo's force laws, attached by `System.with_actuator_model`.

- `_signal_paths`: between `ctrl` and the actuator: delay, low-pass filter, backlash.
- `_drives`: between force law and joint: torque-speed limits, friction, torque lag, and a
  PD servo in place of the law.
- `_networks`: learned models: multilayer perceptrons on a history, recurrent units.

Their base classes are in `eqsim.model`; a model of your own derives from them in the same
way, see `docs/actuator_models.md`. Reading of MJCF uses `Delay`; nothing in the physics
imports this package.
"""

from ..model import (
    AbstractActuatorModel as AbstractActuatorModel,
    AbstractControlModel as AbstractControlModel,
    AbstractForceModel as AbstractForceModel,
    ActuatorInputs as ActuatorInputs,
)
from ._drives import (
    PDServo as PDServo,
    StribeckFriction as StribeckFriction,
    TorqueLag as TorqueLag,
    TorqueSpeedLimit as TorqueSpeedLimit,
)
from ._networks import GRUActuator as GRUActuator, MLPActuator as MLPActuator
from ._signal_paths import (
    Backlash as Backlash,
    ControlFilter as ControlFilter,
    Delay as Delay,
)
