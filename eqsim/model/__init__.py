"""Model of a robot: structure and primary parameters."""

from ._actuators import (
    Actuators as Actuators,
    ActuatorStructure as ActuatorStructure,
    DCMotors as DCMotors,
    MuscleActivations as MuscleActivations,
    Muscles as Muscles,
    PIDs as PIDs,
)
from ._changes import replace_shape as replace_shape, set_mocap as set_mocap
from ._checks import check_state as check_state
from ._inactive import Inactive as Inactive, inactive_parameters as inactive_parameters
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
from ._meshes import (
    HeightFields as HeightFields,
    HullGraph as HullGraph,
    Meshes as Meshes,
    MeshSurfaces as MeshSurfaces,
)
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
from ._parts import (
    Equalities as Equalities,
    Geoms as Geoms,
    Joints as Joints,
    Keyframe as Keyframe,
    Keyframes as Keyframes,
    Links as Links,
    Pairs as Pairs,
    Sites as Sites,
)
from ._sensors import (
    ContactData as ContactData,
    ContactReduction as ContactReduction,
    Cutoff as Cutoff,
    RayData as RayData,
    SENSOR_FACTS as SENSOR_FACTS,
    SensorKind as SensorKind,
    SensorObject as SensorObject,
    Sensors as Sensors,
    Stage as Stage,
)
from ._shape_kinds import register_shape as register_shape, ShapeKind as ShapeKind
from ._show import show as show
from ._state import State as State
from ._system import System as System
from ._tendons import PathPoint as PathPoint, Tendons as Tendons
from ._tree import Tree as Tree, tree as tree
from ._validate import (
    check_finite as check_finite,
    validate as validate,
)
