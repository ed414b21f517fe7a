"""The order of the pipeline."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from eqsim_example import Richardson
from jax import lax

import eqsim
from eqsim import Generalized
from eqsim.kinematics import difference
from eqsim.model import Integrator


# It tumbles, so that coordinates do not add.
SPINNING = """
<mujoco>
  <option integrator="{}"/>
  <worldbody>
    <body><freejoint/><geom type="box" size=".1 .2 .3"/></body>
  </worldbody>
</mujoco>"""


@eqx.filter_jit
def end(pipeline, sys, q, qd, dt, steps):
    sys = eqx.tree_at(lambda s: s.dt, sys, dt)
    step = lambda _, state: pipeline.step(sys, state, jnp.zeros(0))
    # The number of steps is an array: one program for all of them.
    return lax.fori_loop(0, steps, step, pipeline.init(sys, q, qd))


def error(pipeline, sys, steps, exact):
    rng = np.random.default_rng(0)
    qd = jnp.asarray(3.0 * rng.normal(size=sys.nv))
    found = end(
        pipeline, sys, sys.joints.ref, qd, jnp.array(0.4 / steps), jnp.array(steps)
    )
    if exact is None:
        return found
    gone = difference(sys, exact.q, found.q)
    return float(jnp.linalg.norm(gone) + jnp.linalg.norm(found.qd - exact.qd))


@pytest.mark.parametrize(
    "integrator, few, base", [(Integrator.EULER, 16, 1), (Integrator.RK4, 2, 4)]
)
def test_one_order_more(integrator, few, base):
    """With half of the time step, the error falls to `2 ** -(p + 1)`."""
    sys = eqsim.load_mjcf(SPINNING.format(integrator.value))
    fine = eqsim.load_mjcf(SPINNING.format("RK4"))
    exact = error(Generalized(), fine, 512, None)
    plain, better = (
        [error(pipeline, sys, n, exact) for n in (few, 2 * few)]
        for pipeline in (Generalized(), Richardson())
    )
    assert 2 ** (base - 0.3) < plain[0] / plain[1] < 2 ** (base + 0.4)
    assert 2 ** (base + 0.7) < better[0] / better[1] < 2 ** (base + 1.6)
    assert better[1] < 0.2 * plain[1]


def test_exact_where_the_error_is_of_first_order():
    """Falling freely, semi-implicit Euler is off by a term of first order only."""
    ball = '<body><freejoint/><geom size=".1"/></body>'
    sys = eqsim.load_mjcf(f"<mujoco><worldbody>{ball}</worldbody></mujoco>")
    state = end(
        Richardson(), sys, sys.joints.ref, jnp.zeros(6), jnp.array(0.1), jnp.array(10)
    )
    assert jnp.allclose(state.q[2], -0.5 * 9.81, rtol=1e-12)
    assert jnp.allclose(state.qd[2], -9.81, rtol=1e-12)
