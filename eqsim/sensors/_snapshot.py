"""Inputs of sensors: a robot at one state, and the solution of its equations of
motion."""

from typing import Any, NamedTuple

from ..collision import GeomFrames
from ..constraint._contact import ContactReport
from ..dynamics._actuation import Actuation
from ..kinematics._forward import Frames, Kinematics, Velocities
from ..spatial import Vec3


class AppliedWrenches(NamedTuple):
    """External forces on links, in world axes.

    - `links`: link that each force acts on.
    - `pos`: point at which each force acts.
    - `force`, `torque`: force, and torque about that point.
    """

    links: tuple[int, ...]
    pos: Vec3
    force: Vec3
    torque: Vec3


class LimitForces(NamedTuple):
    """Forces of limits, `(n, *batch)`; an entry is None if there are no such limits.

    - `below`, `above`: forces of lower and upper limits of the joints of
        `limited_joints`.
    - `balls`: forces of limits of the spherical joints of `limited_balls`.
    - `tendons_below`, `tendons_above`: forces of lower and upper limits of limited
        tendons.
    """

    below: Any = None
    above: Any = None
    balls: Any = None
    tendons_below: Any = None
    tendons_above: Any = None


class SolvedMotion(NamedTuple):
    """Solution of the equations of motion.

    - `qdd`: joint accelerations, `(nv, *batch)`.
    - `contacts`: contacts; None if no sensor reports them, or no shapes can touch.
    - `limits`: forces of limits.
    - `wrenches`: forces on links that are not inertial: contacts, equality constraints
        and external forces; empty if no sensor uses them.
    """

    qdd: Any
    contacts: ContactReport | None
    limits: LimitForces
    wrenches: tuple[AppliedWrenches, ...]


class Snapshot(NamedTuple):
    """A robot at one state, in world axes; arrays have the batch axes last.

    - `fixed`: constant frames.
    - `geoms`: frames of the shapes in the nodes.
    - `kin`, `speed`: poses and velocities of the nodes.
    - `q`, `qd`: coordinates and velocities.
    - `time`: time, s.
    - `drive`: actuator forces; None if no sensor uses them.
    - `solved`: solution of the equations of motion; None if no sensor uses it.
    """

    fixed: Frames
    geoms: GeomFrames
    kin: Kinematics
    speed: Velocities
    q: Any
    qd: Any
    time: Any
    drive: Actuation | None
    solved: SolvedMotion | None

    @property
    def solution(self) -> SolvedMotion:
        """Return the solution, for sensors that need one."""
        assert self.solved is not None, "the stage of this kind is ACCELERATION"
        return self.solved

    @property
    def actuators(self) -> Actuation:
        """Return the actuator forces, for sensors that need them."""
        assert self.drive is not None, "asked only by kinds that read actuators"
        return self.drive
