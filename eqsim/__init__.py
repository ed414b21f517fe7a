"""A differentiable robot simulator in JAX and Equinox.

To read the code, begin with `docs/step.md`, which follows `env.step` through the physics, or
with `docs/anatomy.md`, which follows `train` to an agent (eqsim-zoo). Each package says in
its docstring in which order to read its files. The packages, from the lowest; a package
imports only from those before it:

- `spatial`: vectors, rotations, motions, forces and inertias; the conventions.
- `model`: `System`, the robot as a pytree of parameters, and `State`.
- `kinematics`: poses, velocities and Jacobians. `io`: MJCF and URDF files, save and load.
- `terrain`: heights of height fields, drawn at random, and of the ground.
- `dynamics`: inertia, forces of actuators and springs, the articulated-body algorithm.
- `collision`: which shapes touch, and where.
- `constraint`: rows of contacts, limits and equalities, and the solver for accelerations.
- `sensors`: values measured at one state.
- `pipelines`: physics engines, which put these together to `step(sys, state, ctrl)`.
- `envs`: tasks with observations, rewards and termination, on a pipeline.
- `_policies`, `_trajectory`, `_rollout`: interfaces of agents, and the loop over `env.step`.
- `render`: images. `wrappers`, `randomize`: environments around environments, and robots
  with random parameters. `control`, `estimate`, `identify`: optimal control, state estimation
  and system identification.
- `viewer`, `bridges`, `testing`, `_cli`: a page in the browser, adapters to other libraries,
  the conformance kit, and the command `eqsim`.

Beneath all are modules without physics. `_batching` (with `_primitive`) makes physics one
operation of JAX with batching and derivatives of its own, and `_kernels` compiles it for the
CPU. `_loops` and `_lists` have loops, `_separate` functions that are compiled once for all
robots, `_errors` messages and checks, and `plugins` finds environments and agents by name.
"""

import importlib.metadata

# Must run before the other modules are imported.
from . import _setup as _setup  # isort: split


from . import (
    actuators as actuators,
    bridges as bridges,
    collision as collision,
    constraint as constraint,
    control as control,
    dynamics as dynamics,
    envs as envs,
    estimate as estimate,
    identify as identify,
    io as io,
    kinematics as kinematics,
    model as model,
    pipelines as pipelines,
    plugins as plugins,
    randomize as randomize,
    render as render,
    sensors as sensors,
    spatial as spatial,
    terrain as terrain,
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
from .io import (
    load as load,
    load_mjcf as load_mjcf,
    load_urdf as load_urdf,
    save as save,
)
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
