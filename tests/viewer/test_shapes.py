"""What is drawn is the shape that collides."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from viewer_models import point, shapes

import eqsim
from eqsim.io.mjcf import write_mjcf
from eqsim.render.cameras import place
from eqsim.viewer._triangles import (
    box,
    colors_of,
    cylinder,
    height_field,
    instances,
    mesh,
    parts_of,
    Shapes,
    sphere,
)


def volume(solid):
    """By the divergence theorem; negative if triangles face inside."""
    a, b, c = solid.vertices[solid.faces].transpose(1, 0, 2)
    return np.sum(a * np.cross(b, c)) / 6.0


@pytest.mark.parametrize(
    "solid, expected, rtol",
    [
        (box, 8.0, 1e-12),
        (sphere, 4.0 / 3.0 * np.pi, 0.04),
        (cylinder, 2.0 * np.pi, 0.02),
        (lambda: mesh(shapes(), 0), 1.0 / 6.0, 1e-5),
    ],
)
def test_solids_are_closed_and_face_outside(solid, expected, rtol):
    assert volume(solid()) == pytest.approx(expected, rel=rtol)


def test_a_height_field_interpolates_its_heights():
    surface = height_field(shapes(), 0)
    # A ridge of height 1 along y at x = 0.
    np.testing.assert_allclose(
        surface.vertices[:, 2], 1.0 - np.abs(surface.vertices[:, 0]), atol=1e-12
    )
    a, b, c = surface.vertices[surface.faces].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    assert np.all(normals[:, 2] > 0.0)
    # Area of the projection on the ground.
    assert np.sum(normals[:, 2]) / 2.0 == pytest.approx(4.0)


# Distance of points, in the frame of a shape, from its surface.
DISTANCES = {
    "sphere": lambda p: np.linalg.norm(p, axis=-1) - 0.3,
    "capsule": lambda p: (
        np.linalg.norm(p - np.clip(p, [0, 0, -0.4], [0, 0, 0.4]), axis=-1) - 0.1
    ),
    "ellipsoid": lambda p: np.linalg.norm(p / [0.1, 0.2, 0.3], axis=-1) - 1.0,
    "cylinder": lambda p: np.maximum(
        np.linalg.norm(p[..., :2], axis=-1) - 0.1, np.abs(p[..., 2]) - 0.4
    ),
    "box": lambda p: np.max(np.abs(p) - [0.1, 0.2, 0.3], axis=-1),
    "wall": lambda p: np.max(np.abs(p) - [0.2, 0.3, 0.0], axis=-1),
}


def placed_twice(sys):
    """Two robots that stand differently."""
    turned = sys.joints.ref.at[3:7].set(jnp.array([0.5, 0.5, 0.5, 0.5]))
    rows = jnp.stack([sys.joints.ref, turned])
    found = eqx.filter_jit(eqx.filter_vmap(lambda q: place(sys, q)))(rows)
    return Shapes(*map(np.asarray, found))


def test_triangles_lie_on_the_shapes():
    sys, seen = shapes(), set()
    placed, offsets = placed_twice(sys), np.array([[0.0, 0, 0], [7.0, 8, 0]])
    parts, ground = parts_of(sys, 100.0)
    assert not ground
    for part in parts:
        pos, quat, scale = instances(part, placed, offsets)
        for row, geom in enumerate([*part.geoms, *part.geoms]):
            name, robot = sys.geoms.names[geom], row // len(part.geoms)
            seen.add(name)
            if name not in DISTANCES:
                continue
            w, v = quat[row, 0], quat[row, 1:]
            points = part.solid.vertices * scale[row]
            points = points + 2.0 * np.cross(v, np.cross(v, points) + w * points)
            world = points + pos[row] - offsets[robot] - placed.pos[robot, geom]
            local = world @ placed.rot[robot, geom]
            distance = DISTANCES[name](local)
            # Round shapes are cut by their triangles; a capsule is made of three parts.
            inside = -0.5 if name == "capsule" else -1e-9
            assert np.all(distance < 1e-9) and np.all(distance > inside), name
    assert seen == set(sys.geoms.names) - {"hidden"}


def test_planes_of_the_world_are_ground_if_they_are_large():
    sys = shapes()
    assert parts_of(sys, 0.1)[1] == [sys.geom("wall").index]
    assert parts_of(point(), 100.0)[1] == [0]


def test_colors_and_groups_come_from_the_file():
    sys = shapes()
    color = lambda name: sys.geoms.colors[sys.geom(name).index]
    assert color("box") == (0.0, 0.0, 1.0, 0.5)
    # A texture counts with its mean color.
    np.testing.assert_allclose(color("sphere"), (0.5, 0.25, 0.0, 1.0), atol=0.01)
    assert color("hidden")[3] == 0.0
    assert sys.geoms.groups[sys.geom("cylinder").index] == 3
    assert {part.group for part in parts_of(sys, 100.0)[0]} == {0, 3}
    again = eqsim.load_mjcf(write_mjcf(sys))
    assert again.geoms.colors == sys.geoms.colors
    assert again.geoms.groups == sys.geoms.groups


def test_shapes_without_a_color_have_that_of_their_depth():
    sys = shapes()
    colors = colors_of(sys)
    world, link = (colors[sys.geom(name).index] for name in ("hill", "capsule"))
    assert np.ptp(world[:3]) == 0.0 and not np.allclose(world, link)


def test_as_many_colors_as_shapes():
    with pytest.raises(ValueError, match="Geoms.colors has 1 entries for 2 shapes"):
        dataclasses.replace(point().geoms, colors=((1.0, 0.0, 0.0, 1.0),))
