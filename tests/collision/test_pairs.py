"""Analytic pairs of shapes beside MuJoCo C, in random configurations of each category."""

import collections
import functools as ft
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import check_gradients
from scipy.spatial.transform import Rotation

from eqsim.collision import Shape
from eqsim.kinematics.link_motion import Pose
from eqsim.model import GeomKind
from eqsim.model.pairs import collider_of
from eqsim.spatial import Mat3, Vec3
from eqsim.spatial.vectors import stack


MARGIN = 0.05
K = GeomKind
PAIRS = (
    (K.SPHERE, K.CYLINDER),
    (K.SPHERE, K.BOX),
    (K.PLANE, K.ELLIPSOID),
    (K.CAPSULE, K.CAPSULE),
    (K.CAPSULE, K.BOX),
    (K.BOX, K.BOX),
)
# An explicit pair, so that no broad phase decides.
MODEL = """
<mujoco>
  <worldbody>
    <body name="one">{}<geom name="one" {} contype="0" conaffinity="0"/></body>
    <body name="two"><freejoint/><geom name="two" {} contype="0" conaffinity="0"/></body>
  </worldbody>
  <contact><pair geom1="one" geom2="two" margin="{}"/></contact>
</mujoco>"""
NUMBER_OF_SIZES = {K.PLANE: 0, K.SPHERE: 1, K.CAPSULE: 2, K.CYLINDER: 2}
RIGHT_ANGLES = Rotation.create_group("O").as_quat(scalar_first=True)


class Configurations(NamedTuple):
    """Positions, quaternions and sizes of both shapes: `(count, 2, 3 or 4)`."""

    pos: np.ndarray
    quat: np.ndarray
    size: np.ndarray


def draw(kinds, category, count, seed=0):
    """Configurations of a category.

    `random`: separated, touching and deep, in any orientation. `parallel`: right angles;
    `turned`: one common axis; `tilted`: nearly parallel. `edges`: edges or axes that cross
    near the surface. `touching`: distances near zero. `degenerate`: right angles, and
    positions and sizes on a grid, so that features coincide.
    """
    rng = np.random.default_rng([seed, *map(ord, category)])
    pos = 0.15 * rng.normal(size=(count, 2, 3))
    quat = rng.normal(size=(count, 2, 4))
    size = np.exp(rng.uniform(np.log(0.05), np.log(0.3), (count, 2, 3)))
    right = RIGHT_ANGLES[rng.integers(24, size=(count, 2))]
    if category in ("parallel", "degenerate"):
        quat = right
    if category == "turned":
        quat[:, 0], quat[:, 1, 1:3] = [1, 0, 0, 0], 0
    if category == "tilted":
        tilt = 10.0 ** rng.uniform(-6, -1, (count, 2, 1))
        quat = right + tilt * quat
    if category == "edges" and kinds[0] is not K.PLANE:
        # The first shape has an edge, or its lateral surface, up; the other one down.
        quarter = np.pi / 4 * rng.choice([1, 3], (count, 2))
        angles = np.stack([quarter, rng.uniform(0, np.pi, (count, 2))], axis=-1)
        angles = angles + 0.1 * rng.normal(size=angles.shape)
        turn = Rotation.from_euler("xz", angles.reshape(-1, 2))
        quat = turn.as_quat(scalar_first=True).reshape(count, 2, 4)
        pos = pos * 0.2
        pos[:, 1, 2] += np.sqrt(0.5) * np.sum(size[:, :, 1:], axis=(1, 2))
        size[:, :, 2] = size[:, :, 1]
    if category == "degenerate":
        pos = rng.integers(-4, 5, (count, 2, 3)) / 16
        size = rng.integers(1, 5, (count, 2, 3)) / 16
    quat = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
    for k, kind in enumerate(kinds):
        size[:, k, NUMBER_OF_SIZES.get(kind, 3) :] = 0
        if kind is K.PLANE:
            pos[:, k] = quat[:, k, 1:] = 0
            quat[:, k, 0] = 1
            size[:, k] = 1
    found = Configurations(pos, quat, size)
    if category == "touching":
        dist, _, normal, valid = evaluate(kinds, found, 10.0)
        nearest = np.argmin(np.where(valid, dist, np.inf), axis=0)
        rows = np.arange(count)
        shift = 1e-3 * rng.normal(size=count) - dist[nearest, rows]
        found.pos[:, 1] += shift[:, None] * normal[nearest, rows]
    return found


CATEGORIES = ("random", "touching", "parallel", "turned", "tilted", "edges")


def shapes(found):
    """The two shapes of all configurations."""
    vector = lambda x: Vec3(*(jnp.asarray(c) for c in x.T))
    out = []
    for k in range(2):
        quat = found.quat[:, k].ravel().reshape(-1, 4)
        rot = Rotation.from_quat(quat, scalar_first=True).as_matrix()
        rot = Mat3(*(jnp.asarray(e) for e in rot.reshape(-1, 9).T))
        out.append(Shape(Pose(rot, vector(found.pos[:, k])), vector(found.size[:, k])))
    return out


def points(kinds, one, two):
    """Distance, position and normal of all points, and which are valid."""
    rows, collider = [], collider_of(*kinds)
    # One pair of links, in many configurations.
    one, two = jax.tree.map(lambda x: x[None], (one, two))
    margin = (jnp.zeros_like(one.size.x),) if collider.one_by_one else ()
    for p in collider.find(one, two, *margin):
        valid = jnp.ones_like(p.dist, bool) if p.valid is None else p.valid
        rows.append((p.dist[0], stack(p.pos)[0].T, stack(p.normal)[0].T, valid[0]))
    return tuple(jnp.stack(x) for x in zip(*rows))


