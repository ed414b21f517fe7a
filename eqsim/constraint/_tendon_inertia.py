r"""Inertia of tendons, as rows of the convex problem.

An armature $a$ of a tendon adds $a J^T J$ to the joint-space inertia and $a J^T \dot J
\dot q$ to the bias forces. To the solver this is a row with residual $J \ddot q + \dot J
\dot q$ and weight $a$; it is no constraint, so its force is not reported as one.
"""

import jax.numpy as jnp

from ..dynamics._joint_parameters import tendon_armature
from ..dynamics._tendons import moving_armature
from ..kinematics._tendon_paths import tendon_dofs
from ..kinematics._tendons import jacobian_rate
from ..model import System, tree
from ..model._gather import take
from ._constraint import Moment
from ._costs import TwoSided
from ._jacobians import sparse_jacobian
from ._rows import Rows


def tendon_inertia_rows(sys: System, now: Moment) -> tuple[Rows, ...]:
    """Return the rows of the tendons with armature."""
    chosen = [k for k, has in enumerate(sys.tendons.has_armature) if has]
    if not chosen:
        return ()
    assert now.tendons is not None, "a robot with inertia of tendons has tendons"
    jac, armature = take((now.tendons.jac, tendon_armature(sys)), chosen)
    weight = armature + jnp.zeros_like(jac[:, 0])
    offset, moves = jnp.zeros_like(weight), moving_armature(sys)
    if any(moves):
        where = sys, tree(sys), now.fixed, now.q, now.qd
        offset = take(jacobian_rate(*where, moves), chosen)
    jacobian = sparse_jacobian(jac, [tendon_dofs(sys)[k] for k in chosen])
    return (Rows(jacobian, TwoSided(weight), (offset,)),)
