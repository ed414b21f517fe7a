"""Shapes given by distance fields, beside MuJoCo's plugins."""

import copy
import dataclasses
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from detection import points_of
from helpers import check_gradients

import eqsim
from eqsim._batching import batch_last
from eqsim._primitive import rows_together
from eqsim.collision import Shape
from eqsim.io import write_mjcf
from eqsim.kinematics.link_motion import Pose
from eqsim.model import (
    AbstractDistanceField,
    Bolt,
    Bowl,
    Gear,
    Nut,
    replace_shape,
    Torus,
)
from eqsim.model.pairs import collider_of
from eqsim.spatial import Mat3, safe_sqrt, Vec3
from eqsim.testing import check_collider, check_kernels, ConformanceError


CONFIGS = {
    "torus": "",
    "bowl": '<config key="height" value=".3"/>',
    "bolt": '<config key="radius" value=".255"/>',
    "nut": "",
    "gear": '<config key="alpha" value=".1"/><config key="teeth" value="20"/>',
    "ring": '<config key="radius1" value=".3"/><config key="radius2" value=".1"/>',
}


def model(first, second, starts=12, iterations=8, turn="", more=""):
    """A fixed shape, a plugin or the attributes of a geom, and a free one."""
    names = [x for x in dict.fromkeys((first, second)) if x in CONFIGS]
    plugins = "".join(
        f'<plugin plugin="mujoco.sdf.{"torus" if name == "ring" else name}">'
        f'<instance name="{name}">{CONFIGS[name]}</instance></plugin>'
        for name in names
    )
    meshes = "".join(
        f'<mesh name="{name}"><plugin instance="{name}"/></mesh>' for name in names
    )

    def geom(text):
        if text not in CONFIGS:
            return f'<geom name="first" {text}/>'
        plugin = f'<plugin instance="{text}"/>'
        return f'<geom name="{text}" type="sdf" mesh="{text}">{plugin}</geom>'

    return f"""
    <mujoco>
      <extension>{plugins}</extension>
      <asset>{meshes}</asset>
      <option sdf_initpoints="{starts}" sdf_iterations="{iterations}"/>
      <worldbody>
        {geom(first)}
        <body name="two" {turn}><freejoint/>{geom(second)}{more}</body>
      </worldbody>
    </mujoco>"""


# First and second shape, mean position of the second, and the accuracy of contacts. Gradients
# of MuJoCo's bolt, bowl, gear and nut are differences over 1e-8, and the steps of a descent
# enlarge their errors. The box contains the corner
# of the other box from which the starts are counted: on a face, rounding decides.
PAIRS = {
    "sphere": ('type="sphere" size=".3"', "torus", (0.3, 0.1, 0.1), 1e-11),
    "capsule": ('type="capsule" size=".1 .3"', "torus", (0.3, 0.1, 0.1), 1e-11),
    "ellipsoid": ('type="ellipsoid" size=".4 .2 .3"', "torus", (0.3, 0.1, 0.1), 1e-11),
    "cylinder": ('type="cylinder" size=".2 .4"', "torus", (0.3, 0.1, 0.1), 1e-11),
    "box": ('type="box" size=".7 .8 .9"', "torus", (0.3, 0.4, 0.4), 1e-11),
    "tori": ("ring", "torus", (0.3, 0.1, 0.1), 1e-11),
    "bowl": ('type="sphere" size=".2"', "bowl", (0.5, 0.3, 0.8), 1e-5),
    "gears": ("gear", "torus", (1.4, 0.3, 0.1), 1e-6),
    "nut": ("bolt", "nut", (0.05, 0.02, 0.1), 1e-6),
}


def configurations(reference, pos, count):
    """Random poses of the second shape, and MuJoCo's contacts."""
    data, rng = mujoco.MjData(reference), np.random.default_rng(0)
    poses, contacts = [], []
    for _ in range(count):
        data.qpos[:3] = pos + 0.05 * rng.normal(size=3)
        data.qpos[3:] = rng.normal(size=4)
        mujoco.mj_forward(reference, data)
        poses.append((data.geom_xpos.copy(), data.geom_xmat.copy()))
        contacts.append(
            [(x.dist, *x.pos, *x.frame[:3]) for x in data.contact[: data.ncon]]
        )
    return poses, contacts


