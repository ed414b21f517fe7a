"""Contact points of each pair of shapes beside those of MuJoCo C, in random poses."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients
from scipy.spatial.transform import Rotation

import eqsim
from eqsim._batching import batch_last
from eqsim.collision import Shape
from eqsim.collision.detection import nearest_points, pair_points
from eqsim.collision.primitives import _nearest
from eqsim.kinematics.link_motion import Pose
from eqsim.model import GeomKind
from eqsim.model.pairs import touching_kinds
from eqsim.spatial import Mat3, Vec3
from eqsim.spatial.vectors import stack


SIZES = {
    GeomKind.PLANE: "1 1 1",
    GeomKind.SPHERE: ".12",
    GeomKind.CAPSULE: ".07 .2",
    GeomKind.ELLIPSOID: ".1 .15 .2",
    GeomKind.CYLINDER: ".15 .1",
    GeomKind.BOX: ".1 .15 .2",
}
MODEL = """
<mujoco>
  <default><geom margin=".2"/></default>
  <worldbody>{}<body><freejoint/><geom type="{}" size="{}"/></body></worldbody>
</mujoco>"""
# MuJoCo finds the points of this pair by iteration, to a tolerance.
ITERATED = (GeomKind.CAPSULE, GeomKind.CYLINDER)


def is_smooth(kinds):
    """Whether MuJoCo's normal has the root of the error of its distance."""
    others = (
        (GeomKind.CYLINDER, GeomKind.CYLINDER),
        (GeomKind.CYLINDER, GeomKind.BOX),
    )
    ellipsoid = GeomKind.ELLIPSOID in kinds and GeomKind.PLANE not in kinds
    return ellipsoid or kinds in others


MARGIN = 0.4
# Of these, see `test_meshes.py`, `test_manifold.py` and `test_height_fields.py`.
OTHERS = {GeomKind.MESH, GeomKind.HFIELD}
SIMPLE = [kinds for kinds in touching_kinds() if not OTHERS & set(kinds)]


def model_of(kinds):
    one, two = kinds
    first = f'<geom type="{one.name.lower()}" size="{SIZES[one]}"/>'
    if one is not GeomKind.PLANE:
        first = f"<body><freejoint/>{first}</body>"
    else:
        first = first.replace("/>", ' euler="20 -10 0" pos=".1 0 .05"/>')
    model = mujoco.MjModel.from_xml_string(
        MODEL.format(first, two.name.lower(), SIZES[two])
    )
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MULTICCD
    model.opt.ccd_tolerance, model.opt.ccd_iterations = 1e-12, 500
    return model


def poses(model, count):
    """What MuJoCo says in random poses, with contacts near and far."""
    rng, out = np.random.default_rng(0), []
    for _ in range(count):
        data = mujoco.MjData(model)
        data.qpos[:] = 0.2 * rng.normal(size=model.nq)
        for start in range(3, model.nq, 7):
            data.qpos[start : start + 4] = rng.normal(size=4)
        mujoco.mj_forward(model, data)
        out.append(data)
    return out


def shape(model, data, geom):
    """One shape in all poses, as the functions under test want it."""
    pos = np.stack([d.geom_xpos[geom] for d in data], axis=1)
    rot = np.stack([d.geom_xmat[geom] for d in data], axis=1)
    size = np.repeat(model.geom_size[geom][:, None], len(data), axis=1)
    vector = lambda x: Vec3(*map(jnp.asarray, x))
    return Shape(Pose(Mat3(*map(jnp.asarray, rot)), vector(pos)), vector(size))


@batch_last
def points(kinds, one, two):
    """Distance, position, frame, and whether it counts: `(point, pose, ...)`.

    Of cylinders, the single point that MuJoCo has without `multiccd`."""
    find = nearest_points if GeomKind.CYLINDER in kinds else pair_points
    rows = []
    for p in find(kinds, one, two):
        vectors = [Vec3(*p.frame[3 * k : 3 * k + 3]) for k in range(3)]
        full = jnp.stack([stack(v) for v in vectors], axis=1)
        rows.append((p.dist, stack(p.pos), full, p.valid))
    return tuple(jnp.stack(x) for x in zip(*rows))


