"""Robots on height fields: accelerations, rolling, derivatives, capacity, batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from detection import points_of
from helpers import check_gradients
from trajectories import converged, stacked

from eqsim import Generalized, load_mjcf, State
from eqsim._batching import batch_last
from eqsim.collision import in_contact
from eqsim.io import with_height_field
from eqsim.terrain import with_terrain


HILLS = np.random.default_rng(3).uniform(0, 1, (12, 10))
# One body at a time may have contacts: of `kind` 1 (ball), 2 (box), 4 (capsule).
SCENE = """
<mujoco><option timestep="0.004" ccd_tolerance="1e-12" ccd_iterations="200"/>
  <default><geom margin="1e-6"/></default>
  <asset><hfield name="hills" nrow="12" ncol="10" size="1 1 .15 .1" elevation="{hills}"/>
  </asset>
  <worldbody>
    <geom name="ground" type="{ground}" {data} euler="8 5 0"/>
    {bodies}
  </worldbody>
</mujoco>"""
BODIES = {
    "ball": '<body pos="-.5 .1 .25"><freejoint/><geom size=".09" {masks}/></body>',
    "box": '<body pos=".1 .4 .25" euler="10 5 20"><freejoint/>'
    '<geom type="box" size=".1 .08 .06" {masks}/></body>',
    "capsule": '<body pos=".5 -.3 .25" euler="80 5 20"><freejoint/>'
    '<geom type="capsule" size=".06 .1" {masks}/></body>',
}


def text(names=tuple(BODIES), ground="hfield"):
    masks = 'contype="0" conaffinity="1"'
    return SCENE.format(
        hills=" ".join(map(str, HILLS.ravel())),
        ground=ground,
        data='hfield="hills"' if ground == "hfield" else 'size="1 1 1"',
        bodies="".join(BODIES[name].format(masks=masks) for name in names),
    )


detected = batch_last(points_of)


def fallen(model, steps):
    """MuJoCo's state after some steps."""
    data = mujoco.MjData(model)
    for _ in range(steps):
        mujoco.mj_step(model, data)
    return data


def rough(model):
    """States in which the bodies touch the ground."""
    return [fallen(model, steps) for steps in (20, 40, 60, 80, 120, 160)]


@pytest.mark.slow  # `test_height_fields.py` has the contacts.
def test_accelerations():
    scene = text()
    sys, model = load_mjcf(scene), converged(mujoco.MjModel.from_xml_string(scene))
    found = rough(model)
    q, qd, act, ctrl = stacked(found)
    solve = lambda q, qd, act, ctrl: Generalized().solve(sys, State(q, qd, act), ctrl)
    solved = jax.jit(jax.vmap(solve))(q, qd, act, ctrl)
    assert np.all(solved.converged)
    assert sum(data.ncon for data in found) > 20
    for data, own in zip(found, np.asarray(solved.qdd), strict=True):
        mujoco.mj_forward(model, data)
        size = max(1.0, np.max(np.abs(data.qacc)))
        np.testing.assert_allclose(own, data.qacc, rtol=0, atol=1e-5 * size)


