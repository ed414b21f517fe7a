"""Reports on states."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import eqsim


DROP = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 .1"/>
    <body pos="0 0 .1"><freejoint name="root"/>
      <geom name="ball" type="sphere" size=".1" mass="2"/></body>
    <body pos="1 0 1"><joint name="hinge" axis="0 1 0"/>
      <geom type="capsule" size=".05" fromto="0 0 0 0 0 .4" mass="1"/></body>
  </worldbody>
</mujoco>"""
SYS = eqsim.load_mjcf(DROP)
PIPELINE = eqsim.Generalized()


def states():
    """Two rows of three: the ball 0, 1 and 2 mm deep; the second row at a speed of the
    hinge of 3 rad/s, and one state that is not finite."""
    first = PIPELINE.init(SYS)
    deep = jnp.array([0.0, 1e-3, 2e-3])
    q = jnp.broadcast_to(first.q, (2, 3, SYS.nq)).at[:, :, 2].add(-deep)
    qd = jnp.zeros((2, 3, SYS.nv)).at[1, :, 6].set(3.0).at[1, 0, 0].set(jnp.nan)
    many = jax.tree_util.tree_map(lambda x: jnp.zeros((2, 3, *x.shape)), first)
    return eqx.tree_at(lambda s: (s.q, s.qd), many, (q, qd))


def test_is_what_mujoco_measures():
    """Penetration, acceleration and energy of each finite state."""
    found = eqsim.diagnose(SYS, states())
    model = mujoco.MjModel.from_xml_string(DROP)
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    model.opt.iterations, model.opt.tolerance = 200, 0.0
    data = mujoco.MjData(model)
    for i, j in np.ndindex(2, 3):
        if (i, j) == (1, 0):
            continue
        data.qpos[:], data.qvel[:] = states().q[i, j], states().qd[i, j]
        mujoco.mj_forward(model, data)
        depth = max(0.0, -data.contact.dist.min()) if data.ncon else 0.0
        assert found.penetration[i, j] == pytest.approx(depth, abs=1e-12)
        most = np.abs(data.qacc).max()
        assert found.acceleration[i, j] == pytest.approx(most, rel=1e-9)
        assert found.energy[i, j] == pytest.approx(data.energy.sum(), rel=1e-9)
    expected = np.ones((2, 3), bool)
    expected[1, 0] = False
    np.testing.assert_array_equal(found.finite, expected)
    np.testing.assert_array_equal(found.converged, expected)
    assert not found.good


def test_says_what_and_where():
    text = str(eqsim.diagnose(SYS, states()))
    assert "6 states of 8 coordinates" in text
    assert "1 are not finite, the first at [1, 0]" in text
    assert "0 have a solver that does not converge" in text
    assert "deepest penetration 0.002 m, 'floor' and 'ball' at [0, 2]" in text
    assert "largest velocity 3 m/s or rad/s, 'hinge' at [1, 1]" in text


def test_a_solver_that_does_not_converge():
    """A limit of one step for a ball that slides, where more are needed."""
    newton = eqsim.constraint.Newton(max_full_steps=1, max_searched_steps=0)
    state = jax.tree_util.tree_map(lambda x: x[0, 2], states())
    state = eqx.tree_at(lambda s: s.qd, state, state.qd.at[0].set(3.0))
    assert eqsim.diagnose(SYS, state).good
    found = eqsim.diagnose(SYS, state, pipeline=eqsim.Generalized(solver=newton))
    assert found.converged.shape == () and not found.good
    assert "1 have a solver that does not converge" in str(found)


def test_errors():
    state = PIPELINE.init(SYS)
    with pytest.raises(ValueError, match="ctrl"):
        eqsim.diagnose(SYS, state, jnp.zeros(3))
    with pytest.raises(
        ValueError, match=r"`ctrl` has batch axes \(\), but `q` has \(2,"
    ):
        eqsim.diagnose(SYS, states(), jnp.zeros(0))
    none = jax.tree_util.tree_map(lambda x: x[None][:0], state)
    with pytest.raises(ValueError, match="At least one state is expected"):
        eqsim.diagnose(SYS, none)
