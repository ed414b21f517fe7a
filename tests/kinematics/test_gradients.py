"""Forward mode = reverse mode = differences, for all of `eqsim.kinematics`.

The first state is the reference at rest, where all rotations are the identity.
"""

import jax
import jax.numpy as jnp
import pytest
import systems
from helpers import check_gradients

from eqsim import kinematics


READ = {
    *("[0].links.pos", "[0].links.quat", "[0].links.mass", "[0].links.com"),
    *("[0].joints.anchor", "[1].q", "[1].qd", "[1].point", "[1].v"),
}
HINGED = {"[0].joints.axis", "[0].joints.ref"}


@pytest.mark.parametrize("name, also", (("buoy", set()), ("stacked", HINGED)))
@pytest.mark.slow  # `pipelines/test_gradients.py` differentiates steps by everything.
def test_all(name, also):
    sys, x = systems.system(name), systems.inputs(name, 3)
    fn = jax.vmap(systems.kinematic, (None, 0))
    largest = check_gradients(fn, sys, x, atol=1e-6)
    assert {k for k, v in largest.items() if v != 0} == READ | also


def test_steps():
    """At no step, at a tiny one, and at a long one."""
    sys = systems.system("buoy")
    q, v = systems.inputs("buoy").q[2:5], systems.normal(0, 3, sys.nv)
    v = v * jnp.array([[0.0], [1e-6], [1.0]])

    def there_and_back(q, v):
        moved = kinematics.integrate(sys, q, v)
        return moved, kinematics.difference(sys, q, moved)

    check_gradients(jax.vmap(there_and_back), q, v)


def test_step_of_zero_has_the_identity_as_derivative():
    sys = systems.system("buoy")
    q = systems.inputs("buoy").q[2]
    back = lambda v: kinematics.difference(sys, q, kinematics.integrate(sys, q, v))
    assert jnp.allclose(jax.jacfwd(back)(jnp.zeros(sys.nv)), jnp.eye(sys.nv))
