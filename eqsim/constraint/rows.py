r"""Rows of the convex problem: a Jacobian, offsets and a cost.

Forces, reports and derivatives see constraints through `AbstractRows` alone, the solver
through `AbstractSolverRows`: in each Newton step a kind of rows replaces its cost by a
quadratic *model*, which contributes $J^T W J$ to the matrix and a constant force to the
right hand side.

Jacobians say how accelerations become residuals, $x = J a + c$:

| class | rows | what $J^T W J$ adds to |
|---|---|---|
| `DofJacobian` | on single degrees of freedom | the diagonal, as armature does |
| `PointJacobian` | at points of one link, against the world | the inertia of the link |
| `SparseJacobian` | on a few degrees of freedom each | their entries of the joint-space matrix |
| `DenseJacobian` | any | the joint-space matrix |

The first two keep Newton's method in O(n); with the others it needs the joint-space matrix.
"""

import abc
import functools as ft
import operator
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..dynamics.joint_space import lower_triangle, Places
from ..model.arrays import accumulate, concatenate, take, take_or_zero
from ..spatial import Force, Mat3, Motion, Vec3
from ..spatial.vectors import ArticulatedInertia, force_at, point_stiffness, Sym3
from .costs import AbstractCost, Residual, Weights


# Entries of symmetric matrices: sums of outer products of rows.


_MOST_PADDED = 4
"""Summands of entries that are summed together, with zeros for those that are missing."""


def add_products(
    values,
    places: Places,
    jac: Sequence[Any],
    weights: tuple[tuple[Any, ...], ...],
):
    """Add $J^T W J$ to entries of its lower triangle.

    **Arguments:**

    - `values`: the entries `places`, `(k, *batch)`.
    - `jac`: rows of $J$, `(n, *batch)` each.
    - `weights`: entries `(1, *batch)` of the lower triangle of $W$; None stands for zero.
    """
    rows, columns = np.divmod(np.array(places, int), jac[0].shape[0])
    for i, right in enumerate(jac):
        parts = [
            other * weights[max(i, k)][min(i, k)]
            for k, other in enumerate(jac)
            if weights[max(i, k)][min(i, k)] is not None
        ]
        left = sum(parts[1:], parts[0])
        values = values + take(left, rows) * take(right, columns)
    return values


def summed(values, index: Sequence[int]) -> tuple[tuple[Any, tuple[int, ...]], ...]:
    """Sum the rows that have the same entry in `index`; rows with -1 are dropped.

    **Returns:** sums and their entries, which are distinct. Entries with few and with many
    rows are apart, as the former are padded to the same number.
    """
    counts = Counter(k for k in index if k >= 0)
    parts = []
    for many in (False, True):
        own = sorted(k for k, n in counts.items() if (n > _MOST_PADDED) == many)
        if own:
            row = {k: number for number, k in enumerate(own)}
            rows = [row.get(k, -1) for k in index]
            parts.append((accumulate(values, rows, len(own)), tuple(own)))
    return tuple(parts)


# Jacobians.


class Terms(NamedTuple):
    """Contributions of rows to nodes, degrees of freedom and the joint-space matrix.

    - `nodes`: values and their nodes: forces about the origins of the trees, or 6x6
        matrices.
    - `dofs`: values and their degrees of freedom: joint forces, or stiffness.
    - `entries`: values of $J^T W J$ and their entries, see `Places`.
    """

    nodes: tuple[tuple[Any, tuple[int, ...]], ...] = ()
    dofs: tuple[tuple[Any, tuple[int, ...]], ...] = ()
    entries: tuple[tuple[Any, Places], ...] = ()


def join(terms: Sequence[Terms]) -> Terms:
    """Join the terms of several rows."""
    return Terms(*(sum((term[k] for term in terms), ()) for k in range(3)))


def total(parts, size: int):
    """Sum values over nodes or degrees of freedom; None if there are none."""
    if not parts:
        return None
    index = [i for _, at in parts for i in at]
    return accumulate(concatenate([value for value, _ in parts]), index, size)


class AbstractJacobian(eqx.Module):
    """A linear map from accelerations to residuals of n constraints."""

    @abc.abstractmethod
    def times(self, motion: Motion, qdd) -> Residual:
        """Compute $J a$.

        **Arguments:**

        - `motion`: motion of each node, about the origin of its tree.
        - `qdd`: joint accelerations, `(nv, *batch)`.
        """

    @abc.abstractmethod
    def transpose(self, force: Residual) -> Terms:
        """Compute $J^T f$."""

    @abc.abstractmethod
    def weigh(self, weights: Weights) -> Terms:
        """Compute $J^T W J$."""


