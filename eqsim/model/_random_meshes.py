"""Meshes and height fields of a random robot."""

import dataclasses

import numpy as np

from ._height_fields import HeightFields
from ._kinds import GeomKind
from ._meshes import HullGraph, Meshes, MeshSurfaces
from ._random_parts import collision_masks
from ._system import System


def add_meshes(rng: np.random.Generator, sys: System) -> System:
    """Replace boxes by octahedra, and those of the world by height fields."""
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
        # MuJoCo sorts the axes of a mesh by its moments of inertia.
        size[geom] = np.sort(size[geom]) if group is solid else 0.0
    height_fields = _height_fields(rng, len(flat))
    masks = list(zip(geoms.contype, geoms.conaffinity, strict=True))
    for geom in boxes:
        if any(masks[geom]):
            masks[geom] = collision_masks(kinds[geom], bool(rng.random() < 0.4))
    contype, conaffinity = zip(*masks, strict=True) if masks else ((), ())
    drawn = dataclasses.replace(
        geoms,
        kinds=tuple(kinds),
        data=tuple(data) if boxes else (),
        size=size,
        contype=contype,
        conaffinity=conaffinity,
    )
    colliding = [any(masks[geom]) for geom in solid]
    return dataclasses.replace(
        sys,
        geoms=drawn,
        meshes=_octahedra([size[geom] for geom in solid], colliding),
        height_fields=height_fields,
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


# Vertices on the other axes.
_NEIGHBORS = np.array([[v for v in range(6) if v // 2 != k // 2] for k in range(6)])


def _octahedra(sizes: list[np.ndarray], colliding: list[bool]) -> Meshes:
    """Return octahedra with given semiaxes; those that collide have hulls."""
    if not sizes:
        return Meshes.none()
    count, solid = len(sizes), np.array(colliding)
    starts = lambda each: np.append(0, np.cumsum(each))
    hulls = int(np.sum(solid))
    points = np.stack([_POINTS * size for size in sizes])
    return Meshes(
        names=tuple(f"mesh{k}" for k in range(count)),
        hulls=HullGraph(
            vertex_starts=starts(6 * solid),
            neighbor_starts=4 * np.arange(6 * hulls + 1),
            neighbors=np.tile(_NEIGHBORS.ravel(), hulls),
            polygon_starts=starts(8 * solid),
            corner_starts=3 * np.arange(8 * hulls + 1),
            corners=np.tile(_FACES.ravel(), hulls),
        ),
        surfaces=MeshSurfaces(
            other_starts=starts(6 * ~solid),
            face_starts=8 * np.arange(count + 1),
            faces=np.tile(_FACES, (count, 1)),
            order=np.tile(np.arange(6), count),
        ),
        vertices=points[solid].reshape(-1, 3),
        other_vertices=points[~solid].reshape(-1, 3),
    )


def _height_fields(rng: np.random.Generator, count: int) -> HeightFields:
    grids = rng.uniform(0.0, 0.2, (count, 3, 4))
    # MuJoCo's heights start at zero.
    grids -= grids.min(axis=(1, 2), keepdims=True)
    return HeightFields(
        names=tuple(f"field{k}" for k in range(count)),
        rows=(3,) * count,
        columns=(4,) * count,
        heights=grids.ravel(),
        size=rng.uniform([0.2, 0.2, 0.05], [0.5, 0.5, 0.2], (count, 3)),
        capacity=(16,) * count,
    )
