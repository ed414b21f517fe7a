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
    SPHERE = 2
    CAPSULE = 3
    ELLIPSOID = 4
    CYLINDER = 5
    BOX = 6


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


class Activation(enum.Enum):
    """How a control signal becomes an activation (MJCF: `dyntype`)."""

    NONE = "none"
    INTEGRATOR = "integrator"
    FILTER = "filter"
    FILTER_EXACT = "filterexact"
