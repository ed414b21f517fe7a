"""Implicit integration of free bodies that carry no other moving body; batch axes are
last."""

import functools as ft

import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from ..constraint import RobotData
from ..dynamics._coriolis import free_gyroscopic
from ..dynamics._tendons import tendon_inertia
from ..dynamics._velocity_derivatives import SmoothDamping
from ..kinematics._forward import split_dofs
from ..model import System, Tree, tree
from ..model._gather import concatenate, take
from ..spatial import ArticulatedInertia, Force, Mat3, Motion
from ..spatial._matrix6 import full_matrix6, Matrix6, solve6
from ..spatial._vector import congruence, diagonal


def with_free_bodies(sys: System, now: RobotData, qdd, damping: SmoothDamping, jac):
    """Replace the accelerations of free bodies that carry no other moving body by those
    of the full implicit step with all of $D$ (MuJoCo: `mjd_freeMhat`)."""
    nodes = tree(sys)
    chosen = _lone_free_nodes(nodes)
    if not chosen:
        return qdd
    h, problem, rot = sys.dt[None], now.problem, take(now.kin.pose.rot, chosen)
    inertia, velocity = take((problem.inertia, now.velocities.velocity), chosen)
    on_joint = lambda values: _on_free_joints(nodes, chosen, rot, values)
    in_world = lambda matrix: _coupling_of_free_joints(nodes, chosen, rot, matrix)
    extra = free_gyroscopic(inertia, velocity) + on_joint(damping.joints)
    if damping.nodes is not None:
        extra = extra + take(damping.nodes, chosen)
    if damping.coupling is not None:
        extra = extra + in_world(damping.coupling)
    extra = extra * h
    mass = full_matrix6(inertia.articulated()) + on_joint(problem.armature)
    if jac is not None:
        mass = mass + in_world(tendon_inertia(sys, jac))
    total, before = mass + extra, _motion(nodes, chosen, rot, now.solution.qdd)
    change = lax.custom_linear_solve(
        lambda v: _motion_of(total @ v),
        _motion_of(extra @ before),
        lambda _, b: solve6(total, Force(*b)),
        lambda _, b: solve6(total.T, Force(*b)),
    )
    after, dofs = before - change, [dof for i in chosen for dof in _dofs(nodes, i)]
    found = jnp.concatenate([*after.lin, *(rot.T @ after.ang)])
    # One direction after another, each for all bodies.
    rows = [k * len(chosen) + i for i in range(len(chosen)) for k in range(6)]
    place = {dof: sys.nv + k for dof, k in zip(dofs, rows, strict=True)}
    return take(concatenate([qdd, found]), [place.get(d, d) for d in range(sys.nv)])


def _motion_of(force: Force) -> Motion:
    """Return a force as the components of a motion, the space in which the 6x6 systems
    are solved."""
    return Motion(*force)


def _dofs(nodes: Tree, node: int) -> range:
    return range(nodes.dofs[node], nodes.dofs[node] + 6)


def _on_free_joints(nodes: Tree, chosen, rot, values) -> Matrix6:
    """Return values of degrees of freedom as matrices of free bodies."""
    lin, ang, _ = split_dofs(nodes, values)
    lin, ang = take((lin, ang), chosen)
    none = jtu.tree_map(jnp.zeros_like, rot)
    inertia = ArticulatedInertia(congruence(rot, diagonal(*ang)), none, diagonal(*lin))
    return full_matrix6(inertia)


def _coupling_of_free_joints(nodes: Tree, chosen, rot, coupling) -> Matrix6:
    """Return the entries of a joint-space matrix that belong to free bodies."""
    nv = coupling.shape[0]
    flat = coupling.reshape(nv * nv, *coupling.shape[2:])
    at = lambda i, j: take(
        flat, [(nodes.dofs[k] + i) * nv + nodes.dofs[k] + j for k in chosen]
    )
    block = lambda i, j: Mat3(*(at(i + a, j + b) for a in range(3) for b in range(3)))
    lin_ang, ang_lin = block(0, 3) @ rot.T, rot @ block(3, 0)
    return Matrix6((rot @ block(3, 3)) @ rot.T, ang_lin, lin_ang, block(0, 0))


def _motion(nodes: Tree, chosen, rot, values) -> Motion:
    """Return accelerations of free bodies in world axes."""
    lin, ang, _ = split_dofs(nodes, values)
    lin, ang = take((lin, ang), chosen)
    return Motion(rot @ ang, lin)


@ft.lru_cache(maxsize=256)
def _lone_free_nodes(nodes: Tree) -> tuple[int, ...]:
    """List the free nodes without nodes below them."""
    return tuple(i for i in range(nodes.num_free) if i not in nodes.parents)
