"""Friction and size of a tossed cube, found from its motion without simulation."""

import jax
import numpy as np

import eqsim
from eqsim import identify


jax.config.update("jax_enable_x64", True)

TOSSED = """
<mujoco>
  <option timestep="0.0005" cone="elliptic"/>
  <default><geom solref="-20000 -600" friction="{mu} 0 0"/></default>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body><freejoint/>
      <inertial mass="0.4" pos="0 0 0" diaginertia="1e-3 1e-3 1e-3"/>
      <geom type="box" size="{half} {half} {half}"/>
    </body>
  </worldbody>
</mujoco>
"""


def toss(seed):
    cube = eqsim.load_mjcf(TOSSED.format(mu=0.2, half=0.05))
    rng, pipeline = np.random.default_rng(seed), eqsim.Generalized()
    q = jax.numpy.asarray([0.0, 0.0, 0.2, *rng.normal(size=4)])
    qd = jax.numpy.asarray([*rng.normal(size=3), *rng.normal(0, 6, 3)])
    step = lambda state, u: (pipeline.step(cube, state, u), state.q)
    start = pipeline.init(cube, q.at[3:].divide(jax.numpy.linalg.norm(q[3:])), qd)
    q = np.asarray(eqsim.scan(step, start, np.zeros((800, 0)))[1])[::10]
    return identify.Recording(0.005 * np.arange(80), np.zeros((80, 0)), {"q": q})


faces = ((1, 0), (1, 1), (1, 2))
contact = {
    "friction": identify.Positive(
        lambda s: s.geoms.friction, entries=((0, 0), (1, 0)), shared=True
    ),
    "half": identify.Positive(lambda s: s.geoms.size, entries=faces, shared=True),
}
cube = eqsim.load_mjcf(TOSSED.format(mu=0.6, half=0.055))
windows, objective = identify.Windows(1.0), identify.Violation()
found = identify.fit(
    cube, [toss(0), toss(1)], contact, windows=windows, objective=objective
)
assert (np.abs(found.values / [0.2, 0.05] - 1) < 0.15).all()