class DofJacobian(AbstractJacobian):
    """Rows on single degrees of freedom: $J a = \\pm a_i$.

    - `dofs`: degrees of freedom.
    - `sign`: 1 or -1, the same for all.
    """

    dofs: tuple[int, ...] = eqx.field(static=True)
    sign: float = eqx.field(static=True, default=1.0)

    def times(self, motion: Motion, qdd) -> Residual:
        own = take(qdd, self.dofs)
        return (own if self.sign > 0.0 else -own,)

    def transpose(self, force: Residual) -> Terms:
        own = force[0] if self.sign > 0.0 else -force[0]
        return Terms(dofs=((own, self.dofs),))

    def weigh(self, weights: Weights) -> Terms:
        return Terms(dofs=((weights[0][0], self.dofs),))


class SparseJacobian(AbstractJacobian):
    """Rows that act on a few degrees of freedom each.

    - `size`: number of all degrees of freedom.
    - `dofs`: degrees of freedom of each row, in order and of the same number; -1: none.
    - `entries`: entries of the rows there, `(n, number, *batch)`.
    """

    size: int = eqx.field(static=True)
    dofs: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    entries: Any

    def times(self, motion: Motion, qdd) -> Residual:
        own = take_or_zero(qdd, sum(self.dofs, ()))
        own = own.reshape(*self._shape, *own.shape[1:])
        return (jnp.sum(self.entries * own, axis=1),)

    def transpose(self, force: Residual) -> Terms:
        parts = self.entries * force[0][:, None]
        flat = parts.reshape(-1, *parts.shape[2:])
        return Terms(dofs=summed(flat, sum(self.dofs, ())))

    def weigh(self, weights: Weights) -> Terms:
        found, (count, width) = (), self._shape
        left, right = np.tril_indices(width)
        columns = jnp.swapaxes(self.entries, 0, 1)
        several = max(1, _MOST_PRODUCTS // len(left))
        for start in range(0, count, several):
            part = slice(start, start + several)
            own = columns[:, part]
            values = take(own, left) * take(own * weights[0][0][None, part], right)
            flat = values.reshape(-1, *values.shape[2:])
            found += summed(flat, self._places(part, left, right))
        return Terms(entries=found)

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.dofs), len(self.dofs[0])

    def _places(self, part: slice, left, right) -> list[int]:
        dofs = np.array(self.dofs[part], int).T
        low, high = dofs[right], dofs[left]
        places = np.where((low < 0) | (high < 0), -1, high * self.size + low)
        return places.ravel().tolist()


_MOST_PRODUCTS = 1024
"""Products of a sparse Jacobian that are computed as one array."""


def sparse_jacobian(jac, dofs: Sequence[Collection[int]]) -> SparseJacobian:
    """Return a Jacobian `(n, nv, *batch)` as one that is zero except at known degrees of
    freedom.

    **Arguments:**

    - `dofs`: the degrees of freedom of each row.
    """
    size, most = jac.shape[1], max([1, *map(len, dofs)])
    padded = tuple(
        (*sorted(own), *(-1 for _ in range(most - len(own)))) for own in dofs
    )
    index = [
        k * size + dof if dof >= 0 else -1
        for k, own in enumerate(padded)
        for dof in own
    ]
    entries = take_or_zero(jac.reshape(-1, *jac.shape[2:]), index)
    return SparseJacobian(
        size, padded, entries.reshape(len(padded), most, *jac.shape[2:])
    )


class DenseJacobian(AbstractJacobian):
    """Rows that act on any degrees of freedom.

    - `rows`: arrays `(n, nv, *batch)`, one for each dimension.
    """

    rows: tuple[Any, ...]

    def times(self, motion: Motion, qdd) -> Residual:
        return tuple(jnp.sum(row * qdd[None], axis=1) for row in self.rows)

    def transpose(self, force: Residual) -> Terms:
        pairs = zip(self.rows, force, strict=True)
        tau = sum(jnp.sum(j * f[:, None], axis=0) for j, f in pairs)
        return Terms(dofs=((tau, tuple(range(self.rows[0].shape[1]))),))

    def weigh(self, weights: Weights) -> Terms:
        places = lower_triangle(self.rows[0].shape[1])
        like = self.rows[0][0, :1] * weights[0][0][:1]
        total = jnp.zeros((len(places), *like.shape[1:]), like.dtype)
        for k in range(self.rows[0].shape[0]):
            jac = [row[k] for row in self.rows]
            own = tuple(
                tuple(None if w is None else w[k : k + 1] for w in row)
                for row in weights
            )
            total = add_products(total, places, jac, own)
        return Terms(entries=((total, places),))


