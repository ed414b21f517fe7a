"""What pipelines report of contacts and constraints, and what it adds up to."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from helpers import check_gradients
from parity.reference import converge

import eqsim
from eqsim import Generalized, load_mjcf, Positional, Spring, State
from eqsim.pipelines import contact_wrenches
from eqsim.testing import random_configuration


PIPELINES = Generalized(), Spring(), Positional()
named = lambda pipeline: type(pipeline).__name__
each = pytest.mark.parametrize("pipeline", PIPELINES, ids=named)


# Two balls in each other, spinning, without gravity; the second carries a third.
MEETING = """
<mujoco>
  <option timestep="0.005" gravity="0 0 0"/>
  <worldbody>
    <body><freejoint/><geom type="sphere" size=".1" mass="1"/></body>
    <body pos=".15 .05 .02"><freejoint/><geom type="sphere" size=".1" mass="2"/>
      <body pos=".3 0 0"><joint axis="0 1 0"/><geom type="sphere" size=".05"/></body>
    </body>
  </worldbody>
</mujoco>"""

# Two trees, a shape that is fixed to the world, one that rides on a link without joint;
# limits, dry friction, a ball joint with a limit.
CROWD = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.005"/>
  <default><geom size=".1" mass="1"/></default>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="post" pos=".3 0 .1"><geom type="sphere" size=".15"/></body>
    <body pos="0 0 .15"><freejoint/><geom type="capsule" size=".1 .2"/>
      <body pos=".3 0 0"><geom type="sphere"/>
        <body pos=".2 0 0"><joint axis="0 1 0" limited="true" range="-.1 .1"/>
          <geom type="sphere"/></body>
      </body>
      <body pos="-.4 0 -.1"><joint type="ball" limited="true" range="0 .3"/>
        <geom type="sphere"/></body>
    </body>
    <body pos="0 .25 .12"><joint type="slide" axis="0 0 1" frictionloss="2"/>
      <joint axis="1 0 0" frictionloss=".5"/><geom type="capsule" size=".1 .1"/></body>
  </worldbody>
</mujoco>"""

SLIDING = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 .1"><joint type="slide" axis="1 0 0" limited="true" range="-1 1"/>
      <joint type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="2"/></body>
  </worldbody>
</mujoco>"""

# A weight on a rail: against the end of the rail, held by friction, on the ground.
HELD = """
<mujoco>
  <option timestep="0.005"/>
  <default><geom type="sphere" size=".1" mass="2"/></default>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 3"><joint type="slide" axis="0 0 1" limited="true" range="0 1"/>
      <geom/></body>
    <body pos="1 0 3"><joint type="slide" axis="0 0 1" frictionloss="40"/><geom/></body>
    <body pos="2 0 .1"><joint type="slide" axis="0 0 1"/><geom/></body>
  </worldbody>
