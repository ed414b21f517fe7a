"""Rays and height scans of one's own, beside MuJoCo's `mj_ray`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
import solids
from helpers import check_gradients

from eqsim import load_mjcf
from eqsim.kinematics import forward
from eqsim.sensors import (
    cast_rays,
    grid_pattern,
    height_scan,
    pinhole_pattern,
    ring_pattern,
)


SIZES = {
    "sphere": ".3",
    "capsule": ".2 .4",
    "ellipsoid": ".3 .4 .5",
    "cylinder": ".2 .3",
    "box": ".2 .3 .4",
}
FEATURES = *SIZES, "mesh", "hfield"
FEW = "box", "hfield"


def scene(seed=0, upright=False, kinds=FEATURES):
    """Shapes of some kinds at random places: of the world, and of two links that move."""
    rng = np.random.default_rng(seed)
    parts = {"world": [], "base": [], "arm": []}
    for kind in kinds:
        owners = ["world"] if kind == "hfield" else ["world", "base", "arm"]
        for owner in owners:
            shape = f'size="{SIZES[kind]}"' if kind in SIZES else ""
            shape = 'mesh="corner"' if kind == "mesh" else shape
            shape = 'hfield="hills"' if kind == "hfield" else shape
            pos = solids.numbers(rng.uniform(-1.0, 1.0, 3).round(3))
            quat = solids.numbers(rng.normal(size=4).round(3))
            quat = "1 0 0 .4" if upright and kind == "hfield" else quat
            parts[owner].append(
                f'<geom name="{owner} {kind}" type="{kind}" {shape} pos="{pos}" '
                f'quat="{quat}" {solids.APART} mass="1"/>'
            )
    world, base, arm = ("".join(part) for part in parts.values())
    text = (
        f"<mujoco>{solids.assets()}<worldbody>{world}"
        '<geom name="floor" type="plane" size="3 2 .1" pos="0 0 -1.5" '
        f'quat="1 .05 .1 0" {solids.APART}/>'
        f'<body name="base"><freejoint/>{base}<body name="arm" pos=".3 0 .2">'
        f'<joint name="a" axis="0 1 .3"/>{arm}</body></body></worldbody></mujoco>'
    )
    q = np.concatenate([rng.normal(size=3), rng.normal(size=4), rng.normal(size=1)])
    q[3:7] /= np.linalg.norm(q[3:7])
    return load_mjcf(text), mujoco.MjModel.from_xml_string(text), q


def expected(model, q, origins, directions, moving=True, kinds=None):
    """Distances by `mj_ray`; only shapes of the world unless `moving`."""
    data = mujoco.MjData(model)
    data.qpos[:] = q
    mujoco.mj_kinematics(model, data)
    hidden = np.zeros(model.ngeom, bool)
    if not moving:
        hidden |= model.geom_bodyid > 0
    # Shapes in group 1 are left out.
    model.geom_group[:] = np.where(hidden, 1, 0)
    groups = np.array([1, 0, 0, 0, 0, 0], np.uint8)
    found, geom = [], np.zeros(1, np.int32)
    for start, ray in zip(origins, directions):
        ray = ray / np.linalg.norm(ray)
        found.append(mujoco.mj_ray(model, data, start, ray, groups, 1, -1, geom))
    return np.array(found)


def rays(seed, count):
    rng = np.random.default_rng(seed)
    origins = 3.0 * rng.normal(size=(count, 3))
    return origins, rng.uniform(-1.0, 1.0, (count, 3)) - origins


@eqx.filter_jit
def cast(sys, q, origins, directions, **options):
    return cast_rays(sys, q, origins, directions, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.quick_cases("0")
def test_rays_hit_what_those_of_mujoco_hit(seed):
    sys, model, q = scene(seed)
    origins, directions = rays(seed, 400)
    for geoms, moving in ((sys.geoms.names, True), (None, False)):
        hits = cast(sys, jnp.asarray(q), origins, directions, geoms=geoms)
        wanted = expected(model, q, origins, directions, moving)
        assert 100 < np.sum(wanted > 0) < 400
        np.testing.assert_allclose(hits.distance, wanted, atol=1e-8)
        length = jnp.linalg.norm(hits.normal, axis=-1)
        np.testing.assert_allclose(length, wanted >= 0, atol=1e-12)


def test_rays_of_a_link():
    """Origins and directions in the frame of a link, or turned with its heading only."""
    sys, model, q = scene()
    origins, directions = (x / 3 for x in rays(5, 100))
    pose = forward(sys, jnp.asarray(q))
    pos, rot = (np.asarray(x[1]) for x in pose)
    heading = np.arctan2(rot[1, 0], rot[0, 0])
    cos, sin = np.cos(heading), np.sin(heading)
    yaw = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    for yaw_only, turn in ((False, rot), (True, yaw)):
        wanted = expected(model, q, pos + origins @ turn.T, directions @ turn.T, False)
        hits = cast(
            sys, jnp.asarray(q), origins, directions, link="arm", yaw_only=yaw_only
        )
        np.testing.assert_allclose(hits.distance, wanted, atol=1e-8)


def test_height_scan_is_a_vertical_ray():
    sys, model, q = scene(1, upright=True)
    pattern = grid_pattern((7.0, 5.0), 0.43)
    scan = eqx.filter_jit(height_scan)(sys, jnp.asarray(q), "base", pattern)
    pose = forward(sys, jnp.asarray(q))
    pos, rot = (np.asarray(x[0]) for x in pose)
    heading = np.arctan2(rot[1, 0], rot[0, 0])
    cos, sin = np.cos(heading), np.sin(heading)
    at = pos[:2] + pattern @ np.array([[cos, -sin], [sin, cos]]).T
    origins = np.concatenate([at, np.full((len(at), 1), pos[2] + 20.0)], axis=1)
    down = np.tile([0.0, 0.0, -1.0], (len(at), 1))
    dist = expected(model, q, origins, down, False)
    wanted = np.where(dist < 0, -np.inf, 20.0 - dist)
    np.testing.assert_allclose(scan, wanted, atol=1e-7)
    assert 0 < np.sum(np.isinf(wanted)) < len(at)


def test_fields_alone_and_missing_ground():
    """Only chosen shapes are seen; without any, there is no ground."""
    sys, _, q = scene(1, upright=True, kinds=FEW)
    q, pattern = jnp.asarray(q), ring_pattern((0.0, 5.0), 8)
    field = sys.geoms.pos[sys.geom("world hfield").index]
    above = q.at[:2].set(field[:2])
    scan = height_scan(
        sys, above, "base", pattern, geoms=("world hfield",), missing=-7.0
    )
    assert scan[0] > -7.0 and np.all(scan[1:] == -7.0)
    nothing = height_scan(sys, q, "base", pattern, geoms=())
    assert np.all(np.isneginf(nothing))
    tilted, _, q = scene(1, kinds=FEW)
    scan = height_scan(tilted, jnp.asarray(q), "base", pattern, geoms=("world hfield",))
    assert np.all(np.isnan(scan))


def test_gradients_of_rays():
    """By coordinates, rays, and places and sizes of shapes."""
    sys, model, q = scene(kinds=("capsule", "hfield"))
    origins, directions = rays(0, 60)
    hit = expected(model, q, origins, directions) > 0
    origins, directions = (jnp.asarray(x[hit][:4]) for x in (origins, directions))
    parts = sys.geoms.pos, sys.geoms.size, sys.height_fields.heights

    def measured(q, origins, directions, parts):
        where = lambda s: (s.geoms.pos, s.geoms.size, s.height_fields.heights)
        own = eqx.tree_at(where, sys, parts)
        return cast_rays(own, q, origins, directions, geoms=sys.geoms.names)

    check_gradients(measured, jnp.asarray(q), origins, directions, parts)


def test_gradients_of_height_scans():
    """By coordinates, points, and heights and place of the field."""
    sys, _, q = scene(1, upright=True, kinds=FEW)
    geom = sys.geom("world hfield").index
    q = jnp.asarray(q).at[:3].set(sys.geoms.pos[geom] + 1.0)
    pattern = jnp.asarray(grid_pattern((0.5, 0.4), 0.17)) - 1.0

    def scanned(q, pattern, heights, pos):
        where = lambda s: (s.height_fields.heights, s.geoms.pos)
        own = eqx.tree_at(where, sys, (heights, pos))
        return height_scan(own, q, "base", pattern, missing=-5.0)

    check_gradients(scanned, q, pattern, sys.height_fields.heights, sys.geoms.pos)


def test_batches_of_environments():
    """Environments with heights of their own, in one program."""
    sys, _, q = scene(1, upright=True, kinds=FEW)
    origins, directions = rays(2, 20)
    keys = jr.split(jr.key(0), 3)
    heights = jax.vmap(lambda k: 0.3 * jr.uniform(k, (35,)))(keys)
    qs = jnp.asarray(q)[None] + 0.1 * jr.normal(jr.key(1), (3, len(q)))
    pattern = grid_pattern((1.0, 1.0), 0.25)

    def both(heights, q):
        own = eqx.tree_at(lambda s: s.height_fields.heights, sys, heights)
        scan = height_scan(own, q, "base", pattern)
        return scan, cast_rays(own, q, origins, directions, geoms=sys.geoms.names)

    together, alone = jax.jit(jax.vmap(both))(heights, qs), jax.jit(both)
    for k in range(3):
        one = alone(heights[k], qs[k])
        own = jax.tree.map(lambda x, k=k: x[k], together)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(own), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


def test_patterns():
    grid = grid_pattern((1.6, 1.0), 0.1)
    assert grid.shape == (17 * 11, 2)
    np.testing.assert_allclose(grid[0], [-0.8, -0.5])
    np.testing.assert_allclose(grid[1] - grid[0], [0.1, 0.0], atol=1e-12)
    ring = ring_pattern((0.0, 0.3, 0.6), 5)
    radii = np.linalg.norm(ring, axis=1)
    np.testing.assert_allclose(radii, [0] + 5 * [0.3] + 5 * [0.6], atol=1e-12)
    pixels = pinhole_pattern(3, 4, 90.0).reshape(3, 4, 3)
    # The edges of the image are at 45 degrees, a quarter of a width from pixels' middles.
    np.testing.assert_allclose(
        pixels[..., 1] / pixels[..., 0], 3 * [[0.75, 0.25, -0.25, -0.75]]
    )
    assert np.all(pixels[0, :, 2] > 0) and np.allclose(pixels[1, :, 2], 0)


def test_errors():
    sys, _, q = scene()
    q, ray = jnp.asarray(q), np.ones((2, 3))
    for call, message in (
        (lambda: cast_rays(sys, q, ray, ray, link="leg"), "no link 'leg'"),
        (lambda: cast_rays(sys, q, ray, ray, geoms=("leg",)), "no shape 'leg'"),
        (lambda: cast_rays(sys, q, ray, ray, yaw_only=True), "needs a `link`"),
        (lambda: cast_rays(sys, q, ray, np.ones((3, 3))), "`origins` have the shape"),
        (lambda: height_scan(sys, q, "base", ray), "`pattern` has the shape"),
        (lambda: height_scan(sys, q, "base", ray[:, :2], above=0.0), "`above`"),
        (lambda: grid_pattern((1.0, 1.0), 0.0), "`spacing`"),
        (lambda: grid_pattern((-1.0, 1.0), 0.1), "`size`"),
        (lambda: pinhole_pattern(2, 2, 180.0), "field_of_view"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
