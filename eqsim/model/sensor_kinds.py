"""Sensors: their kinds, and those of a robot."""

import enum
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .arrays import as_array


# Kinds.


class SensorKind(enum.Enum):
    """Kind of a sensor; the values are the names of MJCF elements."""

    JOINT_POSITION = "jointpos"
    JOINT_VELOCITY = "jointvel"
    JOINT_ACTUATOR_FORCE = "jointactuatorfrc"
    JOINT_LIMIT_POSITION = "jointlimitpos"
    JOINT_LIMIT_VELOCITY = "jointlimitvel"
    JOINT_LIMIT_FORCE = "jointlimitfrc"
    BALL_QUATERNION = "ballquat"
    BALL_VELOCITY = "ballangvel"
    TENDON_POSITION = "tendonpos"
    TENDON_VELOCITY = "tendonvel"
    TENDON_ACTUATOR_FORCE = "tendonactuatorfrc"
    TENDON_LIMIT_POSITION = "tendonlimitpos"
    TENDON_LIMIT_VELOCITY = "tendonlimitvel"
    TENDON_LIMIT_FORCE = "tendonlimitfrc"
    ACTUATOR_POSITION = "actuatorpos"
    ACTUATOR_VELOCITY = "actuatorvel"
    ACTUATOR_FORCE = "actuatorfrc"
    FRAME_POSITION = "framepos"
    FRAME_QUATERNION = "framequat"
    FRAME_X_AXIS = "framexaxis"
    FRAME_Y_AXIS = "frameyaxis"
    FRAME_Z_AXIS = "framezaxis"
    FRAME_VELOCITY = "framelinvel"
    FRAME_ANGULAR_VELOCITY = "frameangvel"
    FRAME_ACCELERATION = "framelinacc"
    FRAME_ANGULAR_ACCELERATION = "frameangacc"
    ACCELEROMETER = "accelerometer"
    VELOCIMETER = "velocimeter"
    GYRO = "gyro"
    MAGNETOMETER = "magnetometer"
    FORCE = "force"
    TORQUE = "torque"
    TOUCH = "touch"
    CONTACT = "contact"
    RANGEFINDER = "rangefinder"
    INSIDE_SITE = "insidesite"
    DISTANCE = "distance"
    NORMAL = "normal"
    FROM_TO = "fromto"
    SUBTREE_CENTER = "subtreecom"
    SUBTREE_VELOCITY = "subtreelinvel"
    SUBTREE_ANGULAR_MOMENTUM = "subtreeangmom"
    POTENTIAL_ENERGY = "e_potential"
    KINETIC_ENERGY = "e_kinetic"
    CLOCK = "clock"


class SensorObject(enum.Enum):
    """Kind of object that a sensor is attached to, or measures relative to; the values
    are those of MJCF.

    `LINK` is the frame of a link, `INERTIA` that of its principal axes of inertia.
    """

    NONE = "none"
    INERTIA = "body"
    LINK = "xbody"
    GEOM = "geom"
    SITE = "site"
    JOINT = "joint"
    TENDON = "tendon"
    ACTUATOR = "actuator"


class ContactData(enum.Enum):
    """Data that a contact sensor returns for each contact, in this order."""

    FOUND = "found"
    FORCE = "force"
    TORQUE = "torque"
    DISTANCE = "dist"
    POSITION = "pos"
    NORMAL = "normal"
    TANGENT = "tangent"
    VELOCITY = "linvel"
    ANGULAR_VELOCITY = "angvel"

    @property
    def size(self) -> int:
        """Number of values."""
        return 1 if self in (ContactData.FOUND, ContactData.DISTANCE) else 3


class RayData(enum.Enum):
    """Data that a rangefinder returns, in this order."""

    DISTANCE = "dist"
    DIRECTION = "dir"
    ORIGIN = "origin"
    POINT = "point"
    NORMAL = "normal"
    DEPTH = "depth"

    @property
    def size(self) -> int:
        """Number of values."""
        return 1 if self in (RayData.DISTANCE, RayData.DEPTH) else 3


class ContactReduction(enum.Enum):
    """Selection of the contacts that a contact sensor returns: the first, the closest,
    those with the largest forces, or the sum of all."""

    FIRST = "none"
    CLOSEST = "mindist"
    STRONGEST = "maxforce"
    SUM = "netforce"


class Stage(enum.IntEnum):
    """Stage of the computation that a sensor depends on: coordinates; also velocities
    and actuators; also the solution of the equations of motion."""

    POSITION = 0
    VELOCITY = 1
    ACCELERATION = 2


class Cutoff(enum.Enum):
    """Values that a cutoff $c$ bounds: $|x| \\le c$, $x \\le c$, or none."""

    BOTH = "both sides"
    ABOVE = "above"
    NONE = "none"


