"""Steps, forces and contacts of `Generalized` beside those of MuJoCo C."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from trajectories import converged, draw, expected, follow, stacked

from eqsim import Generalized, load_mjcf, State


PIPELINE = Generalized()

# Every kind of activation, control limits, force limits, and joint damping, which Euler
# treats implicitly.
ACTIVATIONS = """
<mujoco>
  <option timestep="0.01"/>
  <default><geom type="sphere" size=".1" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><joint name="a" axis="0 1 0" damping="2"/><geom pos=".2 0 0"/></body>
    <body><joint name="b" axis="0 1 0" damping=".5"/><geom pos=".2 0 0"/>
      <body pos=".4 0 0"><joint name="c" axis="0 1 1" damping=".5" armature=".1"/>
        <geom pos=".2 0 0"/>
        <body pos=".4 0 0"><joint name="d" axis="0 1 0"/><geom pos=".2 .1 0"/></body>
      </body>
    </body>
    <body><joint name="e" type="slide" axis="0 1 1" damping="1"/><geom/></body>
  </worldbody>
  <actuator>
    <general joint="a" dyntype="integrator" gainprm="5"/>
    <general joint="b" dyntype="filter" dynprm=".05" biastype="affine" gainprm="20"
      biasprm=".1 -20 -1"/>
    <general joint="c" dyntype="filterexact" dynprm=".05" gear="3" ctrllimited="true"
      ctrlrange="-.2 .2"/>
    <general joint="d" dyntype="filter" dynprm=".03" actearly="true" gainprm="2"/>
    <general joint="e" dyntype="integrator" actlimited="true" actrange="-.05 .05"
      gainprm="30"/>
    <general joint="e" dyntype="integrator" actlimited="true" actrange="-.05 .05"
      actearly="true" gainprm="30"/>
    <motor joint="a" gear="2" forcelimited="true" forcerange="-.3 .3"/>
    <velocity joint="e" kv="3"/>
  </actuator>
</mujoco>"""

ROTATIONS = """
<mujoco>
  <option timestep="0.01" integrator="{}"/>
  <default><geom type="box" size=".1 .2 .3" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><freejoint/><geom/>
      <body pos=".3 0 .1"><joint name="spin" type="ball" damping=".1"/><geom pos="0 .2 .1"/></body>
    </body>
    <body pos="2 0 0"><joint type="ball" stiffness="3"/><geom pos=".2 0 .1"/></body>
  </worldbody>
  <actuator>
    <motor joint="spin" gear=".1 .2 .3"/>
  </actuator>
</mujoco>"""

# Shapes that lie on a plane, on each other, and against a wall that is not upright.
TOUCHING = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <geom type="plane" size="1 1 1" contype="3" conaffinity="3"/>
    <geom type="capsule" size=".05 .3" pos=".3 0 .52" euler="90 0 20"/>
    <body pos="0 0 .29"><freejoint/>
      <geom type="box" size=".1 .2 .3" contype="2" conaffinity="2"/></body>
    <body pos="0 0 .68"><freejoint/><geom type="sphere" size=".12" pos="0 .02 0"/>
      <geom type="capsule" size=".1 .1" pos=".3 0 0" friction=".3"/></body>
    <body pos=".05 0 .9"><freejoint/><geom type="sphere" size=".12"/></body>
    <body pos=".3 0 .4"><freejoint/><geom type="sphere" size=".08"/></body>
  </worldbody>
</mujoco>"""


def both(text):
    return converged(mujoco.MjModel.from_xml_string(text)), load_mjcf(text)


FOLLOWED = {
    "activations, Euler, damping": ACTIVATIONS,
    "rotations, Euler": ROTATIONS.format("Euler"),
    "rotations, RK4": ROTATIONS.format("RK4"),
}


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.quick_cases("rotations, RK4")
def test_trajectory(name):
    model, sys = both(FOLLOWED[name])
    data = draw(model, 5)
    ours = follow(sys, data, 20)
    theirs = expected(model, data, 20)
    assert np.max(np.abs(theirs - theirs[:, :1])) > 0.1
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_contacts():
    """Accelerations under external forces, and each contact of the report."""
    model, sys = both(TOUCHING)
    data = [mujoco.MjData(model), *draw(model, 5, 0.03)]
    push = np.random.default_rng(1).normal(size=(len(data), sys.nlink, 6))
    for d, external in zip(data, push):
        # MuJoCo has the force first.
        d.xfrc_applied[1:] = np.roll(external, 3, axis=1)
        mujoco.mj_forward(model, d)
    solve = lambda q, qd, act, *args: PIPELINE.solve(sys, State(q, qd, act), *args)
    solved = jax.jit(jax.vmap(solve))(*stacked(data), jnp.asarray(push))
    theirs = np.stack([d.qacc for d in data])
    scale = np.maximum(1.0, np.max(np.abs(theirs), axis=1, keepdims=True))
    assert np.max(np.abs(solved.qdd - theirs) / scale) < 1e-8
    contacts = jax.tree.map(np.asarray, solved.contacts)
    seen = set()
    for k, d in enumerate(data):
        left = list(range(d.ncon))
        assert contacts.count[k] == d.ncon and np.all(contacts.geoms[k, d.ncon :] == -1)
        assert np.all(np.diff(contacts.dist[k, : d.ncon]) >= 0.0)
        for i, contact in enumerate(d.contact):
            apart = [np.linalg.norm(contacts.pos[k, j] - contact.pos) for j in left]
            j, force = left.pop(int(np.argmin(apart))), np.zeros(6)
            mujoco.mj_contactForce(model, d, i, force)
            frame = contact.frame.reshape(3, 3)
            close = lambda a, b, atol: np.testing.assert_allclose(a, b, 0, atol)
            close(contacts.geoms[k, j], contact.geom, 0)
            close(contacts.dist[k, j], contact.dist, 1e-12)
            close(contacts.pos[k, j], contact.pos, 1e-12)
            close(contacts.frame[k, j, 0], frame[0], 1e-12)
            size = max(1.0, np.max(np.abs(force)))
            close(contacts.force[k, j], frame.T @ force[:3], 1e-8 * size)
            seen.add(tuple(map(int, contact.geom)))
    # With the plane, with the wall as first and as second shape, between two that move.
    assert seen >= {(0, 2), (6, 1), (1, 4), (3, 5)}, seen
