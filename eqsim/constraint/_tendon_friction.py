"""Dry friction of tendons.

Source: MuJoCo documentation, *Computation*, "Friction loss"; `mj_instantiateFriction`.
"""

from typing import Any

import jax.numpy as jnp

from ..dynamics._weights import InverseWeights
from ..kinematics._tendon_paths import tendon_dofs
from ..model import System
from ..model._gather import take
from ._constraint import AbstractConstraint, Moment
from ._costs import Huber
from ._jacobians import sparse_jacobian
from ._joint_friction import friction_constants
from ._rows import AbstractRows, Rows


class TendonFriction(AbstractConstraint):
    """Dry friction of tendons (MJCF: `frictionloss`)."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        tendons, chosen = sys.tendons, _with_friction(sys)
        if not chosen:
            return None
        values = tendons.friction_solref, tendons.friction_solimp, weights.tendon
        return friction_constants(sys, *take((*values, tendons.frictionloss), chosen))

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        assert now.tendons is not None, "a robot with friction of tendons has tendons"
        jac = take(now.tendons.jac, _with_friction(sys))
        offset = constants.damping * jnp.sum(jac * now.qd[None], axis=1)
        cost = Huber(constants.weight, constants.largest)
        jacobian = sparse_jacobian(
            jac, [tendon_dofs(sys)[k] for k in _with_friction(sys)]
        )
        return (Rows(jacobian, cost, (offset,)),)


def _with_friction(sys: System) -> tuple[int, ...]:
    return tuple(k for k, has in enumerate(sys.tendons.has_friction) if has)