class PointJacobian(AbstractJacobian):
    """Rows along axes through points of links, the other side of which stands still.

    - `nodes`: node that carries each point.
    - `arm`: position of the points about the origins of the trees.
    - `linear`: axes along which the acceleration of the points is measured.
    - `angular`: axes about which the angular acceleration is measured.
    """

    nodes: tuple[int, ...] = eqx.field(static=True)
    arm: Vec3
    linear: tuple[Vec3, ...]
    angular: tuple[Vec3, ...] = ()

    def times(self, motion: Motion, qdd) -> Residual:
        own = take(motion, self.nodes)
        rate = own.at(self.arm)
        along = [axis.dot(rate) for axis in self.linear]
        return (*along, *(axis.dot(own.ang) for axis in self.angular))

    def transpose(self, force: Residual) -> Terms:
        n = len(self.linear)
        pull = force_at(self.arm, combine(self.linear, force[:n]))
        if self.angular:
            pull = Force(pull.ang + combine(self.angular, force[n:]), pull.lin)
        return Terms(nodes=((pull, self.nodes),))

    def weigh(self, weights: Weights) -> Terms:
        axes, n = (*self.linear, *self.angular), len(self.linear)
        # Row by row of W: sums over the linear and over the angular axes.
        by_lin = [_combine_row(axes[:n], weights, i, 0) for i in range(len(axes))]
        by_ang = [_combine_row(axes[n:], weights, i, n) for i in range(len(axes))]
        stiffness = point_stiffness(self.arm, _symmetric(self.linear, by_lin[:n]))
        if self.angular:
            stiffness = stiffness + self._angular(by_lin[n:], by_ang[n:])
        return Terms(nodes=((stiffness, self.nodes),))

    def _angular(self, by_lin: list, by_ang: list) -> ArticulatedInertia:
        """Compute the part of $J^T W J$ with angular axes, given the sums over linear and
        angular axes that each angular axis is coupled to."""
        ang = _symmetric(self.angular, by_ang)
        zero = jnp.zeros_like(ang.xx)
        cross = Mat3(*9 * [zero])
        for axis, push in zip(self.angular, by_lin, strict=True):
            if push is None:
                continue
            moment = self.arm.cross(push)
            both = axis.outer(moment)
            ang = ang + Sym3.of(both + both.T)
            cross = cross + axis.outer(push)
        return ArticulatedInertia(ang, cross, Sym3(*6 * [zero]))


def combine(axes: Sequence[Vec3], values: Sequence[Any]) -> Vec3:
    """Return the sum of axes times values."""
    parts = [axis * value for axis, value in zip(axes, values, strict=True)]
    return ft.reduce(operator.add, parts)


def _combine_row(
    axes: Sequence[Vec3], weights: Weights, row: int, start: int
) -> Vec3 | None:
    """Return the sum of axes times a row of the weights; None if all are zero."""
    entries = [
        (axis, weights[max(row, k)][min(row, k)])
        for k, axis in enumerate(axes, start=start)
    ]
    parts = [axis * w for axis, w in entries if w is not None]
    return ft.reduce(operator.add, parts) if parts else None


def _symmetric(axes: Sequence[Vec3], sums: Sequence[Vec3 | None]) -> Sym3:
    parts = [
        axis.outer(each)
        for axis, each in zip(axes, sums, strict=True)
        if each is not None
    ]
    return Sym3.of(ft.reduce(operator.add, parts))


# Rows.


class Line(NamedTuple):
    """A line of accelerations.

    - `qdd`, `motion`: joint accelerations at the start, and motion of the nodes.
    - `dqdd`, `dmotion`: their changes up to the end.
    """

    qdd: Any
    motion: Motion
    dqdd: Any
    dmotion: Motion


