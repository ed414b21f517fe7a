"""System identification: parameters of a robot from recordings of its motion.

`fit` cuts recordings into windows, whose starts are unknown as well, and minimizes what an
objective compares in each window, by exact Jacobians. Files in reading order:

- `_recordings` and `_windows`: the data, and windows of one size with an estimate of each start;
- `_unknowns` and `_inertia`: parameters, their transforms and priors; consistent inertias;
- `_channels`: interpolated commands, gains, biases and delays; measurements are those of
  `eqsim.estimate`;
- `_objectives` and `_violation`: comparisons of a model with a window;
- `_fit_problem` and `_solver`: cost and Gauss-Newton matrix of all windows, and their minimum;
- `_assessment` and `_result`: covariances, identifiability, held-out errors; the report;
- `_fit`: `fit`, and the choice of experiments;
- `_many_fits`: comparison of classes of models, and ensembles.

It uses models, kinematics, dynamics, constraints, pipelines, `io` and `estimate`. Only the
command line imports it.
"""

from ..estimate import (
    AbstractMeasurement as AbstractMeasurement,
    FreeBodyPose as FreeBodyPose,
    FunctionMeasurement as FunctionMeasurement,
    JointPositions as JointPositions,
    JointVelocities as JointVelocities,
    SensorMeasurement as SensorMeasurement,
)
from ._assessment import (
    Combination as Combination,
    Covariance as Covariance,
    EarlyStop as EarlyStop,
    HorizonError as HorizonError,
    Identifiability as Identifiability,
    Validation as Validation,
)
from ._channels import (
    AbstractInterpolation as AbstractInterpolation,
    ChannelBias as ChannelBias,
    ChannelDelay as ChannelDelay,
    ChannelGain as ChannelGain,
    CubicInterpolation as CubicInterpolation,
    LinearInterpolation as LinearInterpolation,
    ZeroOrderHold as ZeroOrderHold,
)
from ._fit import (
    design_experiment as design_experiment,
    Excitation as Excitation,
    fit as fit,
    IdentificationWarning as IdentificationWarning,
    structural_identifiability as structural_identifiability,
)
from ._fit_problem import (
    AbstractLoss as AbstractLoss,
    CauchyLoss as CauchyLoss,
    GemanMcClureLoss as GemanMcClureLoss,
    HuberLoss as HuberLoss,
    SquareLoss as SquareLoss,
)
from ._inertia import Inertia as Inertia, LogDetPrior as LogDetPrior
from ._many_fits import (
    Candidate as Candidate,
    compare as compare,
    Ensemble as Ensemble,
    EnsemblePosterior as EnsemblePosterior,
    fit_ensemble as fit_ensemble,
    ModelComparison as ModelComparison,
    ModelScore as ModelScore,
)
from ._objectives import (
    AbstractObjective as AbstractObjective,
    ActuatorForces as ActuatorForces,
    Comparison as Comparison,
    Given as Given,
    Innovations as Innovations,
    Inverse as Inverse,
    Physics as Physics,
    Simulation as Simulation,
    WindowResiduals as WindowResiduals,
)
from ._recordings import (
    load_recordings as load_recordings,
    Recording as Recording,
    save_recordings as save_recordings,
    split as split,
)
from ._result import (
    ParameterEstimate as ParameterEstimate,
    Posterior as Posterior,
    Result as Result,
)
from ._solver import Adam as Adam, Solver as Solver
from ._unknowns import (
    AbstractPrior as AbstractPrior,
    AbstractUnknown as AbstractUnknown,
    Bounded as Bounded,
    Custom as Custom,
    LogNormalPrior as LogNormalPrior,
    NormalPrior as NormalPrior,
    Positive as Positive,
    Tied as Tied,
    Unbounded as Unbounded,
)
from ._violation import Violation as Violation
from ._windows import Windows as Windows
