"""Contacts whose pairs are computed together, as on a GPU, beside one after another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from detection import points_of

from eqsim import Generalized, load_mjcf
from eqsim._batching import batch_last
from eqsim._row_loops import rows_together


ROCK = ".1 0 0  -.1 .05 0  0 -.1 .02  0 .02 .15  .05 .05 -.1  -.04 -.03 -.12"
detected = batch_last(points_of)
PAIRS = """
<mujoco>
  <asset>
    <hfield name="hills" nrow="7" ncol="9" size=".9 .6 .4 .15" elevation="{heights}"/>
    <mesh name="rock" vertex="{rock}"/>
  </asset>
  <worldbody>
    <geom name="ground" {ground} contype="1" conaffinity="0"/>
    <body pos="0 0 {height}"><freejoint/>
      <geom {shape} contype="0" conaffinity="1"/>
      <geom {shape} pos=".2 .1 .03" contype="0" conaffinity="1"/>
      <geom {shape} pos="-.1 .2 0" euler="20 40 0" contype="0" conaffinity="1"/>
    </body>
  </worldbody>
</mujoco>"""
SCENES = {
    "spheres on hills": ("hfield", 'type="sphere" size=".09"', 0.3),
    "boxes on hills": ("hfield", 'type="box" size=".12 .05 .08"', 0.3),
    "boxes on a box": ("box", 'type="box" size=".12 .05 .08"', 0.07),
    "meshes on a box": ("box", 'type="mesh" mesh="rock"', 0.11),
}
SLOW = pytest.mark.slow
GROUND = {"hfield": 'type="hfield" hfield="hills"', "box": 'type="box" size="1 1 .02"'}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "spheres on hills" else SLOW)
        for name in SCENES
    ],
)
def test_equal(name, monkeypatch):
    monkeypatch.setenv("EQSIM_KERNELS", "off")
    ground, shape, height = SCENES[name]
    heights = " ".join(map(str, np.random.default_rng(0).uniform(0, 1, 7 * 9)))
    scene = PAIRS.format(
        heights=heights, rock=ROCK, ground=GROUND[ground], shape=shape, height=height
    )
    # Rows of contacts with hills: three pairs of 12, more than one group.
    sys = load_mjcf(scene, height_field_contacts=12)
    rng = np.random.default_rng(1)
    q = np.array(Generalized().init(sys).q) + 0.05 * rng.normal(size=(4, 7))
    # One in the air, so that pairs differ in what is near.
    q[0, 2] += 1.0
    apart = _values_and_gradient(sys, q)
    with rows_together():
        together = _values_and_gradient(sys, q)
    valid = apart[0][3]
    assert 3 < valid.sum() < valid.size and not valid[0].any()
    for one, two in zip(jax.tree.leaves(apart), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-10)


def _values_and_gradient(sys, q):
    """Contacts, and the derivative of the depths of those that touch."""

    def depth(q):
        found = jax.vmap(detected, (None, 0))(sys, q)
        dist, _, _, valid, _ = found
        return jnp.sum(jnp.where(valid & (dist < 0), dist, 0.0) ** 2), found

    function = jax.jit(jax.value_and_grad(depth, has_aux=True))
    (_, found), gradient = function(q)
    return jax.tree.map(np.asarray, (found, gradient))
