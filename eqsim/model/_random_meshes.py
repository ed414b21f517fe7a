"""Meshes and height fields of a random robot."""

import dataclasses

import numpy as np

from ._height_fields import HeightFields
from ._kinds import GeomKind
from ._meshes import HullGraph, Meshes, MeshSurfaces
from ._system import System


def add_meshes(rng: np.random.Generator, sys: System) -> System:
    """Replace boxes by octahedra, and those of the world by height fields.

    None of them can touch anything."""
    geoms, pairs = sys.geoms, sys.pairs
    named = {geom for pair in pairs.geoms for geom in pair}
    boxes = [
        geom
        for geom, kind in enumerate(geoms.kinds)
        if kind is GeomKind.BOX and geom not in named
    ]
    kinds, data, size = list(geoms.kinds), [-1] * sys.ngeom, np.array(geoms.size)
    solid, flat = [], []
    for geom in boxes:
        group = solid if geoms.links[geom] >= 0 else flat
        kinds[geom] = GeomKind.MESH if group is solid else GeomKind.HFIELD
        data[geom] = len(group)
        group.append(geom)
        # MuJoCo's axes of a mesh are sorted by its moments of inertia.
        size[geom] = np.sort(size[geom]) if group is solid else 0.0
    masks = {
        name: tuple(0 if geom in boxes else mask for geom, mask in enumerate(old))
        for name, old in (
            ("contype", geoms.contype),
            ("conaffinity", geoms.conaffinity),
        )
    }
    drawn = dataclasses.replace(
        geoms,
        kinds=tuple(kinds),
        data=tuple(data) if boxes else (),
        size=size,
        **masks,
    )
    return dataclasses.replace(
        sys,
        geoms=drawn,
        meshes=_octahedra([size[geom] for geom in solid]),
        height_fields=_height_fields(rng, len(flat)),
    )


_POINTS = np.array(
    [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]]
)
# Counterclockwise seen from outside: one triangle for each octant.
_FACES = np.array(
    [
        (x, y, z) if (x + y + z) % 2 == 0 else (x, z, y)
        for x in (0, 1)
        for y in (2, 3)
        for z in (4, 5)
    ]
)


def _octahedra(sizes: list[np.ndarray]) -> Meshes:
    """Octahedra with given semiaxes, which have no hulls, as they do not collide."""
    if not sizes:
        return Meshes.none()
    count = len(sizes)
    none, empty = np.zeros(count + 1, int), np.zeros(0, int)
    return Meshes(
        names=tuple(f"mesh{k}" for k in range(count)),
        hulls=HullGraph(none, none[:1], empty, none, none[:1], empty),
        surfaces=MeshSurfaces(
            other_starts=6 * np.arange(count + 1),
            face_starts=8 * np.arange(count + 1),
            faces=np.tile(_FACES, (count, 1)),
            order=np.tile(np.arange(6), count),
        ),
        vertices=np.zeros((0, 3)),
        other_vertices=np.concatenate([_POINTS * size for size in sizes]),
    )


def _height_fields(rng: np.random.Generator, count: int) -> HeightFields:
    grids = rng.uniform(0.0, 0.2, (count, 3, 4))
    # MuJoCo's heights begin at zero.
    grids -= grids.min(axis=(1, 2), keepdims=True)
    return HeightFields(
        names=tuple(f"field{k}" for k in range(count)),
        rows=(3,) * count,
        columns=(4,) * count,
        heights=grids.ravel(),
        size=rng.uniform([0.2, 0.2, 0.05], [0.5, 0.5, 0.2], (count, 3)),
    )
