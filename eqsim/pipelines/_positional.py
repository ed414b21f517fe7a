r"""Pipeline with extended position-based dynamics (XPBD) in small steps."""

import equinox as eqx
from jaxtyping import Array, Float

from ..kinematics._manifold import advance
from ..model import tree
from ..model._fields import as_array
from ..spatial import at_most, positive_part
from ._contact_impulses import (
    contact_impulses,
    contact_motion,
    ContactFrames,
    on_bodies,
    push_out,
    rebound_velocity,
    velocity_correction,
)
from ._contacts import check_max_contacts
from ._joint_constraints import (
    joint_errors,
    joint_impulses,
    joint_rates,
    joint_terms,
    net_impulse,
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
    apply_correction,
    apply_impulse,
    Bodies,
    inverse_inertia,
    InverseInertia,
    joint_groups,
    move_freely,
)


class Positional(AbstractMaximal):
    r"""Extended position-based dynamics (XPBD): small steps with one iteration each.

    A substep of $h = \mathrm{dt}/\mathrm{substeps}$ first moves the bodies freely, and
    then corrects their poses, joint by joint, to satisfy joints and contacts:

    - One iteration in each of many substeps: Macklin et al., *Small steps in physics
      simulation*, 2019, algorithm 1.
    - Correction of a joint: the multiplier of Macklin, Müller and Chentanez, *XPBD*,
        2016, equation 18, $(K + \alpha/h^2)\,\lambda = -e$, with the compliance
        $\alpha$, for all directions of the joints of a link in one block; $K$ is the
        sum of the generalized inverse masses of Müller et al., *Detailed rigid body
        simulation with extended position based dynamics*, 2020, equations 2 to 5.
        Armature, damping, springs, limits and dry friction of the joints are solved in
        the same block (see `_joint_constraints.py`), as in implicit Euler.
    - Order: by the depth of links, from the roots, where each depth uses the
        corrections of the previous ones (Gauss-Seidel). Links at one depth that share a
        parent split it.
    - Contacts: normal correction and static friction of positions (2020, section 3.5);
        restitution, and removal of the speed caused by corrections, for velocities
        (2020, section 3.6, equation 34). A correction gives bodies at most the speed
        that gravity produces in a few substeps. Larger penetrations, and violations of
        limits, are removed at the end of the step by a change of coordinates without a
        change of velocities (Cline and Pai 2003).
    - Velocities are changed with the corrections by $\Delta x/h$ and $\Delta\theta/h$.
        For translations, this is the difference of positions over $h$ (2020, algorithm
        2) without its cancellation; for rotations, it is to second order in $h$.

    Limits and contacts are hard: `solref`, `solimp` and `solmix` of limits, dry
    friction and shapes, and `impratio`, which soften constraints in `Generalized`, are
    not used, nor are `safe_solref`, `integrator` and `implicit_damping`. Free joints
    may have neither armature nor dry friction; their damping and springs are explicit.
    Fluid forces, gravity compensation, external forces, and contact points are those at
    the start of a step.

    **Arguments:**

    - `substeps`: number of substeps per time step.
    - `compliance`: compliance of joints in translation, m/N. At 0 they are rigid. It is
        also in series with the forces along joint axes.
    - `angular_compliance`: compliance of joints in rotation, rad/(N m).
    - `relaxation`: fraction of a penetration, or of a violation of a limit, that is
        removed per substep.
    - `restitution`: ratio of the speeds after and before an impact; at 0 there is no
        rebound, and the derivative with respect to it is zero.
    - `max_contacts`: largest number of contacts that `solve` and `contacts` report: the
        deepest ones. None: 64. It does not limit the physics.
    """

    substeps: int = eqx.field(static=True, default=8)
    compliance: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    angular_compliance: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    relaxation: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    restitution: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    max_contacts: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_substeps(self.substeps)
        check_max_contacts(self)

    @property
    def violation_share(self) -> Array:
        return self.relaxation

    def substep(
        self, step: StepData, state: MaximalState, tau: Array
    ) -> tuple[MaximalState, ConstraintImpulses]:
        sys, h, parameters = step.sys, step.h, step.constants.bodies
        nodes, q, qd = tree(sys), state.q, state.qd
        bodies = move_freely(parameters, state.bodies, h)
        inverse = inverse_inertia(parameters, bodies)
        # Coordinates of the joints if their rates stayed constant.
        ahead = advance(sys.joints.kinds, q, h * qd)
        soft = self.compliance[None] / h**2, self.angular_compliance[None] / h**2
        joints, forces = [], None
        for level in joint_groups(nodes, True):
            solved = []
            for group in level:
                at = step.joint_frames(group, bodies, ahead)
                terms = joint_terms(sys, nodes, group, q, qd, tau, h)
                remove = joint_errors(parameters, group, bodies, at) * (1.0 / h)
                solved.append(
                    solve_joints(group, bodies, inverse, at.axes, remove, terms, soft)
                )
            bodies = apply_correction(inverse, bodies, net_impulse(solved, bodies), h)
            joints += solved
        if step.contacts is not None:
            before = state.bodies, bodies
            bodies, forces = self._solve_contacts(step, step.contacts, *before, inverse)
        qd = joint_rates(nodes, joints, bodies, parameters)
        q = advance(sys.joints.kinds, q, h * qd)
        impulses = ConstraintImpulses(joint_impulses(nodes, joints, tau), forces)
        return MaximalState(bodies, q, qd, state.act), impulses

    def _solve_contacts(
        self,
        step: StepData,
        contacts: ContactFrames,
        before: Bodies,
        bodies: Bodies,
        inverse: InverseInertia,
    ):
        """Correct poses, then velocities; `before` contains the bodies before the
        substep."""
        h = step.h
        motion = contact_motion(contacts, bodies)
        share, approach = self.relaxation[None], positive_part(-motion.velocity.x)
        out, _ = push_out(step.sys, motion.gap + approach * h, share, h)
        change = at_most(-share * motion.gap / h, share * approach + out)
        impulse = contact_impulses(contacts, motion, inverse, change)
        on_all = on_bodies(contacts, motion, inverse, impulse)
        bodies = apply_correction(inverse, bodies, on_all, h)

        met = contact_motion(contacts, before).velocity.x
        motion = contact_motion(contacts, bodies)
        # The remaining approach velocity closes the gap; separation is due to the
        # correction.
        slow = -positive_part(-motion.velocity.x)
        back = rebound_velocity(self.restitution, step.sys, met, h, slow)
        more = velocity_correction(contacts, motion, inverse, impulse.x, back)
        on_all = on_bodies(contacts, motion, inverse, more)
        bodies = apply_impulse(inverse, bodies, on_all)
        return bodies, contacts.frame.T @ (impulse + more)