</mujoco>"""


@each
@pytest.mark.quick_cases("Spring")
def test_what_acts_acts_back(pipeline):
    """Forces are equal and opposite, also their moments; and they are what changes the
    momentum of each tree in the first substep."""
    sys, one = load_mjcf(MEETING), pipeline
    if not isinstance(one, Generalized):
        one = type(one)(substeps=1)
    qd = jr.normal(jr.key(0), (sys.nv,)).at[0].set(2.0).at[6].set(-1.0)
    state = one.init(sys, sys.joints.ref, qd)

    @eqx.filter_jit
    def advance(state):
        new, solved = one.advance(sys, state, jnp.zeros(0))
        return new, solved.contacts, contact_wrenches(sys, state.q, solved.contacts)

    new, contacts, wrench = advance(state)
    torque, force = np.split(np.asarray(wrench), 2, 1)
    touching = np.linalg.norm(contacts.force, axis=1) > 0
    assert sum(touching) == 1 and np.linalg.norm(force[0]) > 1
    np.testing.assert_allclose(force[0], -force[1], rtol=1e-12)
    pos, mass = np.asarray(eqsim.kinematics.forward(sys, state.q).pos), sys.links.mass
    apart = np.average(pos[1:], axis=0, weights=mass[1:]) - pos[0]
    total = torque[0] + torque[1] + np.cross(apart, force[1])
    np.testing.assert_allclose(total, 0.0, atol=1e-12)
    # The first ball is alone in its tree.
    change = (new.qd - state.qd)[:3] / sys.dt * sys.links.mass[0]
    np.testing.assert_allclose(change, force[0], rtol=1e-3)


def crowd(count=12):
    """States of `CROWD` in MuJoCo, evaluated, and ours."""
    sys, model = load_mjcf(CROWD), converge(mujoco.MjModel.from_xml_string(CROWD))
    found = []
    for seed in range(count):
        q, qd = random_configuration(jr.key(seed), sys, 0.1)
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = q, qd
        mujoco.mj_forward(model, data)
        mujoco.mj_rnePostConstraint(model, data)
        found.append(data)
    return sys, found


def test_wrenches_and_constraints_are_mujocos():
    sys, found = crowd()

    @jax.jit
    @jax.vmap
    def measure(q, qd):
        state, none = State(q, qd, q[:0]), jnp.zeros(0)
        solved = Generalized().solve(sys, state, none)
        return contact_wrenches(sys, q, solved.contacts), solved.constraint_force

    q, qd = (jnp.stack([getattr(d, k) for d in found]) for k in ("qpos", "qvel"))
    wrench, force = measure(q, qd)
    for k, data in enumerate(found):
        for ours, theirs in (
            (wrench[k], data.cfrc_ext[1:]),
            (force[k], data.qfrc_constraint),
        ):
            scale = max(1.0, np.max(np.abs(theirs)))
            np.testing.assert_allclose(ours, theirs, 1e-8, 1e-8 * scale)
    # Every link was touched in some state, also the one that is fixed to the world.
    assert np.all(np.any(wrench != 0, axis=(0, 2)))
    assert np.all(np.any(force != 0, axis=0))


@each
@pytest.mark.quick_cases("Positional")
def test_constraints_carry_weight(pipeline):
    sys = load_mjcf(HELD)
    step = lambda state, _: (pipeline.step(sys, state, jnp.zeros(0)), None)
    run = eqx.filter_jit(lambda state: eqsim.scan(step, state, length=400)[0])
    state = run(pipeline.init(sys))
    force = pipeline.constraint_forces(sys, state, jnp.zeros(0))
    np.testing.assert_allclose(force, 9.81 * sys.links.mass, rtol=1e-3)


@each
@pytest.mark.quick_cases("Generalized")
def test_without_contacts(pipeline):
    """Empty, and in the precision of the state."""
    sys = load_mjcf(HELD.replace("<geom/>", '<geom contype="0" conaffinity="0"/>'))
    state = pipeline.init(sys)

    @eqx.filter_jit
    def measure(state):
        contacts = pipeline.contacts(sys, state, jnp.zeros(0))
        return contacts, contact_wrenches(sys, state.q, contacts)

    contacts, wrench = measure(state)
    assert contacts.geoms.shape == (0, 2) and contacts.count == 0
    assert contacts.force.shape == contacts.pos.shape == (0, 3)
    assert contacts.dist.shape == (0,) and contacts.frame.shape == (0, 3, 3)
    assert contacts.force.dtype == state.q.dtype
    assert np.all(wrench == 0)


@each
@pytest.mark.quick_cases("Generalized")
def test_gradients(pipeline):
    """Of a ball that slides on the ground, against the end of its rail."""
    sys = load_mjcf(SLIDING)

    def measure(mass, q, qd):
        changed = eqx.tree_at(lambda s: s.links.mass, sys, mass)
        state = State(q, qd, q[:0])
        solved = pipeline.solve(changed, state, q[:0])
        wrench = contact_wrenches(changed, q, solved.contacts)
        return wrench, solved.constraint_force

    # At a depth of 1 mm, the width of `solimp`, the impedance has a kink.
    q, qd = jnp.array([1.0007, -0.0007]), jnp.array([0.3, -0.1])
    largest = check_gradients(measure, sys.links.mass, q, qd)
    assert all(largest.values())
