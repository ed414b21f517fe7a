"""The record of a robot at one state, and the interface of constraints, which read it."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx

from ..collision.detection import GeomFrames
from ..collision.pair_lists import Listing
from ..collision.points import ContactPoints
from ..dynamics.actuation import Actuation
from ..dynamics.weights import InverseWeights
from ..kinematics.link_motion import Frames, Kinematics, Velocities
from ..kinematics.tendon_paths import TendonKinematics
from ..model import System
from .newton import Problem, Solution
from .rows import AbstractRows


_LATER: Any = None
"""Default of fields that a later stage computes."""


class RobotData(NamedTuple):
    """A robot at one state, in world axes; arrays have the batch axes last.

    The stages of a step (`pipelines/forward_dynamics.py`) add the fields. Constraints are
    called when all but the last two are known.

    - `fixed`, `geoms`: constant frames of the links, and of the shapes in the nodes.
    - `onset_width`: width of the onset of contacts, m; None if it is abrupt.
    - `q`, `qd`, `act`: coordinates, velocities and activations.
    - `kin`, `velocities`: poses and velocities of the nodes.
    - `tendons`: lengths and Jacobians of the tendons; None if none of them matters.
    - `points`: points of the pairs that are always computed (`split_plan`); None if there
        are none.
    - `listing`: pairs that touch and contacts of the others; None if there are none.
    - `every_point`: points of all pairs that could touch, in the order of `ContactPlan`;
        None unless a kind of constraint reads them (`AbstractConstraint.reads_every_point`).
    - `drive`: the actuators.
    - `problem`: the convex problem of the accelerations, with rows by kind of constraint.
    - `solution`: its solution, the accelerations.
    """

    fixed: Frames
    geoms: GeomFrames
    onset_width: Any
    q: Any
    qd: Any
    act: Any
    kin: Kinematics
    velocities: Velocities
    tendons: TendonKinematics | None = None
    points: ContactPoints | None = None
    listing: Listing | None = None
    every_point: ContactPoints | None = None
    drive: Actuation = _LATER
    problem: Problem = _LATER
    solution: Solution = _LATER


class AbstractConstraint(eqx.Module):
    r"""A kind of constraint, such as joint limits.

    The solver minimizes $\tfrac12 |a - a_0|_M^2 + s(J a - a_\mathrm{ref})$ over the joint
    accelerations $a$. A constraint says what $J$, $a_\mathrm{ref}$ and the cost $s$ are, as
    `AbstractRows`; forces, implicit derivatives and reports follow from these.

    To add a kind, write a class with these two methods, and pass it in
    `Generalized(constraints=(*constraint.ALL, Mine()))`. Array fields are parameters, which
    can be batched and differentiated.

    - `reads_every_point`: true if `rows` reads `now.every_point`, which is None otherwise
        unless another kind reads it.
    """

    reads_every_point: ClassVar[bool] = False

    @abc.abstractmethod
    def constants(self, sys: System, weights: InverseWeights) -> Any:
        """Compute what does not depend on the state.

        **Returns:** a tree of arrays; None if the robot has no such constraint, which must
        follow from its structure alone.
        """

    @abc.abstractmethod
    def rows(
        self, sys: System, constants: Any, now: RobotData
    ) -> tuple[AbstractRows, ...]:
        """Compute the rows at one state. Not called where `constants` gave None."""
