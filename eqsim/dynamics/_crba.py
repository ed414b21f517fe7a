"""The composite-rigid-body algorithm: the joint-space inertia matrix."""

from jaxtyping import Array, Float

from .._batching import batch_last
from ..kinematics._forward import dof_axes
from ..model import check_state, System
from ._joint_space import joint_space_matrix
from ._passive import armature, rigid
from ._tendons import armature_jacobian, has_tendon_armature, tendon_inertia


def crba(sys: System, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    r"""Compute the joint-space inertia matrix, armature of joints and tendons included.

    $M_{ij} = S_i^T I^c_i S_j$ where $j$ moves $i$, with the inertia $I^c_i$ of the
    subtree of $i$; symmetric; zero where neither moves the other. Kinetic energy is
    $\tfrac12 \dot q^T M \dot q$.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.

    **Returns:** $M$, in kg m$^2$, kg m and kg (MuJoCo: `mj_fullM`).

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 6.2.
    """
    check_state(sys, q)
    return _crba(sys, q)


def _crba_fn(sys, q):
    body = rigid(sys, q)
    axes = dof_axes(body.nodes, body.kin)
    inertia = body.inertia.articulated()
    matrix = joint_space_matrix(body.nodes, axes, inertia, armature(sys))
    if has_tendon_armature(sys):
        jac = armature_jacobian(sys, body.nodes, body.fixed, body.kin, q)
        matrix = matrix + tendon_inertia(sys, jac)
    return matrix


_crba = batch_last(_crba_fn)
