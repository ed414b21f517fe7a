r"""Pipeline with stiff springs between links."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kinematics._manifold import advance
from ..model import System, tree
from ..model._fields import as_array
from ..spatial import at_least
from ._contact_impulses import (
    contact_impulses,
    contact_motion,
    ContactMotion,
    on_bodies,
    push_out,
    rebound_velocity,
)
from ._contacts import check_max_contacts
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
    r"""Joints are stiff springs and dampers, and contacts are impulses.

    All joints act in parallel, each as if it were alone, followed by all contacts, in
    semi-implicit Euler substeps of $h = \mathrm{dt}/\mathrm{substeps}$. This is fast,
    and accurate only in the limit of many substeps. A joint with an error $e$ of its
    bodies, which grows at $\dot e$, acts with the impulse

    $$F = -m\,(\kappa\,e/h + \zeta\,\dot e),$$

    where $m$ is the effective mass of the two links, a matrix of size 6. The spring
    constant is $\kappa m/h^2$ and the damping constant $\zeta m/h$, the stiffest that
    such substeps can follow, for light and heavy links; both increase with smaller
    substeps. $\kappa$ and $\zeta$ are the fractions of an error, and of its rate, that
    one substep removes, as in Catto, *Soft constraints*, 2011, at impulse level. Bodies
    of several joints are split among them (see `_joint_constraints.py`). Along joint
    axes, armature, damping, springs, limits and dry friction are implicit.

    A contact closer than its surfaces gets the impulse that makes the surfaces touch at
    the end of the substep, with Coulomb friction, and with restitution above the speed
    that gravity produces in two substeps. In each substep, a fraction `erp` of a
    penetration is removed: by impulses up to the speed that gravity produces in a few
    substeps (Baumgarte 1972), and beyond that at the end of the step by a change of
    coordinates without a change of velocities (Cline and Pai 2003). The same holds for
    violations of limits.

    Limits and contacts are hard: `solref`, `solimp` and `solmix` of limits, dry
    friction and shapes, and `impratio`, which soften constraints in `Generalized`, are
    not used, nor are `safe_solref`, `integrator` and `implicit_damping`. Free joints
    may have neither armature nor dry friction; their damping and springs are explicit.
    Fluid forces, gravity compensation, external forces, and contact points are those at
    the start of a step.

    **Arguments:**

    - `substeps`: number of substeps per time step.
    - `stiffness`: fraction $\kappa$, between 0 and 1.
    - `damping`: fraction $\zeta$, between 0 and 1.
    - `erp`: fraction of a penetration, or of a violation of a limit, that is removed
        per substep.
    - `restitution`: ratio of the speeds after and before an impact; at 0 there is no
        rebound, and the derivative with respect to it is zero.
    - `max_contacts`: largest number of contacts that `solve` and `contacts` report: the
        deepest ones. None: 64. It does not limit the physics.
    """

    substeps: int = eqx.field(static=True, default=8)
    stiffness: Float[Array, ""] = eqx.field(converter=as_array, default=0.3)
    damping: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    erp: Float[Array, ""] = eqx.field(converter=as_array, default=0.1)
    restitution: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    max_contacts: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_substeps(self.substeps)
        check_max_contacts(self)

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
        """Return the normal velocity of each contact at the end of the substep."""
        velocity, gap = motion.velocity.x, motion.gap
        out, _ = push_out(sys, gap, self.erp[None], h)
        meet = jnp.where(gap > 0.0, -gap / h, out)
        back = rebound_velocity(self.restitution, sys, velocity, h, meet)
        return jnp.where(meet > velocity, at_least(meet, back), meet)