def axis_is_inside(dist):
    """Whether the axis of a capsule enters a cylinder."""
    return dist < -0.07


def name(kinds):
    return "-".join(kind.name.lower() for kind in kinds)


@pytest.mark.parametrize("kinds", SIMPLE, ids=name)
@pytest.mark.quick_cases(
    # `test_pairs.py` has the others.
    "plane-sphere",
    "plane-capsule",
    "plane-cylinder",
    "plane-box",
    "sphere-sphere",
    "sphere-capsule",
    "sphere-ellipsoid",
    "capsule-cylinder",
    "ellipsoid-box",
)
def test_points(kinds):
    model = model_of(kinds)
    data = poses(model, 60)
    shapes = (shape(model, data, 0), shape(model, data, 1))
    dist, pos, frame, valid = map(np.asarray, points(kinds, *shapes))
    smooth = is_smooth(kinds)
    iterated = smooth or kinds == ITERATED
    atol = 1e-5 if iterated else 1e-12
    near, deep, inside = 0, 0, 0
    for k, d in enumerate(data):
        left = [i for i in range(len(dist)) if valid[i, k] and dist[i, k] < MARGIN]
        inside += kinds == ITERATED and axis_is_inside(dist[0, k])
        assert len(left) == d.ncon
        for contact in d.contact:
            gap = [np.abs(pos[i, k] - contact.pos).max() for i in left]
            i = left.pop(int(np.argmin(gap)))
            close = lambda a, b, share=1.0: np.testing.assert_allclose(
                a, b, 0, atol * share
            )
            close(dist[i, k], contact.dist)
            close(pos[i, k], contact.pos, 10.0 if smooth else 1.0)
            rows = 1 if iterated else 3
            own = contact.frame.reshape(3, 3)[:rows]
            close(frame[i, k][:rows], own, 200.0 if smooth else 1.0)
            near += contact.dist > 0
            deep += contact.dist < 0
    assert near > 5 and deep > 5
    assert inside > 5 or kinds != ITERATED


# `test_kit.py` has all pairs.
@pytest.mark.parametrize(
    "kinds",
    (
        (GeomKind.PLANE, GeomKind.CYLINDER),
        (GeomKind.SPHERE, GeomKind.BOX),
        (GeomKind.SPHERE, GeomKind.ELLIPSOID),
        (GeomKind.CAPSULE, GeomKind.BOX),
    ),
    ids=name,
)
@pytest.mark.quick_cases("sphere-ellipsoid", "capsule-box")
def test_gradients(kinds):
    model = model_of(kinds)
    data = poses(model, 7)
    fn = lambda one, two: points(kinds, one, two)[:3]
    shapes = shape(model, data, 0), shape(model, data, 1)
    check_gradients(fn, *shapes, rtol=1e-4, eps=1e-7)


def test_gradient_of_an_axis_inside_a_cylinder():
    """Through a cap, through the mantle, and across a rim."""
    model = model_of(ITERATED)
    # A wide and flat cylinder: the ways out through a cap and the mantle count too.
    model.geom_size[1][:2] = 0.2, 0.15
    data = poses(model, 150)
    both = lambda data: tuple(shape(model, data, k) for k in range(2))
    dist, _, frame, _ = map(np.asarray, points(ITERATED, *both(data)))
    found = [k for k in range(len(data)) if axis_is_inside(dist[0, k])]
    axes = np.stack([data[k].geom_xmat[1][2::3] for k in found])
    along = np.abs(np.sum(axes * frame[0, found, 0], axis=1))
    kinds = along > 1 - 1e-9, along < 1e-9
    assert np.any(kinds[0]) and np.any(kinds[1]) and not np.all(kinds[0] | kinds[1])
    fn = lambda one, two: points(ITERATED, one, two)[:3]
    shapes = both([data[k] for k in found])
    check_gradients(fn, *shapes, rtol=1e-4, eps=1e-7)