def test_flat_terrain_is_a_plane():
    """A ball that touches one triangle is accelerated as by a plane."""
    terrain, plane = (load_mjcf(text(("ball",), ground=g)) for g in ("hfield", "plane"))
    flat = eqx.tree_at(lambda s: s.height_fields.heights, terrain, jnp.zeros(120))
    model = mujoco.MjModel.from_xml_string(text(("ball",), ground="plane"))
    ground = mujoco.MjData(model)
    mujoco.mj_kinematics(model, ground)
    rng = np.random.default_rng(0)
    # Over the middle of a triangle.
    local = np.array([0.275, 0.149, 0.085]) + 0.003 * rng.normal(size=(20, 3))
    pos = local @ ground.geom_xmat[0].reshape(3, 3).T
    q = jnp.asarray(np.c_[pos, np.tile([1.0, 0, 0, 0], (20, 1))])
    qd, none = jnp.asarray(rng.normal(size=(20, 6))), jnp.zeros(0)

    def acceleration(sys, q, qd):
        return Generalized().acceleration(sys, State(q, qd, none), none)

    solve = jax.jit(jax.vmap(acceleration, (None, 0, 0)))
    found = [np.asarray(solve(sys, q, qd)) for sys in (flat, plane)]
    assert np.max(np.abs(found[1])) > 20.0
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.quick_cases("capsule")
def test_gradients(name):
    """Of the points that touch, by heights, sizes of the terrain, and poses."""
    scene = text((name,))
    sys, model = load_mjcf(scene), mujoco.MjModel.from_xml_string(scene)
    data = next(d for d in map(lambda k: fallen(model, k), range(10, 200)) if d.ncon)
    where = lambda s: (s.height_fields.heights, s.height_fields.size)

    def touching(heights, size, q):
        other = eqx.tree_at(where, sys, (heights, size))
        dist, pos, normal, valid, _ = detected(other, q)
        keep = (valid & (dist < 0.0))[:, None]
        return [jnp.where(keep, x, 0.0) for x in (dist[:, None], pos, normal)]

    arguments = *where(sys), jnp.asarray(data.qpos)
    largest = check_gradients(touching, *arguments, atol=1e-5)
    assert all(value > 0.0 for value in largest.values())


def test_terrains_are_a_batch():
    """Each environment has its own terrain; nothing is compiled for another one."""
    sys, count = load_mjcf(text(("ball",))), 8
    terrains = jax.random.uniform(jax.random.key(0), (count, 120), maxval=0.1)
    state, traces = Generalized().init(sys), []

    @jax.jit
    @jax.vmap
    def height(terrain):
        traces.append(0)
        own = eqx.tree_at(lambda s: s.height_fields.heights, sys, terrain)
        step = lambda state, _: (Generalized().step(own, state, jnp.zeros(0)), None)
        return jax.lax.scan(step, state, None, 150)[0].q

    found = height(terrains)
    assert len(np.unique(np.round(found[:, 2], 6))) == count
    alone = jnp.concatenate(
        [height(terrains[k : k + 1].repeat(8, 0))[:1] for k in (1, 5)]
    )
    np.testing.assert_allclose(alone, found[np.array([1, 5])], rtol=0, atol=1e-9)
    assert len(traces) == 1


def test_large_fields():
    """Heights of a field with more than a million points are read up to the last one."""
    ball = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
    <body><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
    spec = with_height_field(ball, 1100, 1000, (10.0, 11.0))
    heights = jnp.zeros((1100, 1000)).at[-60:, -60:].set(0.5)
    sys, touches = with_terrain(load_mjcf(spec), heights), jax.jit(in_contact)
    place = lambda x, y, z: jnp.array([x, y, z, 1.0, 0.0, 0.0, 0.0])
    assert touches(sys, place(4.9, 5.4, 0.59)) and touches(sys, place(0.0, 0.0, 0.09))
    assert not touches(sys, place(4.9, 5.4, 0.61))
    assert not touches(sys, place(0.0, 0.0, 0.11))


@pytest.mark.slow
def test_capacity():
    """The deepest contacts are kept, and the solver says that some are missing."""
    scene = text(("box",))
    model = mujoco.MjModel.from_xml_string(scene)
    data = next(
        d for d in map(lambda k: fallen(model, k), range(10, 300)) if d.ncon > 3
    )
    mujoco.mj_forward(model, data)
    q, qd, act, ctrl = (x[0] for x in stacked([data]))
    found = {}
    for capacity in (2, data.ncon, 40):
        sys = load_mjcf(scene, height_field_contacts=capacity)
        found[capacity] = Generalized().solve(sys, State(q, qd, act), ctrl)
        assert len(found[capacity].contacts.geoms) == capacity
        assert found[capacity].contacts.count == min(capacity, data.ncon)
    assert not found[2].converged
    assert found[data.ncon].converged and found[40].converged
    np.testing.assert_allclose(found[40].qdd, found[data.ncon].qdd, rtol=1e-9)
    depth = found[40].contacts.dist[:2]
    np.testing.assert_allclose(found[2].contacts.dist, depth, atol=1e-12)
    with pytest.raises(ValueError, match="height_field_contacts"):
        load_mjcf(scene, height_field_contacts=0)
