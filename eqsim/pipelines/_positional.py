r"""Position-based dynamics with compliance, in small steps."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kinematics._manifold import advance
from ..model._fields import as_array
from ._bodies import correct, drift, kick, mobility
from ._checks import check_substeps
from ._groups import groups
from ._links import (
    joint_errors,
    joint_numbers,
    solve_blocks,
)
from ._maximal import AbstractMaximal, all_impulses, all_rates, between, total
from ._touch import approach, bounce, in_world, push_apart, rebound, Touch
from ._world import Impulses, Moving, World


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
      `_links.py`), as implicit Euler does.
    - Order: by the depth of links, from the roots on, each depth seeing the corrections
      of those before (Gauss-Seidel); links at one depth that share a parent split it.
    - Contacts: normal correction and static friction at the level of positions (2020,
      section 3.5); restitution, and taking back the speed that a correction gave, at the
      level of velocities (2020, section 3.6, equation 34).
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

    def substep(self, world: World, now: Moving, tau) -> tuple[Moving, Impulses]:
        sys, h = world.sys, world.h
        nodes, numbers = world.tree, world.constants.bodies
        bodies = drift(numbers, now.bodies, h)
        mobile = mobility(numbers, bodies)
        # Where joints would be if their rates stayed as they are.
        ahead = advance(sys.joints.kinds, now.q, h * now.qd)
        soft = tuple(
            x[None] / (h * h) for x in (self.compliance, self.angular_compliance)
        )
        rates, held, pushed = [], [], None
        for level in groups(nodes, True):
            parts = []
            for group in level:
                at = world.place(group, bodies, ahead)
                along = joint_numbers(
                    sys, nodes, group, now.q, now.qd, tau, h, self.relaxation[None]
                )
                wanted = joint_errors(numbers, group, bodies, at) * (1.0 / h)
                block = solve_blocks(
                    group, bodies, mobile, at.axes, wanted, along, soft
                )
                parts.append(between(group, bodies, block.impulse))
                rates.append((group, block.rates))
                held.append((group, block.held))
            bodies = correct(mobile, bodies, total(parts), h)
        if world.contacts is not None:
            bodies, pushed = self._touch(world, world.contacts, now, bodies, mobile)
        qd = all_rates(nodes, rates, bodies, numbers)
        q = advance(sys.joints.kinds, now.q, h * qd)
        done = Impulses(all_impulses(sys, nodes, held, tau), pushed)
        return Moving(bodies, q, qd, now.act), done

    def _touch(self, world: World, contacts: Touch, now: Moving, bodies, mobile):
        ends, h = world.ends, world.h
        near = approach(ends, contacts, bodies)
        wanted = near.gap * (-self.relaxation[None] / h)
        (normal, *across), impulse = push_apart(ends, contacts, near, mobile, wanted)
        bodies = correct(mobile, bodies, impulse, h)
        before = approach(ends, contacts, now.bodies).speed[0]
        near = approach(ends, contacts, bodies)
        # What is left of an approach closes the gap; what separates came of a correction.
        slow = jnp.minimum(near.speed[0], 0.0)
        back = rebound(self.restitution, world.sys, before, h, slow)
        change, impulse = bounce(ends, contacts, near, mobile, normal, back)
        pushed = in_world(contacts.axes, (normal + change, *across))
        return kick(mobile, bodies, impulse), pushed