def find(sys, poses):
    """Points of all configurations: values `(count, nslot, 7)`, and which are valid."""
    shapes = []
    for geom in (0, 1):
        pos = np.stack([pos[geom] for pos, _ in poses], axis=1)[:, None]
        rot = np.stack([rot[geom] for _, rot in poses], axis=1)[:, None]
        size = jnp.broadcast_to(sys.geoms.size[geom][:, None, None], pos.shape)
        pose = Pose(Mat3(*jnp.asarray(rot)), Vec3(*jnp.asarray(pos)))
        shapes.append(Shape(pose, Vec3(*size)))
    collider = collider_of(*sys.geoms.kinds)
    points = jax.jit(collider.find)(*shapes, jnp.zeros((1, 1)))
    rows = [jnp.stack([p.dist, *p.pos, *p.normal], axis=-1)[0] for p in points]
    valid = np.stack([p.valid[0] for p in points], axis=1)
    return np.stack(rows, axis=1), valid


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.quick_cases("box", "tori", "nut")
def test_contacts_are_those_of_mujoco(name):
    first, second, pos, accuracy = PAIRS[name]
    reference = mujoco.MjModel.from_xml_string(model(first, second))
    poses, contacts = configurations(reference, pos, 20)
    points, valid = find(eqsim.load_mjcf(reference), poses)
    errors = []
    for expected, found, exists in zip(contacts, points, valid, strict=True):
        assert len(expected) == np.sum(exists)
        errors += [*np.abs(found[exists] - np.reshape(expected, (-1, 7))).max(axis=1)]
    assert len(errors) > 60
    assert np.quantile(errors, 0.9) < accuracy and np.max(errors) < 1e-3


def test_contacts_are_sensitive_to_the_number_of_steps():
    """What MuJoCo reports is where the descent stops: with another number of steps, the
    same contacts are elsewhere by far more than the accuracy above."""
    first, second, pos, _ = PAIRS["sphere"]
    reference = mujoco.MjModel.from_xml_string(model(first, second))
    poses, _ = configurations(reference, pos, 5)
    points, valid = find(eqsim.load_mjcf(reference), poses)
    reference.opt.sdf_iterations += 1
    others, also = find(eqsim.load_mjcf(reference), poses)
    assert np.max(np.abs(points - others)[valid & also]) > 1e-4


@pytest.mark.slow
def test_a_nut_turns_down_a_bolt_as_in_mujoco():
    turn = 'pos="-.001 .003 .83" quat="0 1 -.002 .002"'
    text = model("bolt", "nut", turn=turn)
    text = text.replace('name="bolt" type', 'name="bolt" euler="180 0 0" type')
    reference = mujoco.MjModel.from_xml_string(text)
    data, sys, pipeline = (
        mujoco.MjData(reference),
        eqsim.load_mjcf(reference),
        eqsim.Generalized(),
    )
    state, step = pipeline.init(sys), jax.jit(pipeline.step)
    for _ in range(30):
        mujoco.mj_step(reference, data)
        state = step(sys, state, jnp.zeros(0))
    assert data.ncon > 0
    assert np.allclose(state.q, data.qpos, rtol=0, atol=1e-6)


# Distances are half of depths, so only the law that these grow like the way fails.
@pytest.mark.slow
@pytest.mark.parametrize("name", ("cylinder", "nut", "bowl"))
def test_conformance(name):
    first, second, pos, _ = PAIRS[name]
    text = model(
        first, second, 6, 4, f'pos="{pos[0]} {pos[1]} {pos[2]}" euler="20 30 9"'
    )
    sys = eqsim.load_mjcf(text)
    q = eqsim.Generalized().init(sys).q
    assert eqsim.collision.in_contact(sys, q)
    with pytest.raises(ConformanceError, match=r"1 failed\s*separates:"):
        check_collider(sys, q)


