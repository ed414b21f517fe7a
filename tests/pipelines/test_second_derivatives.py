"""Second derivatives of a step equal finite differences of first ones, and are symmetric."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqsim import Generalized, load_mjcf, State


SPHERE = (
    '<body pos="0 {} {}"><freejoint/><geom size=".1" friction=".4 .01 .001"/></body>'
)
MODELS = {
    "one slides": SPHERE.format(0, 0.095),
    "two slide": SPHERE.format(0, 0.095) + SPHERE.format(0.05, 0.27),
    "limit and dry friction": """
        <body pos="0 0 1"><joint axis="0 1 0" range="-1 -0.1" limited="true"/>
        <geom size=".1" pos=".1 0 .3"/><body pos="0 0 .5"><joint axis="0 1 0"
        frictionloss=".3"/><geom size=".1" pos=".2 0 .1"/></body></body>""",
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.quick_cases("one slides")
def test_of_a_step(name):
    """By velocities and a factor of the masses; forces on elliptic cones are not linear."""
    sys = load_mjcf(f"""<mujoco><option cone="elliptic"/><worldbody>
        <geom type="plane" size="1 1 1"/>{MODELS[name]}</worldbody></mujoco>""")
    pipeline = Generalized()
    q = pipeline.init(sys).q
    weights = jnp.cos(jnp.arange(sys.nv))
    start = jnp.array([3.0, 2.0, 0.0, 1.0, 5.0, 0.5] * 2)[: sys.nv]

    def value(x):
        masses = sys.links.mass * jnp.exp(x[-1])
        robot = eqx.tree_at(lambda s: s.links.mass, sys, masses)
        state = State(q, x[:-1], jnp.zeros(0))
        return weights @ pipeline.step(robot, state, jnp.zeros(0)).qd

    x, slope = jnp.append(start, 0.1), jax.jit(jax.grad(value))
    found = np.asarray(jax.jit(jax.jacfwd(jax.grad(value)))(x))
    step = 1e-6 * np.eye(x.size)
    expected = [(slope(x + dx) - slope(x - dx)) / 2e-6 for dx in step]
    assert np.max(np.abs(found[:-1, :-1])) > 1e-3
    scale = np.max(np.abs(found))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * scale)
    np.testing.assert_allclose(found, found.T, rtol=1e-9, atol=1e-11 * scale)
