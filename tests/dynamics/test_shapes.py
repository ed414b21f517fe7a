"""A wrong call says what was expected, before anything is compiled."""

import jax.numpy as jnp
import pytest
import systems

from eqsim import dynamics, State


SYS = systems.system("stacked")
Q, V, U = jnp.zeros(SYS.nq), jnp.zeros(SYS.nv), jnp.zeros(SYS.nu)
BAD, BAD_EXTERNAL = jnp.zeros(99), jnp.zeros((9, 6))
CALLS = {
    "rnea q": lambda: dynamics.rnea(SYS, BAD, V, V),
    "rnea qd": lambda: dynamics.rnea(SYS, Q, BAD, V),
    "rnea qdd": lambda: dynamics.rnea(SYS, Q, V, BAD),
    "rnea external": lambda: dynamics.rnea(SYS, Q, V, V, BAD_EXTERNAL),
    "aba tau": lambda: dynamics.aba(SYS, Q, V, BAD),
    "aba qd": lambda: dynamics.aba(SYS, Q, BAD, V),
    "aba external": lambda: dynamics.aba(SYS, Q, V, V, BAD_EXTERNAL),
    "bias_forces qd": lambda: dynamics.bias_forces(SYS, Q, BAD),
    "gravity_forces q": lambda: dynamics.gravity_forces(SYS, BAD),
    "crba q": lambda: dynamics.crba(SYS, BAD),
    "kinetic_energy qd": lambda: dynamics.kinetic_energy(SYS, Q, BAD),
    "potential_energy q": lambda: dynamics.potential_energy(SYS, BAD),
    "momentum qd": lambda: dynamics.momentum(SYS, Q, BAD),
    "passive_forces qd": lambda: dynamics.passive_forces(SYS, Q, BAD),
    "actuator_forces ctrl": lambda: dynamics.actuator_forces(
        SYS, State(Q, V, V[:0]), BAD
    ),
    "actuator_forces act": lambda: dynamics.actuator_forces(SYS, State(Q, V, BAD), U),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_shape(case):
    name = case.split()[1]
    # Where several arguments share a size, the type checker is the first to see it.
    with pytest.raises((ValueError, TypeError), match=rf"{name}\b.*\b(99|9)\b"):
        CALLS[case]()
