r"""Weld: a frame of one link stays at a frame of another.

With orientations $p_1$, $p_2$ of the frames (unit quaternions) the violation of rotation is
the vector part of $e = p_2^* p_1$, times a length. It moves as

$$\dot e = \tfrac12\,(0, w)\,e, \qquad w = R_2^T (\omega_1 - \omega_2).$$

Source: MuJoCo documentation, *Computation*, "Equality"; `mj_instantiateEquality`.
"""

from typing import Any, NamedTuple

from ..dynamics._weights import InverseWeights
from ..model import EqualityKind, System
from ..model._gather import take, take_or_zero
from ..spatial import matrix_quaternion, safe_sqrt, Vec3
from ._anchors import Anchors, both_ends, end_dofs, end_links, select_movable
from ._constraint import AbstractConstraint, Moment
from ._equality import equality_constants, equality_rows, Violation
from ._rows import AbstractRows


class Weld(AbstractConstraint):
    """Frames of two links, or two sites, that stay together."""

    def constants(self, sys: System, weights: InverseWeights) -> Any:
        which = select_movable(sys, EqualityKind.WELD)
        if not which:
            return None
        ends = end_links(sys, which)
        lin = sum(take_or_zero(weights.link, links) for links in ends)
        ang = sum(take_or_zero(weights.link_rotation, links) for links in ends)
        return equality_constants(sys, which, (*3 * [lin], *3 * [ang]))

    def rows(
        self, sys: System, constants: Any, now: Moment
    ) -> tuple[AbstractRows, ...]:
        which = select_movable(sys, EqualityKind.WELD)
        one, two = both_ends(sys, now, which)
        length = take(sys.equalities.torque_scale, which)
        turn = _turn(one, two)
        gap, twist = one.pos - two.pos, turn.value * length
        by_row = length[:, None]
        violation = Violation(
            jacobian=(*(one.lin - two.lin), *(turn.jacobian * by_row)),
            value=(*gap, *twist),
            rate=(*(one.speed - two.speed), *(turn.rate * length)),
            bias=(*(one.bias - two.bias), *(turn.bias * length)),
        )
        size = safe_sqrt((gap | gap) + (twist | twist))
        return (equality_rows(constants, violation, size, end_dofs(sys, which)),)


class _Turn(NamedTuple):
    """Vector part of the relative orientation, with the meaning of `Violation`."""

    value: Vec3
    rate: Vec3
    bias: Vec3
    jacobian: Vec3


def _turn(one: Anchors, two: Anchors) -> _Turn:
    # The sign of the quaternion does not matter: all parts below change with it.
    real, *imaginary = matrix_quaternion(two.rot.T @ one.rot)
    vector = Vec3(*imaginary)
    back = two.rot.T

    def moved(w: Vec3, real, vector: Vec3) -> Vec3:
        return ((w * real) + (w ^ vector)) * 0.5

    apart = one.spin - two.spin
    w = back @ apart
    w_rate = back @ ((one.spin_bias - two.spin_bias) - (two.spin ^ apart))
    rate = moved(w, real, vector)
    real_rate = (w | vector) * -0.5
    columns = lambda v: Vec3(*(x[:, None] for x in v))
    turned = _rows_times(back, one.ang - two.ang)
    return _Turn(
        value=vector,
        rate=rate,
        bias=moved(w_rate, real, vector) + moved(w, real_rate, rate),
        jacobian=moved(turned, real[:, None], columns(vector)),
    )


def weld_torques(one: Anchors, two: Anchors, force: Vec3) -> Vec3:
    """Compute the torques on the first links, in the world, of the forces of the rows of
    rotation, times the length that weighs them."""
    real, *imaginary = matrix_quaternion(two.rot.T @ one.rot)
    return two.rot @ (((force * real) + (Vec3(*imaginary) ^ force)) * 0.5)


def _rows_times(matrix, vectors: Vec3) -> Vec3:
    """Multiply the vectors `(n, nv, *batch)` of each row with its matrix `(n, *batch)`."""
    wide = type(matrix)(*(x[:, None] for x in matrix))
    return wide @ vectors