def at(kind, pos, axis=(0.0, 0.0, 1.0)):
    """One shape with its z axis along `axis`."""
    axis = np.array(axis) / np.linalg.norm(axis)
    x = np.cross([0.3, 1.0, 0.2], axis)
    x /= np.linalg.norm(x)
    rot = np.stack([x, np.cross(axis, x), axis], axis=1)
    size = np.zeros(3)
    given = np.array(SIZES[kind].split(), float)
    size[: given.size] = given
    vector = lambda v: Vec3(*(jnp.asarray([float(c)]) for c in v))
    rot = Mat3(*(jnp.asarray([float(c)]) for c in rot.ravel()))
    return Shape(Pose(rot, vector(pos)), vector(size))


# `test_pairs.py` has other pairs in degenerate configurations.
DEGENERATE = {
    "concentric spheres": ("SPHERE", (0, 0, 0), "SPHERE", (0, 0, 0)),
    "center on the axis": ("SPHERE", (0, 0, 0.1), "CAPSULE", (0, 0, 0)),
    "upright cylinder": ("PLANE", (0, 0, 0), "CYLINDER", (0, 0, 0.09)),
    "upright box": ("PLANE", (0, 0, 0), "BOX", (0, 0, 0.19)),
    "upright capsule": ("PLANE", (0, 0, 0), "CAPSULE", (0, 0, 0.25)),
    "capsule on the axis": ("CAPSULE", (0, 0, 0.35), "CYLINDER", (0, 0, 0)),
    "capsule in a cylinder": ("CAPSULE", (0, 0, 0), "CYLINDER", (0, 0, 0)),
}


@pytest.mark.parametrize(
    "kinds", sorted({(a, b) for a, _, b, _ in DEGENERATE.values()}), ids="-".join
)
@pytest.mark.quick_cases("SPHERE-CAPSULE", "SPHERE-SPHERE")
def test_degenerate(kinds):
    """Values and derivatives stay finite, and frames orthogonal."""
    cases = [x for x in DEGENERATE.values() if (x[0], x[2]) == kinds]
    kinds = GeomKind[kinds[0]], GeomKind[kinds[1]]
    pairs = [(at(kinds[0], one), at(kinds[1], two)) for _, one, _, two in cases]
    shapes = jax.tree.map(lambda *xs: jnp.concatenate(xs), *pairs)

    def total(shapes):
        found = points(kinds, *shapes)[:3]
        return sum(jnp.sum(x) for x in found), found

    gradient, (dist, pos, frame) = jax.grad(total, has_aux=True)(shapes)
    assert np.all(np.isfinite(dist)) and np.all(np.isfinite(pos))
    for matrix in np.asarray(frame).reshape(-1, 3, 3):
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradient))