# Compiled once for all categories.
COMPILED = jax.jit(points, static_argnums=0)


def evaluate(kinds, found, margin=MARGIN):
    dist, pos, normal, valid = map(np.asarray, COMPILED(kinds, *shapes(found)))
    return dist, pos, normal, valid & (dist < margin)


def model_of(kinds):
    text = lambda kind: f'type="{kind.name.lower()}" size="1 1 1"'
    free = "" if kinds[0] is K.PLANE else "<freejoint/>"
    texts = (text(kind) for kind in kinds)
    return mujoco.MjModel.from_xml_string(MODEL.format(free, *texts, MARGIN))


def contacts(model, found):
    """Distance, position and normal of the contacts of MuJoCo, per configuration."""
    data, bodies = mujoco.MjData(model), model.nq // 7
    model.geom_rbound[model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE] = 10
    for pos, quat, size in zip(*found):
        for k in range(bodies):
            which = k + 2 - bodies
            data.qpos[7 * k : 7 * k + 7] = *pos[which], *quat[which]
        model.geom_size[:] = size
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        now = data.contact
        yield np.c_[now.dist, now.pos, now.frame[:, :3]]


def compare(kinds, found):
    """The configurations whose contacts differ by more than 1e-9, and how often each
    number of contacts occurs."""
    dist, pos, normal, valid = evaluate(kinds, found)
    every = np.concatenate([dist[..., None], pos, normal], axis=-1)
    different, counts = [], collections.Counter()
    for k, theirs in enumerate(contacts(model_of(kinds), found)):
        ours = list(every[valid[:, k], k])
        counts[len(theirs)] += 1
        left, error = list(ours), 0.0 if len(ours) == len(theirs) else np.inf
        for one in theirs if error == 0.0 else ():
            errors = [np.max(np.abs(one - other)) for other in left]
            nearest = int(np.argmin(errors))
            error = max(error, errors[nearest])
            left.pop(nearest)
        if error > 1e-9:
            different.append((k, ours, theirs))
    return different, counts


def name(kinds):
    return "-".join(kind.name.lower() for kind in kinds)


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("kinds", PAIRS, ids=name)
def test_contacts(kinds, category):
    different, counts = compare(kinds, draw(kinds, category, 300))
    assert not different, (len(different), different[0])
    assert counts.total() == 300 and counts[0] < 270


@pytest.mark.parametrize("kinds", PAIRS, ids=name)
def test_degenerate_contacts(kinds):
    """Features that coincide are told apart by rounding, here and in MuJoCo: up to a few
    configurations have the same distances only, or touch without an overlap of nonzero
    area."""
    different, _ = compare(kinds, draw(kinds, "degenerate", 300))
    features = 0
    for _, ours, theirs in different:
        depths = sorted(p[0] for p in ours), np.sort(theirs[:, 0])
        features += len(ours) == len(theirs) and np.allclose(*depths, atol=1e-12)
    # Several faces of a box are equally near, with one distance.
    assert features <= (45 if K.BOX in kinds else 0)
    # Boxes whose faces overlap in a segment or in a corner.
    others = len(different) - features
    assert others <= (10 if kinds == (K.BOX, K.BOX) else 0)


@pytest.mark.parametrize("kinds", PAIRS, ids=name)
@pytest.mark.quick_cases("sphere-box")
def test_gradients_of_parallel_shapes(kinds):
    """By positions and sizes, which keep the axes parallel."""
    drawn = [draw(kinds, category, 12, seed=2) for category in ("parallel", "turned")]
    found = Configurations(*map(np.concatenate, zip(*drawn)))
    one, two = shapes(found)
    _, _, _, valid = evaluate(kinds, found)

    def fn(pos1, pos2, size1, size2):
        first = Shape(one.pose._replace(pos=pos1), size1)
        second = Shape(two.pose._replace(pos=pos2), size2)
        dist, pos, normal, _ = points(kinds, first, second)
        keep = lambda x: jnp.where(jnp.broadcast_to(valid[..., None], x.shape), x, 0.0)
        return keep(dist[..., None]), keep(pos), keep(normal)

    arrays = one.pose.pos, two.pose.pos, one.size, two.size
    check_gradients(fn, *arrays, rtol=1e-4, eps=1e-7)


@ft.partial(jax.jit, static_argnums=0)
def both_modes(kinds, both):
    """Tangents of the points and cotangents of the shapes, with what they are of."""
    fn = lambda both: points(kinds, *both)[:3]
    tangent = jax.tree.map(lambda x: jnp.cos(3.0 * x + 1.0), both)
    out, push = jax.jvp(fn, (both,), (tangent,))
    weights = jax.tree.map(lambda x: jnp.sin(5.0 * x + 2.0), out)
    return push, weights, jax.vjp(fn, both)[1](weights)[0], tangent


@pytest.mark.parametrize("category", ("parallel", "tilted", "degenerate"))
@pytest.mark.parametrize("kinds", PAIRS, ids=name)
@pytest.mark.quick_cases(
    "sphere-cylinder-parallel",
    "sphere-box-degenerate",
    "capsule-capsule-degenerate",
)
def test_gradients_where_features_change(kinds, category):
    """Forward and reverse mode agree and are finite."""
    both = shapes(draw(kinds, category, 100, seed=3))
    push, weights, pull, tangent = both_modes(kinds, both)
    total = lambda a, b: [np.sum(x * y) for x, y in zip(*map(jax.tree.leaves, (a, b)))]
    forward, reverse = sum(total(push, weights)), sum(total(pull, tangent))
    assert np.isfinite(forward)
    scale = sum(np.sum(np.abs(x)) for x in jax.tree.leaves(push))
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=1e-10 * scale)
