r"""Coordinates as a manifold: $q \oplus v$ and $q_1 \ominus q_0$.

Coordinates contain unit quaternions, so they have more entries than there are degrees
of freedom, and cannot be added or subtracted. Steps between them are vectors of the
size of `qd`, in the same axes.

Solà, Deray, Atchuthan, *A micro Lie theory for state estimation in robotics*, 2018.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_shape
from ..model import check_state, JointKind, System
from ..spatial import integrate as turn, logarithm, multiply, Vec3
from ..spatial.rotations import normalize4


def integrate(
    sys: System, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> Float[Array, " nq"]:
    r"""Move coordinates by a step: $q \oplus v$.

    Quaternions turn in body axes, $\mathrm{quat} \otimes \exp(\tfrac12 \omega)$; all
    other coordinates are added.

    **Arguments:**

    - `sys`: the robot; only its structure is read.
    - `q`: coordinates.
    - `v`: step, rad and m: for instance a velocity `qd` times a duration.

    **Returns:** the new coordinates, with unit quaternions (MuJoCo:
    `mj_integratePos`).
    """
    check_state(sys, q)
    check_shape("v", v, {"nv": sys.nv})
    return _integrate(sys.joints.kinds, q, v)


def difference(
    sys: System, q0: Float[Array, " nq"], q1: Float[Array, " nq"]
) -> Float[Array, " nv"]:
    r"""Compute the step from one configuration to another, $q_1 \ominus q_0$.

    The inverse of `integrate`: `integrate(sys, q0, difference(sys, q0, q1))` is `q1`
    (up to the sign of quaternions).

    **Arguments:**

    - `sys`: the robot; only its structure is read.
    - `q0`, `q1`: start and end.

    **Returns:** the shortest such step, rad and m; its rotations do not exceed $\pi$
    (MuJoCo: `mj_differentiatePos`).
    """
    check_state(sys, q0)
    check_state(sys, q1)
    return _difference(sys.joints.kinds, q0, q1)


def dof_joints(kinds: tuple[JointKind, ...]) -> tuple[int, ...]:
    """Return the joint of each degree of freedom."""
    return tuple(j for j, kind in enumerate(kinds) for _ in range(kind.nv))


def _num_linear(kind: JointKind) -> int:
    """Return the number of coordinates before the quaternion of a joint."""
    return {JointKind.FREE: 3, JointKind.SPHERICAL: 0}.get(kind, 1)


def move_coordinates(kinds: tuple[JointKind, ...], q, v):
    """Compute `integrate` with batch axes last."""
    parts, start, at = [] if kinds else [q], 0, 0
    for kind in kinds:
        n = _num_linear(kind)
        parts.append(q[start : start + n] + v[at : at + n])
        start, at = start + n, at + n
        if kind.nq > 1:
            quat = tuple(q[start + k : start + k + 1] for k in range(4))
            spin = Vec3(*(v[at + k : at + k + 1] for k in range(3)))
            parts += turn(quat, spin, 1.0)
            start, at = start + 4, at + 3
    return jnp.concatenate(parts)


def displacement(kinds: tuple[JointKind, ...], q0, q1):
    """Compute `difference` with batch axes last."""
    parts, start = [] if kinds else [q0], 0
    for kind in kinds:
        n = _num_linear(kind)
        parts.append(q1[start : start + n] - q0[start : start + n])
        start += n
        if kind.nq > 1:
            w, *xyz = normalize4(tuple(q0[start + k : start + k + 1] for k in range(4)))
            to = normalize4(tuple(q1[start + k : start + k + 1] for k in range(4)))
            parts += logarithm(multiply((w, *(-x for x in xyz)), to))
            start += 4
    return jnp.concatenate(parts)


_integrate = batch_last(move_coordinates)
_difference = batch_last(displacement)
