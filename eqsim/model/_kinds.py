"""The closed vocabularies of the model: joints, shapes, tendons, transmissions,
integrators."""

import enum


class JointKind(enum.Enum):
    """What a joint lets a link do (MJCF: `free`, `ball`, `slide`, `hinge`)."""

    FREE = "free"
    SPHERICAL = "ball"
    PRISMATIC = "slide"
    REVOLUTE = "hinge"

    @property
    def nq(self) -> int:
        """How many numbers place it."""
        return {"free": 7, "ball": 4}.get(self.value, 1)

    @property
    def nv(self) -> int:
        """How many numbers move it."""
        return {"free": 6, "ball": 3}.get(self.value, 1)


class GeomKind(enum.Enum):
    """A shape. The order is the one in which MuJoCo sorts the two shapes of a pair."""

    PLANE = 0
    HFIELD = 1
    SPHERE = 2
    CAPSULE = 3
    ELLIPSOID = 4
    CYLINDER = 5
    BOX = 6
    MESH = 7


class WrapKind(enum.Enum):
    """What the path of a tendon consists of (MJCF: `joint`, `site`, `geom`, `pulley`)."""

    JOINT = "joint"
    SITE = "site"
    GEOM = "geom"
    PULLEY = "pulley"


class Integrator(enum.Enum):
    """How acceleration becomes motion."""

    EULER = "Euler"
    RK4 = "RK4"
    IMPLICIT = "implicit"
    IMPLICIT_FAST = "implicitfast"


class Activation(enum.Enum):
    """How a control signal becomes an activation (MJCF: `dyntype`)."""

    NONE = "none"
    INTEGRATOR = "integrator"
    FILTER = "filter"
    FILTER_EXACT = "filterexact"
    MUSCLE = "muscle"
    DC_MOTOR = "dcmotor"
    PID = "pid"


class Cone(enum.Enum):
    """The shape of friction cones."""

    PYRAMIDAL = "pyramidal"
    ELLIPTIC = "elliptic"


class EqualityKind(enum.Enum):
    """What an equality constraint couples (MJCF: `connect`, `weld`, `joint`, `tendon`)."""

    CONNECT = 0
    WELD = 1
    JOINT = 2
    TENDON = 3


class Transmission(enum.Enum):
    """What an actuator acts on.

    `ORIENTATION` acts on the orientation of a ball joint, or of a site relative to a
    reference site, with three forces.
    """

    JOINT = "joint"
    JOINT_IN_PARENT = "jointinparent"
    SLIDER_CRANK = "slidercrank"
    TENDON = "tendon"
    SITE = "site"
    BODY = "body"
    ORIENTATION = "so3"


class Gain(enum.Enum):
    """How the force of an actuator depends on its input (MJCF: `gaintype`)."""

    AFFINE = "affine"
    MUSCLE = "muscle"
    DC_MOTOR = "dcmotor"
    ORIENTATION = "so3"
    PID = "pid"


class Bias(enum.Enum):
    """The force of an actuator without input (MJCF: `biastype`)."""

    AFFINE = "affine"
    MUSCLE = "muscle"
    DC_MOTOR = "dcmotor"
    ORIENTATION = "so3"


class Control(enum.Enum):
    """The meaning of one control of an actuator.

    `SIGNAL` is the input of the force law or of the activation dynamics; three
    `ROTATION` controls are a rotation vector, and four `QUATERNION` controls a
    quaternion.
    """

    SIGNAL = "signal"
    POSITION = "pos"
    VELOCITY = "vel"
    FORCE = "ff"
    VOLTAGE = "voltage"
    ROTATION = "expmap"
    QUATERNION = "quat"


class ActivationState(enum.Enum):
    """The meaning of one activation of an actuator.

    DC motors and PID servos have up to five and two, in this order; all others have
    `SIGNAL`.
    """

    SIGNAL = "signal"
    SLEW = "slew"
    INTEGRAL = "integral"
    TEMPERATURE = "temperature"
    BRISTLE = "bristle"
    CURRENT = "current"
