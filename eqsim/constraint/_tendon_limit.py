"""Limits of the lengths of tendons.

Source: MuJoCo documentation, *Computation*, "Limits"; `mj_instantiateLimit`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics._weights import InverseWeights
from ..kinematics._tendon_paths import tendon_dofs
from ..model import System
from ..model._gather import take
from ._constraint import AbstractConstraint, Moment
from ._costs import OneSided
from ._jacobians import sparse_jacobian
from ._rows import AbstractRows, Rows
from ._softness import (
    columns,
    has_effect,
    impedance,
    Softness,
    softness,
    stiffness_weight,
)


class _Constants(NamedTuple):
    soft: Softness
    weight: Any


class TendonLimit(AbstractConstraint):
    """Lower and upper limits of tendons."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        limited, tendons = _limited(sys), sys.tendons
        if not limited:
            return None
        values = columns(tendons.limit_solref, 2), columns(tendons.limit_solimp, 5)
        solref, solimp, weight = take((*values, weights.tendon), limited)
        return _Constants(
            softness(solref, solimp, sys.dt[None], sys.safe_solref), weight
        )

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        assert now.tendons is not None, "a robot with limited tendons has tendons"
        values = now.tendons, sys.tendons.range, sys.tendons.limit_margin
        (length, jac), range_, margin = take(values, _limited(sys))
        dofs = [tendon_dofs(sys)[k] for k in _limited(sys)]
        rate = jnp.sum(jac * now.qd[None], axis=1)
        acts = has_effect(jac, constants.weight)
        soft, rows = constants.soft, []
        for gap, sign in ((length - range_[:, 0], 1.0), (range_[:, 1] - length, -1.0)):
            violation = gap - margin
            imp = impedance(soft, violation)
            weight = stiffness_weight(imp, constants.weight)
            cost = OneSided(jnp.where(acts & (violation < 0.0), weight, 0.0))
            offset = soft.b * sign * rate + soft.k * imp * violation
            rows.append(Rows(sparse_jacobian(jac * sign, dofs), cost, (offset,)))
        return tuple(rows)


def _limited(sys: System) -> tuple[int, ...]:
    return tuple(k for k, limited in enumerate(sys.tendons.limited) if limited)
