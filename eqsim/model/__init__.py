"""What a robot is: structure and primary parameters."""

from ._actuators import Actuators as Actuators
from ._geoms import Geoms as Geoms, Pairs as Pairs
from ._joints import Joints as Joints
from ._kinds import (
    Activation as Activation,
    GeomKind as GeomKind,
    Integrator as Integrator,
    JointKind as JointKind,
)
from ._links import Links as Links
from ._state import State as State
from ._system import System as System
from ._gather import (
    accumulate as accumulate,
    concatenate as concatenate,
    put as put,
    take as take,
)
from ._tree import Tree as Tree, tree as tree
