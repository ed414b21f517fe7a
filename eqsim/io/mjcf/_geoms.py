"""Conversion of MuJoCo's geoms and contact pairs to shapes and pairs."""

from typing import Any, NamedTuple

import numpy as np

from ...model import GeomKind, Geoms, Pairs
from ...model.pairs import CollisionRules, kinds_of_pairs, KindsOfPairs, select_pairs
from ._colors import read_colors
from ._flags import Flags
from ._names import element_names


_KEPT = {kind.value: kind for kind in GeomKind}
_WITH_DATA = (GeomKind.MESH, GeomKind.HFIELD)


class Contacts(NamedTuple):
    """The pairs that can touch in a `mujoco.MjModel`, and the geoms that become shapes.

    **Arguments:**

    - `pairs`: geom, geom, index of the explicit pair or -1; `(npair, 3)`.
    - `kinds`: kinds of shapes of the pairs.
    - `touching`: true for geoms that can touch something, `(ngeom,)`.
    - `fluid`: true for geoms on whose ellipsoids fluid forces act, `(ngeom,)`.
    - `kept`: geoms that become shapes, in order. Geoms of unsupported shape that touch
        nothing and have no fluid forces are left out.
    - `places`: index of each geom among the shapes, -1 if it is left out, `(ngeom,)`.
    - `hulls`: meshes whose convex hull is kept: those of shapes that may collide.
    - `has_gaps`: true if a geom that can touch something, or an explicit pair, has a gap.
    """

    pairs: np.ndarray
    kinds: list[KindsOfPairs]
    touching: np.ndarray
    fluid: np.ndarray
    kept: np.ndarray
    places: np.ndarray
    hulls: frozenset[int]
    has_gaps: bool


def find_contacts(model: Any, flags: Flags) -> Contacts:
    """Find the geoms of a `mujoco.MjModel` that can touch, independently of their
    shapes."""
    none = np.zeros((0, 3), np.int32)
    pairs = select_pairs(_rules(model, flags)) if flags.contact else none
    touching = np.zeros(model.ngeom, bool)
    touching[pairs[:, :2].ravel()] = True
    fluid = (model.geom_fluid[:, 0] > 0) & has_medium(model, flags)
    known = np.isin(model.geom_type, list(_KEPT))
    kept = np.flatnonzero(known | touching | fluid)
    places = np.full(model.ngeom, -1)
    places[kept] = np.arange(len(kept))
    return Contacts(
        pairs=pairs,
        kinds=kinds_of_pairs(pairs, model.geom_type),
        touching=touching,
        fluid=fluid,
        kept=kept,
        places=places,
        hulls=_solid_meshes(model) if flags.contact else frozenset(),
        has_gaps=bool(np.any(model.geom_gap[touching]) or np.any(model.pair_gap)),
    )


def _solid_meshes(model: Any) -> frozenset[int]:
    """Return the meshes of shapes that may collide and whose hull has a volume."""
    marks = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    marks[model.pair_geom1] = marks[model.pair_geom2] = True
    marks &= model.geom_type == GeomKind.MESH.value
    meshes = set(model.geom_dataid[marks].tolist())
    return frozenset(mesh for mesh in meshes if model.mesh_graphadr[mesh] >= 0)


def has_medium(model: Any, flags: Flags) -> bool:
    """Test if there is a fluid."""
    return bool(flags.passive and (model.opt.density > 0 or model.opt.viscosity > 0))


