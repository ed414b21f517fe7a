"""Steps and gradients as on a GPU, with more near pairs than a chunk has lanes, beside those
of kernels."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim._primitive import rows_together


SHAPES = {
    "box": 'type="box" size=".1 .08 .12"',
    "cylinder": 'type="cylinder" size=".1 .1"',
    "hull": 'type="mesh" mesh="small"',
    "large hull": 'type="mesh" mesh="large"',
    "capsule": 'type="capsule" size=".06 .1"',
}
SCENE = """
<mujoco>
  <option cone="{cone}"/>
  <asset><mesh name="small" vertex="{small}"/><mesh name="large" vertex="{large}"/></asset>
  <worldbody>
    <geom type="plane" size="5 5 1"/><geom type="box" size=".3 .3 .1" pos="0 0 .1"/>
    {bodies}
  </worldbody>
</mujoco>"""


def hull(count):
    points = np.random.default_rng(count).normal(size=(count, 3))
    points *= 0.12 / np.linalg.norm(points, axis=1, keepdims=True)
    return " ".join(f"{x:.5f}" for x in points.ravel())


def scene(shapes, cone):
    body = '<body><freejoint/><geom {} density="300"/></body>'
    bodies = "".join(body.format(SHAPES[name]) for name in shapes)
    text = SCENE.format(cone=cone, small=hull(30), large=hull(300), bodies=bodies)
    rng = np.random.default_rng(0)
    q = rng.normal(size=(6, len(shapes), 7))
    q[..., :3] = rng.uniform(-0.15, 0.15, (6, len(shapes), 3)) + [0, 0, 0.3]
    q[..., 3:] /= np.linalg.norm(q[..., 3:], axis=-1, keepdims=True)
    qd = 0.1 * rng.normal(size=(6, 6 * len(shapes)))
    return eqsim.load_mjcf(text), jnp.asarray(q.reshape(6, -1)), jnp.asarray(qd)


def steps(sys, q, qd):
    none = jnp.zeros(0)
    one = lambda q, qd: eqsim.Generalized().step(sys, eqsim.State(q, qd, none), none)
    new = jax.vmap(one)(q, qd)
    return new.q, new.qd


def loss(sys, friction, q, qd):
    sys = eqx.tree_at(lambda sys: sys.geoms.friction, sys, friction)
    return sum(jnp.sum(x**2) for x in steps(sys, q, qd))


def both(function, given, monkeypatch):
    """Return the results of kernels and of lanes."""
    run = lambda: jax.tree.map(np.asarray, jax.jit(lambda *xs: function(*xs))(*given))
    kernels = run()
    monkeypatch.setenv("EQSIM_KERNELS", "off")
    monkeypatch.setattr("eqsim._lists.MOST_LANES", 4)
    monkeypatch.setattr("eqsim._lists.MOST_IN_NEED", 2)
    with rows_together():
        return kernels, run()


@pytest.mark.slow
@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
@pytest.mark.parametrize(
    "shapes", (("box", "hull"), ("cylinder", "cylinder"), ("large hull", "capsule"))
)
def test_steps(shapes, cone, monkeypatch):
    sys, q, qd = scene(shapes, cone)
    kernels, lanes = both(ft.partial(steps, sys), (q, qd), monkeypatch)
    for one, two in zip(kernels, lanes, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_gradients(monkeypatch):
    sys, q, qd = scene(("box", "hull"), "pyramidal")
    gradient = jax.grad(ft.partial(loss, sys), (0, 1, 2))
    given = sys.geoms.friction, q, qd
    kernels, lanes = both(gradient, given, monkeypatch)
    for one, two in zip(kernels, lanes, strict=True):
        assert np.any(one)
        np.testing.assert_allclose(two, one, rtol=1e-7, atol=1e-8)
