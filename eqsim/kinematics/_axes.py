"""The motion axes of the degrees of freedom."""

import jax.numpy as jnp

from ..model import Tree
from ..model._gather import take
from ..spatial import Motion, Vec3
from ._forward import Kinematics
from ._structure import join_dofs


def dof_axes(tree: Tree, kin: Kinematics) -> Motion:
    """Return the columns of the Jacobian about the origins of the trees, `(nv,
    *batch)`."""
    rot = take(kin.pose.rot, range(tree.num_free))
    one, zero = jnp.ones_like(rot.xx), jnp.zeros_like(rot.xx)
    none = Vec3(zero, zero, zero)
    units = Vec3(one, zero, zero), Vec3(zero, one, zero), Vec3(zero, zero, one)
    lin = [Motion(none, unit) for unit in units]
    ang = [Motion(column, none) for column in rot.columns]
    return join_dofs(tree, lin, ang, kin.axis)
