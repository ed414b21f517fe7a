"""Environments from files of users, by the laws of Gymnasium's tests of custom MuJoCo
environments."""

import pathlib

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from eqsim_gymnasium import EqsimEnv
from gymnasium.utils.env_checker import check_env

import eqsim


SLIDER = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="slider">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator><motor joint="slide" ctrlrange="-1 1"/></actuator>
</mujoco>"""
WALKER = pathlib.Path(gymnasium.__file__).parent / "envs/mujoco/assets/walker2d_v5.xml"


class Slider(eqsim.AbstractTask):
    """A mass on a rail, rewarded for its displacement."""

    sys: eqsim.System
    pipeline: eqsim.AbstractPipeline = eqx.field(default_factory=eqsim.Generalized)
    frame_skip: int = eqx.field(static=True, default=1)

    def initial(self, key):
        return self.pipeline.init(self.sys)

    def observe(self, state, action):
        return jnp.concatenate([state.q, state.qd])

    def rewards(self, state, action, new):
        return {"forward": new.q[0] - state.q[0]}

    def terminated(self, state):
        return jnp.zeros((), bool)


@pytest.mark.filterwarnings("ignore:.*A Box (action|observation) space m")
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[pytest.mark.slow] * (n != 3)) for n in range(1, 6)],
)
def test_frame_skip(number):
    """Gymnasium: `test_frame_skip`."""
    env = EqsimEnv(Slider(eqsim.load_mjcf(SLIDER), frame_skip=number))
    check_env(env, skip_render_check=True)
    env.reset(seed=0)
    obs = env.step(np.ones(1))[0]
    np.testing.assert_allclose(obs[1], 0.01 * number, rtol=1e-12)


def test_model_file(tmp_path, monkeypatch):
    """Gymnasium: `test_xml_file`."""
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "walker.xml"
    path.write_bytes(WALKER.read_bytes())
    monkeypatch.chdir(tmp_path)
    expected = eqsim.make("walker2d").sys
    for source in ("./models/walker.xml", str(path)):
        env = eqsim.make("walker2d", sys=eqsim.load_mjcf(source))
        assert env.sys.nq == 9 and eqx.tree_equal(env.sys, expected)
