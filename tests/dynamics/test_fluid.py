"""Ellipsoids in a fluid: forces and added masses beside MuJoCo, and derivatives."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients
from trajectories import draw

from eqsim import load_mjcf
from eqsim.dynamics import passive_forces
from eqsim.dynamics.fluid import added_mass
from eqsim.io import write_mjcf
from eqsim.spatial import Vec3


# Every shape; one whose link has no mass, one at rest in the world, and one of a mesh.
SWIMMING = """
<mujoco>
  <option density="60" viscosity=".3" wind=".3 -.2 .1"/>
  <default><geom contype="0" conaffinity="0" fluidshape="ellipsoid"/></default>
  <asset><mesh name="wedge" vertex="0 0 0 1 0 0 0 1 0 0 0 1 1 1 .3"/></asset>
  <worldbody>
    <geom size=".1"/>
    <body><freejoint/>
      <geom type="ellipsoid" size=".1 .2 .3" pos=".05 .1 .02" euler="20 30 40"/>
      <geom type="capsule" size=".05 .2" fluidcoef="1 .3 1.2 .7 .6"/>
      <body pos=".2 0 0"><geom type="box" size=".1 .15 .05" mass="0"/></body>
      <body pos=".4 0 0"><joint type="ball"/>
        <geom type="cylinder" size=".1 .2" pos=".1 .1 0" euler="30 0 0"/>
        <geom size=".1" fluidcoef="2 1 .5 .1 3" pos="0 0 .1"/>
        <body pos=".2 .3 .1"><joint axis="0 1 2"/>
          <geom fluidshape="none" type="box" size=".1 .2 .1"/></body>
      </body>
    </body>
    <body pos="3 0 0"><joint type="slide"/><geom type="mesh" mesh="wedge"/></body>
  </worldbody>
</mujoco>"""
OPTIONS = ('density="60" viscosity="0"', 'density="0" viscosity=".3"', "", "small")


def forces(sys, q, qd):
    """Passive forces of several states."""
    return jax.jit(jax.vmap(passive_forces, (None, 0, 0)))(sys, q, qd)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.quick_cases("")
def test_forces(option):
    """Also of shapes that are small or slow."""
    text = SWIMMING
    if option == "small":
        text = text.replace('size=".1 .2 .3"', 'size=".002 .001 .003"')
    elif option:
        text = text.replace('density="60" viscosity=".3"', option)
    model, sys = mujoco.MjModel.from_xml_string(text), load_mjcf(text)
    data = draw(model, 6)
    data[0].qvel[:] = 0.0
    data[1].qvel[:] *= 1e-5
    for d in data:
        mujoco.mj_forward(model, d)
    stacked = lambda name: np.stack([getattr(d, name) for d in data])
    ours = forces(sys, stacked("qpos"), stacked("qvel"))
    theirs = stacked("qfrc_passive")
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_round_trip():
    sys = load_mjcf(SWIMMING)
    again = load_mjcf(write_mjcf(sys))
    assert again.geoms.fluid == sys.geoms.fluid and sum(sys.geoms.fluid) == 7
    for field in ("kinds", "links"):
        assert getattr(again.geoms, field) == getattr(sys.geoms, field)
    coefficients = sys.geoms.fluid_coefficients
    np.testing.assert_array_equal(again.geoms.fluid_coefficients, coefficients)


def test_without_a_medium_it_has_no_effect():
    sys = load_mjcf(SWIMMING.replace('density="60" viscosity=".3"', ""))
    assert not any(sys.geoms.fluid) and not sys.has_fluid
    assert any(load_mjcf(SWIMMING).geoms.fluid)


@pytest.mark.parametrize(
    "size", ([0.1, 0.2, 0.3], [0.1, 0.1, 0.3], [0.2, 0.2, 0.2], [0.3, 0.1, 0.1])
)
@pytest.mark.quick_cases("size1")
def test_added_mass(size):
    kind = f'type="ellipsoid" size="{" ".join(map(str, size))}"'
    text = SWIMMING.replace('type="ellipsoid" size=".1 .2 .3"', kind)
    parts = jax.jit(lambda x: added_mass(Vec3(*x[:, None])))
    mass, inertia = parts(jnp.asarray(size))
    theirs = mujoco.MjModel.from_xml_string(text).geom_fluid[1, 6:]
    ours = np.ravel([*mass, *inertia])
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-18)
    check_gradients(parts, jnp.asarray(size), atol=1e-9)
