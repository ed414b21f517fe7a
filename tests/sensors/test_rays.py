"""Rays against meshes, height fields and ellipsoids, beside MuJoCo's rangefinders."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import solids
from helpers import check_gradients

import eqsim.testing
from eqsim import Generalized, load_mjcf


ROOM = """
<mujoco>{assets}<worldbody>
  <geom {shape} pos=".1 .2 .3" quat="1 .2 .3 .4" {apart}/>
  <body name="eye"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
    <site name="s"/></body></worldbody>
  <sensor><rangefinder name="r" site="s" data="dist normal"/></sensor></mujoco>"""
SHAPES = {
    "mesh": 'type="mesh" mesh="corner"',
    "cube": 'type="mesh" mesh="cube"',
    "hills": 'type="hfield" hfield="hills"',
    "ellipsoid": 'type="ellipsoid" size=".3 .4 .5"',
}
CENTER = np.array([0.1, 0.2, 0.3])


def room(name):
    text = ROOM.format(assets=solids.assets(), shape=SHAPES[name], apart=solids.APART)
    return load_mjcf(text), mujoco.MjModel.from_xml_string(text)


def aimed(rng, count, radius=0.3):
    """Coordinates of an eye, whose z axis leads from outside to a point near the shape."""
    start = rng.normal(size=(count, 3))
    start *= rng.uniform(1.2, 2.0, (count, 1)) / np.linalg.norm(start, axis=1)[:, None]
    ray = rng.uniform(-radius, radius, (count, 3)) - start
    ray /= np.linalg.norm(ray, axis=1)[:, None]
    quat = np.stack([1 + ray[:, 2], -ray[:, 1], ray[:, 0], 0 * ray[:, 0]], -1)
    quat /= np.linalg.norm(quat, axis=1)[:, None]
    return np.concatenate([CENTER + start, quat], -1)


def measure(sys, q):
    pipeline = Generalized()
    return pipeline.sensors(sys, pipeline.init(sys, q=q), jnp.zeros(0))["r"]


MEASURE = eqx.filter_jit(eqx.filter_vmap(measure, in_axes=(None, 0)))


def expected(model, qs):
    data, out = mujoco.MjData(model), []
    for q in qs:
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        out.append(data.sensordata.copy())
    return np.array(out)


@pytest.mark.parametrize("name", SHAPES)
def test_beside_mujoco(name):
    sys, model = room(name)
    q = aimed(np.random.default_rng(0), 500, 0.1 if name == "mesh" else 0.3)
    wanted = expected(model, q)
    assert 150 < np.sum(wanted[:, 0] > 0) < 500
    np.testing.assert_allclose(MEASURE(sys, jnp.asarray(q)), wanted, atol=1e-9)


def test_rays_from_inside():
    """Rays that start inside of a mesh hit it from within."""
    sys, model = room("cube")
    q = aimed(np.random.default_rng(1), 50)
    q[:, :3] = CENTER + np.random.default_rng(2).uniform(-0.15, 0.15, (50, 3))
    wanted = expected(model, q)
    assert np.all(wanted[:, 0] > 0)
    np.testing.assert_allclose(MEASURE(sys, jnp.asarray(q)), wanted, atol=1e-9)


def hits(sys, model, count, seed=3):
    """Coordinates whose rays hit."""
    q = aimed(np.random.default_rng(seed), 40, 0.2)
    return q[expected(model, q)[:, 0] > 0][:count]


@pytest.mark.parametrize("name", ("mesh", "cube", "hills"))
@pytest.mark.quick_cases("cube")
def test_gradients(name):
    """Of distances and normals, by the ray and by vertices, heights and poses."""
    sys, model = room(name)
    q = jnp.asarray(hits(sys, model, 1)[0])

    def value(x, q):
        meshes, fields, pos, quat = x
        where = lambda s: (s.meshes, s.height_fields, s.geoms.pos, s.geoms.quat)
        return measure(eqx.tree_at(where, sys, (meshes, fields, pos, quat)), q)

    parts = sys.meshes, sys.height_fields, sys.geoms.pos, sys.geoms.quat
    arrays, static = eqx.partition(parts, eqx.is_array)
    check_gradients(lambda x, q: value(eqx.combine(x, static), q), arrays, q)
    if name == "hills":
        grad = jax.grad(lambda h: value((parts[0], h, *parts[2:]), q)[0])
        dist = grad(sys.height_fields)
        touched = np.flatnonzero(np.asarray(dist.heights))
        # The corners of one triangle, unless a side is hit.
        assert len(touched) in (0, 3)


def test_terrains_of_a_batch():
    """Each environment may have heights of its own, also on height fields that slope."""
    sys, model = room("hills")
    q = jnp.asarray(hits(sys, model, 4))
    keys = jax.random.split(jax.random.key(0), len(q))
    heights = jax.vmap(lambda k: 0.3 * jax.random.uniform(k, (35,)))(keys)
    place = lambda h: eqx.tree_at(lambda s: s.height_fields.heights, sys, h)
    both = jax.jit(jax.vmap(lambda h, q: measure(place(h), q)))(heights, q)
    for k in range(len(q)):
        model.hfield_data[:] = heights[k] / model.hfield_size[0, 2]
        wanted = expected(model, np.asarray(q[k : k + 1]))[0]
        np.testing.assert_allclose(both[k], wanted, atol=1e-6)


def test_rays_along_lines_of_the_grid():
    """Rays through grid points and edges, straight down, hit the surface."""
    sys, _ = room("hills")
    geoms = eqx.tree_at(
        lambda g: (g.pos, g.quat),
        sys.geoms,
        (jnp.zeros((1, 3)), jnp.array([[1.0, 0.0, 0.0, 0.0]])),
    )
    sys = eqx.tree_at(lambda s: s.geoms, sys, geoms)
    x, y = np.meshgrid(np.linspace(-0.5, 0.5, 7), np.linspace(-0.7, 0.7, 5))
    down = np.tile([0.0, 1.0, 0.0, 0.0], (35, 1))
    q = np.concatenate([x.reshape(-1, 1), y.reshape(-1, 1), np.ones((35, 1)), down], -1)
    # On the border, rounding decides.
    inner = (np.abs(q[:, 0]) < 0.49) & (np.abs(q[:, 1]) < 0.69)
    found = MEASURE(sys, jnp.asarray(q))[inner, 0]
    np.testing.assert_allclose(
        found, (1.0 - sys.height_fields.heights)[inner], atol=1e-9
    )


@pytest.mark.parametrize("name", ("mesh", "hills"))
@pytest.mark.slow  # `make test` runs kernels in all tests.
def test_kernels(name):
    sys, model = room(name)
    eqsim.testing.check_kernels(measure, sys, jnp.asarray(hits(sys, model, 1)[0]))


@pytest.mark.parametrize("always", (0, 4096))
@pytest.mark.quick_cases("0")
def test_a_mesh_with_many_triangles(always, monkeypatch):
    """Triangles are visited in blocks, of large meshes only if a ray is near."""
    monkeypatch.setattr("eqsim.sensors._rays._ALWAYS", always)
    # Two robots, as compiled functions are kept.
    points = np.random.default_rng(0).normal(size=(300 + bool(always), 3))
    points *= 0.3 / np.linalg.norm(points, axis=1, keepdims=True)
    part = f"<asset>{solids.mesh('corner', points)}</asset>"
    text = ROOM.format(assets=part, shape=SHAPES["mesh"], apart=solids.APART)
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    q = aimed(np.random.default_rng(0), 100)
    wanted = expected(model, q)
    np.testing.assert_allclose(MEASURE(sys, jnp.asarray(q)), wanted, atol=1e-9)
