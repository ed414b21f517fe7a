"""Links that are moved from outside, beside MuJoCo's mocap bodies."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients
from trajectories import converged, draw

from eqsim import Generalized, load_mjcf, Positional, set_mocap, Spring, State
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


def place(model, data):
    for name, (pos, quat) in POSES.items():
        mocap = model.body(name).mocapid[0]
        data.mocap_pos[mocap], data.mocap_quat[mocap] = pos, quat


def test_trajectory():
    """Bodies that were moved push others; the softness of contacts does not change."""
    model, sys = converged(mujoco.MjModel.from_xml_string(MOVED)), load_mjcf(MOVED)
    data = draw(model, 5, 0.05)
    q, qd = (np.stack([getattr(d, name) for d in data]) for name in ("qpos", "qvel"))

    def one(sys, q, qd):
        step = lambda state, _: (Generalized().step(sys, state, jnp.zeros(0)),) * 2
        return jax.lax.scan(step, State(q, qd, jnp.zeros(0)), None, length=20)[1]

    out = jax.jit(jax.vmap(one, (None, 0, 0)))(moved(sys), q, qd)
    pairs = set()
    for k, d in enumerate(data):
        place(model, d)
        for i in range(20):
            mujoco.mj_step(model, d)
            pairs |= {tuple(sorted(map(int, c.geom))) for c in d.contact}
            ours = np.concatenate([out.q[k, i], out.qd[k, i]])
            theirs = np.concatenate([d.qpos, d.qvel])
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    named = {tuple(model.geom(g).name for g in pair) for pair in pairs}
    assert named & {("flat", "ball"), ("tip", "ball")}, named


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


# A paddle against what hangs on a hand: each pair of shapes more takes long to compile.
SMALL = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <body name="paddle" mocap="true"><geom type="capsule" size=".1 .2"/></body>
    <body name="hand" mocap="true">
      <body><joint type="ball" damping=".1"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/></body>
    </body>
  </worldbody>
</mujoco>"""
TOUCHING = {
    "paddle": (jnp.array([-0.08, -0.17, 0.55]), jnp.array([1.0, 0.3, -0.2, 0.4])),
    "hand": POSES["hand"],
}


@pytest.mark.parametrize(
    "pipeline",
    (
        Generalized(),
        *(pytest.param(x, marks=pytest.mark.slow) for x in (Spring(), Positional())),
    ),
)
@pytest.mark.slow  # `test_still.py` has the quick one.
def test_gradients(pipeline):
    """By the poses, in contact."""
    sys = load_mjcf(SMALL)
    turned = jnp.array([0.9, 0.1, 0.3, 0.2])
    turned = turned / jnp.linalg.norm(turned)
    state = pipeline.init(sys, turned, 0.1 * jnp.arange(1.0, sys.nv + 1))
    now = pipeline.contacts(moved(sys, TOUCHING), state, jnp.zeros(0))
    assert jnp.any(now.force != 0.0)

    def step(poses):
        new = pipeline.step(moved(sys, poses), state, jnp.zeros(0))
        return new.q, new.qd

    largest = check_gradients(jax.jit(step), TOUCHING, atol=1e-6)
    assert all(value > 0.0 for value in largest.values()), largest


def test_nothing_is_compiled_again():
    sys, count = load_mjcf(MOVED), 0

    @eqx.filter_jit
    def positions(sys):
        nonlocal count
        count += 1
        return sys.links.pos

    for shift in (0.0, 0.1):
        positions(set_mocap(sys, "hand", pos=jnp.array([0.0, shift, 1.0])))
        positions(
            set_mocap(
                sys,
                sys.links.names.index("hand"),
                quat=jnp.array([1.0, shift, 0.0, 0.0]),
            )
        )
    assert count == 1


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