def test_derivative_beside_the_edge_of_a_cylinder():
    """The nearest point of an axis 1e-5 m above the edge, where the slope of the distance
    has a kink: its derivative is that of one side."""
    radius, half, out, above = 0.15, 0.1, 0.03, 1e-5
    axis = np.array([-above * 0.15 / out, 0.1, 0.15])
    center = np.array([radius + out, 0.0, half + above]) - 0.3 * axis

    def nearest(center, axis):
        return _nearest(
            Vec3(*center), Vec3(*axis), jnp.asarray(radius), jnp.asarray(half)
        )

    assert np.isclose(nearest(center, axis), 0.3, atol=1e-12)
    exact = jax.jit(jax.jacfwd(nearest, (0, 1)))(*map(jnp.asarray, (center, axis)))
    both, eps = np.concatenate([center, axis]), 1e-7
    moved = jax.jit(jax.vmap(lambda x: nearest(x[:3], x[3:])))
    ends = [moved(jnp.asarray(both + side * eps * np.eye(6))) for side in (1, -1)]
    difference = (ends[0] - ends[1]) / (2 * eps)
    np.testing.assert_allclose(np.concatenate(exact), difference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", (jnp.float32, jnp.float64))
def test_parallel_capsules_with_rounding(dtype):
    """Turned capsules are parallel only but for rounding."""
    turn = Rotation.from_euler("xyz", [0.3, 1, 2]).as_matrix()
    rotation = Mat3(*(jnp.asarray(x)[None] for x in np.ravel(turn)))
    size = Vec3(*(jnp.full(1, x) for x in (0.07, 0.2, 0.0)))
    across, along = rotation.columns[0], rotation.columns[2]
    place = lambda a, b: Shape(Pose(rotation, (across * a) + (along * b)), size)
    shapes = jax.tree.map(lambda x: x.astype(dtype), (place(0.1, 0.1), place(0.0, 0.0)))
    dist, pos, _, _ = points((GeomKind.CAPSULE, GeomKind.CAPSULE), *shapes)
    np.testing.assert_allclose(dist, [[-0.04]] * 2, atol=1e-6)
    ends = [stack((across * 0.05) + (along * z)) for z in (0.2, -0.1)]
    np.testing.assert_allclose(pos, np.stack(ends), atol=1e-6)


def test_crossing_capsules():
    """The axes meet: the normal is at right angles to both, as MuJoCo has it."""
    text = """
    <mujoco><default><geom type="capsule" size=".07 .2"/></default><worldbody>
      <body pos=".02 0 0" euler="0 70 0"><freejoint/><geom/></body>
      <body pos="0 0 .01" euler="0 20 0"><freejoint/><geom/></body>
    </worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.ncon == 1
    assert data.contact[0].dist == pytest.approx(-0.14, abs=1e-12)
    sys, pipeline = eqsim.load_mjcf(text), eqsim.Generalized()
    state = pipeline.init(sys, jnp.asarray(data.qpos))
    found = pipeline.contacts(sys, state, jnp.zeros(0))
    np.testing.assert_allclose(found.frame[0, 0], data.contact[0].frame[:3], atol=1e-12)
    np.testing.assert_allclose(found.pos[0], data.contact[0].pos, atol=1e-12)


def test_flat_cylinder():
    """A wheel: its lowest points move along the axis when it tilts."""
    kinds = GeomKind.PLANE, GeomKind.CYLINDER
    plane = at(kinds[0], (0, 0, 0))

    def lowest(angle):
        cos, sin = jnp.cos(angle)[None], jnp.sin(angle)[None]
        zero, one = jnp.zeros(1), jnp.ones(1)
        # Turned by a right angle, and `angle`, about y.
        rotation = Mat3(-sin, zero, cos, zero, one, zero, -cos, zero, -sin)
        pose = Pose(rotation, Vec3(zero, zero, one * 0.14))
        dist, pos, _, _ = points(
            kinds, plane, Shape(pose, at(kinds[1], (0, 0, 0)).size)
        )
        # Which of the two rims is the lower one changes here; their sum does not.
        return jnp.sum(dist[:2], axis=0), jnp.sum(pos[:2], axis=0)

    check_gradients(lowest, jnp.array(0.0))


def test_an_upright_cylinder_in_single_precision():
    """Rounding of a tilt and back does not decide where on the rim contacts are."""
    text = """
    <mujoco>
      <worldbody>
        <geom type="plane" size="1 1 .1"/>
        <body pos="0 0 .095"><joint axis="1 0.3 0"/>
          <geom type="box" size=".01 .01 .01" contype="0" conaffinity="0"/>
          <body><joint axis="1 0.3 0"/><geom type="cylinder" size=".2 .1"/></body>
        </body>
      </worldbody>
    </mujoco>"""
    found = {}
    for x64 in (True, False):
        with jax.enable_x64(x64):
            sys, pipeline = eqsim.load_mjcf(text), eqsim.Generalized()
            state = pipeline.init(sys, jnp.array([0.3, -0.3]))
            solved = pipeline.solve(sys, state, jnp.zeros(0))
            # Contacts that are equally deep are in any order.
            pos = np.asarray(solved.contacts.pos)
            found[x64] = pos[np.lexsort(np.round(pos, 4).T)]
    np.testing.assert_allclose(found[False], found[True], atol=1e-6)
