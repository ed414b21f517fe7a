r"""Stiff springs between links."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kinematics._manifold import advance
from ..model import System, tree
from ..model._fields import as_array
from ._contact_impulses import (
    contact_impulses,
    contact_motion,
    ContactMotion,
    on_bodies,
    push_out,
    rebound_velocity,
)
from ._joint_constraints import (
    joint_errors,
    joint_impulses,
    joint_rates,
    joint_terms,
    JointSolution,
    net_impulse,
    relative_velocity,
    solve_joints,
)
from ._maximal import (
    AbstractMaximal,
    ConstraintImpulses,
    MaximalState,
    StepData,
)
from ._maximal_checks import check_substeps
from ._rigid_bodies import (
    apply_impulse,
    inverse_inertia,
    InverseInertia,
    joint_groups,
    JointGroup,
    move_freely,
)


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
    `_joint_constraints.py`). Along the axes of joints, armature, damping, springs, limits and dry
    friction act implicitly.

    A contact that comes closer than the surfaces gets the impulse that lets them meet at
    the end of the substep, with Coulomb friction, and restitution above the speed that
    gravity gives in two substeps. Of a penetration, a share `erp` is taken back in each
    substep: at the speed that gravity gives in a few substeps by impulses (Baumgarte
    1972), and beyond that at the end of the step by a change of the coordinates that
    leaves no velocity behind (Cline and Pai 2003). So are excesses over limits.

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

    @property
    def violation_share(self) -> Array:
        return self.erp

    def substep(
        self, step: StepData, state: MaximalState, tau: Array
    ) -> tuple[MaximalState, ConstraintImpulses]:
        sys, h, contacts = step.sys, step.h, step.contacts
        nodes, parameters, bodies = tree(sys), step.constants.bodies, state.bodies
        inverse, forces = inverse_inertia(parameters, bodies), None
        joints = [
            self._solve_joints(step, state, inverse, group, tau)
            for group in joint_groups(nodes, False)[0]
        ]
        if joints:
            bodies = apply_impulse(inverse, bodies, net_impulse(joints, bodies))
        if contacts is not None:
            motion = contact_motion(contacts, bodies)
            change = self._contact_velocity(sys, motion, h) - motion.velocity.x
            impulse = contact_impulses(contacts, motion, inverse, change)
            on_all = on_bodies(contacts, motion, inverse, impulse)
            bodies = apply_impulse(inverse, bodies, on_all)
            forces = contacts.frame.T @ impulse
        qd = joint_rates(nodes, joints, bodies, parameters)
        q = advance(sys.joints.kinds, state.q, h * qd)
        new = MaximalState(move_freely(parameters, bodies, h), q, qd, state.act)
        return new, ConstraintImpulses(joint_impulses(nodes, joints, tau), forces)

    def _solve_joints(
        self,
        step: StepData,
        state: MaximalState,
        inverse: InverseInertia,
        group: JointGroup,
        tau: Array,
    ) -> JointSolution:
        r"""Remove the velocity $\kappa\,e/h + \zeta\,(V - S \dot q)$ in each joint."""
        q, qd, bodies, h = state.q, state.qd, state.bodies, step.h
        at = step.joint_frames(group, bodies, q)
        terms = joint_terms(step.sys, tree(step.sys), group, q, qd, tau, h)
        error = joint_errors(step.constants.bodies, group, bodies, at)
        apart = relative_velocity(group, bodies)
        for axis, term in zip(at.axes, terms.axes, strict=True):
            apart = apart - (axis * term.rate)
        remove = error * (self.stiffness[None] / h) + apart * self.damping[None]
        return solve_joints(group, bodies, inverse, at.axes, remove, terms)

    def _contact_velocity(self, sys: System, motion: ContactMotion, h):
        """Return the normal velocity at which each contact is to leave the substep."""
        velocity, gap = motion.velocity.x, motion.gap
        out, _ = push_out(sys, gap, self.erp[None], h)
        meet = jnp.where(gap > 0.0, -gap / h, out)
        back = rebound_velocity(self.restitution, sys, velocity, h, meet)
        return jnp.where(meet > velocity, jnp.maximum(meet, back), meet)
