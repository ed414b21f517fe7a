"""Elements by name."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, strategies as st

from eqsim.io import load_mjcf
from eqsim.model import JointKind
from eqsim.testing import random_system


TEXT = """
<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
  <body name="torso"><freejoint name="root"/><geom name="trunk" size=".1"/>
    <body name="leg"><joint name="hip" axis="1 0 0"/><joint name="slider" type="slide"/>
      <geom name="shin" size=".1"/><body name="tool"><geom size=".1"/></body></body>
    <body name="arm"><joint name="shoulder" type="ball"/><geom name="hand" size=".1"/>
    </body></body></worldbody>
  <actuator><motor name="motor" joint="hip"/>
    <general name="lag" joint="hip" dyntype="filter"/>
    <general name="sum" joint="slider" dyntype="integrator"/></actuator></mujoco>
"""


@pytest.fixture(scope="module")
def sys():
    return load_mjcf(TEXT)


def test_joints(sys):
    hip, shoulder, root = sys.joint("hip"), sys.joint("shoulder"), sys.joint("root")
    assert (hip.index, hip.link, hip.q, hip.qd) == (1, 1, slice(7, 8), slice(6, 7))
    assert hip.kind is JointKind.REVOLUTE and hip.name == "hip"
    assert (shoulder.q, shoulder.qd) == (slice(9, 13), slice(8, 11))
    assert (root.q, root.qd) == (slice(0, 7), slice(0, 6))


def test_links(sys):
    torso, leg, tool = sys.link("torso"), sys.link("leg"), sys.link("tool")
    assert (torso.index, torso.parent, torso.joints) == (0, -1, (0,))
    assert (torso.q, torso.qd) == (slice(0, 7), slice(0, 6))
    assert (leg.parent, leg.joints) == (0, (1, 2))
    assert (leg.q, leg.qd) == (slice(7, 9), slice(6, 8))
    assert (tool.joints, tool.q, tool.qd) == ((), slice(0, 0), slice(0, 0))


def test_actuators(sys):
    motor, lag, total = (sys.actuator(name) for name in ("motor", "lag", "sum"))
    assert (motor.index, lag.index, total.index) == (0, 1, 2)
    assert (motor.ctrl, total.ctrl) == (slice(0, 1), slice(2, 3))
    assert (motor.act, lag.act, total.act) == (slice(0, 0), slice(0, 1), slice(1, 2))


def test_geoms(sys):
    assert (sys.geom("floor").index, sys.geom("floor").link) == (0, -1)
    assert (sys.geom("hand").index, sys.geom("hand").link) == (4, 3)


UNKNOWN = {
    "link": "no link 'hnd'.*torso, leg, tool, arm",
    "joint": "no joint 'hnd'.*root, hip, slider, shoulder",
    "actuator": "no actuator 'hnd'.*motor, lag, sum",
    "geom": "no shape 'hnd'. Did you mean 'hand'.*floor, trunk, shin",
    "keyframe": "no keyframe 'hnd': this robot has no keyframes",
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unknown_names(kind, sys):
    with pytest.raises(ValueError, match=UNKNOWN[kind]):
        getattr(sys, kind)("hnd")


def test_names_under_jit_and_grad(sys):
    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(sys):
        joint, geom = sys.joint("hip"), sys.geom("hand")
        return sys.joints.damping[joint.qd].sum() + sys.geoms.friction[geom.index, 0]

    found = gradient(sys)
    assert found.joints.damping.tolist() == [0] * 6 + [1] + [0] * 4
    assert found.geoms.friction[:, 0].tolist() == [0, 0, 0, 0, 1]


def test_references_are_values(sys):
    again = load_mjcf(TEXT)
    for find in (lambda s: s.link("leg"), lambda s: s.joint("hip")):
        assert find(sys) == find(again) and hash(find(sys)) == hash(find(again))
        with pytest.raises(dataclasses.FrozenInstanceError):
            find(sys).index = 3


def test_batches_have_the_same_names(sys):
    fleet = jax.tree.map(lambda x: jnp.stack([x, x]), sys)
    assert fleet.joint("hip") == sys.joint("hip")


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_slices_cover_the_state(seed, nlink):
    """Joints, links and activations divide the coordinates between themselves."""
    sys = random_system(seed, nlink, num_roots=1)
    cover = lambda slices, count: [k for s in slices for k in range(count)[s]]
    joints = [sys.joint(name) for name in sys.joints.names]
    links = [sys.link(name) for name in sys.links.names]
    actuators = [sys.actuator(name) for name in sys.actuators.names]
    for refs in (joints, links):
        assert cover([ref.q for ref in refs], sys.nq) == list(range(sys.nq))
        assert cover([ref.qd for ref in refs], sys.nv) == list(range(sys.nv))
    assert cover([ref.act for ref in actuators], sys.na) == list(range(sys.na))
    assert [ref.link for ref in joints] == list(sys.joints.links)
    assert [ref.parent for ref in links] == list(sys.links.parents)
    for refs in (joints, links, actuators):
        assert [ref.index for ref in refs] == list(range(len(refs)))
