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
from eqsim.collision._field_contacts import _repeated, _Touch
from eqsim.io import load, save, write_mjcf
from eqsim.kinematics.link_motion import Pose
from eqsim.model import (
    AbstractDistanceField,
    Bolt,
    Bowl,
    Gear,
    Nut,
    pairs,
    replace_shape,
    Torus,
    validate,
)
from eqsim.model.distance_fields import _azimuth
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
    "pinion": (Gear(teeth=5.0), (2.8, 0.2, 0.2)),
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.quick_cases("bowl", "pinion")
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
        ("`box`", lambda sys: Nut(box=(0.0, 0.0, 0.0, 1.0, 0.0, 1.0))),
        ("at least 3, got 2.0", lambda sys: Gear(teeth=2.0)),
        ("BALL have no MJCF", lambda sys: write_mjcf(with_balls(sys, 3))),
        ("'first', 'torus'", lambda sys: write_mjcf(with_torus(sys, 3))),
        ("negative", lambda sys: validate(with_torus(sys, 12, (jnp.inf, 0.1)))),
        ("HFIELD", lambda sys: collider_of(eqsim.model.GeomKind.HFIELD, Torus())),
        ("MESH", lambda sys: collider_of(eqsim.model.GeomKind.MESH, Torus())),
    ),
)
def test_errors(word, call):
    sys = eqsim.load_mjcf(model('type="sphere" size=".3"', "torus"))
    with pytest.raises(ValueError, match=word):
        call(sys)


def with_torus(sys, starts, size=(0.3, 0.1)):
    return replace_shape(sys, "first", Torus(starts, 8), size)


def with_balls(sys, starts):
    sys = replace_shape(sys, "first", Ball(starts), (0.3,))
    return replace_shape(sys, "torus", Ball(starts), (0.2,))


SENSED = """
<mujoco>
  <option density="1"/>
  <worldbody>
    <geom name="ground" type="plane" size="1 1 1"/>
    <geom name="wall" size=".1" pos="3 0 0"/>
    <body name="ball">
      <freejoint/>
      <geom name="ball" size=".1"/>
      <geom name="fin" size=".1" fluidshape="ellipsoid" contype="0" conaffinity="0"/>
    </body>
    <body name="eye" pos="0 0 2"><site name="eye" zaxis="0 0 -1"/></body>
  </worldbody>
  <sensor>
    <{} geom1="ground" {}="ball"/>
    <rangefinder name="ray" site="eye"/>
  </sensor>
</mujoco>"""


@pytest.mark.parametrize("kind", ("distance", "normal", "fromto"))
def test_sensors_of_distances_need_known_ones(kind):
    """Of a shape or of all shapes of a link; other shapes can be replaced."""
    for target in ("geom2", "body2"):
        text = SENSED.format(f'{kind} name="gap"', target)
        sys = eqsim.load_mjcf(text)
        with pytest.raises(ValueError, match="'gap'.*'ball'.*PLANE and TORUS"):
            replace_shape(sys, "ball", Torus(), (0.3, 0.1))
        assert replace_shape(sys, "wall", Torus(), (0.3, 0.1)).sensors is sys.sensors
        replace_shape(sys, "ball", eqsim.model.GeomKind.BOX, (0.3, 0.1, 0.1))


def test_no_fluid_forces():
    sys = eqsim.load_mjcf(SENSED.format('distance name="gap"', "geom2"))
    with pytest.raises(ValueError, match="'fin' feels a fluid.*TORUS"):
        replace_shape(sys, "fin", Torus(), (0.3, 0.1))


def test_rays_pass_through():
    """As after loading from a file, of which a note says so."""
    text = SENSED.format('distance name="gap"', "geom2").replace('name="wall"', "")
    text = text.replace('pos="3 0 0"', 'name="wall" pos="0 0 1"')
    sys, pipeline = eqsim.load_mjcf(text), eqsim.Generalized()
    heights = [
        eqsim.sensors.cast_rays(
            each, pipeline.init(each).q, jnp.array([[0.0, 0.0, 2.0]]), DOWN
        ).distance[0]
        for each in (sys, replace_shape(sys, "wall", Torus(), (0.3, 0.1)))
    ]
    assert jnp.allclose(jnp.stack(heights), jnp.array([0.9, 2.0]))


