r"""The derivative of Coriolis, centrifugal and gyroscopic forces by the velocity.

With $v_i$ the velocity and $I_i$ the inertia of node $i$, the force that holds it on its
way is $f_i = I_i a_i + v_i \times^* I_i v_i$ (see `_rnea.py`). Its derivative by the
velocity of the degree of freedom $j$, whose axis is $S_j$, is

$\frac{\partial f_i}{\partial \dot q_j} = I_i G_j + B_i S_j, \qquad
B_i = (v_i \times^*) I_i - I_i (v_i \times) + (\cdot) \times^* I_i v_i$

with $G_j = (v_{\mathrm{before}} + v_{\mathrm{after}}) \times S_j$ of the velocities on the
two sides of the joint. Both sum over subtrees, like inertias, so the matrix costs no more
than the joint-space inertia matrix. Sources: Singh, Russell and Wensing, *Efficient
analytical derivatives of rigid-body dynamics using spatial vector algebra*, 2022; MuJoCo:
`mjd_rne_vel`.
"""

import functools as ft
from typing import NamedTuple

import jax.numpy as jnp

from ..kinematics._forward import dof_order
from ..model import Tree
from ..model._gather import per_row, take, take_or_zero
from ..spatial import Force, Mat3, Motion, RigidInertia, skew, Vec3
from ..spatial._matrix6 import Matrix6


class Gyroscopic(NamedTuple):
    r"""The matrices $B$: a motion $(a, l)$ gives the moment $A a$ and the force
    $-2 P \times a$.

    - `ang`: $A$.
    - `momentum`: linear momentum $P$.
    """

    ang: Mat3
    momentum: Vec3

    def __matmul__(self, v: Motion) -> Force:
        return Force(self.ang @ v.ang, (v.ang ^ self.momentum) * 2.0)

    def transposed(self, v: Motion) -> Vec3:
        """Compute the angular part of $B^T$ times a motion; the linear part is zero."""
        return (self.ang.T @ v.ang) + ((self.momentum ^ v.lin) * 2.0)


def gyroscopic(inertia: RigidInertia, velocity: Motion) -> Gyroscopic:
    """Compute the matrices of the nodes."""
    w, u = velocity
    moment, ang = inertia.moment, inertia.ang.full()
    arm, turn, slide = skew(moment), skew(w), skew(u)
    spin = (ang @ w) + (moment ^ u)
    matrix = (turn @ ang) - (ang @ turn) - (slide @ arm) - (arm @ slide) - skew(spin)
    return Gyroscopic(matrix, (u * inertia.mass) - (moment ^ w))


def axis_rates(tree: Tree, axes: Motion, velocity: Motion) -> Motion:
    """Compute $G$ of each degree of freedom, `(nv, *batch)`."""
    order = dof_order(tree).nodes
    after = take(velocity, [_last_node(tree)[node] for node in order])
    before = take_or_zero(velocity, [tree.base[node] for node in order])
    rate = (before + after).cross(axes)
    # Free joints move along axes of the world, and turn about axes of the body.
    free = [node < tree.num_free for node in order]
    if any(free):
        own = take(velocity, [node if mark else 0 for node, mark in zip(order, free)])
        lin = (own.lin ^ axes.ang) + (axes.lin ^ own.ang)
        rate = Motion(rate.ang, rate.lin + (lin * per_row(free, lin.x)))
    return rate


@ft.lru_cache(maxsize=256)
def _last_node(tree: Tree) -> tuple[int, ...]:
    """Return, for each node, the last node of its joint."""
    last = {joint: node for node, joint in enumerate(tree.joints)}
    return tuple(last[joint] for joint in tree.joints)


def free_gyroscopic(inertia: RigidInertia, velocity: Motion) -> Matrix6:
    r"""Compute the derivative of the force on free bodies by their motion, where the
    coordinates are those of free joints: the velocity of the origin of the body, and the
    angular velocity in the axes of the body.

    The moment is $\omega \times (I a) - (I \omega) \times a$ and the force
    $-(\omega \times h) \times a - \omega \times (h \times a)$.
    """
    w, moment, ang = velocity.ang, inertia.moment, inertia.ang.full()
    turn = skew(w)
    force = skew(moment ^ w) - (turn @ skew(moment))
    zero = Mat3(*(jnp.zeros_like(x) for x in force))
    return Matrix6((turn @ ang) - skew(ang @ w), zero, force, zero)
