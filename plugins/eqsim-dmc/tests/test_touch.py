"""`touch` beside MuJoCo's sensor."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from eqsim_dmc import touch

import eqsim


# Inside of a zone, before it, behind it, and beside it; on a link that touches the ground
# as second shape, and another link as first.
PLACES = [
    (0.0, 0.0, -0.1),
    (0.0, 0.0, 0.0),
    (0.3, 0.0, -0.4),
    (0.3, 0.05, -0.3),
    (-0.3, 0.0, 0.3),
    (0.0, 0.6, 0.0),
]
RADII = [0.25, 0.05, 0.12, 0.2, 0.15, 0.1]
SITES = "".join(
    f'<site name="s{k}" pos="{x} {y} {z}" size="{radius}"/>'
    for k, ((x, y, z), radius) in enumerate(zip(PLACES, RADII))
)
XML = f"""
<mujoco>
  <option><flag multiccd="disable"/></option>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body name="low"><freejoint/>{SITES}
      <geom type="capsule" size="0.1" fromto="-0.3 0 0 0.3 0 0"/></body>
    <body name="high"><freejoint/><geom type="sphere" size="0.2"/></body>
  </worldbody>
  <sensor>{"".join(f'<touch site="s{k}"/>' for k in range(len(PLACES)))}</sensor>
</mujoco>
"""


def test_touch():
    model = mujoco.MjModel.from_xml_string(XML)
    model.opt.tolerance, model.opt.iterations = 0.0, 100
    data, sys = mujoco.MjData(model), eqsim.load_mjcf(XML)
    pipeline, rng, felt = eqsim.Generalized(), np.random.default_rng(0), []

    @jax.jit
    def feel(q, qd):
        state = pipeline.init(sys, q, qd)
        found = pipeline.contacts(sys, state, jnp.zeros(0))
        zones = zip(PLACES, RADII)
        at = lambda place, r: (jnp.asarray(place), jnp.asarray(r))
        return jnp.stack([touch(sys, q, found, 0, *at(*zone)) for zone in zones])

    for _ in range(20):
        turn = np.array([1.0, *rng.normal(0.0, 0.15, 3)])
        q = np.concatenate([[0, 0, 0.09], turn / np.linalg.norm(turn)])
        above = rng.uniform(-0.2, 0.2, 2)
        q = np.concatenate([q, [above[0], above[1] / 4, 0.36], [1, 0, 0, 0]])
        data.qpos[:], data.qvel[:] = q, rng.normal(0.0, 0.3, model.nv)
        mujoco.mj_forward(model, data)
        ours = feel(jnp.asarray(q), jnp.asarray(data.qvel))
        np.testing.assert_allclose(ours, data.sensordata, 1e-6, 1e-6)
        felt.append(data.sensordata > 0.0)
    # Zones feel something at times, and nothing at others.
    share = np.mean(felt, axis=0)
    assert np.sum((share > 0.0) & (share < 1.0)) >= 3