def read_geoms(model: Any, flags: Flags, contacts: Contacts) -> Geoms:
    """Convert the geoms of a `mujoco.MjModel`, except dropped ones."""
    keep = contacts.kept
    names = element_names(model, "geom")
    kinds = model.geom_type[keep]
    return Geoms(
        names=tuple(names[geom] for geom in keep.tolist()),
        # Other kept shapes are used as ellipsoids for fluid forces.
        kinds=tuple(_KEPT.get(kind, GeomKind.ELLIPSOID) for kind in kinds.tolist()),
        links=_ints(model.geom_bodyid[keep] - 1),
        condim=_ints(model.geom_condim[keep]),
        priority=_ints(model.geom_priority[keep]),
        contype=_ints(model.geom_contype[keep] * flags.contact),
        conaffinity=_ints(model.geom_conaffinity[keep] * flags.contact),
        fluid=tuple(contacts.fluid[keep].tolist()),
        pos=model.geom_pos[keep],
        quat=model.geom_quat[keep],
        # MuJoCo computes the size of height fields.
        size=np.where(
            (kinds == GeomKind.HFIELD.value)[:, None], 0.0, model.geom_size[keep]
        ),
        friction=model.geom_friction[keep],
        solref=model.geom_solref[keep],
        solimp=model.geom_solimp[keep],
        solmix=model.geom_solmix[keep],
        margin=model.geom_margin[keep],
        fluid_coefficients=model.geom_fluid[keep, 1:6],
        data=_data(model, contacts),
        colors=read_colors(model, keep),
        groups=_groups(model, keep),
    )


def _groups(model: Any, keep: np.ndarray) -> tuple[int, ...]:
    groups = _ints(model.geom_group[keep])
    return groups if any(groups) else ()


def used_data(model: Any, contacts: Contacts, kind: GeomKind) -> list[int]:
    """Return the meshes or height fields that shapes refer to, in order."""
    keep = contacts.kept
    marks = model.geom_type[keep] == kind.value
    return np.unique(model.geom_dataid[keep][marks]).tolist()


def _data(model: Any, contacts: Contacts) -> tuple[int, ...]:
    """Return, for each shape, its index among the kept meshes or height fields."""
    kinds = model.geom_type[contacts.kept]
    data = model.geom_dataid[contacts.kept]
    places = np.full(len(kinds), -1)
    for kind in _WITH_DATA:
        marks = kinds == kind.value
        places[marks] = np.searchsorted(used_data(model, contacts, kind), data[marks])
    return _ints(places) if np.any(places >= 0) else ()


def read_pairs(model: Any, flags: Flags, contacts: Contacts) -> Pairs:
    """Convert the explicit contact pairs of a `mujoco.MjModel`."""
    one, two = contacts.places[model.pair_geom1], contacts.places[model.pair_geom2]
    keep = np.flatnonzero((one >= 0) & (two >= 0) & flags.contact)
    return Pairs(
        geoms=tuple(zip(one[keep].tolist(), two[keep].tolist())),
        condim=_ints(model.pair_dim[keep]),
        friction=model.pair_friction[keep],
        solref=model.pair_solref[keep],
        solref_friction=model.pair_solreffriction[keep],
        solimp=model.pair_solimp[keep],
        margin=model.pair_margin[keep],
    )


def read_excludes(model: Any) -> tuple[tuple[int, int], ...]:
    """Convert the excluded pairs of bodies of a `mujoco.MjModel`."""
    signatures = model.exclude_signature.tolist()
    return tuple(((each >> 16) - 1, (each & 0xFFFF) - 1) for each in signatures)


def _rules(model: Any, flags: Flags) -> CollisionRules:
    return CollisionRules(
        parents=_ints(model.body_parentid[1:] - 1),
        jointed=tuple((model.body_jntnum[1:] > 0).tolist()),
        mocap=tuple((model.body_mocapid[1:] >= 0).tolist()),
        kinds=_ints(model.geom_type),
        links=_ints(model.geom_bodyid - 1),
        contype=_ints(model.geom_contype),
        conaffinity=_ints(model.geom_conaffinity),
        explicit=tuple(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist())),
        excludes=read_excludes(model),
        filter_parent=flags.filterparent,
    )


def _ints(values: np.ndarray) -> tuple[int, ...]:
    return tuple(values.tolist())
