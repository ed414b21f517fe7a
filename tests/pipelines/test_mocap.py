"""Links that are moved from outside, beside MuJoCo's mocap bodies."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from trajectories import converged, draw

from eqsim import Generalized, load_mjcf, set_mocap, State
from eqsim.constraint import ALL, Newton
from eqsim.io import write_mjcf
from eqsim.model import candidate_pairs, validate
from eqsim.pipelines._generalized import _derive
from eqsim.pipelines.forward_dynamics import Settings


# A paddle that pushes balls, and a hand on which a chain hangs.
MOVED = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <geom name="post" size=".1" pos=".6 0 .1"/>
    <body name="paddle" mocap="true" pos="0 0 .2">
      <geom name="flat" type="capsule" size=".1 .2"/>
      <body name="tip" pos="0 0 .3"><geom name="tip" size=".12"/></body>
    </body>
    <body name="ball" pos=".2 0 .2"><freejoint/><geom name="ball" size=".11"/></body>
    <body name="hand" mocap="true" pos="0 0 1.2" quat=".9 .1 .2 .3">
      <geom name="hand" size=".1"/>
      <body name="upper"><joint type="ball" damping=".1"/>
        <geom name="upper" type="capsule" fromto="0 0 0 .3 0 0" size=".05"/>
        <body name="lower" pos=".3 0 0"><joint axis="0 1 0" frictionloss=".1"/>
          <geom name="lower" type="capsule" fromto="0 0 0 .3 0 0" size=".05"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>"""
POSES = {
    "paddle": (jnp.array([0.02, 0.01, 0.15]), jnp.array([1.0, 0.3, -0.2, 0.4])),
    "hand": (jnp.array([0.1, -0.1, 0.7]), jnp.array([0.5, -0.5, 0.3, 0.6])),
}


def moved(sys, poses=POSES):
    for name, (pos, quat) in poses.items():
        sys = set_mocap(sys, name, pos, quat)
    return sys


def place(model, data, names=tuple(POSES)):
    for name in names:
        pos, quat = POSES[name]
        mocap = model.body(name).mocapid[0]
        data.mocap_pos[mocap], data.mocap_quat[mocap] = pos, quat


# A paddle and a ball: each pair of shapes more takes long to compile.
PUSHED = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <body name="paddle" mocap="true"><geom type="capsule" size=".1 .2"/></body>
    <body pos=".2 0 .2"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
      <joint axis="0 0 1"/><geom size=".11"/></body>
  </worldbody>
</mujoco>"""


def test_trajectory():
    """Bodies that were moved push others."""
    model, sys = converged(mujoco.MjModel.from_xml_string(PUSHED)), load_mjcf(PUSHED)
    data = draw(model, 5, 0.05)
    q, qd = (np.stack([getattr(d, name) for d in data]) for name in ("qpos", "qvel"))

    def one(sys, q, qd):
        step = lambda state, _: (Generalized().step(sys, state, jnp.zeros(0)),) * 2
        return jax.lax.scan(step, State(q, qd, jnp.zeros(0)), None, length=20)[1]

    robot = moved(sys, {"paddle": POSES["paddle"]})
    out = jax.jit(jax.vmap(one, (None, 0, 0)))(robot, q, qd)
    touched = 0
    for k, d in enumerate(data):
        place(model, d, ("paddle",))
        for i in range(20):
            mujoco.mj_step(model, d)
            touched += d.ncon
            ours = np.concatenate([out.q[k, i], out.qd[k, i]])
            theirs = np.concatenate([d.qpos, d.qvel])
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    assert touched > 0


def test_which_shapes_touch():
    """Mocap links never touch each other or the world, nor what hangs on them."""
    sys = load_mjcf(MOVED)
    names = ["plane", *sys.geoms.names[1:]]
    pairs = {frozenset((names[a], names[b])) for a, b, _ in candidate_pairs(sys)}
    expected = [
        *(("plane", x) for x in ("ball", "upper", "lower")),
        *(("post", x) for x in ("ball", "upper", "lower")),
        *(("flat", x) for x in ("ball", "upper", "lower")),
        *(("tip", x) for x in ("ball", "upper", "lower")),
        *(("hand", x) for x in ("ball", "lower")),
        *(("ball", x) for x in ("upper", "lower")),
    ]
    assert pairs == set(map(frozenset, expected))


def test_weights_do_not_depend_on_poses():
    sys = load_mjcf(MOVED)
    settings = Settings(ALL, Newton(), None)
    before, after = (_derive(robot, settings) for robot in (sys, moved(sys)))
    leaves = [jax.tree.leaves(made.constraints) for made in (before, after)]
    assert leaves[0]
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_round_trip():
    again = load_mjcf(write_mjcf(load_mjcf(MOVED)))
    names = zip(again.links.names, again.links.mocap)
    assert [name for name, mark in names if mark] == ["paddle", "hand"]


def test_errors():
    sys = load_mjcf(MOVED)
    with pytest.raises(
        ValueError, match="'ball' is not a mocap link.*'paddle', 'hand'"
    ):
        set_mocap(sys, "ball", pos=jnp.zeros(3))
    marks = tuple(name == "tip" for name in sys.links.names)
    with pytest.raises(ValueError, match="must be children of the world"):
        type(sys.links)(**{**vars(sys.links), "mocap": marks})
    marks = tuple(name == "ball" for name in sys.links.names)
    links = type(sys.links)(**{**vars(sys.links), "mocap": marks})
    with pytest.raises(ValueError, match="'ball' has a joint"):
        validate(eqx.tree_at(lambda s: s.links, sys, links))
