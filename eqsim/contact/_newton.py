r"""Newton's method on MuJoCo's convex problem, and its implicit derivative.

$\ddot q = \arg\min_a \tfrac12 (a - a_0)^T M (a - a_0) + s(J a - a_\mathrm{ref})$

The cost is piecewise quadratic. Once it is known which piece each row is on, the
minimum is one linear solve, $(M + J^T W J)\,a = \tau + J^T f_0$; so Newton's method
with full steps alternates between solving and reading off the pieces, and has
converged, to rounding, when they stand still. The few problems on which full steps do
not settle go on with an exact line search, which always does (the cost is convex).

At the solution the pieces are constant to first order, and the implicit function
theorem gives the derivative: one more solve with the same matrix.
"""

import functools as ft
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax

from .._staging import stage
from ..dynamics._articulated import factor, project, solve
from ..dynamics._dense import (
    dense_factor,
    dense_solve,
    joint_space_matrix,
)
from ..kinematics._axes import dof_axes, dof_nodes
from ..kinematics._forward import joint_motion, Kinematics
from ..kinematics._recursion import ascend, descend
from ..model import Tree
from ..spatial import Force, Motion, RigidInertia
from ._active import (
    dof_stiffness,
    forces,
    generalized,
    Layout,
    node_stiffness,
    offsets,
    pieces,
    residuals,
    stiffnesses,
    Values,
)
from ._rows import Rows


_FULL_STEPS = 10
_SEARCHED_STEPS = 40


class Problem(NamedTuple):
    """One convex problem. `force`: on each node, all that acts at zero joint
    acceleration; `tau`: joint forces; `armature`: per degree of freedom."""

    kin: Kinematics
    inertia: RigidInertia
    force: Force
    tau: Any
    armature: Any
    rows: Rows


class Structure(NamedTuple):
    """Static facts about a problem."""

    tree: Tree
    where: Layout
    nv: int

    @property
    def coupled(self) -> bool:
        """Whether rows act between moving links, so that a dense matrix is needed."""
        return bool(self.where.moving or self.where.balls)


def residual(structure: Structure, problem: Problem, qdd, piece: Values):
    r"""$\tau + J^T f(J a) - M a$ on fixed pieces: zero at the solution."""
    tree, where, nv = structure
    motion = descend(tree, joint_motion(tree, problem.kin, qdd))
    x = residuals(where, problem.rows, motion, qdd)
    on_nodes, on_joints = generalized(
        tree, where, problem.rows, forces(problem.rows, piece, x), nv
    )
    total = problem.force - (problem.inertia @ motion)
    if on_nodes is not None:
        total = total + on_nodes
    tau = problem.tau - problem.armature * qdd
    if on_joints is not None:
        tau = tau + on_joints
    return tau + project(tree, problem.kin, ascend(tree, total))


def solver(structure: Structure, problem: Problem, piece: Values):
    """Factorizes $M + J^T W J$; returns a function of joint forces and node forces that
    gives the acceleration and the motion of each node."""
    tree, where, nv = structure
    w = stiffnesses(problem.rows, piece)
    armature, stiffness = problem.armature, node_stiffness(tree, where, problem.rows, w)
    on_dofs = dof_stiffness(where, w, nv)
    armature = armature if on_dofs is None else armature + on_dofs
    if not structure.coupled:
        factored = factor(tree, problem.kin, problem.inertia, armature, stiffness)
        return lambda tau, force: solve(tree, problem.kin, factored, tau, force)
    inertia = problem.inertia.articulated()
    inertia = inertia if stiffness is None else inertia + stiffness
    axes = dof_axes(tree, problem.kin)
    matrix = joint_space_matrix(tree, axes, inertia, armature)
    matrix = matrix + _coupling(structure, problem, axes, w)
    factored = dense_factor(matrix)

    def dense(tau, force):
        if force is not None:
            tau = tau + project(tree, problem.kin, ascend(tree, force))
        qdd = dense_solve(factored, tau)
        return qdd, descend(tree, joint_motion(tree, problem.kin, qdd))

    return dense


