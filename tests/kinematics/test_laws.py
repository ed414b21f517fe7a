"""Kinematics against its own derivatives."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import systems
from helpers import tree_allclose

from eqsim import kinematics


# All kinds of joints are in "forest"; each robot takes long to compile.
each_system = lambda test: pytest.mark.quick_cases("forest")(
    pytest.mark.parametrize("name", systems.NAMES)(test)
)


@ft.lru_cache
def report(name):
    return systems.kinematic_report(systems.system(name), systems.inputs(name))


@each_system
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
    out = report(name)
    assert tree_allclose(out["jacobian"][:, 3:], at)
    # dR = [w] R, so [w] = dR R^T.
    spin = np.einsum("kabv,kcb->kacv", turn, rot)
    ang = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
    assert tree_allclose(out["jacobian"][:, :3], ang)
    assert tree_allclose(out["com_jacobian"], com)
    speed = np.einsum("klcv,kv->klc", pos, x.qd)
    assert tree_allclose(out["velocities"].lin, speed)


@each_system
def test_velocity_of_the_center_of_mass(name):
    out = report(name)
    speed = np.einsum("kcv,kv->kc", out["com_jacobian"], systems.inputs(name).qd)
    assert tree_allclose(out["com_velocity"], speed)


@each_system
def test_angular_velocity(name):
    """The last link's, by its Jacobian."""
    out = report(name)
    speed = np.einsum("kcv,kv->kc", out["jacobian"][:, :3], systems.inputs(name).qd)
    assert tree_allclose(out["velocities"].ang[:, -1], speed)


@each_system
def test_rotations_are_rotations(name):
    rot = report(name)["poses"].rot
    eye = np.broadcast_to(np.eye(3), rot.shape)
    assert tree_allclose(rot @ rot.swapaxes(-1, -2), eye)
    assert np.allclose(np.linalg.det(rot), 1)


@each_system
def test_difference_inverts_integrate(name):
    assert tree_allclose(report(name)["difference"], np.asarray(systems.inputs(name).v))


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
