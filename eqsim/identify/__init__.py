"""System identification: parameters of a robot from recordings of its motion."""

from ._checks import IdentificationWarning as IdentificationWarning
from ._control import (
    AbstractInterpolation as AbstractInterpolation,
    Cubic as Cubic,
    Hold as Hold,
    Linear as Linear,
)
from ._covariance import Covariance as Covariance
from ._custom import Custom as Custom
from ._fit import fit as fit
from ._geometry import (
    AbstractSpace as AbstractSpace,
    Coordinates as Coordinates,
    Euclidean as Euclidean,
    Orientation as Orientation,
)
from ._identifiability import (
    Combination as Combination,
    Identifiability as Identifiability,
)
from ._inertia import Inertia as Inertia
from ._innovations import Innovations as Innovations
from ._inverse import Inverse as Inverse
from ._measure import (
    AbstractMeasurement as AbstractMeasurement,
    FreeBodyPose as FreeBodyPose,
    Function as Function,
    JointPositions as JointPositions,
    JointVelocities as JointVelocities,
    Sensors as Sensors,
)
from ._objective import (
    AbstractObjective as AbstractObjective,
    Comparison as Comparison,
    Physics as Physics,
    Residuals as Residuals,
    Simulation as Simulation,
)
from ._polish import polish as polish, predict as predict
from ._priors import (
    AbstractPrior as AbstractPrior,
    LogDet as LogDet,
    LogNormal as LogNormal,
    Normal as Normal,
)
from ._recording import load as load, Recording as Recording, save as save
from ._result import Posterior as Posterior, Result as Result, Row as Row
from ._robust import (
    AbstractLoss as AbstractLoss,
    Cauchy as Cauchy,
    GemanMcClure as GemanMcClure,
    Huber as Huber,
    Square as Square,
)
from ._signals import Bias as Bias, Delay as Delay, Gain as Gain
from ._solver import Solver as Solver
from ._structure import (
    design as design,
    Excitation as Excitation,
    structure as structure,
)
from ._unknowns import (
    AbstractUnknown as AbstractUnknown,
    Bounded as Bounded,
    Context as Context,
    Free as Free,
    Positive as Positive,
    Tied as Tied,
)
from ._validation import (
    HorizonError as HorizonError,
    split as split,
    Validation as Validation,
)
from ._violation import Violation as Violation
from ._windows import Windows as Windows