def _coupling(structure: Structure, problem: Problem, axes: Motion, w: Values):
    """$J^T W J$ of the rows between moving links, `(nv, nv, *batch)`."""
    left, right = _ball_jacobian(structure, problem, w)
    total = jnp.sum(left[:, :, None] * right[:, None], axis=0)
    if not structure.where.moving:
        return total
    # Of the many points that could touch, few do: go through those, each problem of a
    # batch through its own, as often as the fullest one needs.
    active = ft.reduce(jnp.add, w.moving) > 0.0
    rank = jnp.cumsum(active.astype(jnp.int32), axis=0)
    places = jnp.arange(active.shape[0], dtype=jnp.int32)
    places = places.reshape(-1, *(1 for _ in active.shape[1:]))

    def add(k, total):
        chosen = active & (rank == k + 1)
        index = jnp.sum(jnp.where(chosen, places, 0), axis=0)
        some = jnp.any(chosen, axis=0)
        left, right = _point_jacobian(structure, problem, axes, w, index)
        right = jnp.where(some, right, 0.0)
        for one, two in zip(left, right):
            total = total + one[:, None] * two[None]
        return total

    return lax.fori_loop(0, jnp.max(rank[-1]), add, total)


def _point_jacobian(structure: Structure, problem: Problem, axes: Motion, w, index):
    """Rows `J` and `W J` of one point of each problem: `(3, nv, *batch)`."""
    tree, where, _ = structure
    pick = lambda x: jnp.take_along_axis(x, index[None], axis=0)
    rows = jtu.tree_map(pick, problem.rows.moving)
    moves = tree.ancestors[:, dof_nodes(tree)].astype(problem.tau.dtype)
    ends = [np.array([end[k] for end in where.moving]) for k in (0, 1)]
    masks = [jnp.moveaxis(jnp.asarray(moves[end])[index], -1, 0) for end in ends]
    rates = [
        (axes.lin + (axes.ang ^ arm)) * mask for arm, mask in zip(rows.arms, masks)
    ]
    rate = rates[1] - rates[0]
    n, m1, m2 = (v | rate for v in (rows.normal, rows.side1, rows.side2))
    a, b, c, d = (pick(x) for x in w.moving)
    wn = n * (a + b + c + d) + m1 * (a - b) + m2 * (c - d)
    w1 = n * (a - b) + m1 * (a + b)
    w2 = n * (c - d) + m2 * (c + d)
    return jnp.stack([n, m1, m2]), jnp.stack([wn, w1, w2])


def _ball_jacobian(structure: Structure, problem: Problem, w: Values):
    rows, where = problem.rows.ball, structure.where
    n = len(where.balls)
    place = np.zeros((3, n, structure.nv), problem.tau.dtype)
    for k, dof in enumerate(where.balls):
        for axis in range(3):
            place[axis, k, dof + axis] = 1.0
    ones = (1 for _ in problem.tau.shape[1:])
    place = place.reshape(*place.shape, *ones)
    j = sum(rows.axis[k][:, None] * place[k] for k in range(3))
    batch = problem.tau.shape[1:]
    j = jnp.broadcast_to(j, (n, structure.nv, *batch))
    return j, j * w.ball[:, None]


class Solution(NamedTuple):
    """Joint accelerations, and the piece that each row is on."""

    qdd: Any
    piece: Values


@ft.partial(jax.custom_jvp, nondiff_argnums=(0,))
def constrained(structure: Structure, problem: Problem) -> Solution:
    """The solution of the convex problem; see the top of the module."""
    start = pieces(problem.rows, offsets(problem.rows))
    if not jtu.tree_leaves(start) or not any(x.size for x in jtu.tree_leaves(start)):
        qdd, _ = solver(structure, problem, start)(problem.tau, problem.force)
        return Solution(qdd, start)
    return _newton(structure, problem, start)


@constrained.defjvp
def _constrained_jvp(structure, primals, tangents):
    (problem,), (rate,) = primals, tangents
    qdd, piece = solution = constrained(structure, problem)
    _, push = jax.jvp(lambda p: residual(structure, p, qdd, piece), (problem,), (rate,))
    change = implicit_solve(structure, problem, piece, push)
    frozen = jtu.tree_map(lambda x: np.zeros(x.shape, jax.dtypes.float0), piece)
    return solution, Solution(change, frozen)


def implicit_solve(structure: Structure, problem: Problem, piece: Values, right):
    r"""$(M + J^T W J)^{-1}$ times `right`, differentiable in any mode and order."""

    def times(v):
        at = lambda a: -residual(structure, problem, a, piece)
        return jax.jvp(at, (jnp.zeros_like(v),), (v,))[1]

    solve_ = solver(structure, problem, piece)
    inverse = lambda _, b: solve_(b, None)[0]
    return lax.custom_linear_solve(times, right, inverse, symmetric=True)


