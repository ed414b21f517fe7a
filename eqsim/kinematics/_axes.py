"""The motion that each degree of freedom gives to what it carries."""

import jax.numpy as jnp

from ..model import concatenate, JointKind, take, Tree
from ..spatial import Motion, Vec3
from ._forward import Kinematics


def dof_nodes(tree: Tree) -> list[int]:
    """The node of each degree of freedom."""
    nodes = {}
    for node, dof in enumerate(tree.dofs):
        for k in range(6 if tree.kinds[node] is JointKind.FREE else 1):
            nodes[dof + k] = node
    return [nodes[dof] for dof in sorted(nodes)]


def dof_axes(tree: Tree, kin: Kinematics) -> Motion:
    """Columns of the Jacobian about the origins of the trees: `(nv, *batch)`."""
    n = tree.num_free
    rot = take(kin.pose.rot, range(n))
    one, zero = jnp.ones_like(rot.xx), jnp.zeros_like(rot.xx)
    axes = [(one, zero, zero), (zero, one, zero), (zero, zero, one)]
    none = Vec3(zero, zero, zero)
    free = [Motion(none, Vec3(*axis)) for axis in axes]
    free += [Motion(column, none) for column in rot.columns]
    dofs = [dof + k for k in range(6) for dof in tree.dofs[:n]] + list(tree.dofs[n:])
    order = sorted(range(len(dofs)), key=dofs.__getitem__)
    return take(concatenate([*free, kin.axis]), order)
