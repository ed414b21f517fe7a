r"""Stiff springs between links."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kinematics._manifold import advance
from ..model._fields import as_array
from ..spatial import Motion
from ._bodies import drift, kick, mobility
from ._checks import check_substeps
from ._groups import groups
from ._links import (
    joint_errors,
    joint_numbers,
    relative_velocities,
    solve_blocks,
)
from ._maximal import AbstractMaximal, all_impulses, all_rates, between, total
from ._touch import approach, in_world, push_apart, rebound
from ._world import Impulses, Moving, World


class Spring(AbstractMaximal):
    r"""Links are held together by stiff springs and dampers, contacts are impulses.

    All joints act at once, each as if it were alone, and then all contacts, in
    semi-implicit Euler substeps of $h = \mathrm{dt}/\mathrm{substeps}$: fast, and right
    only in the limit of many substeps. A joint that its bodies have left by $e$, and
    that moves apart at $\dot e$, acts with the impulse

    $$F = -m\,(\kappa\,e/h + \zeta\,\dot e),$$

    $m$ being the mass with which the two links resist, a matrix of size 6. So the
    spring constant is $\kappa m/h^2$ and the damper $\zeta m/h$: the stiffest that such
    substeps can follow, for light and heavy links alike; and both grow as substeps get
    smaller. $\kappa$ and $\zeta$ are the shares of an error, and of the velocity at which
    it grows, that one substep takes away: those of Catto, *Soft constraints*, 2011, at
    impulse level. Where many joints meet, bodies are split among them (see
    `_links.py`). Along the axes of joints, armature, damping, springs, limits and dry
    friction act implicitly.

    A contact that comes closer than the surfaces gets the impulse that lets them meet at
    the end of the substep, or takes back a share `erp` of how deep they are (Baumgarte
    1972), with Coulomb friction, and restitution above the speed that gravity gives in
    two substeps.

    Limits and contacts are hard: `solref`, `solimp` and `solmix` of limits, dry friction
    and shapes, and `impratio`, which soften those of `Generalized`, are not read, nor
    are `safe_solref`, `integrator` and `implicit_damping`. Free joints may have neither
    armature nor dry friction; their damping and springs act explicitly. The medium,
    carried weight, external forces, and where shapes touch, are those of the start of a
    step.

    **Arguments:**

    - `substeps`: of one time step.
    - `stiffness`: $\kappa$, between 0 and 1.
    - `damping`: $\zeta$, between 0 and 1.
    - `erp`: share of a penetration, or of an excess over a limit, that is taken back in
        a substep.
    - `restitution`: share of the speed at which shapes meet that they leave with; at 0
        there is no rebound, and no derivative by it.
    """

    substeps: int = eqx.field(static=True, default=8)
    stiffness: Float[Array, ""] = eqx.field(converter=as_array, default=0.3)
    damping: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    erp: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    restitution: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)

    def __check_init__(self):
        check_substeps(self.substeps)

    def substep(self, world: World, now: Moving, tau) -> tuple[Moving, Impulses]:
        sys, h = world.sys, world.h
        nodes, numbers, bodies = world.tree, world.constants.bodies, now.bodies
        mobile = mobility(numbers, bodies)
        parts, rates, held, pushed = [], [], [], None
        for group in groups(nodes, False)[0]:
            at = world.place(group, bodies, now.q)
            along = joint_numbers(
                sys, nodes, group, now.q, now.qd, tau, h, self.erp[None]
            )
            error = joint_errors(numbers, group, bodies, at)
            apart = relative_velocities(group, bodies)
            wanted = _wanted(self, error, apart, at.axes, along.rate, h)
            none = (0.0 * h, 0.0 * h)
            block = solve_blocks(group, bodies, mobile, at.axes, wanted, along, none)
            parts.append(between(group, bodies, block.impulse))
            rates.append((group, block.rates))
            held.append((group, block.held))
        if parts:
            bodies = kick(mobile, bodies, total(parts))
        if world.contacts is not None:
            near = approach(world.ends, world.contacts, bodies)
            wanted = _apart(self, sys, near, h)
            along, impulse = push_apart(
                world.ends, world.contacts, near, mobile, wanted
            )
            bodies = kick(mobile, bodies, impulse)
            pushed = in_world(world.contacts.axes, along)
        qd = all_rates(nodes, rates, bodies, numbers)
        q = advance(sys.joints.kinds, now.q, h * qd)
        done = Impulses(all_impulses(sys, nodes, held, tau), pushed)
        return Moving(drift(numbers, bodies, h), q, qd, now.act), done


def _wanted(pipeline: Spring, error: Motion, apart: Motion, axes, rates, h) -> Motion:
    r"""The velocity that a joint takes away, $\kappa\,e/h + \zeta\,(V - S \dot q)$."""
    for axis, rate in zip(axes, rates, strict=True):
        apart = apart - (axis * rate)
    return (error * (pipeline.stiffness[None] / h)) + (apart * pipeline.damping[None])


def _apart(pipeline: Spring, sys, near, h):
    """The change of normal velocity that contacts ask for."""
    speed, gap = near.speed[0], near.gap
    meet = -gap * jnp.where(gap > 0.0, 1.0, pipeline.erp[None]) / h
    back = rebound(pipeline.restitution, sys, speed, h, meet)
    return jnp.where(meet > speed, jnp.maximum(meet, back), meet) - speed
