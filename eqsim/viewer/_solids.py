"""Triangles of shapes, of size 1."""

import functools as ft
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..model import System
from ._extra import import_trimesh


class Solid(NamedTuple):
    """A surface of triangles.

    - `vertices`: positions in the frame of the shape.
    - `faces`: vertices of each triangle, counterclockwise seen from outside.
    """

    vertices: Float[np.ndarray, "nvertex 3"]
    faces: Int[np.ndarray, "nface 3"]


@ft.cache
def sphere() -> Solid:
    """Return a sphere of radius 1."""
    angle = np.linspace(-0.5 * np.pi, 0.5 * np.pi, 13)
    return _revolved(np.stack([np.cos(angle), np.sin(angle)], axis=1))


@ft.cache
def cylinder() -> Solid:
    """Return a cylinder of radius 1 from z = -1 to z = 1."""
    profiles = ([0, -1], [1, -1]), ([1, -1], [1, 1]), ([1, 1], [0, 1])
    # Separate vertices, so that the edges are sharp.
    return _joined([_revolved(np.array(profile, float)) for profile in profiles])


@ft.cache
def box() -> Solid:
    """Return a cube with half edges of length 1."""
    turns = [np.roll(np.eye(3), k, axis=0) for k in range(3)]
    flip = np.diag([-1.0, 1.0, -1.0])
    top = square()
    sides = [turn @ side for turn in turns for side in (np.eye(3), flip)]
    up = top.vertices + np.array([0.0, 0.0, 1.0])
    return _joined([Solid(up @ side.T, top.faces) for side in sides])


@ft.cache
def square() -> Solid:
    """Return a square with half edges of length 1 at z = 0."""
    corners = [[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]
    return Solid(np.array(corners), np.array([[0, 1, 2], [0, 2, 3]]))


def mesh(sys: System, index: int) -> Solid:
    """Return a mesh of one robot."""
    parts = sys.meshes.hull(index), sys.meshes.others(index)
    vertices = np.concatenate([np.asarray(part, float) for part in parts])
    return _smooth(Solid(vertices, sys.meshes.surfaces.triangles(index)))


def height_field(sys: System, index: int) -> Solid:
    """Return the surface of a height field of one robot."""
    fields = sys.height_fields
    rows, columns = fields.rows[index], fields.columns[index]
    start = sum(r * c for r, c in zip(fields.rows[:index], fields.columns[:index]))
    heights = np.asarray(fields.heights, float)[start : start + rows * columns]
    x_half, y_half, _ = np.asarray(fields.size, float)[index]
    y, x = np.meshgrid(
        np.linspace(-y_half, y_half, rows),
        np.linspace(-x_half, x_half, columns),
        indexing="ij",
    )
    corner = np.arange(rows * columns).reshape(rows, columns)
    a, b = corner[:-1, :-1].ravel(), corner[:-1, 1:].ravel()
    c, d = corner[1:, 1:].ravel(), corner[1:, :-1].ravel()
    faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    return Solid(np.stack([x.ravel(), y.ravel(), heights], axis=1), faces)


def _revolved(profile: np.ndarray, sides: int = 24) -> Solid:
    """Turn a line, `(n, 2)` of radius and height from below to above, about z."""
    angle = 2.0 * np.pi * np.arange(sides) / sides
    radius, height = profile[:, :1], profile[:, 1:]
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    vertices = np.stack([x, y, np.broadcast_to(height, x.shape)], axis=-1)
    place = np.arange(x.size).reshape(x.shape)
    a, d = place[:-1], place[1:]
    b, c = np.roll(a, -1, axis=1), np.roll(d, -1, axis=1)
    pairs = np.stack([a, b, c], -1), np.stack([a, c, d], -1)
    return Solid(vertices.reshape(-1, 3), np.concatenate(pairs).reshape(-1, 3))


def _joined(solids: list[Solid]) -> Solid:
    starts = np.cumsum([0, *(len(solid.vertices) for solid in solids)])
    faces = [solid.faces + start for solid, start in zip(solids, starts)]
    return Solid(np.concatenate([x.vertices for x in solids]), np.concatenate(faces))


# Faces that meet at less than about 40 degrees look like one smooth surface, as in images.
_SMOOTH = 0.7


def _smooth(solid: Solid) -> Solid:
    """Give faces that meet at an edge vertices of their own."""
    trimesh = import_trimesh()
    whole = trimesh.Trimesh(solid.vertices, solid.faces, process=False)
    found = trimesh.graph.smooth_shade(whole, angle=_SMOOTH)
    return Solid(np.asarray(found.vertices), np.asarray(found.faces))
