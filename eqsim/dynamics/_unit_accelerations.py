r"""Joint accelerations that unit forces of muscles cause at the reference coordinates.

$|M^{-1} m|$ with the moment $m = \partial\ell/\partial q$ (MuJoCo: `actuator_acc0`), from
which the peak force of a muscle follows if none is given. Computed from the primary
parameters whenever a pipeline is called.
"""

import jax.numpy as jnp
from jax import lax

from ..kinematics._forward import Frames, kinematics
from ..model import System, Tree
from ..spatial import safe_sqrt
from ._addresses import addresses
from ._articulated import factor, solve
from ._inertia import node_inertias, NodeBodies
from ._joint_parameters import armature
from ._muscle import muscle_scale, MuscleScale
from ._spatial_transmission import other_rows, TransmissionFrames
from ._tendons import (
    apply_updates,
    armature_jacobian,
    armature_updates,
    ArmatureUpdate,
    has_tendon_armature,
)
from ._transmission import transmission


def muscle_scales(
    sys: System,
    tree: Tree,
    fixed: Frames,
    bodies: NodeBodies,
    local: TransmissionFrames | None,
) -> MuscleScale | None:
    """Compute peak forces and optimal lengths of muscles; None if there are none."""
    muscles = sys.actuators.muscles
    if muscles is None:
        return None
    rows = [i for i, mark in enumerate(muscles.scaled) if mark]
    if not rows:
        return muscle_scale(muscles, None)
    outs = addresses(sys.actuators.structure).out
    index = [outs[muscles.owners[i]] for i in rows]
    where = sys, tree, fixed, bodies, local
    return muscle_scale(muscles, _unit_accelerations(*where, index))


def _unit_accelerations(sys: System, tree: Tree, fixed: Frames, bodies, local, outs):
    q = sys.joints.ref
    kin = kinematics(sys, tree, fixed, q)
    factored = factor(tree, kin, node_inertias(bodies, kin), armature(sys))
    invert = lambda tau: solve(tree, kin, factored, tau, None)
    updates: list[ArmatureUpdate] = []
    if has_tendon_armature(sys):
        jac = armature_jacobian(sys, tree, fixed, kin, q)
        updates = armature_updates(sys, jac, invert)
    moments, _ = transmission(sys, q, other_rows(sys, tree, local, kin, q, None))
    zero = jnp.zeros_like(q[:1])

    def norm(_, unit):
        tau = moments.joint_forces(unit, sys.nv)
        batch = jnp.broadcast_shapes(tau.shape[1:], kin.arm.x.shape[1:])
        tau = jnp.broadcast_to(tau, (sys.nv, *batch))
        qdd, _ = apply_updates(updates, *invert(tau))
        return None, safe_sqrt(jnp.sum(qdd * qdd, axis=0))

    units = jnp.eye(sys.nout, dtype=q.dtype)[jnp.array(outs)]
    units = units.reshape(*units.shape, *(1 for _ in q.shape[1:])) + zero[None]
    return lax.scan(norm, None, units)[1]
