"""Parameters that MuJoCo's compiler computes stay when others change, as in `mjModel`."""

import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from eqsim import Generalized, load_mjcf, State


ARM = """
<mujoco><option timestep=".002"/><worldbody>
  <site name="fixed" pos=".4 0 .2"/>
  <body><joint name="j" axis="0 1 0" range="-60 60" limited="true"/>
    <geom size=".1" mass="1" pos=".3 0 0"/><site name="tip" pos=".2 0 .05"/></body>
</worldbody>
<tendon><spatial name="t"><site site="fixed"/><site site="tip"/></spatial></tendon>
<actuator>{}</actuator></mujoco>"""


@pytest.mark.parametrize(
    "actuator",
    ('<position joint="j" kp="20" dampratio="1"/>', '<muscle tendon="t" force="30"/>'),
    ids=("dampratio", "lengthrange"),
)
def test_another_mass_and_site(actuator):
    model = mujoco.MjModel.from_xml_string(ARM.format(actuator))
    sys = load_mjcf(ARM.format(actuator))
    model.body_mass *= 3.0
    model.body_inertia *= 3.0
    model.site_pos[1, 2] += 0.05
    sys = eqx.tree_at(
        lambda s: (s.links.mass, s.links.inertia, s.sites.pos),
        sys,
        (
            3.0 * sys.links.mass,
            3.0 * sys.links.inertia,
            jnp.asarray(model.site_pos),
        ),
    )
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:], data.ctrl[:] = 0.2, 0.5, 0.6
    start = State(jnp.asarray(data.qpos), jnp.asarray(data.qvel), jnp.zeros(sys.na))
    mujoco.mj_step(model, data)
    found = Generalized().step(sys, start, jnp.asarray([0.6]))
    np.testing.assert_allclose(found.qd, data.qvel, rtol=1e-9)
