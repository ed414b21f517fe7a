"""Bounds contain their shapes."""

import jax
import mujoco
import numpy as np
import solids

from eqsim import load_mjcf
from eqsim.collision._bounds import bounding_radius, shape_extents, UNBOUNDED


SHAPES = """
<mujoco><asset>{meshes}</asset><worldbody>
  <geom type="plane" size="1 1 1" pos="0 0 -9"/>
  <geom type="sphere" size=".3" {apart}/><geom type="capsule" size=".3 .4" {apart}/>
  <geom type="ellipsoid" size=".3 .5 .4" {apart}/><geom type="box" size=".3 .4 .5" {apart}/>
  <geom type="cylinder" size=".3 .4" {apart}/>
  <geom type="mesh" mesh="corner" {apart}/><geom type="mesh" mesh="cube"/>
</worldbody></mujoco>"""


def test_bounds():
    meshes = solids.mesh("corner", *solids.corner()) + solids.mesh("cube", solids.CUBE)
    text = SHAPES.format(meshes=meshes, apart=solids.APART)
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    radius = jax.jit(bounding_radius)(sys)
    half = np.stack(jax.jit(shape_extents)(sys), axis=-1)
    assert radius[0] == UNBOUNDED and np.all(half[0] == UNBOUNDED)
    np.testing.assert_allclose(radius[1:6], model.geom_rbound[1:6])
    for geom, own in ((6, sys.mesh("corner")), (7, sys.mesh("cube"))):
        parts = sys.meshes.hull(own.index), sys.meshes.others(own.index)
        points = np.concatenate([np.asarray(x) for x in parts])
        farthest = np.max(np.linalg.norm(points, axis=1))
        np.testing.assert_allclose(radius[geom], farthest, rtol=1e-12)
        np.testing.assert_allclose(half[geom], np.max(np.abs(points), axis=0))
    boxes = [
        [0.3] * 3,
        [0.3, 0.3, 0.7],
        [0.3, 0.5, 0.4],
        [0.3, 0.4, 0.5],
        [0.3, 0.3, 0.4],
    ]
    np.testing.assert_allclose(half[1:6], boxes)
    zero = jax.grad(lambda s: bounding_radius(s).sum())(sys)
    assert not any(np.any(x) for x in jax.tree.leaves(zero))
