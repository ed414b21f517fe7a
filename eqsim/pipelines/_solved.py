"""What a pipeline solves for in one state."""

import equinox as eqx
from jaxtyping import Array, Bool, Float

from ._contacts import Contacts


class Solved(eqx.Module):
    """The solution of the equations of motion in one state.

    `Generalized` solves them at that state. `Spring` and `Positional` apply impulses in
    substeps: all quantities are their means over the step that begins there.

    **Arguments:**

    - `qdd`: joint accelerations (MuJoCo: `qacc`), rad/s$^2$ and m/s$^2$.
    - `contacts`: contact points with their forces.
    - `constraint_force`: joint forces of all constraints (MuJoCo: `qfrc_constraint`), N m
        and N.
    - `actuator_force`: force of each actuator (MuJoCo: `actuator_force`), N or N m.
    - `converged`: whether the solver has converged; true in pipelines that do not iterate
        to a tolerance. Where it has not, all of the above is
        approximate: allow more steps with `Generalized(solver=Newton(...))`, or look for
        `solref` and `solimp` that the time step cannot resolve. Never true if an input is
        not finite, nor if a shape touches a height field at more places than
        `HeightFields.capacity`: increase it then.
    """

    qdd: Float[Array, " nv"]
    contacts: Contacts
    constraint_force: Float[Array, " nv"]
    actuator_force: Float[Array, " nout"]
    converged: Bool[Array, ""]
