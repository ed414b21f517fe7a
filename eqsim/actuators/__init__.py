"""Models of actuators beyond MuJoCo's force laws, attached by `System.with_actuator_model`.

- `_closed_forms`: delay, low-pass filter and backlash between `ctrl` and the actuator;
  torque-speed limits, friction, torque lag, rotor, and a PD servo between force law and
  joint.
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
from ._closed_forms import (
    Backlash as Backlash,
    ControlFilter as ControlFilter,
    Delay as Delay,
    OutputTorque as OutputTorque,
    PDServo as PDServo,
    StribeckFriction as StribeckFriction,
    TorqueLag as TorqueLag,
    TorqueSpeedLimit as TorqueSpeedLimit,
)
from ._networks import GRUActuator as GRUActuator, MLPActuator as MLPActuator