def _newton(structure: Structure, problem: Problem, start: Values) -> Solution:
    rows = problem.rows
    constant = offsets(rows)
    scale = jtu.tree_map(jnp.abs, constant)

    def full_step(piece):
        pull = forces(rows, piece, constant)
        on_nodes, on_joints = generalized(
            structure.tree, structure.where, rows, pull, structure.nv
        )
        force = problem.force if on_nodes is None else problem.force + on_nodes
        tau = problem.tau if on_joints is None else problem.tau + on_joints
        qdd, motion = solver(structure, problem, piece)(tau, force)
        return qdd, residuals(structure.where, rows, motion, qdd)

    def step(carry):
        piece, now, changed, count = carry
        qdd, x = full_step(piece)
        end = _Point(qdd, x, piece, constant)
        full = lambda now, end: (end, jnp.ones_like(qdd[0]))
        search = lambda now, end: _searched(rows, now, end, changed, count)
        now, share = lax.cond(count < _FULL_STEPS, full, search, now, end)
        piece, flipped = _update(rows, piece, now.x, scale)
        return piece, now, changed & (flipped | (share < 1.0)), count + 1

    def going(carry):
        return jnp.any(carry[2]) & (carry[3] < _FULL_STEPS + _SEARCHED_STEPS)

    now = _Point(jnp.zeros_like(problem.tau), constant, start, constant)
    changed = jnp.ones(problem.tau.shape[1:], bool)
    piece, now, _, _ = lax.while_loop(going, step, (start, now, changed, 0))
    return Solution(now.qdd, piece)


class _Point(NamedTuple):
    r"""A point of the iteration. After a full step on pieces `piece`, row forces with
    $M a - \tau = J^T f$ are those of the pieces; after a searched one they are
    `pull`."""

    qdd: Any
    x: Values
    piece: Values
    pull: Values


def _searched(rows: Rows, now: _Point, end: _Point, changed, count):
    """A step as long as the cost decreases, where a problem is not yet solved."""
    before = forces(rows, now.piece, now.x)
    first = count == _FULL_STEPS
    pull = jtu.tree_map(lambda a, b: jnp.where(first, a, b), before, now.pull)
    now = now._replace(pull=pull)
    end = end._replace(pull=forces(rows, end.piece, end.x))
    share = jnp.where(changed, _line_search(rows, now, end), 0.0)
    move = lambda a, b: a + share[None] * (b - a)
    x = jtu.tree_map(move, now.x, end.x)
    pull = jtu.tree_map(move, now.pull, end.pull)
    return _Point(move(now.qdd, end.qdd), x, end.piece, pull), share


@stage
def _line_search(rows: Rows, now: _Point, end: _Point):
    """Where the cost is least between two points, as a share of the way, at most 1."""
    leaves = jtu.tree_leaves
    sub = lambda a, b: jtu.tree_map(jnp.subtract, a, b)
    dx, dpull = sub(end.x, now.x), sub(end.pull, now.pull)

    def slope(share):
        along = lambda a, b: a + share[None] * b
        x = jtu.tree_map(along, now.x, dx)
        pull = jtu.tree_map(along, now.pull, dpull)
        gap = sub(pull, forces(rows, pieces(rows, x), x))
        return sum(jnp.sum(a * b, axis=0) for a, b in zip(leaves(dx), leaves(gap)))

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0.0
        return jnp.where(rising, low, middle), jnp.where(rising, middle, high)

    one = jnp.ones_like(now.qdd[0])
    low, high = lax.fori_loop(0, 40, bisect, (0.0 * one, one))
    return jnp.where(slope(one) <= 0.0, 1.0, 0.5 * (low + high))


def _update(rows: Rows, old: Values, x: Values, scale: Values):
    """New pieces, and whether any row of each problem changed beyond rounding."""
    new = pieces(rows, x)
    tiny = 64 * float(jnp.finfo(x.lower.dtype).eps)

    def flip(new, old, x, scale):
        real = (new != old) & (jnp.abs(x) > tiny * (scale + jnp.abs(x - scale)))
        return jnp.where(real, new, old), jnp.any(real, axis=0)

    pairs = [
        flip(*leaves)
        for leaves in zip(*map(jtu.tree_leaves, (new, old, x, scale)), strict=True)
    ]
    changed = ft.reduce(jnp.logical_or, [pair[1] for pair in pairs])
    structure = jtu.tree_structure(new)
    return jtu.tree_unflatten(structure, [pair[0] for pair in pairs]), changed
