"""Results of a pipeline in one state."""

import equinox as eqx
from jaxtyping import Array, Bool, Float

from ._contacts import Contacts


class Solved(eqx.Module):
    """The solution of the equations of motion in one state.

    `Generalized` solves them at that state. `Spring` and `Positional` apply impulses in
    substeps: all quantities are means over the step that starts there.

    **Arguments:**

    - `qdd`: joint accelerations (MuJoCo: `qacc`), rad/s$^2$ and m/s$^2$.
    - `contacts`: contact points with their forces.
    - `constraint_force`: joint forces of all constraints (MuJoCo: `qfrc_constraint`), N m
        and N.
    - `actuator_force`: force of each actuator (MuJoCo: `actuator_force`), N or N m.
    - `converged`: true if the solver has converged, and in pipelines that do not
        iterate to a tolerance. If false, all of the above are approximate: allow more
        steps with `Generalized(solver=Newton(...))`, or check for `solref` and `solimp`
        that the time step cannot resolve. Always false if an input is not finite, or if
        a shape has more contacts with a height field than `HeightFields.capacity`,
        which must then be increased.
    """

    qdd: Float[Array, " nv"]
    contacts: Contacts
    constraint_force: Float[Array, " nv"]
    actuator_force: Float[Array, " nout"]
    converged: Bool[Array, ""]
