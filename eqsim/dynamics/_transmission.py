r"""Transmissions: lengths of actuators, and their moments $\partial\ell/\partial q$.

Rows of the moment matrix that belong to joints have as many entries as the joint has
degrees of freedom, at static places; they are kept as a list of entries. All other rows
are dense.
"""

import functools as ft
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..model import Actuators, JointKind, Joints, System, Transmission
from ..model._actuators import on_joint
from ..model._gather import accumulate, concatenate, put, take
from ..spatial import logarithm, quaternion_matrix, Vec3
from ..spatial._rotation import normalize4


class JointEnds(NamedTuple):
    """Static facts: which actuator forces act on which degrees of freedom of joints.

    - `single`, `single_q`: forces on hinges and slides, and their coordinates.
    - `multiple`: actuators on balls and free joints: actuator, kind of the joint, first
        coordinate.
    - `outputs`, `dofs`: the two ends of each entry of the moment matrix, first of
        `single`, then of `multiple`.
    - `others`: forces of actuators on other things than joints.
    """

    single: tuple[int, ...]
    single_q: tuple[int, ...]
    multiple: tuple[tuple[int, JointKind, int], ...]
    outputs: tuple[int, ...]
    dofs: tuple[int, ...]
    others: tuple[int, ...]


class Moments(NamedTuple):
    """The moment matrix.

    - `ends`: places of its entries.
    - `entries`: entries of rows of joints.
    - `rows`: rows of `ends.others`, `(n, nv, *batch)`; None if there are none.
    """

    ends: JointEnds
    entries: Any
    rows: Any

    def rates(self, qd, nout: int):
        r"""Compute the velocities of the actuators, $\dot\ell$: `(nout, *batch)`."""
        ends = self.ends
        products = take(qd, ends.dofs) * self.entries
        rates = accumulate(products, ends.outputs, nout)
        if self.rows is None:
            return rates
        return rates + put(jnp.sum(self.rows * qd[None], axis=1), ends.others, nout)

    def dense(self, nv: int):
        """Return the matrix, `(nout, nv, *batch)`."""
        ends, nout = self.ends, self.num_outputs
        places = [out * nv + dof for out, dof in zip(ends.outputs, ends.dofs)]
        flat = accumulate(self.entries, places, nout * nv)
        matrix = flat.reshape(nout, nv, *flat.shape[1:])
        return (
            matrix if self.rows is None else matrix + put(self.rows, ends.others, nout)
        )

    @property
    def num_outputs(self) -> int:
        """Number of rows."""
        return len({*self.ends.outputs, *self.ends.others})

    def joint_forces(self, force, nv: int):
        """Compute joint forces from forces of actuators: `(nv, *batch)`."""
        ends = self.ends
        tau = accumulate(take(force, ends.outputs) * self.entries, ends.dofs, nv)
        if self.rows is None:
            return tau
        return tau + jnp.sum(self.rows * take(force, ends.others)[:, None], axis=0)


class OtherRows(NamedTuple):
    """Moments and lengths of actuators on other things than joints, in the order of
    `JointEnds.others`: `(n, nv, *batch)` and `(n, *batch)`."""

    moments: Any
    lengths: Any


def joint_ends(actuators: Actuators, joints: Joints) -> JointEnds:
    """Return which actuator forces act on which degrees of freedom."""
    return _joint_ends(
        joints.kinds,
        joints.q_starts,
        joints.v_starts,
        actuators.transmissions,
        actuators.targets,
        actuators.out_starts,
    )


@ft.lru_cache(maxsize=256)
def _joint_ends(kinds, q_starts, v_starts, transmissions, targets, outs) -> JointEnds:
    single, single_q, multiple, others = [], [], [], []
    lone, rest = [], []
    for k, (kind, (joint, second)) in enumerate(zip(transmissions, targets)):
        out, three = outs[k], kind is Transmission.ORIENTATION
        if not on_joint(kind, second):
            others += range(out, out + (3 if three else 1))
        elif kinds[joint].nv == 1:
            single.append(out)
            single_q.append(q_starts[joint])
            lone.append((out, v_starts[joint]))
        else:
            multiple.append((k, kinds[joint], q_starts[joint]))
            first = v_starts[joint]
            rest += [
                (out + i if three else out, first + i) for i in range(kinds[joint].nv)
            ]
    entries = lone + rest
    return JointEnds(
        tuple(single),
        tuple(single_q),
        tuple(multiple),
        tuple(out for out, _ in entries),
        tuple(dof for _, dof in entries),
        tuple(others),
    )


def transmission(sys: System, q, others: OtherRows | None):
    """Compute the moment matrix, and the lengths of the actuators `(nout, *batch)`.

    **Arguments:**

    - `others`: rows of actuators on other things than joints, if there are any.
    """
    actuators = sys.actuators
    ends = joint_ends(actuators, sys.joints)
    gear = take(actuators.gear, ends.single)[:, 0]
    moments, lengths = [gear], [gear * take(q, ends.single_q)]
    order = [*ends.single]
    for k, kind, start in ends.multiple:
        moment, length = _rotary_moments(actuators, k, kind, q, start)
        moments += moment
        lengths += length
        order += range(actuators.out_starts[k], actuators.out_starts[k] + len(length))
    rows = None
    if ends.others:
        assert others is not None, "rows of other transmissions are computed before"
        rows = others.moments
        lengths.append(others.lengths)
        order += ends.others
    length = put(concatenate(lengths), order, sys.nout)
    return Moments(ends, concatenate(moments), rows), length


def _rotary_moments(actuators: Actuators, k: int, kind: JointKind, q, start: int):
    """Compute moments and lengths of an actuator on a ball or free joint."""
    num_linear, out = kind.nv - 3, actuators.out_starts[k]
    first = start + num_linear
    quat = normalize4([q[first + i][None] for i in range(4)])
    if actuators.transmissions[k] is Transmission.ORIENTATION:
        return 3 * [jnp.ones_like(quat[0])], [*logarithm(quat)]
    gear = [actuators.gear[out, i][None] for i in range(kind.nv)]
    axis = Vec3(*gear[num_linear:])
    if actuators.transmissions[k] is Transmission.JOINT_IN_PARENT:
        axis = quaternion_matrix(quat).T @ axis
    # MuJoCo: a free joint has no length.
    free = kind is JointKind.FREE
    length = jnp.zeros_like(quat[0]) if free else logarithm(quat) | axis
    return [*gear[:num_linear], *axis], [length]
