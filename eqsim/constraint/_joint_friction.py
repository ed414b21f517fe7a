"""Dry friction of joints.

Source: MuJoCo documentation, *Computation*, "Friction loss"; `mj_instantiateFriction`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics._weights import InverseWeights
from ..model import System
from ..model._gather import take
from ._constraint import AbstractConstraint, Moment
from ._costs import Huber
from ._jacobians import DofJacobian
from ._rows import AbstractRows, Rows
from ._softness import columns, impedance, softness, stiffness_weight


class FrictionConstants(NamedTuple):
    """Damping of the reference acceleration, weight and largest force of each row."""

    damping: Any
    weight: Any
    largest: Any


def friction_constants(
    sys: System, solref, solimp, inverse_weight, largest
) -> FrictionConstants:
    """Compute the constants of dry friction, whose impedance does not depend on the
    state."""
    soft = softness(
        columns(solref, 2), columns(solimp, 5), sys.dt[None], sys.safe_solref
    )
    imp = impedance(soft, jnp.zeros_like(soft.b))
    return FrictionConstants(soft.b, stiffness_weight(imp, inverse_weight), largest)


class JointFriction(AbstractConstraint):
    """Dry friction of joints (MJCF: `frictionloss`)."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        joints, dofs = sys.joints, _friction_dofs(sys)
        if not dofs:
            return None
        values = joints.friction_solref, joints.friction_solimp, weights.dof
        return friction_constants(sys, *take((*values, joints.frictionloss), dofs))

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        dofs = _friction_dofs(sys)
        offset = constants.damping * take(now.qd, dofs)
        cost = Huber(constants.weight, constants.largest)
        return (Rows(DofJacobian(dofs), cost, (offset,)),)


def _friction_dofs(sys: System) -> tuple[int, ...]:
    return tuple(dof for dof, has in enumerate(sys.joints.has_friction) if has)
