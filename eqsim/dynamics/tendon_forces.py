r"""Forces, energy and inertia of tendons.

A tension $f$ (positive: the tendon gets longer) acts on the joints as $J^T f$, an
armature $a$ adds $a\,J^T J$ to the joint-space inertia and $a\,J^T \dot J \dot q$ to the
bias forces.

Source: MuJoCo documentation, *Computation*, "Passive forces", and XML reference,
`tendon`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from ..kinematics.link_motion import Frames, frames, Kinematics, kinematics
from ..kinematics.tendon_paths import (
    jacobian_rate,
    tendon_frames,
    tendon_kinematics,
    TendonFrames,
    TendonKinematics,
)
from ..model import EqualityKind, System, Tree, tree, WrapKind
from ..model.arrays import per_row, put, take
from ..spatial import Motion, outside
from .passive import tendon_armature, tendon_damping


class TendonConstants(NamedTuple):
    """Quantities that depend on a `System` but not on the state.

    - `frames`: frames of sites and shapes of spatial tendons.
    - `rest`: bounds of the dead bands of the springs, `(ntendon, 2, *batch)`.
    """

    frames: TendonFrames
    rest: Any


def tendon_constants(sys: System, tree: Tree, fixed: Frames) -> TendonConstants | None:
    """Compute the constants of the tendons of a system, None if there are none."""
    if not sys.ntendon:
        return None
    tendons, local = sys.tendons, tendon_frames(sys, fixed)
    rest = tendons.spring_length
    automatic = _both(tendons.rests_at_reference, tendons.has_spring)
    if any(automatic):
        q = sys.joints.spring_ref
        kin = kinematics(sys, tree, fixed, q)
        length = tendon_kinematics(sys, tree, local, kin, q, automatic).length
        rest = jnp.where(per_row(automatic, rest) > 0, length[:, None], rest)
    return TendonConstants(local, rest)


def _both(*marks: tuple[bool, ...]) -> tuple[bool, ...]:
    return tuple(map(all, zip(*marks, strict=True)))


def _either(*marks: tuple[bool, ...]) -> tuple[bool, ...]:
    return tuple(map(any, zip(*marks, strict=True)))


def _marked(marks: tuple[bool, ...]) -> list[int]:
    return [k for k, mark in enumerate(marks) if mark]


def passive_tendons(sys: System) -> tuple[bool, ...]:
    """Return which tendons have a spring or a damper."""
    return _either(sys.tendons.has_spring, sys.tendons.has_damping)


def constrained_tendons(sys: System) -> tuple[bool, ...]:
    """Return which tendons have limits or dry friction, or are coupled."""
    coupled, equalities = [False] * sys.ntendon, sys.equalities
    for kind, pair in zip(equalities.kinds, equalities.objects, strict=True):
        for tendon in pair if kind is EqualityKind.TENDON else ():
            if tendon >= 0:
                coupled[tendon] = True
    return _either(sys.tendons.limited, sys.tendons.has_friction, tuple(coupled))


def needed_tendons(sys: System) -> tuple[bool, ...]:
    """Return which tendons have passive forces, constraints or inertia."""
    return _either(
        passive_tendons(sys), constrained_tendons(sys), sys.tendons.has_armature
    )


def reference_lengths(sys: System):
    """Compute the lengths of constrained tendons at the reference coordinates,
    `(ntendon, *batch)`; zero for others."""
    nodes = tree(sys)
    fixed, q = frames(sys, nodes), sys.joints.ref
    local, kin = tendon_frames(sys, fixed), kinematics(sys, nodes, fixed, q)
    chosen = constrained_tendons(sys)
    return tendon_kinematics(sys, nodes, local, kin, q, chosen).length


def tendon_forces(
    sys: System, constants: TendonConstants, now: TendonKinematics, qd
) -> Any:
    r"""Compute the joint forces $J^T f$ of the springs and dampers of tendons, `(nv,
    *batch)`.

    **Arguments:** `now`: kinematics of (at least) the `passive_tendons`.
    """
    tau = jnp.zeros_like(qd)
    for chosen, tension in _passive_tensions(sys, constants, now, qd):
        tau = tau + jnp.sum(take(now.jac, chosen) * tension[:, None], axis=0)
    return tau


def passive_tensions(
    sys: System, constants: TendonConstants, now: TendonKinematics, qd
) -> Any:
    """Compute the tensions of the springs and dampers of all tendons, `(ntendon,
    *batch)`; positive tensions make tendons longer."""
    total = jnp.zeros_like(now.length)
    for chosen, tension in _passive_tensions(sys, constants, now, qd):
        total = total + put(tension, chosen, sys.ntendon)
    return total


def _passive_tensions(
    sys: System, constants: TendonConstants, now: TendonKinematics, qd
) -> list[tuple[list[int], Any]]:
    """Compute the tensions of springs and of dampers, with the tendons that have them."""
    tendons, found = sys.tendons, []
    springs, dampers = _marked(tendons.has_spring), _marked(tendons.has_damping)
    if springs:
        excess, (linear, poly) = _springs(sys, constants, now.length)
        found.append((springs, -_polynomial(linear, poly, excess) * excess))
    if dampers:
        jac, damping = take((now.jac, tendon_damping(sys)), dampers)
        found.append((dampers, damping.force(jnp.sum(jac * qd[None], axis=1))))
    return found


def passive_tendon_forces(
    sys: System,
    tree: Tree,
    constants: TendonConstants | None,
    kin: Kinematics,
    q,
    qd,
) -> Any:
    """Compute `tendon_forces` at given poses of the nodes, for a system with
    `passive_tendons`."""
    assert constants is not None, "there are tendons"
    local, chosen = constants.frames, passive_tendons(sys)
    now = tendon_kinematics(sys, tree, local, kin, q, chosen)
    return tendon_forces(sys, constants, now, qd)


def damping_slopes(sys: System, rate):
    r"""Compute $-\partial f / \partial\dot\ell$ of the dampers at the rates `rate` of the
    tendons, `(ntendon, *batch)`: the damping that implicit integrators see."""
    slope = tendon_damping(sys).slope(rate)
    return slope * per_row(sys.tendons.has_damping, slope)


def tendon_energy(sys: System, constants: TendonConstants, length) -> Any:
    """Compute the energy of the springs of tendons, `(*batch)`."""
    x, (linear, poly) = _springs(sys, constants, length)
    first, second = poly[:, 0] * (1 / 3), poly[:, 1] * (1 / 4)
    return jnp.sum(x * x * (0.5 * linear + x * (first + x * second)), axis=0)


def _springs(sys: System, constants: TendonConstants, length):
    """Return how far springs are stretched or compressed beyond their dead bands, and
    their stiffnesses."""
    tendons, springs = sys.tendons, _marked(sys.tendons.has_spring)
    length, rest, *stiffness = take(
        (length, constants.rest, tendons.stiffness, tendons.stiffness_poly), springs
    )
    return outside(length, rest[:, 0], rest[:, 1]), stiffness


def _polynomial(linear, poly, x):
    return linear + x * (poly[:, 0] + x * poly[:, 1])


def has_tendon_armature(sys: System) -> bool:
    """Return whether tendons add to the joint-space inertia."""
    return any(sys.tendons.has_armature)


def armature_jacobian(sys: System, tree: Tree, fixed: Frames, kin: Kinematics, q):
    """Compute the Jacobian of the tendons with armature, `(ntendon, nv, *batch)`; other
    rows are zero."""
    local, chosen = tendon_frames(sys, fixed), sys.tendons.has_armature
    return tendon_kinematics(sys, tree, local, kin, q, chosen).jac


def _armature(sys: System):
    armature = tendon_armature(sys)
    return armature * per_row(sys.tendons.has_armature, armature)


def tendon_inertia(sys: System, jac):
    r"""Compute what tendons add to the joint-space inertia, $\sum_k a_k J_k^T J_k$, `(nv,
    nv, *batch)`.

    **Arguments:**

    - `jac`: Jacobian of (at least) the tendons with armature, `(ntendon, nv, *batch)`.
    """
    weighted = jac * _armature(sys)[:, None]
    return sum(
        weighted[k][:, None] * jac[k][None]
        for k, has in enumerate(sys.tendons.has_armature)
        if has
    )


def tendon_inertia_times(sys: System, jac, v):
    r"""Compute $\sum_k a_k J_k^T J_k v$, `(nv, *batch)`."""
    force = _armature(sys) * jnp.sum(jac * v[None], axis=1)
    return jnp.sum(jac * force[:, None], axis=0)


def moving_armature(sys: System) -> tuple[bool, ...]:
    """Return which tendons have armature and a Jacobian that depends on coordinates."""
    return tuple(
        has and path[0].kind is not WrapKind.JOINT
        for has, path in zip(sys.tendons.has_armature, sys.tendons.paths)
    )


def tendon_bias(sys: System, tree: Tree, fixed: Frames, jac, q, qd):
    r"""Compute what tendons add to the bias forces, $\sum_k a_k J_k^T \dot J_k \dot q$,
    `(nv, *batch)`. The Jacobian of fixed tendons is constant."""
    moves = moving_armature(sys)
    if not any(moves):
        return jnp.zeros_like(qd)
    force = _armature(sys) * jacobian_rate(sys, tree, fixed, q, qd, moves)
    return jnp.sum(jac * force[:, None], axis=0)


class ArmatureUpdate(NamedTuple):
    r"""The inverse of an inertia to which one tendon has been added (Sherman and
    Morrison): $M^{-1} - c\,y y^T$ with $y = M^{-1} J^T$ and $c = a / (1 + a J y)$.

    - `row`: $J$, `(nv, *batch)`.
    - `qdd`, `motion`: $y$, and the motion of each node at these accelerations.
    - `scale`: $c$, `(*batch)`.
    """

    row: Any
    qdd: Any
    motion: Motion
    scale: Any


def armature_updates(
    sys: System, jac, solve: Callable[..., tuple[Any, Motion]]
) -> list[ArmatureUpdate]:
    """Compute the updates of all tendons with armature, in order.

    **Arguments:**

    - `jac`: Jacobian of (at least) these tendons.
    - `solve`: function of joint forces that computes accelerations and node motions
        without the armature of tendons.
    """
    updates: list[ArmatureUpdate] = []
    armatures = tendon_armature(sys)
    for k, has in enumerate(sys.tendons.has_armature):
        if has:
            row, armature = jac[k], armatures[k]
            qdd, motion = apply_updates(updates, *solve(row))
            inverse = jnp.sum(row * qdd, axis=0)
            scale = armature / (1.0 + armature * inverse)
            updates.append(ArmatureUpdate(row, qdd, motion, scale))
    return updates


def apply_updates(
    updates: list[ArmatureUpdate], qdd, motion: Motion
) -> tuple[Any, Motion]:
    """Return accelerations, and node motions, with the armature of tendons, given those
    without."""
    for update in updates:
        push = update.scale * jnp.sum(update.row * qdd, axis=0)
        qdd = qdd - update.qdd * push[None]
        motion = motion - (update.motion * push[None])
    return qdd, motion


def passive_tendons_at(
    sys: System, q
) -> tuple[TendonConstants, TendonKinematics] | None:
    """Compute constants and kinematics of the tendons with springs and dampers at
    coordinates `q`, None if there are none."""
    nodes, chosen = tree(sys), passive_tendons(sys)
    if not any(chosen):
        return None
    fixed = frames(sys, nodes)
    constants = tendon_constants(sys, nodes, fixed)
    assert constants is not None, "there are tendons"
    kin = kinematics(sys, nodes, fixed, q)
    now = tendon_kinematics(sys, nodes, constants.frames, kin, q, chosen)
    return constants, now
