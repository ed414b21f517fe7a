"""The linear model of a step equals `mjd_transitionFD`, within that one's own error."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from assets import path
from trajectories import converged

from eqsim import Generalized, load_mjcf, State
from eqsim.control import linearize_step


PIPELINE = Generalized()
ROLLING = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 .11" euler="10 20 30"><freejoint/>
      <geom type="sphere" size=".1" pos="0.02 0 0" friction=".6"/>
      <geom type="box" size=".02 .05 .03" contype="0" conaffinity="0"/>
      <body pos="0 0 .1"><joint name="arm" axis="1 0 0" damping=".01"/>
        <geom type="capsule" size=".02 .1" pos="0 .1 .1" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><general joint="arm" gear=".1" dyntype="filter" dynprm=".1"/></actuator>
</mujoco>"""


def text(name):
    """Gymnasium's file, with the integrator that MuJoCo can differentiate."""
    return path(name).read_text().replace('integrator="RK4"', 'integrator="Euler"')


MODELS = {
    "hopper": text("hopper"),
    "rolling": ROLLING,
}


def states(model, count=4):
    """Driven by random controls from the reference: in the air and on the ground."""
    rng, data, out = np.random.default_rng(0), mujoco.MjData(model), []
    data.qvel[:] = 0.3 * rng.normal(size=model.nv)
    for _ in range(count):
        data.ctrl[:] = 0.5 * rng.normal(size=model.nu)
        mujoco.mj_step(model, data, nstep=40)
        names = ("qpos", "qvel", "act", "ctrl")
        out.append(tuple(getattr(data, name).copy() for name in names))
    return [np.stack(x) for x in zip(*out)]


def ours(sys, q, qd, act, ctrl):
    return linearize_step(PIPELINE, sys, State(q, qd, act), ctrl)


def theirs(model, state, eps):
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.act[:], data.ctrl[:] = state
    size = 2 * model.nv + model.na
    a, b = np.zeros((size, size)), np.zeros((size, model.nu))
    mujoco.mjd_transitionFD(model, data, eps, True, a, b, None, None)
    return a, b


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.quick_cases("rolling")
def test_transition_matrices(name):
    model = converged(mujoco.MjModel.from_xml_string(MODELS[name]))
    sys, batch = load_mjcf(MODELS[name]), states(model)
    each = jax.jit(jax.vmap(ours, in_axes=(None, 0, 0, 0, 0)))
    got = each(sys, *map(jnp.asarray, batch))
    for k in range(len(batch[0])):
        state = [x[k] for x in batch]
        coarse, fine = theirs(model, state, 4e-6), theirs(model, state, 2e-6)
        for mine, a, b in zip(got, coarse, fine):
            error = np.max(np.abs(a - b)) + 1e-7 * np.max(np.abs(b))
            # They tell something: far from the identity, and accurate.
            assert error < 1e-4 * np.max(np.abs(b))
            assert np.max(np.abs(mine[k] - b)) <= error, f"state {k}"
