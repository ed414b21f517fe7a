"""Conversion of MuJoCo's geoms and contact pairs to shapes and pairs."""

from typing import Any, NamedTuple

import numpy as np

from ...model import GeomKind, Geoms, Pairs
from ...model._pairs import CollisionRules, select_pairs
from ._colors import read_colors
from ._flags import Flags
from ._names import element_names


_KEPT = {kind.value: kind for kind in GeomKind}
_WITH_DATA = (GeomKind.MESH.value, GeomKind.HFIELD.value)


class Contacts(NamedTuple):
    """The pairs that can touch in a `mujoco.MjModel`.

    **Arguments:**

    - `pairs`: geom, geom, index of the explicit pair or -1.
    - `condims`: dimension of the contact space of each pair.
    - `dropped`: geoms of unsupported shape that touch nothing and have no fluid forces.
    - `fluid`: true for geoms on whose ellipsoids fluid forces act.
    - `geoms`: all geoms that can touch something.
    - `hulls`: meshes whose convex hull is kept: those of shapes that may collide.
    """

    pairs: tuple[tuple[int, int, int], ...]
    condims: tuple[int, ...]
    dropped: tuple[int, ...]
    fluid: tuple[bool, ...]
    geoms: frozenset[int]
    hulls: frozenset[int]


def find_contacts(model: Any, flags: Flags) -> Contacts:
    """Find the geoms of a `mujoco.MjModel` that can touch, independently of their
    shapes."""
    pairs = select_pairs(_rules(model, flags)) if flags.contact else ()
    touching = frozenset(geom for pair in pairs for geom in pair[:2])
    medium = has_medium(model, flags)
    fluid = tuple(bool(medium and on > 0) for on in model.geom_fluid[:, 0])
    return Contacts(
        pairs=pairs,
        condims=tuple(_condim(model, *pair) for pair in pairs),
        dropped=tuple(
            geom
            for geom, kind in enumerate(model.geom_type)
            if int(kind) not in _KEPT and geom not in touching and not fluid[geom]
        ),
        fluid=fluid,
        geoms=touching,
        hulls=_solid_meshes(model) if flags.contact else frozenset(),
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
    keep = kept_geoms(model, contacts)
    names = element_names(model, "geom")
    return Geoms(
        names=tuple(names[geom] for geom in keep),
        # Other kept shapes are used as ellipsoids for fluid forces.
        kinds=tuple(
            _KEPT.get(int(model.geom_type[g]), GeomKind.ELLIPSOID) for g in keep
        ),
        links=tuple(int(model.geom_bodyid[geom]) - 1 for geom in keep),
        condim=_ints(model.geom_condim[keep]),
        priority=_ints(model.geom_priority[keep]),
        contype=_ints(model.geom_contype[keep] * flags.contact),
        conaffinity=_ints(model.geom_conaffinity[keep] * flags.contact),
        fluid=tuple(contacts.fluid[geom] for geom in keep),
        pos=model.geom_pos[keep],
        quat=model.geom_quat[keep],
        # MuJoCo computes the size of height fields.
        size=np.where(
            (model.geom_type[keep] == GeomKind.HFIELD.value)[:, None],
            0.0,
            model.geom_size[keep],
        ),
        friction=model.geom_friction[keep],
        solref=model.geom_solref[keep],
        solimp=model.geom_solimp[keep],
        solmix=model.geom_solmix[keep],
        margin=model.geom_margin[keep],
        fluid_coefficients=model.geom_fluid[keep, 1:6],
        data=_data(model, keep),
        colors=read_colors(model, keep),
        groups=_groups(model, keep),
    )


def _groups(model: Any, keep: list[int]) -> tuple[int, ...]:
    groups = _ints(model.geom_group[keep])
    return groups if any(groups) else ()


def used_data(model: Any, contacts: Contacts, kind: GeomKind) -> list[int]:
    """Return the meshes or height fields that shapes refer to, in order."""
    return _used(model, kept_geoms(model, contacts), kind.value)


def _used(model: Any, keep: list[int], kind: int) -> list[int]:
    return sorted(
        {int(model.geom_dataid[g]) for g in keep if model.geom_type[g] == kind}
    )


def _data(model: Any, keep: list[int]) -> tuple[int, ...]:
    """Return, for each geom, its index among the kept meshes or height fields."""
    used = {kind: _used(model, keep, kind) for kind in _WITH_DATA}
    if not any(used.values()):
        return ()
    kinds = [int(model.geom_type[geom]) for geom in keep]
    return tuple(
        used[kind].index(int(model.geom_dataid[geom])) if kind in used else -1
        for geom, kind in zip(keep, kinds)
    )


def read_pairs(model: Any, flags: Flags, contacts: Contacts) -> Pairs:
    """Convert the explicit contact pairs of a `mujoco.MjModel`."""
    new_index = {geom: index for index, geom in enumerate(kept_geoms(model, contacts))}
    ends = list(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist()))
    keep = [
        pair
        for pair, (a, b) in enumerate(ends)
        if flags.contact and a in new_index and b in new_index
    ]
    return Pairs(
        geoms=tuple((new_index[ends[i][0]], new_index[ends[i][1]]) for i in keep),
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
        parents=tuple(int(parent) - 1 for parent in model.body_parentid[1:]),
        jointed=tuple(bool(count) for count in model.body_jntnum[1:]),
        mocap=tuple(bool(mark) for mark in model.body_mocapid[1:] >= 0),
        kinds=_ints(model.geom_type),
        links=tuple(int(body) - 1 for body in model.geom_bodyid),
        contype=_ints(model.geom_contype),
        conaffinity=_ints(model.geom_conaffinity),
        explicit=tuple(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist())),
        excludes=read_excludes(model),
        filter_parent=flags.filterparent,
    )


def _condim(model: Any, a: int, b: int, explicit: int) -> int:
    if explicit >= 0:
        return int(model.pair_dim[explicit])
    first, second = model.geom_priority[a], model.geom_priority[b]
    if first != second:
        return int(model.geom_condim[a if first > second else b])
    return int(max(model.geom_condim[a], model.geom_condim[b]))


def kept_geoms(model: Any, contacts: Contacts) -> list[int]:
    """Return the geoms that become shapes, in order."""
    dropped = set(contacts.dropped)
    return [geom for geom in range(model.ngeom) if geom not in dropped]


def _ints(values: np.ndarray) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
