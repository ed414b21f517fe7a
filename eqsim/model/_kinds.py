"""Enumerations of the model: joints, shapes, tendons, transmissions, integrators."""

import enum


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

    DC motors have up to five activations and PID servos up to two, in this order; all
    other actuators have `SIGNAL`.
    """

    SIGNAL = "signal"
    SLEW = "slew"
    INTEGRAL = "integral"
    TEMPERATURE = "temperature"
    BRISTLE = "bristle"
    CURRENT = "current"
