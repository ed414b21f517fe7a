"""The order in which a file lists bodies changes nothing."""

import jax
import numpy as np
import systems
from helpers import tree_allclose

from eqsim import dynamics, kinematics, load_mjcf


LEG = """
<body name="leg" pos="0.1 0.2 -0.1">
  <joint name="knee" type="hinge" axis="0 1 1" armature="0.01"/>
  <joint name="rail" type="slide" axis="1 0 0"/>
  <inertial pos="0 0.1 0" mass="0.7" diaginertia="0.02 0.03 0.04"/>
</body>"""
ARM = """
<body name="arm" pos="-0.1 0.2 0.1">
  <joint name="shoulder" type="ball" pos="0 0 0.1" damping="0.1"/>
  <inertial pos="0.1 0 0" mass="0.5" diaginertia="0.02 0.03 0.02"/>
</body>"""
TORSO = """
<body name="torso" pos="0 0 1">
  <freejoint name="root"/>
  <inertial pos="0 0 0.05" mass="2" diaginertia="0.1 0.2 0.2"/>{}
</body>"""
BLOCK = """
<body name="block" pos="1 0 0">
  <joint name="guide" type="slide" axis="0 1 1" stiffness="3"/>
  <inertial pos="0.1 0 0" mass="0.4" diaginertia="0.01 0.01 0.01"/>
</body>"""


def load(*bodies):
    return load_mjcf(f"<mujoco><worldbody>{''.join(bodies)}</worldbody></mujoco>")


def places(sys, order):
    """Where the coordinates, velocities and links of `order` stand in `sys`."""
    joints = sys.joints
    q, v = [], []
    for name in order.joints.names:
        j = joints.names.index(name)
        q += range(joints.q_starts[j], joints.q_starts[j] + joints.kinds[j].nq)
        v += range(joints.v_starts[j], joints.v_starts[j] + joints.kinds[j].nv)
    links = [sys.links.names.index(name) for name in order.links.names]
    return np.array(q), np.array(v), np.array(links)


def test_order_of_siblings():
    one, other = (
        load(TORSO.format(LEG + ARM), BLOCK),
        load(BLOCK, TORSO.format(ARM + LEG)),
    )
    q_at, v_at, links_at = places(other, one)

    @jax.jit
    def compute(sys, q, qd, tau):
        return {
            "qdd": dynamics.aba(sys, q, qd, tau),
            "momentum": dynamics.momentum(sys, q, qd),
            "poses": kinematics.forward(sys, q),
        }

    q = other.joints.ref + systems.normal(0, other.nq)
    qd, tau = systems.normal(1, other.nv), systems.normal(2, other.nv)
    expected = compute(one, q[q_at], qd[v_at], tau[v_at])
    out = compute(other, q, qd, tau)
    out["qdd"] = out["qdd"][v_at]
    out["poses"] = jax.tree.map(lambda x: x[links_at], out["poses"])
    assert tree_allclose(expected, out)
