"""Model of a robot: structure and primary parameters."""

from ._actuator_laws import (
    DCMotors as DCMotors,
    MuscleActivations as MuscleActivations,
    Muscles as Muscles,
    PIDs as PIDs,
)
from ._actuators import (
    Actuators as Actuators,
    ActuatorStructure as ActuatorStructure,
)
from ._checks import check_state as check_state
from ._equalities import Equalities as Equalities
from ._geoms import Geoms as Geoms, Pairs as Pairs
from ._height_fields import HeightFields as HeightFields
from ._inactive import Inactive as Inactive, inactive_parameters as inactive_parameters
from ._joints import Joints as Joints
from ._keyframes import Keyframe as Keyframe, Keyframes as Keyframes
from ._kinds import (
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
    Transmission as Transmission,
    WrapKind as WrapKind,
)
from ._links import Links as Links
from ._meshes import (
    HullGraph as HullGraph,
    Meshes as Meshes,
    MeshSurfaces as MeshSurfaces,
)
from ._mocap import set_mocap as set_mocap
from ._names import (
    ActuatorRef as ActuatorRef,
    ElementRef as ElementRef,
    GeomRef as GeomRef,
    HeightFieldRef as HeightFieldRef,
    JointRef as JointRef,
    LinkRef as LinkRef,
    MeshRef as MeshRef,
    SiteRef as SiteRef,
)
from ._pairs import (
    candidate_pairs as candidate_pairs,
    Collider as Collider,
    collider_of as collider_of,
    register_collider as register_collider,
)
from ._random import (
    neutral as neutral,
    random_configuration as random_configuration,
    random_system as random_system,
)
from ._replace_shape import replace_shape as replace_shape
from ._sensor_kinds import (
    ContactData as ContactData,
    ContactReduction as ContactReduction,
    Cutoff as Cutoff,
    RayData as RayData,
    SENSOR_FACTS as SENSOR_FACTS,
    SensorKind as SensorKind,
    SensorObject as SensorObject,
    Stage as Stage,
)
from ._sensors import Sensors as Sensors
from ._shape_kinds import register_shape as register_shape, ShapeKind as ShapeKind
from ._show import show as show
from ._sites import Sites as Sites
from ._state import State as State
from ._system import System as System
from ._tendons import PathPoint as PathPoint, Tendons as Tendons
from ._tree import Tree as Tree, tree as tree
from ._validate import (
    check_finite as check_finite,
    validate as validate,
)