DOWN = jnp.array([[0.0, 0.0, -1.0]])


def five_fields():
    """A bowl whose rim is below its center, and the other fields, each on a link."""
    parts = dict(FIELDS, bowl=(Bowl(), (-0.3, 1.0, 0.02)))
    bodies = "".join(
        f'<body pos="{3 * k} 0 0"><freejoint/><geom name="{name}" size=".1" '
        'mass="1" pos=".1 .2 .3" quat=".5 .5 -.5 .5"/></body>'
        for k, name in enumerate(parts)
    )
    sys = eqsim.load_mjcf(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    for name, (kind, size) in parts.items():
        kind = dataclasses.replace(kind, starts=7, iterations=3)
        sys = replace_shape(sys, name, kind, size)
    return validate(sys)


def test_files():
    """Fields are written as plugins of MuJoCo, with its boxes, and saved with their own."""
    sys = five_fields()
    again = eqsim.load_mjcf(write_mjcf(sys))
    plain = lambda kind: dataclasses.replace(kind, box=Torus.box)
    assert [*map(plain, again.geoms.kinds)] == [*sys.geoms.kinds]
    for field in ("size", "pos", "quat"):
        one, two = (vars(each.geoms)[field] for each in (sys, again))
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)
    third = eqsim.load_mjcf(write_mjcf(again))
    assert third.geoms.kinds == again.geoms.kinds != sys.geoms.kinds


def test_saving(tmp_path):
    """The structure of MuJoCo's fields is stored; other fields need `like`."""
    sys = eqsim.load_mjcf(model("gear", "ring", 7, 3))
    save(tmp_path / "gear", sys)
    again = load(tmp_path / "gear")
    assert jax.tree.structure(again) == jax.tree.structure(sys)
    balls = with_balls(eqsim.load_mjcf(model('type="box" size="1 1 1"', "torus")), 3)
    save(tmp_path / "balls", balls)
    with pytest.raises(ValueError, match="like=tree"):
        load(tmp_path / "balls")
    found = load(tmp_path / "balls", like=balls)
    assert found.geoms.kinds == balls.geoms.kinds
    assert jnp.all(found.geoms.size == balls.geoms.size)


def test_the_axis_has_no_azimuth():
    """Where the azimuth is not defined, it is zero, with derivatives of zero."""
    size = Vec3(*map(jnp.asarray, FIELDS["gear"][1]))
    on_axis = lambda y: _azimuth(Vec3(jnp.zeros(()), y, size.z))
    assert jax.value_and_grad(on_axis)(jnp.zeros(())) == (0.0, 0.0)


def test_colliders_are_not_collected():
    """Each field is a kind of its own, and a study may use many."""
    registered = len(pairs._REGISTRY), len(pairs._USED)
    for starts in range(1, 21):
        collider_of(eqsim.model.GeomKind.BOX, Torus(starts, 3))
    one, two = (collider_of(eqsim.model.GeomKind.BOX, Torus(20, 3)) for _ in range(2))
    assert one is two and len(pairs._REGISTRY) == registered[0]
    assert len(pairs._USED) <= registered[1] + 1


def test_starts_that_meet_are_one_contact():
    """Up to rounding in the precision of the robot."""
    for dtype, near in ((jnp.float32, 1e-7), (jnp.float64, 3e-16)):
        x = jnp.array([0.5, 0.5 + 1e-5, 0.5 + near], dtype)
        assert x[0] != x[2]
        zero, valid = jnp.zeros_like(x), x == x
        found = _Touch(Vec3(x, zero, zero), zero, Vec3(zero, zero, zero), valid)
        assert _repeated(found).tolist() == [False, False, True]


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
