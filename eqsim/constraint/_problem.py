r"""The convex problem of constraints: forces of its rows, and linear systems.

With rows on fixed pieces of their costs, $M a - \tau - J^T f(J a)$ is linear in $a$.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..dynamics._articulated import factor, project, solve
from ..dynamics._dense import joint_space_entries
from ..dynamics._sparse import linear_solver
from ..kinematics._axes import dof_axes
from ..kinematics._forward import joint_motion, Kinematics
from ..kinematics._recursion import add, ascend, descend
from ..model import Tree
from ..spatial import Force, Motion, RigidInertia
from ._costs import Residual
from ._jacobians import join, Terms, total
from ._rows import AbstractRows


class Problem(NamedTuple):
    """One convex problem.

    - `kin`: poses and motion axes.
    - `inertia`: inertia of each node.
    - `force`: force on each node at zero joint acceleration, without constraints.
    - `tau`: joint forces without constraints, `(nv, *batch)`.
    - `armature`: armature, `(nv, *batch)`.
    - `rows`: constraints.
    """

    kin: Kinematics
    inertia: RigidInertia
    force: Force
    tau: Any
    armature: Any
    rows: tuple[AbstractRows, ...]


def residual(tree: Tree, problem: Problem, qdd, pieces: tuple[Any, ...]):
    r"""Compute $\tau + J^T f(J a) - M a$ on fixed pieces: zero at the solution."""
    motion = node_motion(tree, problem.kin, qdd)
    force = row_forces(problem, motion, qdd, pieces)
    constrained = constraint_forces(tree, problem, force)
    return smooth_residual(tree, problem, motion, qdd) + constrained


def row_forces(problem: Problem, motion: Motion, qdd, pieces) -> list[Residual]:
    """Compute the forces of all rows on given pieces."""
    return [
        rows.forces(piece, rows.residuals(motion, qdd))
        for rows, piece in zip(problem.rows, pieces, strict=True)
    ]


def constraint_forces(tree: Tree, problem: Problem, forces):
    """Compute the joint forces $J^T f$ of row forces, `(nv, *batch)`."""
    pairs = zip(problem.rows, forces, strict=True)
    terms = join([rows.transpose(force) for rows, force in pairs])
    on_nodes, tau = sum_terms(tree, terms, problem.tau)
    if on_nodes is None:
        return tau
    return tau + project(tree, problem.kin, ascend(tree, on_nodes))


def sum_terms(tree: Tree, terms: Terms, like):
    """Sum forces: on nodes (None: zero), and joint forces."""
    tau = total(terms.dofs, like.shape[0])
    return total(terms.nodes, tree.size), jnp.zeros_like(like) if tau is None else tau


def node_motion(tree: Tree, kin: Kinematics, qdd) -> Motion:
    """Compute the motion $J a$ of each node."""
    return descend(tree, joint_motion(tree, kin, qdd))


def smooth_residual(tree: Tree, problem: Problem, motion: Motion, qdd):
    r"""Compute $\tau - M a$, without constraints."""
    force = ascend(tree, problem.force - (problem.inertia @ motion))
    tau = problem.tau - problem.armature * qdd
    return tau + project(tree, problem.kin, force)


def solver(tree: Tree, problem: Problem, stiffness: Terms) -> Callable:
    r"""Factorize $M + J^T W J$.

    **Arguments:**

    - `stiffness`: $J^T W J$.

    **Returns:** a function of joint forces and node forces that computes the joint
    acceleration and the motion of each node.
    """
    kin, nv = problem.kin, problem.tau.shape[0]
    armature = add(problem.armature, total(stiffness.dofs, nv))
    on_nodes = total(stiffness.nodes, tree.size)
    if not stiffness.entries:
        factored = factor(tree, kin, problem.inertia, armature, on_nodes)
        return lambda tau, force: solve(tree, kin, factored, tau, force)
    inertia = add(problem.inertia.articulated(), on_nodes)
    mass = joint_space_entries(tree, dof_axes(tree, kin), inertia, armature)
    invert = linear_solver(nv, [mass, *stiffness.entries])

    def in_joint_space(tau, force):
        if force is not None:
            tau = tau + project(tree, kin, ascend(tree, force))
        qdd = invert(tau)
        return qdd, node_motion(tree, kin, qdd)

    return in_joint_space
