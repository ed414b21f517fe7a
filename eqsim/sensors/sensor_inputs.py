"""Inputs of sensors: a robot at one state, and forces at the solution of its equations of
motion."""

from typing import Any, NamedTuple

from ..constraint import RobotData
from ..constraint.contact import ContactReport
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


class SolvedForces(NamedTuple):
    """Forces at the solution of the equations of motion.

    - `contacts`: contacts; None if no sensor reports them, or no shapes can touch.
    - `limits`: forces of limits.
    - `wrenches`: forces on links that are not inertial: contacts, equality constraints
        and external forces; empty if no sensor uses them.
    """

    contacts: ContactReport | None
    limits: LimitForces
    wrenches: tuple[AppliedWrenches, ...]


class SensorInputs(NamedTuple):
    """Inputs of sensors; arrays have the batch axes last.

    - `data`: the robot at one state. It has actuator forces, and the solution of the
        equations of motion, only if a sensor uses them.
    - `time`: time, s.
    - `solved`: forces at the solution; None if no sensor uses it.
    """

    data: RobotData
    time: Any
    solved: SolvedForces | None

    @property
    def forces(self) -> SolvedForces:
        """Return the forces at the solution, for sensors that need one."""
        assert self.solved is not None, "the stage of this kind is ACCELERATION"
        return self.solved
