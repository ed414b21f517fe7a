"""Kinematics: agreement with MuJoCo C, derivatives, and refusals.

Relations between values in one state, such as velocities by Jacobians, follow from the
agreement with MuJoCo.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import systems
from helpers import check_gradients, tree_allclose

from eqsim import kinematics


def compare(model, name):
    reference.check_report(systems.kinematic_report, reference.kinematic, model, name)


@pytest.mark.parametrize("name", systems.NAMES)
@pytest.mark.quick_cases("forest")
def test_random_systems(name):
    compare(reference.random_model(name), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("half_cheetah", "ant"))
def test_files(name):
    compare(reference.file_model(name), name)


# All kinds of joints are in "forest"; each robot takes long to compile.
@pytest.mark.parametrize("name", systems.NAMES)
@pytest.mark.quick_cases("forest")
def test_jacobians_are_derivatives_of_positions(name):
    sys, x = systems.system(name), systems.inputs(name)

    @jax.jit
    @jax.vmap
    def derivatives(x):
        def positions(v):
            q = kinematics.integrate(sys, x.q, v)
            pos, rot = kinematics.forward(sys, q)
            at = pos[-1] + rot[-1] @ x.point
            return at, rot[-1], pos, kinematics.center_of_mass(sys, q)

        still = jnp.zeros(sys.nv)
        return positions(still)[1], jax.jacfwd(positions)(still)

    rot, (at, turn, pos, com) = jax.tree.map(np.asarray, derivatives(x))
    out = systems.kinematic_report(sys, x)
    assert tree_allclose(out["jacobian"][:, 3:], at)
    # dR = [w] R, so [w] = dR R^T.
    spin = np.einsum("kabv,kcb->kacv", turn, rot)
    ang = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
    assert tree_allclose(out["jacobian"][:, :3], ang)
    assert tree_allclose(out["com_jacobian"], com)
    speed = np.einsum("klcv,kv->klc", pos, x.qd)
    assert tree_allclose(out["velocities"].lin, speed)
    assert tree_allclose(out["difference"], np.asarray(x.v))


def test_scale_of_a_quaternion_does_not_matter():
    name = "buoy"
    sys, x = systems.system(name), systems.inputs(name)
    scaled = x._replace(q=x.q.at[:, 3:].multiply(3.0))
    one, other = (systems.kinematic_report(sys, y) for y in (x, scaled))
    assert tree_allclose(one, other)


def test_the_sign_of_a_quaternion_does_not_matter():
    sys, x = systems.system("buoy"), systems.inputs("buoy")
    there = x.q[3].at[3:].multiply(-1.0)
    assert np.allclose(kinematics.difference(sys, x.q[3], there), 0)


READ = {
    *("[0].links.pos", "[0].links.quat", "[0].links.mass", "[0].links.com"),
    *("[0].joints.anchor", "[1].q", "[1].qd", "[1].point", "[1].v"),
}
HINGED = {"[0].joints.axis", "[0].joints.ref"}


@pytest.mark.parametrize("name, also", (("buoy", set()), ("stacked", HINGED)))
@pytest.mark.slow  # `pipelines/test_gradients.py` differentiates steps by everything.
def test_all(name, also):
    """Also in the first state: at rest, where all rotations are the identity."""
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
    """It is named, with what was expected, before anything is compiled."""
    name = case.split()[1]
    with pytest.raises((ValueError, TypeError), match=name):
        CALLS[case]()


@pytest.mark.parametrize("link", (-1, 3))
def test_no_such_link(link):
    with pytest.raises(ValueError, match=f"There is no link {link}"):
        kinematics.jacobian(SYS, Q, link)