class AbstractRows(eqx.Module):
    """Constraints that are treated alike, at one state of the robot.

    Pieces are used by these methods alone. Residuals and forces have one array for each
    dimension, except those of `ListedContacts`.
    """

    @abc.abstractmethod
    def residuals(self, motion: Motion, qdd) -> Residual:
        r"""Compute $x = J a - a_\mathrm{ref}$, given the motion $J a$ of each node."""

    @abc.abstractmethod
    def pieces(self, x: Residual) -> Any:
        """Return the pieces of the cost at residuals."""

    @abc.abstractmethod
    def forces(self, pieces: Any, x: Residual) -> Residual:
        """Compute row forces on given pieces of the cost."""

    @abc.abstractmethod
    def transpose(self, force: Residual) -> Terms:
        """Compute $J^T f$."""

    @abc.abstractmethod
    def stiffness(self, pieces: Any) -> Terms:
        r"""Compute $J^T W J$ with $W = -\partial f / \partial x$ at the residuals of which
        these are the pieces."""

    @abc.abstractmethod
    def for_solver(self) -> "AbstractSolverRows":
        """Return what Newton's method needs of these rows. It has no derivatives."""


class AbstractSolverRows(eqx.Module):
    """Constraints as Newton's method sees them: quadratic models, and work on lines."""

    @property
    @abc.abstractmethod
    def piecewise_quadratic(self) -> bool:
        """True if the cost is quadratic on each of its pieces."""

    @abc.abstractmethod
    def first_model(self, like) -> Any:
        """Return the model at zero acceleration; `like` has shape `(nv, *batch)`."""

    @abc.abstractmethod
    def next_model(
        self, old: Any, before, qdd, motion: Motion, tolerance: float
    ) -> tuple[Any, Any]:
        """Return the model at `qdd`, and whether it differs from the old one, made at
        `before`, beyond rounding: shape `(*batch)`."""

    @abc.abstractmethod
    def newton_terms(self, model: Any) -> tuple[Terms, Terms]:
        """Return what a model contributes: forces at zero acceleration, and stiffness."""

    @abc.abstractmethod
    def on_line(self, line: Line) -> Any:
        """Return what `work` needs of a line."""

    @abc.abstractmethod
    def work(self, on_line: Any, share) -> Any:
        r"""Compute $f \cdot \Delta x$, the fall of the cost per share of a line, at a share
        of it: shape `(*batch)`."""


class Rows(AbstractRows, AbstractSolverRows):
    r"""Rows made of a Jacobian and a cost.

    - `jacobian`: $J$.
    - `cost`: cost of the residuals.
    - `offset`: $-a_\mathrm{ref} = k r + b v$ for each dimension, `(n, *batch)`: the stiffness
        times the distance from the constraint, plus the damping times the velocity $J v$.
    """

    jacobian: AbstractJacobian
    cost: AbstractCost
    offset: Residual

    def residuals(self, motion: Motion, qdd) -> Residual:
        rates = self.jacobian.times(motion, qdd)
        return tuple(a + b for a, b in zip(rates, self.offset, strict=True))

    def pieces(self, x: Residual) -> Any:
        return self.cost.piece(x)

    def forces(self, pieces: Any, x: Residual) -> Residual:
        return self.cost.force(pieces, x)

    def transpose(self, force: Residual) -> Terms:
        return self.jacobian.transpose(force)

    def stiffness(self, pieces: Any) -> Terms:
        return self.jacobian.weigh(self.cost.stiffness(pieces))

    def for_solver(self) -> AbstractSolverRows:
        return self

    @property
    def piecewise_quadratic(self) -> bool:
        return self.cost.piecewise_quadratic

    def first_model(self, like) -> Any:
        return self.cost.piece(self.offset)

    def next_model(self, old: Any, before, qdd, motion: Motion, tolerance: float):
        x = self.residuals(motion, qdd)
        new, changed = self.cost.update(old, x, self.offset, tolerance)
        return new, jnp.any(changed, axis=0)

    def on_line(self, line: Line) -> Any:
        x = self.residuals(line.motion, line.qdd)
        return x, self.jacobian.times(line.dmotion, line.dqdd)

    def work(self, on_line: Any, share) -> Any:
        start, change = on_line
        return jnp.sum(work(self.cost, start, change, share), axis=0)

    def newton_terms(self, model: Any) -> tuple[Terms, Terms]:
        constant = self.cost.model(model, self.offset)
        return self.jacobian.transpose(constant), self.stiffness(model)


def work(cost: AbstractCost, start: Residual, change: Residual, share):
    """Compute the work of row forces per share of a line of residuals, `(n, *batch)`."""
    x = tuple(a + share[None] * b for a, b in zip(start, change, strict=True))
    forces = cost.force(cost.piece(x), x)
    parts = [a * b for a, b in zip(change, forces, strict=True)]
    return ft.reduce(operator.add, parts)
