"""First states without contact."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from eqsim_dmc import draw_without_contact, lift_without_contact

import eqsim


pytest.importorskip("dm_control")

from _dm_control import Theirs


XML = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 {height}">
      <joint name="lift" type="slide" axis="0 0 1" range="-1 1"/>
      <geom size="0.1"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("name", ["dmc_ball_in_cup_catch", "dmc_finger_spin"])
def test_nothing_touches(name):
    """As MuJoCo counts contacts, in every start."""
    env, theirs = eqsim.make(name), Theirs(name)
    start = lambda key: env.initial(key).q
    drawn = jax.jit(jax.vmap(start))(jr.split(jr.key(0), 200))
    for q in np.asarray(drawn):
        theirs.data.qpos[:] = q
        mujoco.mj_forward(theirs.model, theirs.data)
        assert theirs.data.ncon == 0
    assert len(np.unique(drawn[:, -1])) == 200


def test_distribution():
    """Uniform over the heights without contact; the others are redrawn."""
    sys = eqsim.load_mjcf(XML.format(height=0.5))
    many = jax.jit(jax.vmap(lambda key: draw_without_contact(_uniform, key, sys)))
    height = 0.5 + np.sort(many(jr.split(jr.key(0), 2000))[:, 0])
    assert height[0] > 0.1
    expected = np.linspace(0.1, 1.5, 2000)
    assert np.max(np.abs(height - expected)) / 1.4 < 1.95 / np.sqrt(2000)


def test_gradient():
    """By the range from which the accepted draw is, in both modes."""
    sys = eqsim.load_mjcf(XML.format(height=0.5))

    def drawn(bounds):
        robot = eqx.tree_at(lambda s: s.joints.range, sys, bounds)
        return draw_without_contact(_uniform, jr.key(1), robot)[0]

    bounds = sys.joints.range
    share = (drawn(bounds) - bounds[0, 0]) / 2.0
    expected = jnp.stack([1.0 - share, share])[None]
    for derivative in (jax.jacfwd(drawn), jax.jacrev(drawn)):
        np.testing.assert_allclose(derivative(bounds), expected, 1e-12)


def test_always_in_contact():
    """Drawing ends after 10,000 draws."""
    sys = eqsim.load_mjcf(XML.format(height=-2.0))
    q = jax.jit(lambda key: draw_without_contact(_uniform, key, sys))(jr.key(0))
    assert np.abs(q[0]) <= 1.0


def test_lift():
    """The lowest multiple of 1 cm without contact; derivatives are of the rest."""
    sys = eqsim.load_mjcf(XML.format(height=0.0).replace("0.1", "0.1234"))
    lift = jax.jit(lambda q: lift_without_contact(sys, q, 0))
    np.testing.assert_allclose(lift(jnp.asarray([0.7])), [0.13], 1e-12)
    np.testing.assert_allclose(jax.jacrev(lift)(jnp.asarray([0.7])), [[0.0]])


def _uniform(key, sys):
    low, high = sys.joints.range[0]
    q = low + jr.uniform(key, (1,), low.dtype) * (high - low)
    return q, sys, q
