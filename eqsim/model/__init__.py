"""The model of a robot: structure, primary parameters, state.

`System` is the robot: arrays that may be changed, batched and differentiated, and static
structure. It holds primary parameters alone; whatever follows from them is computed where it
is used. Reading order:

- `kinds`, `distance_fields`, `arrays`: enumerations; shapes given by a distance field;
  converters and static gathers of arrays.
- `parts`, `actuator_parameters`, `actuator_models`, `sensor_kinds`, `meshes`: the parts of a robot.
- `_system`: `State`, `System`, and lookup by name; `_text` prints a robot.
- `_tree`: the levels of the tree of degrees of freedom, over which recursions run.
- `pairs`: pairs of shapes that can touch.
- `changes`: edits of a robot, and which parameters differ between two.
- `_validate`: checks when a robot is built or loaded; `_checks`: checks of shapes, also when
  a step is traced.

Everything above may import this package; it imports `spatial` alone.
"""

from ._checks import (
    array_ranks as array_ranks,
    check_state as check_state,
    check_step as check_step,
)
from ._system import (
    ActuatorRef as ActuatorRef,
    ElementRef as ElementRef,
    GeomRef as GeomRef,
    HeightFieldRef as HeightFieldRef,
    JointRef as JointRef,
    LinkRef as LinkRef,
    MeshRef as MeshRef,
    SiteRef as SiteRef,
    State as State,
    System as System,
)
from ._tree import Tree as Tree, tree as tree
from ._validate import (
    check_finite as check_finite,
    validate as validate,
)
from .actuator_models import (
    AbstractActuatorModel as AbstractActuatorModel,
    AbstractControlModel as AbstractControlModel,
    AbstractForceModel as AbstractForceModel,
    ActuatorInputs as ActuatorInputs,
    AttachedModel as AttachedModel,
)
from .actuator_parameters import (
    Actuators as Actuators,
    DCMotors as DCMotors,
    DiscretePIDs as DiscretePIDs,
    MuscleActivations as MuscleActivations,
    Muscles as Muscles,
    PIDs as PIDs,
)
from .changes import replace_shape as replace_shape, set_mocap as set_mocap
from .distance_fields import (
    AbstractDistanceField as AbstractDistanceField,
    Bolt as Bolt,
    Bowl as Bowl,
    Gear as Gear,
    Nut as Nut,
    Torus as Torus,
)
from .kinds import (
    Activation as Activation,
    ActivationState as ActivationState,
    Bias as Bias,
    Cone as Cone,
    Control as Control,
    EqualityKind as EqualityKind,
    Gain as Gain,
    GeomKind as GeomKind,
    Integrator as Integrator,
    JointKind as JointKind,
    register_shape as register_shape,
    Transmission as Transmission,
    WrapKind as WrapKind,
)
from .meshes import (
    HeightFields as HeightFields,
    HullGraph as HullGraph,
    Meshes as Meshes,
    MeshSurfaces as MeshSurfaces,
)
from .pairs import (
    candidate_pairs as candidate_pairs,
    Collider as Collider,
    register_collider as register_collider,
)
from .parts import (
    Equalities as Equalities,
    Geoms as Geoms,
    Joints as Joints,
    Keyframe as Keyframe,
    Keyframes as Keyframes,
    Links as Links,
    Pairs as Pairs,
    PathPoint as PathPoint,
    Sites as Sites,
    Tendons as Tendons,
)
from .sensor_kinds import (
    ContactData as ContactData,
    ContactReduction as ContactReduction,
    Cutoff as Cutoff,
    RayData as RayData,
    SENSOR_FACTS as SENSOR_FACTS,
    SensorKind as SensorKind,
    SensorObject as SensorObject,
    Sensors as Sensors,
)