class SensorFacts(NamedTuple):
    """Properties of a kind of sensor.

    - `size`: number of values; 0 if it depends on the sensor.
    - `unit`: unit of the values.
    - `stage`: stage of the computation that it depends on.
    - `meaning`: description of the values.
    - `cutoff`: values that a cutoff bounds.
    """

    size: int
    unit: str
    stage: Stage
    meaning: str
    cutoff: Cutoff = Cutoff.BOTH


_K, _P, _V, _A = SensorKind, Stage.POSITION, Stage.VELOCITY, Stage.ACCELERATION

SENSOR_FACTS: dict[SensorKind, SensorFacts] = {
    _K.JOINT_POSITION: SensorFacts(1, "rad, m", _P, "coordinate of a hinge or slide"),
    _K.JOINT_VELOCITY: SensorFacts(1, "rad/s, m/s", _V, "velocity of a hinge or slide"),
    _K.JOINT_ACTUATOR_FORCE: SensorFacts(
        1, "N m, N", _V, "sum of the actuator forces on a hinge or slide"
    ),
    _K.JOINT_LIMIT_POSITION: SensorFacts(
        1, "rad, m", _P, "distance to the limit minus margin if negative, else 0"
    ),
    _K.JOINT_LIMIT_VELOCITY: SensorFacts(
        1, "rad/s, m/s", _V, "rate of that distance if it is negative, else 0"
    ),
    _K.JOINT_LIMIT_FORCE: SensorFacts(1, "N m, N", _A, "force of the limit"),
    _K.BALL_QUATERNION: SensorFacts(
        4, "1", _P, "orientation of a ball joint, scalar first", Cutoff.NONE
    ),
    _K.BALL_VELOCITY: SensorFacts(3, "rad/s", _V, "angular velocity of a ball joint"),
    _K.TENDON_POSITION: SensorFacts(1, "m", _P, "length of a tendon"),
    _K.TENDON_VELOCITY: SensorFacts(1, "m/s", _V, "rate of the length of a tendon"),
    _K.TENDON_ACTUATOR_FORCE: SensorFacts(
        1, "N", _V, "sum of the actuator forces on a tendon"
    ),
    _K.TENDON_LIMIT_POSITION: SensorFacts(
        1, "m", _P, "distance to the limit minus margin if negative, else 0"
    ),
    _K.TENDON_LIMIT_VELOCITY: SensorFacts(
        1, "m/s", _V, "rate of that distance if it is negative, else 0"
    ),
    _K.TENDON_LIMIT_FORCE: SensorFacts(1, "N", _A, "force of the limit"),
    _K.ACTUATOR_POSITION: SensorFacts(
        0, "rad, m", _V, "length of an actuator, one value per force"
    ),
    _K.ACTUATOR_VELOCITY: SensorFacts(
        0, "rad/s, m/s", _V, "velocity of an actuator, one value per force"
    ),
    _K.ACTUATOR_FORCE: SensorFacts(
        0, "N m, N", _V, "force of an actuator, one value per force"
    ),
    _K.FRAME_POSITION: SensorFacts(3, "m", _P, "origin of a frame"),
    _K.FRAME_QUATERNION: SensorFacts(
        4, "1", _P, "orientation of a frame, scalar first", Cutoff.NONE
    ),
    _K.FRAME_X_AXIS: SensorFacts(3, "1", _P, "x axis of a frame", Cutoff.NONE),
    _K.FRAME_Y_AXIS: SensorFacts(3, "1", _P, "y axis of a frame", Cutoff.NONE),
    _K.FRAME_Z_AXIS: SensorFacts(3, "1", _P, "z axis of a frame", Cutoff.NONE),
    _K.FRAME_VELOCITY: SensorFacts(3, "m/s", _V, "velocity of the origin of a frame"),
    _K.FRAME_ANGULAR_VELOCITY: SensorFacts(
        3, "rad/s", _V, "angular velocity of a frame"
    ),
    _K.FRAME_ACCELERATION: SensorFacts(
        3, "m/s²", _A, "acceleration of the origin of a frame relative to free fall"
    ),
    _K.FRAME_ANGULAR_ACCELERATION: SensorFacts(
        3, "rad/s²", _A, "angular acceleration of a frame"
    ),
    _K.ACCELEROMETER: SensorFacts(
        3, "m/s²", _A, "acceleration of a site relative to free fall, in its axes"
    ),
    _K.VELOCIMETER: SensorFacts(3, "m/s", _V, "velocity of a site, in its axes"),
    _K.GYRO: SensorFacts(3, "rad/s", _V, "angular velocity of a site, in its axes"),
    _K.MAGNETOMETER: SensorFacts(3, "1", _P, "magnetic flux, in the axes of a site"),
    _K.FORCE: SensorFacts(
        3,
        "N",
        _A,
        "force exerted by the parent on the link of a site, in the site's axes",
    ),
    _K.TORQUE: SensorFacts(
        3,
        "N m",
        _A,
        "torque exerted by the parent on the link of a site, in the site's axes",
    ),
    _K.TOUCH: SensorFacts(
        1,
        "N",
        _A,
        "sum of the normal contact forces within the volume of a site",
        Cutoff.ABOVE,
    ),
    _K.CONTACT: SensorFacts(
        0, "N, N m, m", _A, "contacts between two objects", Cutoff.NONE
    ),
    _K.RANGEFINDER: SensorFacts(
        0, "m", _P, "distance to the nearest shape along the z axis of a site, else -1"
    ),
    _K.INSIDE_SITE: SensorFacts(
        1, "1", _P, "1 if a frame is in the shape of a site, else 0", Cutoff.ABOVE
    ),
    _K.DISTANCE: SensorFacts(
        1, "m", _P, "smallest distance between shapes, at most cutoff"
    ),
    _K.NORMAL: SensorFacts(
        3, "1", _P, "direction of the smallest distance, 0 beyond cutoff", Cutoff.NONE
    ),
    _K.FROM_TO: SensorFacts(
        6, "m", _P, "the two closest points, 0 beyond cutoff", Cutoff.NONE
    ),
    _K.SUBTREE_CENTER: SensorFacts(3, "m", _P, "center of mass of a subtree"),
    _K.SUBTREE_VELOCITY: SensorFacts(3, "m/s", _V, "velocity of that center"),
    _K.SUBTREE_ANGULAR_MOMENTUM: SensorFacts(
        3, "kg m²/s", _V, "angular momentum of a subtree about that center"
    ),
    _K.POTENTIAL_ENERGY: SensorFacts(1, "J", _P, "energy of gravity and springs"),
    _K.KINETIC_ENERGY: SensorFacts(1, "J", _V, "kinetic energy"),
    _K.CLOCK: SensorFacts(1, "s", _P, "time"),
}


