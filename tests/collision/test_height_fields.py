"""Height fields that touch all kinds of convex shapes, beside MuJoCo C."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from detection import points_of
from scipy.spatial.transform import Rotation

from eqsim import load_mjcf
from eqsim._batching import batch_last


ROWS, COLUMNS = 7, 9
ROCK = ".1 0 0  -.1 .05 0  0 -.1 .02  0 .02 .15  .05 .05 -.1  -.04 -.03 -.12"
# MuJoCo's penetration of boxes and meshes is too small without a margin: see
# `eqsim/collision/_terrain.py`.
MODEL = """
<mujoco><option ccd_tolerance="1e-12" ccd_iterations="200"/>
  <asset><hfield name="hills" nrow="7" ncol="9" size=".9 .6 .4 .15" elevation="{heights}"/>
    <mesh name="rock" vertex="{rock}"/></asset>
  <worldbody>
    <geom name="ground" type="hfield" hfield="hills" pos=".3 .2 -.1" euler="10 20 30"/>
    <body><freejoint/><geom name="shape" {shape} margin="{margin}"/></body>
  </worldbody>
</mujoco>"""
SHAPES = {
    "sphere": 'type="sphere" size=".09"',
    "capsule": 'type="capsule" size=".05 .1"',
    "ellipsoid": 'type="ellipsoid" size=".15 .06 .1"',
    "cylinder": 'type="cylinder" size=".08 .06"',
    "box": 'type="box" size=".12 .05 .08"',
    "mesh": 'type="mesh" mesh="rock"',
}


def models(shape, margin, capacity=32):
    heights = np.random.default_rng(0).uniform(0, 1, ROWS * COLUMNS)
    text = MODEL.format(
        heights=" ".join(map(str, heights)), rock=ROCK, shape=shape, margin=margin
    )
    sys = load_mjcf(text, height_field_contacts=capacity)
    return sys, mujoco.MjModel.from_xml_string(text)


detected = batch_last(points_of)


def placed(model, count, seed=0):
    """Positions over, in, below and beside the terrain, in any orientation."""
    rng = np.random.default_rng(seed)
    ground = mujoco.MjData(model)
    mujoco.mj_kinematics(model, ground)
    local = rng.uniform([-1, -0.7, -0.1], [1, 0.7, 0.45], (count, 3))
    pos = ground.geom_xpos[0] + local @ ground.geom_xmat[0].reshape(3, 3).T
    turn = Rotation.random(count, random_state=rng).as_quat(scalar_first=True)
    return np.concatenate([pos, turn], axis=1)


def contacts(model, q):
    data = mujoco.MjData(model)
    for each in q:
        data.qpos[:] = each
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        now = data.contact
        yield np.c_[now.dist, now.pos, now.frame[:, :3]]


@pytest.mark.parametrize("margin", (1e-9, 0.03))
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.quick_cases("capsule-0.03")
def test_points(kind, margin):
    """Distance, position and normal of each contact, in MuJoCo's order."""
    sys, model = models(SHAPES[kind], margin)
    q = placed(model, 300)
    found = jax.jit(jax.vmap(lambda q: detected(sys, q)))(jnp.asarray(q))
    dist, pos, normal, valid, crowded = map(np.asarray, found)
    own = np.concatenate([dist[..., None], pos, normal], axis=-1)
    total, different = 0, 0
    for k, theirs in enumerate(contacts(model, q)):
        assert np.sum(valid[k]) == len(theirs) < 32
        error = np.abs(own[k][valid[k]] - theirs)
        total += len(theirs)
        # Where two directions are nearly equally short, the polytope in a round shape may
        # be too coarse to tell which one is shorter.
        other = error[:, 4:].max(axis=-1, initial=0) > 1e-2
        tied = other & (error[:, 0] < 0.02 * np.abs(theirs[:, 0]))
        different += np.sum(tied)
        assert np.all(error[~tied][:, 0] < 1e-6), k
        # Of smooth shapes, MuJoCo's normal has the root of the error of its distance.
        assert np.all(error[~tied] < 1e-4), k
    assert total > 500 and different <= 0.002 * total and not np.any(crowded)
