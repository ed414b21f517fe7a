"""Enumerations of the model, and kinds of shapes that users add.

First joints, shapes, tendons, transmissions, integrators and laws of actuators; then
`ShapeKind` and its registry.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

from .distance_fields import AbstractDistanceField


class JointKind(enum.Enum):
    """Kind of a joint (MJCF: `free`, `ball`, `slide`, `hinge`)."""

    FREE = "free"
    SPHERICAL = "ball"
    PRISMATIC = "slide"
    REVOLUTE = "hinge"

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return {"free": 7, "ball": 4}.get(self.value, 1)

    @property
    def nv(self) -> int:
        """Number of degrees of freedom."""
        return {"free": 6, "ball": 3}.get(self.value, 1)


class GeomKind(enum.Enum):
    """Kind of a shape. MuJoCo sorts the two shapes of a pair in this order."""

    PLANE = 0
    HFIELD = 1
    SPHERE = 2
    CAPSULE = 3
    ELLIPSOID = 4
    CYLINDER = 5
    BOX = 6
    MESH = 7

    @property
    def num_sizes(self) -> int:
        """Number of sizes that determine how the shape touches others."""
        counts = {"SPHERE": 1, "CAPSULE": 2, "CYLINDER": 2, "ELLIPSOID": 3, "BOX": 3}
        return counts.get(self.name, 0)


class WrapKind(enum.Enum):
    """Kind of an element in the path of a tendon (MJCF: `joint`, `site`, `geom`,
    `pulley`)."""

    JOINT = "joint"
    SITE = "site"
    GEOM = "geom"
    PULLEY = "pulley"


class Integrator(enum.Enum):
    """Integration method of a step."""

    EULER = "Euler"
    RK4 = "RK4"
    IMPLICIT = "implicit"
    IMPLICIT_FAST = "implicitfast"


class Activation(enum.Enum):
    """Activation dynamics (MJCF: `dyntype`)."""

    NONE = "none"
    INTEGRATOR = "integrator"
    FILTER = "filter"
    FILTER_EXACT = "filterexact"
    MUSCLE = "muscle"
    DC_MOTOR = "dcmotor"
    PID = "pid"


class Cone(enum.Enum):
    """Shape of friction cones."""

    PYRAMIDAL = "pyramidal"
    ELLIPTIC = "elliptic"


class EqualityKind(enum.Enum):
    """Kind of an equality constraint (MJCF: `connect`, `weld`, `joint`, `tendon`)."""

    CONNECT = 0
    WELD = 1
    JOINT = 2
    TENDON = 3


class Transmission(enum.Enum):
    """Kind of object that an actuator acts on.

    `ORIENTATION` acts on the orientation of a ball joint, or of a site relative to a
    reference site, by three forces.
    """

    JOINT = "joint"
    JOINT_IN_PARENT = "jointinparent"
    SLIDER_CRANK = "slidercrank"
    TENDON = "tendon"
    SITE = "site"
    BODY = "body"
    ORIENTATION = "so3"


class Gain(enum.Enum):
    """Dependence of the force of an actuator on its input (MJCF: `gaintype`)."""

    AFFINE = "affine"
    MUSCLE = "muscle"
    DC_MOTOR = "dcmotor"
    ORIENTATION = "so3"
    PID = "pid"
    DISCRETE_PID = "discrete_pid"


class Bias(enum.Enum):
    """Force of an actuator without input (MJCF: `biastype`)."""

    AFFINE = "affine"
    MUSCLE = "muscle"
    DC_MOTOR = "dcmotor"
    ORIENTATION = "so3"


class Control(enum.Enum):
    """Meaning of a control of an actuator.

    `SIGNAL` is the input of the force law or of the activation dynamics. Three
    `ROTATION` controls are a rotation vector, four `QUATERNION` controls a quaternion.
    """

    SIGNAL = "signal"
    POSITION = "pos"
    VELOCITY = "vel"
    FORCE = "ff"
    VOLTAGE = "voltage"
    ROTATION = "expmap"
    QUATERNION = "quat"


class ActivationState(enum.Enum):
    """Meaning of an activation of an actuator.

    DC motors have up to five activations and PID servos up to two, in this order.
    Discrete PID servos have `INTEGRAL`, `SLEW`, `STARTED` and `SIGNAL`, or some of them;
    `STARTED` is zero before the first step, in which the setpoint may jump. All other
    actuators have `SIGNAL`.
    """

    SIGNAL = "signal"
    SLEW = "slew"
    INTEGRAL = "integral"
    TEMPERATURE = "temperature"
    BRISTLE = "bristle"
    CURRENT = "current"
    STARTED = "started"


@dataclasses.dataclass(frozen=True)
class ShapeKind:
    """A kind of shape in addition to those of MuJoCo, created by `register_shape`.

    - `name`: name in capitals, as in `GeomKind`.
    - `value`: position in the order of a pair, after all of `GeomKind` and distance fields.
    """

    name: str
    value: int

    @property
    def num_sizes(self) -> int:
        """Number of sizes, as of `GeomKind`."""
        return 3

    def extents(self, size: Any) -> Any:
        """Compute the half sizes of the bounding box, in the frame of the shape, from
        its sizes."""
        return _EXTENTS[self.name](size)

    def __reduce__(self):
        return _registered, (self.name,)


AnyKind = GeomKind | ShapeKind | AbstractDistanceField
"""A kind of shape: built-in, added by a user, or a distance field."""


def kind_order(kind: AnyKind) -> tuple[int, str]:
    """Return a key that sorts kinds: distance fields, which have the same value, by their
    parameters."""
    return kind.value, "" if isinstance(kind, GeomKind) else repr(kind)


_KINDS: dict[str, ShapeKind] = {}
_EXTENTS: dict[str, Callable] = {}


def register_shape(name: str, extents: Callable) -> ShapeKind:
    """Add a kind of shape, whose collisions are defined by `register_collider`.

    Such shapes have no MJCF, and can be neither drawn nor hit by rays: each raises an
    error. Other processes, for example those that load a pickle, must register the
    shape as well.

    **Arguments:**

    - `name`: a valid identifier.
    - `extents`: function of the sizes, an `eqsim.spatial.Vec3` of arrays, that returns
        the half sizes of a box around the origin that contains the shape, a `Vec3`, m.

    **Returns:** the kind, for `register_collider` and `replace_shape`.

    **Raises:** `ValueError` if the name is not an identifier, or is taken.
    """
    key = name.upper()
    if not name.isidentifier():
        raise ValueError(f"`name` must be an identifier, got {name!r}.")
    if key in GeomKind.__members__ or key in _KINDS:
        raise ValueError(
            f"A kind of shape named {key} exists already. Choose another name."
        )
    first = AbstractDistanceField.value + 1
    _KINDS[key] = ShapeKind(key, first + len(_KINDS))
    _EXTENTS[key] = extents
    return _KINDS[key]


def _registered(name: str) -> ShapeKind:
    if name not in _KINDS:
        raise ValueError(
            f"The kind of shape {name} is not registered in this process. Call "
            f"`eqsim.model.register_shape({name.lower()!r}, ...)` first."
        )
    return _KINDS[name]


def require_known(kind: AnyKind, what: str) -> None:
    """Raise `ValueError` for a kind added by a user, or a distance field.

    **Arguments:**

    - `what`: end of the message, for instance `"cannot be drawn"`.
    """
    if not isinstance(kind, GeomKind):
        raise ValueError(
            f"Shapes of the kind {kind.name} {what}. Use `replace_shape` to "
            "put one of MuJoCo's kinds in its place."
        )