def test_derivatives_by_sizes_and_coordinates():
    sys = eqsim.load_mjcf(
        model(
            'type="sphere" size=".3"', "torus", 4, 3, 'pos=".3 .1 .05" euler="20 30 9"'
        )
    )
    pipeline = eqsim.Generalized()
    state = pipeline.init(sys)

    def velocity(size, q):
        own = eqx.tree_at(lambda s: s.geoms.size, sys, size)
        return pipeline.step(own, dataclasses.replace(state, q=q), jnp.zeros(0)).qd

    assert jnp.any(jax.jacfwd(velocity)(sys.geoms.size, state.q)[:, 1, :2] != 0)
    check_gradients(velocity, sys.geoms.size, state.q)


FIELDS = {
    "torus": (Torus(), (0.35, 0.15, 0.0)),
    "bowl": (Bowl(), (0.4, 1.0, 0.02)),
    "bolt": (Bolt(), (0.26, 0.0, 0.0)),
    "nut": (Nut(), (0.26, 0.0, 0.0)),
    "gear": (Gear(), (2.8, 0.2, 1.7)),
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.quick_cases("bowl", "gear")
def test_fields_are_bounded_and_have_derivatives(name, getkey):
    """The shape lies in its box; gradients are those of the distance, also on the axis,
    where they are finite."""
    field, size = FIELDS[name]
    size = Vec3(*map(jnp.asarray, size))
    half = jnp.stack([*field.extents(size)])
    points = jax.random.uniform(getkey(), (3, 4000), minval=-1.5, maxval=1.5)
    points = points * half[:, None]
    outside = jnp.any(jnp.abs(points) > half[:, None], axis=0)
    dist = field.distance(Vec3(*points), size)
    assert jnp.any(dist < 0) and jnp.all(dist[outside] > 0)

    def distance(point, size):
        return field.distance(Vec3(*point), Vec3(*size))

    near = 0.3 * half + 0.01
    check_gradients(distance, near, jnp.stack([*size]))
    grad = field.value_and_gradient(Vec3(*near), size)[1]
    assert jnp.allclose(
        jnp.stack([*grad]), jax.grad(distance)(near, jnp.stack([*size]))
    )
    on_axis = jax.grad(distance, (0, 1))(near.at[:2].set(0.0), jnp.stack([*size]))
    assert all(jnp.all(jnp.isfinite(x)) for x in on_axis)


@dataclasses.dataclass(frozen=True)
class Ball(AbstractDistanceField):
    """A sphere as a field."""

    def distance(self, point, size):
        return safe_sqrt(point.dot(point)) - size.x

    def extents(self, size):
        return Vec3(size.x, size.x, size.x)


def test_a_field_of_a_user():
    """A sphere as a field touches as MuJoCo's sphere does."""
    sys = eqsim.load_mjcf(
        model(
            'type="sphere" size=".3"', "torus", 6, 4, 'pos=".3 .1 .05" euler="20 30 9"'
        )
    )
    other = replace_shape(sys, "first", Ball(6, 4), (0.3,))
    pipeline = eqsim.Generalized()
    steps = [
        pipeline.step(each, pipeline.init(each), jnp.zeros(0)) for each in (sys, other)
    ]
    assert jnp.any(steps[0].qd[3:] != 0)
    assert jnp.allclose(steps[0].qd, steps[1].qd, rtol=1e-12)
    check_kernels(pipeline.step, other, pipeline.init(other), jnp.zeros(0))


def test_planes():
    """A torus comes to rest on a plane, at a depth of less than a millimeter, as in MuJoCo,
    where a mesh of the torus touches the plane."""
    sys = eqsim.load_mjcf(
        model('type="plane" size="1 1 1"', "torus", 20, 10, 'pos="0 0 .2"')
    )
    pipeline = eqsim.Generalized()
    fall = lambda state, _: (pipeline.step(sys, state, jnp.zeros(0)), None)
    state = jax.jit(lambda state: eqsim.scan(fall, state, jnp.arange(600))[0])(
        pipeline.init(sys)
    )
    assert -1e-3 < state.q[2] - 0.15 < 0.0 and jnp.max(jnp.abs(state.qd)) < 0.02


def test_sizes_differ_between_environments():
    sys = eqsim.load_mjcf(
        model('type="sphere" size=".3"', "torus", 4, 3, 'pos=".4 0 0"')
    )
    pipeline = eqsim.Generalized()

    def speed(radius):
        size = sys.geoms.size.at[1, 1].set(radius)
        own = eqx.tree_at(lambda s: s.geoms.size, sys, size)
        return pipeline.step(own, pipeline.init(own), jnp.zeros(0)).qd[0]

    speeds = jax.jit(jax.vmap(speed))(jnp.array([0.05, 0.15, 0.18]))
    one_by_one = jnp.stack([speed(x) for x in (0.05, 0.15, 0.18)])
    assert jnp.allclose(speeds, one_by_one)
    assert len(set(speeds.tolist())) == 3


def test_options_and_copies():
    """Options and parameters are read; equal files give equal structures."""
    text = model("gear", "ring", 7, 3)
    reference = mujoco.MjModel.from_xml_string(text)
    sys, again = eqsim.load_mjcf(reference), eqsim.load_mjcf(reference)
    gear, ring = sys.geoms.kinds
    assert (gear.starts, gear.iterations, ring.starts) == (7, 3, 7)
    assert (gear.teeth, gear.phase) == (20.0, 0.1)
    assert jnp.allclose(sys.geoms.size[0], jnp.array([2.8, 0.2, 2.8 * 0.6]))
    assert jnp.allclose(sys.geoms.size[1], jnp.array([0.3, 0.1, 0.0]))
    assert jax.tree.structure(sys) == jax.tree.structure(again)
    assert hash(gear) == hash(again.geoms.kinds[0]) and gear != Gear(7, 3)
    for other in (copy.deepcopy(sys), pickle.loads(pickle.dumps(sys))):
        assert other.geoms.kinds == sys.geoms.kinds
    assert "shape ring: torus (0.3, 0.1, 0)" in str(sys)


@pytest.mark.parametrize(
    "word, call",
    (
        ("1 to 50, got 0", lambda sys: Torus(starts=0)),
        ("1 to 50, got 51", lambda sys: Torus(starts=51)),
        ("`iterations`", lambda sys: Bolt(iterations=0)),
        ("TORUS", write_mjcf),
        ("HFIELD", lambda sys: collider_of(eqsim.model.GeomKind.HFIELD, Torus())),
        ("MESH", lambda sys: collider_of(eqsim.model.GeomKind.MESH, Torus())),
    ),
)
def test_errors(word, call):
    sys = eqsim.load_mjcf(model('type="sphere" size=".3"', "torus"))
    with pytest.raises(ValueError, match=word):
        call(sys)


def _dist_and_valid(sys, q):
    dist, _, _, valid, *_ = points_of(sys, q)
    return dist, valid


@pytest.mark.slow
def test_rows_together(monkeypatch):
    """Without kernels, one pair after another and all together, as on a GPU, have equal
    results and derivatives."""
    monkeypatch.setenv("EQSIM_KERNELS", "off")
    sys = eqsim.load_mjcf(
        model("ring", "torus", 3, 2, 'pos=".3 .1 .05" euler="20 30 9"')
    )
    q = eqsim.Generalized().init(sys).q
    q = jnp.stack([q.at[0].add(x) for x in (0.0, 0.02, 0.04)])

    def depth(q):
        dist, *_, valid = batch_last(_dist_and_valid)(sys, q)
        return jnp.sum(jnp.where(valid, dist, 0.0) ** 2)

    found = []
    for together in (False, True):
        with rows_together(together):
            found.append(jax.jit(lambda q: jax.vmap(jax.value_and_grad(depth))(q))(q))
    for one, two in zip(*found, strict=True):
        assert jnp.allclose(one, two, rtol=1e-9, atol=1e-10)
    assert jnp.all(jnp.any(found[0][1] != 0, axis=1))
