"""Vertices and heights without influence on the motion."""

from collections.abc import Iterator

import numpy as np

from ._inactive_rules import rows, Rule
from ._kinds import GeomKind
from ._pairs import candidate_pairs
from ._system import System


def meshes(sys: System) -> Iterator[Rule]:
    """Yield rules of mesh vertices that contacts do not use."""
    touching = _touching_data(sys, GeomKind.MESH)
    counts = np.diff(sys.meshes.hulls.vertex_starts)
    apart = [mesh not in touching for mesh in range(sys.nmesh)]
    reason = "no shape with this mesh can touch another one"
    yield Rule("meshes.vertices", np.repeat(rows(apart), counts), reason)
    inner = rows([True] * sys.meshes.nother)
    reason = "only vertices of the convex hull touch"
    yield Rule("meshes.other_vertices", inner, reason)


def height_fields(sys: System) -> Iterator[Rule]:
    """Yield rules of height fields that nothing can touch."""
    touching, fields = _touching_data(sys, GeomKind.HFIELD), sys.height_fields
    apart = rows([field not in touching for field in range(sys.nfield)])
    counts = [a * b for a, b in zip(fields.rows, fields.columns)]
    reason = "nothing can touch this height field"
    yield Rule("height_fields.heights", np.repeat(apart, counts), reason)
    yield Rule("height_fields.size", apart, reason)


def _touching_data(sys: System, kind: GeomKind) -> set[int]:
    geoms = sys.geoms
    touching = {geom for pair in candidate_pairs(sys) for geom in pair[:2]}
    return {geoms.data[geom] for geom in touching if geoms.kinds[geom] is kind}
