"""Constants of a step in maximal coordinates, which depend on the robot but not on the
state."""

import equinox as eqx

from .._calls import AbstractPattern, AbstractPatterned, Pattern
from ..collision import contact_plan, geom_frames, GeomFrames
from ..constraint import contact_friction, Friction
from ..dynamics._actuation import actuation_constants
from ..dynamics._articulated import node_bodies, NodeBodies
from ..dynamics._ellipsoids import Ellipsoids
from ..dynamics._muscle import MuscleScale
from ..dynamics._passive import fluid_ellipsoids
from ..dynamics._tendons import tendon_constants, TendonConstants
from ..kinematics._forward import Frames, frames
from ..model import System, tree
from ._pipeline import AbstractPrepared
from ._rigid_bodies import body_parameters, BodyParameters


class BodyConstants(AbstractPatterned):
    """Quantities that depend on a `System` but not on the state.

    - `frames`: constant frames of kinematics.
    - `nodes`: inertias in the frames of the nodes.
    - `bodies`: masses and inertias of the bodies, in the frames of their links.
    - `geoms`: frames of the shapes.
    - `friction`: friction coefficients of the contact points, None if there are none.
    - `muscles`: peak forces and optimal lengths of muscles; None if there are none.
    - `tendons`: constants of the tendons, None if there are none.
    - `fluid`: shapes with fluid forces on ellipsoids; None if there are none.
    - `pattern`: assumptions about these values, see `Pattern`.
    """

    frames: Frames
    nodes: NodeBodies
    bodies: BodyParameters
    geoms: GeomFrames
    friction: Friction | None
    muscles: MuscleScale | None
    tendons: TendonConstants | None
    fluid: Ellipsoids | None
    pattern: AbstractPattern = eqx.field(static=True, default=Pattern())


class PreparedBodies(AbstractPrepared):
    """A robot, and all quantities that depend on the robot alone.

    `Spring.prepare` and `Positional.prepare` compute it. It takes the place of `sys` in
    `step` and the other methods, which otherwise prepare the robot in every call.

    - `sys`: the robot.
    - `constants`: derived quantities, such as masses and inertias of the bodies.
    """

    sys: System
    constants: BodyConstants


def derive_bodies(sys: System) -> BodyConstants:
    """Compute the constants of a system (batch axes last)."""
    plan, nodes = contact_plan(sys), tree(sys)
    fixed = frames(sys, nodes)
    lumped = node_bodies(sys, nodes, fixed)
    parameters, geoms = body_parameters(nodes, lumped), geom_frames(sys, fixed)
    friction = contact_friction(sys, plan) if plan.size else None
    return BodyConstants(
        frames=fixed,
        nodes=lumped,
        bodies=parameters,
        geoms=geoms,
        friction=friction,
        muscles=actuation_constants(sys, nodes, fixed, lumped).muscles,
        tendons=tendon_constants(sys, nodes, fixed),
        fluid=fluid_ellipsoids(sys, nodes, fixed),
    )
