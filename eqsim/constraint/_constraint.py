"""Interface of constraints: rows of the convex problem, from the state of a robot."""

import abc
from typing import Any, NamedTuple

import equinox as eqx

from ..collision import ContactPoints, Listing
from ..collision._pair_lists import ListFrames
from ..dynamics._weights import InverseWeights
from ..kinematics._forward import Frames, Kinematics, Velocities
from ..kinematics._tendons import TendonKinematics
from ..model import System
from ._rows import AbstractRows


class Moment(NamedTuple):
    """A robot at one state, in world axes; arrays have the batch axes last.

    - `fixed`: constant frames.
    - `kin`, `speed`: poses and velocities of the nodes.
    - `q`, `qd`: coordinates and velocities.
    - `points`: points of the pairs that are always computed (`split_plan`); None if there
        are none.
    - `listing`: pairs that touch and contacts of the others; None if there are none.
    - `frames`: frames of the shapes of listed pairs; None if there are none.
    - `tendons`: lengths and Jacobians of the tendons; None if none of them matters.
    - `width`: width of the onset of contacts, m; None if it is abrupt.
    - `every_point`: points of all pairs that could touch, in the order of `ContactPlan`;
        None unless kinds of constraints besides those of `ALL` may read them.
    """

    fixed: Frames
    kin: Kinematics
    speed: Velocities
    q: Any
    qd: Any
    points: ContactPoints | None
    tendons: TendonKinematics | None
    width: Any
    listing: Listing | None = None
    frames: ListFrames | None = None
    every_point: ContactPoints | None = None


class AbstractConstraint(eqx.Module):
    r"""A kind of constraint, such as joint limits.

    The solver minimizes $\tfrac12 |a - a_0|_M^2 + s(J a - a_\mathrm{ref})$ over the joint
    accelerations $a$. A constraint says what $J$, $a_\mathrm{ref}$ and the cost $s$ are, as
    `AbstractRows`; forces, implicit derivatives and reports follow from these.

    To add a kind, write a class with these two methods, and pass it in
    `Generalized(constraints=(*constraint.ALL, Mine()))`. Array fields are parameters, which
    can be batched and differentiated.
    """

    @abc.abstractmethod
    def constants(self, sys: System, weights: InverseWeights) -> Any:
        """Compute what does not depend on the state.

        **Returns:** a tree of arrays; None if the robot has no such constraint, which must
        follow from its structure alone.
        """

    @abc.abstractmethod
    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        """Compute the rows at one state. Not called where `constants` gave None."""
