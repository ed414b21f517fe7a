"""The closed vocabularies of the model: joints, shapes, transmissions, integrators."""

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
