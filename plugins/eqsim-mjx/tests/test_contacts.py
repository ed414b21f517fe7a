"""Contacts and constraint forces beside those of `Generalized`."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from eqsim_mjx import Mjx

import eqsim
from eqsim import Generalized
from eqsim.pipelines import contact_wrenches


# Shapes of the world come first in MuJoCo's order, whatever their place in the file.
TOUCHING = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <body pos="0 0 .29"><freejoint/>
      <geom name="box" type="box" size=".1 .2 .3" contype="2" conaffinity="2"/></body>
    <body pos=".5 0 .0999"><freejoint/>
      <geom name="smooth" size=".1" condim="1" priority="1" friction=".9"/></body>
    <geom name="ground" type="plane" size="1 1 1" contype="3" conaffinity="3"/>
    <body pos="0 1 .099"><freejoint/><geom name="rough" size=".1"/></body>
    <body pos="0 1 .27"><freejoint/>
      <geom name="rod" type="capsule" size=".08 .1" euler="0 90 10"/></body>
  </worldbody>
  <contact>
    <pair geom1="ground" geom2="rough" condim="3" friction=".3 .3 .005 .0001 .0001"/>
  </contact>
</mujoco>"""


def test_forces_are_those_of_generalized():
    sys, rng = eqsim.load_mjcf(TOUCHING), np.random.default_rng(0)
    qd, ctrl = jnp.asarray(0.3 * rng.normal(size=sys.nv)), jnp.zeros(0)
    found = {}
    for pipeline in (Mjx(), Generalized()):
        state = pipeline.init(sys, sys.joints.ref, qd)
        # Compiled together, as both need the same solution.
        both = lambda pipeline, *of: (
            pipeline.contacts(*of),
            pipeline.constraint_forces(*of),
        )
        contacts, force = eqx.filter_jit(both)(pipeline, sys, state, ctrl)
        wrench = contact_wrenches(sys, state.q, contacts)
        deepest = {}
        ends = [tuple(pair) for pair in contacts.geoms.tolist()]
        for pair, dist in zip(ends, contacts.dist, strict=True):
            deepest[pair] = min(float(dist), deepest.get(pair, np.inf))
        found[type(pipeline)] = force, wrench, deepest
        assert jnp.all(contacts.force[~contacts.exists] == 0.0)
        assert int(contacts.count) == int(jnp.sum(contacts.dist < 0.0))
        sliding = jnp.linalg.norm(contacts.force[:, :2], axis=1)
        smooth = sys.geoms.names.index("smooth")
        slides = np.array([smooth not in pair for pair in ends])
        assert jnp.all(sliding[~slides] == 0.0) and jnp.any(sliding[slides] > 1.0)
    (force, wrench, deepest), expected = found[Mjx], found[Generalized]
    # The box and the smooth ball. With the others, MJX's nearest point on the axis of a
    # capsule is off by a share of 1e-6.
    assert jnp.max(jnp.abs(expected[0][:12])) > 1.0
    assert jnp.allclose(force[:12], expected[0][:12], rtol=0, atol=1e-8)
    assert jnp.allclose(force, expected[0], rtol=1e-4, atol=1e-2)
    assert jnp.allclose(wrench[:2], expected[1][:2], rtol=0, atol=1e-8)
    assert jnp.allclose(wrench, expected[1], rtol=1e-4, atol=1e-2)
    assert deepest.keys() == expected[2].keys()
    for pair, dist in expected[2].items():
        assert np.isclose(deepest[pair], dist, rtol=0, atol=1e-7), pair


def test_nothing_that_could_touch():
    env = eqsim.make("point_mass", pipeline=Mjx())
    state = env.pipeline.init(env.sys)
    found = env.pipeline.contacts(env.sys, state, jnp.ones(1))
    assert found.geoms.shape == (0, 2) and found.force.shape == (0, 3)
    force = env.pipeline.constraint_forces(env.sys, state, jnp.ones(1))
    assert jnp.all(force == 0.0)
