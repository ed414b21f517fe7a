"""A wrong call says what was expected, before anything is compiled."""

import jax.numpy as jnp
import pytest
import systems

from eqsim import kinematics


SYS = systems.system("stacked")
Q, V = jnp.zeros(SYS.nq), jnp.zeros(SYS.nv)
BAD = jnp.zeros(99)
CALLS = {
    "forward q": lambda: kinematics.forward(SYS, BAD),
    "forward_velocity qd": lambda: kinematics.forward_velocity(SYS, Q, BAD),
    "jacobian q": lambda: kinematics.jacobian(SYS, BAD, 0),
    "jacobian point": lambda: kinematics.jacobian(SYS, Q, 0, BAD),
    "center_of_mass q": lambda: kinematics.center_of_mass(SYS, BAD),
    "com_velocity qd": lambda: kinematics.com_velocity(SYS, Q, BAD),
    "com_jacobian q": lambda: kinematics.com_jacobian(SYS, BAD),
    "integrate q": lambda: kinematics.integrate(SYS, BAD, V),
    "integrate v": lambda: kinematics.integrate(SYS, Q, BAD),
    "difference q": lambda: kinematics.difference(SYS, Q, BAD),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_shape(case):
    name = case.split()[1]
    with pytest.raises((ValueError, TypeError), match=name):
        CALLS[case]()


@pytest.mark.parametrize("link", (-1, 3))
def test_no_such_link(link):
    with pytest.raises(ValueError, match=f"There is no link {link}"):
        kinematics.jacobian(SYS, Q, link)
