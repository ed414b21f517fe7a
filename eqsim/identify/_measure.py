"""Measurements on a robot, as functions of its state."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kinematics import forward
from ..model import SensorKind, State, System
from ..pipelines import Generalized
from ..spatial import Mat3, matrix_quaternion
from ._geometry import AbstractSpace, Coordinates, Euclidean, Orientation


class AbstractMeasurement(eqx.Module):
    """A prediction of one or more channels of a recording."""

    @abc.abstractmethod
    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        """Compute the value of each channel in a state."""

    @abc.abstractmethod
    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        """Return the space of each channel that is not Euclidean."""


class JointPositions(AbstractMeasurement):
    """All coordinates; orientations are compared as rotations.

    **Arguments:**

    - `channel`: name of the channel in recordings.
    """

    channel: str = eqx.field(static=True, default="q")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        return {self.channel: state.q}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {self.channel: Coordinates(sys)} if sys.nq != sys.nv else {}


class JointVelocities(AbstractMeasurement):
    """All velocities.

    **Arguments:**

    - `channel`: name of the channel in recordings.
    """

    channel: str = eqx.field(static=True, default="qd")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        return {self.channel: state.qd}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {}


class FreeBodyPose(AbstractMeasurement):
    """Position of the origin of a link, m, and its orientation, as motion capture
    reports them.

    **Arguments:**

    - `link`: name of the link.
    - `position`, `orientation`: names of the channels, of three and four columns.
    """

    link: str = eqx.field(static=True)
    position: str = eqx.field(static=True, default="pos")
    orientation: str = eqx.field(static=True, default="quat")

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        poses = forward(sys, state.q)
        k = sys.link(self.link).index
        quat = jnp.stack(matrix_quaternion(Mat3(*jnp.ravel(poses.rot[k]))))
        return {self.position: poses.pos[k], self.orientation: quat}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {self.orientation: Orientation()}


_QUATERNIONS = (SensorKind.BALL_QUATERNION, SensorKind.FRAME_QUATERNION)


class Sensors(AbstractMeasurement):
    """Sensors of the robot (MJCF: `sensor`), one channel each.

    **Arguments:**

    - `names`: names of sensors; by default all.
    - `pipeline`: physics for forces and accelerations.
    """

    names: tuple[str, ...] | None = eqx.field(static=True, default=None)
    pipeline: Generalized = eqx.field(default_factory=Generalized)

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        values = self.pipeline.sensors(sys, state, ctrl)
        names = sys.sensors.names if self.names is None else self.names
        return {name: jnp.atleast_1d(values[name]) for name in names}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        names = sys.sensors.names if self.names is None else self.names
        kinds = dict(zip(sys.sensors.names, sys.sensors.kinds, strict=True))
        for name in names:
            if name not in kinds:
                raise ValueError(
                    f"There is no sensor {name!r}. Sensors: {list(sys.sensors.names)}."
                )
        return {name: Orientation() for name in names if kinds[name] in _QUATERNIONS}


class Function(AbstractMeasurement):
    """Any function of robot and state.

    **Arguments:**

    - `fn`: `(sys, state) -> {channel: array}`. Recompiles if it is another function.
    - `orientations`: channels that are unit quaternions.
    """

    fn: Callable[[System, State], dict[str, Any]] = eqx.field(static=True)
    orientations: tuple[str, ...] = eqx.field(static=True, default=())

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        return {k: jnp.atleast_1d(v) for k, v in self.fn(sys, state).items()}

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        return {name: Orientation() for name in self.orientations}


class Joined(AbstractMeasurement):
    """Several measurements.

    **Arguments:**

    - `parts`: measurements whose channels have different names.
    """

    parts: tuple[AbstractMeasurement, ...]

    def predict(
        self, sys: System, state: State, ctrl: Float[Array, " nu"]
    ) -> dict[str, Array]:
        out: dict[str, Array] = {}
        for part in self.parts:
            out |= part.predict(sys, state, ctrl)
        return out

    def spaces(self, sys: System) -> dict[str, AbstractSpace]:
        out: dict[str, AbstractSpace] = {}
        for part in self.parts:
            out |= part.spaces(sys)
        return out


def measurement(value: Any) -> AbstractMeasurement:
    """Return a measurement from one, several, or a function."""
    if isinstance(value, AbstractMeasurement):
        return value
    if isinstance(value, Sequence):
        return Joined(tuple(measurement(part) for part in value))
    if callable(value):
        fn: Any = value
        return Function(fn)
    raise TypeError(
        "`measure` must be a measurement such as `JointPositions()`, a tuple of them, "
        f"or a function (sys, state) -> {{channel: array}}, got {value!r}."
    )


def space_of(measure: AbstractMeasurement, sys: System, channel: str) -> AbstractSpace:
    """Return the space of a channel."""
    return measure.spaces(sys).get(channel, Euclidean())