# Sensors.


Attachment = tuple[SensorObject, int]


class Sensors(eqx.Module):
    r"""Sensors as in MuJoCo: functions of the state and of the solved forces.

    **Arguments:**

    - `names`, `kinds`: one entry per sensor.
    - `objects`, `references`: object that each sensor is attached to, and reference
        frame of the measurement, as kind and index; for links, index -1 is the world.
        `SensorObject.NONE` if there is none.
    - `limited`: true if `cutoff` is enforced.
    - `contact_data`, `contact_reductions`, `contact_slots`: for contact sensors, the
        data of a contact, the selection of contacts, and their number.
    - `ray_data`: for rangefinders, the data of the ray.
    - `ray_geoms`: shapes that rays can hit.
    - `cutoff`: bound of the values. For distances, the largest distance that is
        searched for.
    - `magnetic`: magnetic flux in the world. None: there is no magnetometer.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[SensorKind, ...] = eqx.field(static=True)
    objects: tuple[Attachment, ...] = eqx.field(static=True)
    references: tuple[Attachment, ...] = eqx.field(static=True)
    limited: tuple[bool, ...] = eqx.field(static=True)
    contact_data: tuple[tuple[ContactData, ...], ...] = eqx.field(static=True)
    contact_reductions: tuple[ContactReduction, ...] = eqx.field(static=True)
    contact_slots: tuple[int, ...] = eqx.field(static=True)
    ray_data: tuple[tuple[RayData, ...], ...] = eqx.field(static=True)
    ray_geoms: tuple[int, ...] = eqx.field(static=True)
    cutoff: Float[Array, " nsensor"] = eqx.field(converter=as_array)
    magnetic: Float[Array, "3"] | None = eqx.field(converter=as_array, default=None)

    @staticmethod
    def none() -> "Sensors":
        """Return no sensors."""
        return Sensors(*((),) * 10, cutoff=np.zeros(0))

    def select(self, names: Sequence[str]) -> "Sensors":
        """Return the sensors of these names, in this order."""
        index = [self.names.index(name) for name in names]
        chosen = lambda values: tuple(values[k] for k in index)
        return Sensors(
            chosen(self.names),
            chosen(self.kinds),
            chosen(self.objects),
            chosen(self.references),
            chosen(self.limited),
            chosen(self.contact_data),
            chosen(self.contact_reductions),
            chosen(self.contact_slots),
            chosen(self.ray_data),
            self.ray_geoms,
            self.cutoff[np.asarray(index, int)],
            self.magnetic,
        )

    def sizes(self, num_outputs: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of values of each sensor.

        **Arguments:**

        - `num_outputs`: number of forces of each actuator, `Actuators.num_outputs`.
        """
        return tuple(self._size(k, num_outputs) for k in range(len(self.names)))

    def _size(self, index: int, num_outputs: tuple[int, ...]) -> int:
        kind, (_, target) = self.kinds[index], self.objects[index]
        if SENSOR_FACTS[kind].size:
            return SENSOR_FACTS[kind].size
        if kind is SensorKind.CONTACT:
            per_slot = sum(data.size for data in self.contact_data[index])
            return per_slot * self.contact_slots[index]
        if kind is SensorKind.RANGEFINDER:
            return sum(data.size for data in self.ray_data[index])
        return num_outputs[target]
