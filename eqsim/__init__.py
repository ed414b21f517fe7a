"""A differentiable robot simulator in JAX and Equinox."""

import importlib.metadata

# Must run before the other modules are imported.
from . import _setup as _setup  # isort: split


from . import (
    bridges as bridges,
    collision as collision,
    constraint as constraint,
    control as control,
    dynamics as dynamics,
    envs as envs,
    identify as identify,
    io as io,
    kinematics as kinematics,
    model as model,
    pipelines as pipelines,
    plugins as plugins,
    randomize as randomize,
    render as render,
    spatial as spatial,
    testing as testing,
    viewer as viewer,
    wrappers as wrappers,
)
from ._errors import RESULTS as RESULTS
from ._loops import scan as scan
from ._policies import (
    AbstractAgent as AbstractAgent,
    AbstractController as AbstractController,
    AbstractOnlineAgent as AbstractOnlineAgent,
    AbstractRecurrentAgent as AbstractRecurrentAgent,
    agent_policy as agent_policy,
)
from ._rollout import rollout as rollout
from ._trajectory import (
    diagnose as diagnose,
    Diagnosis as Diagnosis,
    Episodes as Episodes,
    episodes as episodes,
    Trajectory as Trajectory,
)
from .control import Linearization as Linearization, linearize as linearize
from .envs import (
    AbstractEnv as AbstractEnv,
    AbstractTask as AbstractTask,
    make as make,
    ResetOptions as ResetOptions,
    Timestep as Timestep,
)
from .io import load as load, load_mjcf as load_mjcf, save as save
from .model import set_mocap as set_mocap, State as State, System as System
from .pipelines import (
    AbstractPipeline as AbstractPipeline,
    Generalized as Generalized,
    Positional as Positional,
    Spring as Spring,
)
from .plugins import AGENTS as AGENTS, ENVS as ENVS, PIPELINES as PIPELINES
from .wrappers import (
    ActionRepeat as ActionRepeat,
    AutoReset as AutoReset,
    ClipAction as ClipAction,
    DelayAction as DelayAction,
    DomainRandomization as DomainRandomization,
    NoisyObservation as NoisyObservation,
    NormalizeObservation as NormalizeObservation,
    Pixels as Pixels,
    ScaleAction as ScaleAction,
    SelectObservation as SelectObservation,
    StackObservation as StackObservation,
    TimeLimit as TimeLimit,
)


__version__ = importlib.metadata.version("eqsim")
