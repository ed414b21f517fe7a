r"""Extended position-based dynamics (XPBD) in small steps."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kinematics._manifold import advance
from ..model import tree
from ..model._fields import as_array
from ._contact_impulses import (
    contact_impulses,
    contact_motion,
    ContactFrames,
    on_bodies,
    push_out,
    rebound_velocity,
    velocity_correction,
)
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
    r"""Extended position-based dynamics (XPBD), small steps with one iteration each.

    A substep of $h = \mathrm{dt}/\mathrm{substeps}$ moves the bodies as if they were
    free, and then their poses, joint by joint, back to where joints and contacts allow:

    - One iteration in each of many substeps: Macklin et al., *Small steps in physics
      simulation*, 2019, algorithm 1.
    - Correction of a joint: the multiplier of Macklin, Müller and Chentanez, *XPBD*, 2016,
      equation 18, $(K + \alpha/h^2)\,\lambda = -e$, with the compliance $\alpha$, for
      all directions of the joints of a link at once; $K$ is the sum of the
      generalized inverse masses of Müller et al., *Detailed rigid body simulation with
      extended position based dynamics*, 2020, equations 2 to 5. Armature, damping,
      springs, limits and dry friction of the joints are solved in the same block (see
      `_joint_constraints.py`), as implicit Euler does.
    - Order: by the depth of links, from the roots on, each depth seeing the corrections
      of those before (Gauss-Seidel); links at one depth that share a parent split it.
    - Contacts: normal correction and static friction at the level of positions (2020,
      section 3.5); restitution, and taking back the speed that a correction gave, at the
      level of velocities (2020, section 3.6, equation 34). A correction gives bodies no
      more speed than gravity does in a few substeps: deeper penetrations, and excesses
      over limits, are taken back at the end of the step by a change of the coordinates
      that leaves no velocity behind (Cline and Pai 2003).
    - Velocities change with the corrections, by $\Delta x/h$ and $\Delta\theta/h$:
      for translations this is the difference of positions over $h$ (2020, algorithm 2)
      without its cancellation, for rotations it is to second order in $h$.

    Limits and contacts are hard: `solref`, `solimp` and `solmix` of limits, dry friction
    and shapes, and `impratio`, which soften those of `Generalized`, are not read, nor
    are `safe_solref`, `integrator` and `implicit_damping`. Free joints may have neither
    armature nor dry friction; their damping and springs act explicitly. The medium,
    carried weight, external forces, and where shapes touch, are those of the start of a
    step.

    **Arguments:**

    - `substeps`: of one time step.
    - `compliance`: of joints against displacement, m/N. At 0 they are rigid. It is in
        series with what acts along the axes of joints too.
    - `angular_compliance`: of joints against rotation, rad/(N m).
    - `relaxation`: share of the depth of a contact that one substep takes back, and of an
        excess over a limit.
    - `restitution`: share of the speed at which shapes meet that they leave with; at 0
        there is no rebound, and no derivative by it.
    """

    substeps: int = eqx.field(static=True, default=8)
    compliance: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    angular_compliance: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)
    relaxation: Float[Array, ""] = eqx.field(converter=as_array, default=1.0)
    restitution: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)

    def __check_init__(self):
        check_substeps(self.substeps)

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
        # The coordinates that joints would have if their rates stayed as they are.
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
        """Correct poses, then velocities; `before` are the bodies before the substep."""
        h = step.h
        motion = contact_motion(contacts, bodies)
        share, approach = self.relaxation[None], jnp.maximum(-motion.velocity.x, 0.0)
        out, _ = push_out(step.sys, motion.gap + approach * h, share, h)
        change = jnp.minimum(-share * motion.gap / h, share * approach + out)
        impulse = contact_impulses(contacts, motion, inverse, change)
        on_all = on_bodies(contacts, motion, inverse, impulse)
        bodies = apply_correction(inverse, bodies, on_all, h)

        met = contact_motion(contacts, before).velocity.x
        motion = contact_motion(contacts, bodies)
        # What is left of an approach closes the gap; what separates is the correction's.
        slow = jnp.minimum(motion.velocity.x, 0.0)
        back = rebound_velocity(self.restitution, step.sys, met, h, slow)
        more = velocity_correction(contacts, motion, inverse, impulse.x, back)
        on_all = on_bodies(contacts, motion, inverse, more)
        bodies = apply_impulse(inverse, bodies, on_all)
        return bodies, contacts.frame.T @ (impulse + more)
