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

from ..dynamics._articulated import factor, project, solve
from ..dynamics._dense import (
    dense_factor,
    dense_solve,
    joint_space_matrix,
)
from ..kinematics._axes import dof_axes
from ..kinematics._forward import joint_motion, Kinematics
from ..kinematics._recursion import ascend, descend
from ..model import Tree
from ..spatial import Force, Motion, RigidInertia
from ._active import (
    dof_stiffness,
    flips,
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
from ._moving import Coupling, newton_coupling, touching, weighted_coupling
from ._rows import no_points, Rows


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
    motion = _motion(structure, problem, qdd)
    x = residuals(where, problem.rows, motion, qdd)
    pull = generalized(tree, where, problem.rows, forces(problem.rows, piece, x), nv)
    return _balance(structure, problem, motion, qdd, *pull)


def _motion(structure: Structure, problem: Problem, qdd) -> Motion:
    return descend(structure.tree, joint_motion(structure.tree, problem.kin, qdd))


def _balance(structure, problem: Problem, motion: Motion, qdd, on_nodes, on_joints):
    """Joint forces that are left over, given those of the rows."""
    total = problem.force - (problem.inertia @ motion)
    total = total if on_nodes is None else total + on_nodes
    tau = problem.tau - problem.armature * qdd
    tau = tau if on_joints is None else tau + on_joints
    return tau + project(structure.tree, problem.kin, ascend(structure.tree, total))


def solver(structure: Structure, problem: Problem, w: Values, coupling=None):
    """Factorizes $M + J^T W J$; returns a function of joint forces and node forces that
    gives the acceleration and the motion of each node.

    **Arguments:**

    - `w`: the weights of the rows that are stiff.
    - `coupling`: the part of the matrix that belongs to contacts between moving links,
        `(nv, nv, *batch)`; by default it is computed from `w`.
    """
    tree, where, nv = structure
    armature, stiffness = problem.armature, node_stiffness(tree, where, problem.rows, w)
    on_dofs = dof_stiffness(where, w, nv)
    armature = armature if on_dofs is None else armature + on_dofs
    if coupling is None and not structure.coupled:
        factored = factor(tree, problem.kin, problem.inertia, armature, stiffness)
        return lambda tau, force: solve(tree, problem.kin, factored, tau, force)
    inertia = problem.inertia.articulated()
    inertia = inertia if stiffness is None else inertia + stiffness
    axes = dof_axes(tree, problem.kin)
    matrix = joint_space_matrix(tree, axes, inertia, armature)
    if where.moving and coupling is None:
        rows = problem.rows.moving
        coupling = weighted_coupling(tree, where, axes, rows, w.moving)
    matrix = matrix if coupling is None else matrix + coupling
    if where.balls:
        left, right = _ball_jacobian(structure, problem, w)
        matrix = matrix + jnp.sum(left[:, :, None] * right[:, None], axis=0)
    factored = dense_factor(matrix)

    def dense(tau, force):
        if force is not None:
            tau = tau + project(tree, problem.kin, ascend(tree, force))
        qdd = dense_solve(factored, tau)
        return qdd, descend(tree, joint_motion(tree, problem.kin, qdd))

    return dense


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
    if not any(x.size for x in jtu.tree_leaves(offsets(problem.rows))):
        none = pieces(problem.rows, offsets(problem.rows))
        solve_ = solver(structure, problem, stiffnesses(problem.rows, none))
        return Solution(solve_(problem.tau, problem.force)[0], none)
    return _newton(structure, problem)


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

    solve_ = solver(structure, problem, stiffnesses(problem.rows, piece))
    inverse = lambda _, b: solve_(b, None)[0]
    return lax.custom_linear_solve(times, right, inverse, symmetric=True)


class _Iterate(NamedTuple):
    """Where the iteration stands.

    - `before`: the acceleration before `qdd`.
    - `piece`: of the rows, at `qdd`; without contacts between moving links.
    - `flipped`: whether one of them was another at `before`.
    - `active`: whether the problem is not solved yet.
    """

    qdd: Any
    before: Any
    piece: Values
    flipped: Any
    active: Any
    count: Any


def _newton(structure: Structure, problem: Problem) -> Solution:
    alone, rest = _without_moving(structure, problem)
    rows = rest.rows
    constant = offsets(rows)
    scale = jtu.tree_map(jnp.abs, constant)
    couple = _coupler(structure, problem)

    def step(now: _Iterate) -> _Iterate:
        if couple is None:
            return move(now._replace(active=now.active & now.flipped), None)
        coupling = couple(now)
        active = now.active & (now.flipped | coupling.flipped)
        now = now._replace(active=active)
        stay = lambda now, _: now
        return lax.cond(jnp.any(active), move, stay, now, coupling)

    def move(now: _Iterate, coupling: Coupling | None) -> _Iterate:
        def full():
            return qdd, residuals(alone.where, rows, motion, qdd), jnp.ones_like(qdd[0])

        def search():
            return _searched(structure, problem, now, qdd)

        qdd, motion = _full_step(alone, rest, constant, now.piece, coupling)
        qdd, x, share = lax.cond(now.count < _FULL_STEPS, full, search)
        piece, flipped = _update(rows, now.piece, x, scale)
        flipped = flipped | (share < 1.0)
        return _Iterate(qdd, now.qdd, piece, flipped, now.active, now.count + 1)

    def going(now: _Iterate):
        open_ = now.active & now.flipped if couple is None else now.active
        return jnp.any(open_) & (now.count < _FULL_STEPS + _SEARCHED_STEPS)

    zero, all_ = jnp.zeros_like(problem.tau), jnp.ones(problem.tau.shape[1:], bool)
    first = _Iterate(zero, zero, pieces(rows, constant), all_, all_, 0)
    qdd = lax.while_loop(going, step, first).qdd
    motion = _motion(structure, problem, qdd)
    x = residuals(structure.where, problem.rows, motion, qdd)
    return Solution(qdd, pieces(problem.rows, x))


def _without_moving(structure: Structure, problem: Problem):
    """The problem without contacts between moving links, which are visited one by
    one."""
    where = structure.where._replace(moving=())
    rows = problem.rows._replace(moving=no_points(problem.tau))
    return structure._replace(where=where), problem._replace(rows=rows)


def _coupler(structure: Structure, problem: Problem):
    """A function that gives what contacts between moving links add at an iterate."""
    tree, where, _ = structure
    if not where.moving:
        return None
    args = tree, where, dof_axes(tree, problem.kin), problem.rows.moving
    found = touching(*args)
    return lambda now: newton_coupling(*args, found, now.before, now.qdd)


def _full_step(structure, problem, constant: Values, piece: Values, coupling):
    """The minimum as if the pieces were these everywhere, and the motion of each
    node."""
    tree, where, nv = structure
    pull = forces(problem.rows, piece, constant)
    on_nodes, on_joints = generalized(tree, where, problem.rows, pull, nv)
    force = problem.force if on_nodes is None else problem.force + on_nodes
    tau = problem.tau if on_joints is None else problem.tau + on_joints
    matrix = None
    if coupling is not None:
        matrix, tau = coupling.matrix, tau + coupling.pull
    w = stiffnesses(problem.rows, piece)
    return solver(structure, problem, w, matrix)(tau, force)


def _searched(structure: Structure, problem: Problem, now: _Iterate, end):
    """A step towards `end` as long as the cost decreases, where a problem is active."""
    tree_map = jtu.tree_map

    def at(qdd):
        motion = _motion(structure, problem, qdd)
        x = residuals(structure.where, problem.rows, motion, qdd)
        return x, _balance(structure, problem, motion, qdd, None, None)

    both = jax.vmap(at)(jnp.stack([now.qdd, end]))
    (x, left), (x_end, left_end) = (tree_map(lambda y: y[k], both) for k in (0, 1))
    dx = tree_map(jnp.subtract, x_end, x)
    line = _Line(end - now.qdd, left, left_end - left, x, dx)
    share = jnp.where(now.active, _line_search(problem.rows, line), 0.0)
    x = tree_map(lambda a, b: a + share[None] * b, x, dx)
    x = x._replace(moving=tuple(y[:0] for y in x.moving))
    return now.qdd + share[None] * line.qdd, x, share


class _Line(NamedTuple):
    """Along a step: its direction; the balance of joint forces without rows and the
    residuals of the rows, where it starts and their changes up to its end."""

    qdd: Any
    left: Any
    dleft: Any
    x: Values
    dx: Values


def _line_search(rows: Rows, line: _Line):
    """Where the cost is least between two points, as a share of the way, at most 1."""

    def slope(share):
        x = jtu.tree_map(lambda a, b: a + share[None] * b, line.x, line.dx)
        force = forces(rows, pieces(rows, x), x)
        pairs = zip(jtu.tree_leaves(line.dx), jtu.tree_leaves(force), strict=True)
        work = sum(jnp.sum(a * b, axis=0) for a, b in pairs)
        return -jnp.sum(line.qdd * (line.left + share[None] * line.dleft), 0) - work

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0.0
        return jnp.where(rising, low, middle), jnp.where(rising, middle, high)

    one = jnp.ones_like(line.qdd[0])
    low, high = lax.fori_loop(0, 40, bisect, (0.0 * one, one))
    return jnp.where(slope(one) <= 0.0, 1.0, 0.5 * (low + high))


def _update(rows: Rows, old: Values, x: Values, scale: Values):
    """New pieces, and whether any row of each problem changed beyond rounding."""
    trees = (pieces(rows, x), old, x, scale)
    found = []
    for leaves in zip(*map(jtu.tree_leaves, trees), strict=True):
        any_, real = flips(*leaves)
        found.append((jnp.where(real, *leaves[:2]), any_))
    changed = ft.reduce(jnp.logical_or, [any_ for _, any_ in found])
    new = jtu.tree_unflatten(jtu.tree_structure(old), [piece for piece, _ in found])
    return new, changed
