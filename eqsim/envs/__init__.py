"""Environments: tasks with a robot, observations, rewards and termination conditions.

`_env` is the interface: `reset`, `step`, `Timestep`, and tasks, whose `step` is written once for
all that supply observations, reward terms and a termination condition. Gymnasium's eleven robots
are tasks: `_walkers` and `_fixed_bases` (which has a point mass for tests, too), with
`gymnasium_parts` as their common parts: where their model files are, starts, reward terms.
`_make` finds environments by name. `_symmetry` reflects robots, `_deployment` describes tasks to
controllers outside the simulator. Wrappers, control, identification and the viewer may import
this package.
"""

from ._deployment import (
    check_deployment as check_deployment,
    Deployable as Deployable,
    Deployment as Deployment,
    OBSERVATION_PARTS as OBSERVATION_PARTS,
    ObservationPart as ObservationPart,
    Reference as Reference,
)
from ._env import (
    AbstractEnv as AbstractEnv,
    AbstractTask as AbstractTask,
    check_action as check_action,
    observation_array as observation_array,
    reset_options as reset_options,
    ResetOptions as ResetOptions,
    same_robot_options as same_robot_options,
    Timestep as Timestep,
    TracksCommands as TracksCommands,
)
from ._fixed_bases import (
    InvertedDoublePendulum as InvertedDoublePendulum,
    InvertedPendulum as InvertedPendulum,
    PointMass as PointMass,
    Pusher as Pusher,
    Reacher as Reacher,
)
from ._make import (
    check_not_imported as check_not_imported,
    is_import_path as is_import_path,
    make as make,
)
from ._symmetry import (
    reflect_joints as reflect_joints,
    reflected_name as reflected_name,
    Reflection as Reflection,
    SignedPermutation as SignedPermutation,
    Symmetric as Symmetric,
)
from ._walkers import (
    Ant as Ant,
    HalfCheetah as HalfCheetah,
    Hopper as Hopper,
    Humanoid as Humanoid,
    HumanoidStandup as HumanoidStandup,
    Swimmer as Swimmer,
    Walker2d as Walker2d,
)
