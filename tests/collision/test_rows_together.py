"""Contacts whose pairs are computed together, as on a GPU, beside one after another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from detection import points_of

from eqsim import Generalized, load_mjcf
from eqsim._batching import batch_last
from eqsim._primitive import rows_together


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
    "capsules on a box": ("box", 'type="capsule" size=".05 .1"', 0.06),
    "boxes on a box": ("box", 'type="box" size=".12 .05 .08"', 0.07),
    "meshes on a box": ("box", 'type="mesh" mesh="rock"', 0.11),
}
GROUND = {"hfield": 'type="hfield" hfield="hills"', "box": 'type="box" size="1 1 .02"'}


@pytest.mark.parametrize("name", ("spheres on hills", "capsules on a box"))
@pytest.mark.quick_cases("capsules on a box")
def test_equal_contacts(name, monkeypatch):
    apart, together = _both(name, monkeypatch, _contacts)
    for one, two in zip(apart, together, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-10)
    valid = apart[3]
    assert 3 < valid.sum() < valid.size and not valid[0].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_equal_derivatives(name, monkeypatch):
    apart, together = _both(name, monkeypatch, jax.grad(_depth, argnums=1))
    np.testing.assert_allclose(together, apart, rtol=1e-9, atol=1e-10)
    assert np.any(apart[1:]) and not np.any(apart[0])


def _both(name, monkeypatch, function):
    """A function of robot and coordinates, without kernels, by scans and by groups."""
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
    run = lambda: jax.tree.map(np.asarray, jax.jit(lambda q: function(sys, q))(q))
    apart = run()
    with rows_together():
        return apart, run()


def _contacts(sys, q):
    return [x for x in jax.vmap(detected, (None, 0))(sys, q) if x is not None]


def _depth(sys, q):
    """The sum of the squared depths of contacts that touch."""
    dist, _, _, valid, *_ = _contacts(sys, q)
    return jnp.sum(jnp.where(valid & (dist < 0), dist, 0.0) ** 2)
