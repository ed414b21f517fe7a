"""Contacts of eqsim and of MuJoCo C in one state, pair of shapes by pair of shapes.

`compared` lists differences, and `replaced` puts eqsim's contacts into MuJoCo's data.
`replace_inexact` does so only where MuJoCo, which finds some contacts by iteration, has an
inexact normal. `with_normals_of_vertices` corrects the normals of MuJoCo's meshes.
"""

import itertools
from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np

import eqsim
from eqsim.io.mjcf.mujoco_names import element_names

from .reference import batch_of
from .separation import largest_separation, separation
from .states import States


SMALL = 1e-12
"""Differences of contacts that are left out of `Difference.kinds`."""

Contacts = dict[frozenset[int], list[tuple[float, np.ndarray, np.ndarray]]]
"""Distance, position and frame of the contacts of each pair of shapes."""


class Difference(NamedTuple):
    """Difference of the contacts in one state.

    - `total`: number of contacts in MuJoCo.
    - `count`: kinds of the pairs that have other numbers of contacts.
    - `kinds`: kinds of the pairs with as many contacts that differ.
    - `distance`, `position`: largest differences of contacts of pairs with as many, m.
    """

    total: int
    count: list[str]
    kinds: list[str]
    distance: float
    position: float


def geom_numbers(sys: eqsim.System, model: mujoco.MjModel) -> list[int]:
    """Return MuJoCo's numbers of the shapes of eqsim, which may leave out some."""
    names = element_names(model, "geom")
    return [names.index(name) for name in sys.geoms.names]


def found_contacts(contacts: Any, geoms: list[int]) -> Contacts:
    """Return the contacts of eqsim in one state, with MuJoCo's numbers of the shapes."""
    found: Contacts = {}
    rows = contacts.geoms, contacts.dist, contacts.pos, contacts.frame
    for (one, two), dist, pos, frame in zip(*map(np.asarray, rows), strict=True):
        if one >= 0:
            pair = frozenset((geoms[one], geoms[two]))
            found.setdefault(pair, []).append((float(dist), pos, frame))
    return found


def compared(model: mujoco.MjModel, data: mujoco.MjData, own: Contacts) -> Difference:
    """Compare the contacts of a state."""
    theirs = _numbers(data)
    count, kinds, distance, position = [], [], [0.0], [0.0]
    for pair in theirs.keys() | own.keys():
        rows, mine = theirs.get(pair, []), own.get(pair, [])
        if len(rows) != len(mine):
            count.append(_kinds(model, pair))
            continue
        for k, (dist, pos, frame) in _matched(data, rows, mine):
            contact = data.contact[k]
            gaps = (
                abs(contact.dist - dist),
                np.max(np.abs(contact.pos - pos)),
                np.max(np.abs(contact.frame - frame.ravel())),
            )
            distance.append(float(gaps[0]))
            position.append(float(gaps[1]))
            if max(gaps) > SMALL:
                kinds.append(_kinds(model, pair))
    unique = lambda names: sorted(set(names))
    largest = max(distance), max(position)
    return Difference(data.ncon, unique(count), unique(kinds), *largest)


def replaced(model: mujoco.MjModel, data: mujoco.MjData, own: Contacts) -> None:
    """Replace distance, position and frame of all contacts by those of eqsim."""
    for pair, rows in _numbers(data).items():
        for k, (dist, pos, frame) in _matched(data, rows, own[pair]):
            _set(data.contact[k], dist, pos, frame)


def _set(contact, dist: float, pos: np.ndarray, frame: np.ndarray) -> None:
    contact.dist = dist
    contact.pos[:], contact.frame[:] = pos, frame.ravel()


def _numbers(data: mujoco.MjData) -> dict[frozenset[int], list[int]]:
    """Return the contacts of each pair that count."""
    found: dict[frozenset[int], list[int]] = {}
    for k, contact in enumerate(data.contact):
        if not contact.exclude:
            found.setdefault(frozenset(contact.geom.tolist()), []).append(k)
    return found


def _matched(data, rows: list[int], own: list) -> list[tuple[int, Any]]:
    """Assign to each contact of MuJoCo the nearest one of eqsim that is left."""
    left, pairs = list(own), []
    for k in rows:
        gaps = [np.max(np.abs(pos - data.contact[k].pos)) for _, pos, _ in left]
        pairs.append((k, left.pop(int(np.argmin(gaps)))))
    return pairs


def _kinds(model: mujoco.MjModel, pair: frozenset[int]) -> str:
    name = lambda geom: mujoco.mjtGeom(model.geom_type[geom]).name[7:].lower()
    return "-".join(sorted(map(name, pair)))


def with_normals_of_vertices(model: mujoco.MjModel) -> float:
    """Compute the normals of all polygons of meshes from their vertices, which MuJoCo
    rounds to single precision after computing normals.

    The normals of thin polygons, which change by more than 1e-3, are left as they are.

    **Returns:** the largest change.
    """
    most = 0.0
    for mesh in range(model.nmesh):
        start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        points = model.mesh_vert[start : start + count].astype(float)
        first, number = model.mesh_polyadr[mesh], model.mesh_polynum[mesh]
        for polygon in range(first, first + number):
            at, size = model.mesh_polyvertadr[polygon], model.mesh_polyvertnum[polygon]
            corners = points[model.mesh_polyvert[at : at + size]]
            arms = corners[1:] - corners[0]
            area = np.sum(np.cross(arms[:-1], arms[1:]), axis=0)
            old, length = model.mesh_polynormal[polygon], np.linalg.norm(area)
            normal = area * (np.sign(area @ old) / max(length, 1e-300))
            change = float(np.max(np.abs(normal - old)))
            if change < 1e-3:
                most = max(most, change)
                model.mesh_polynormal[polygon] = normal
    return most


_ROUND = {
    int(mujoco.mjtGeom.mjGEOM_SPHERE): "spheres",
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): "capsules",
    int(mujoco.mjtGeom.mjGEOM_ELLIPSOID): "ellipsoids",
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): "cylinders",
    int(mujoco.mjtGeom.mjGEOM_BOX): "boxes",
}
_WITH_FORMULAS = (
    *itertools.combinations_with_replacement(("spheres", "capsules", "boxes"), 2),
    ("spheres", "cylinders"),
)
"""Pairs for which MuJoCo has closed formulas (`mjCOLLISIONFUNC`)."""
_GAIN = 1e-16
"""Smallest increase of the separation, m, for which MuJoCo's normal counts as inexact. It
is quadratic in the error of the normal for round shapes."""
_NEAR = 1e-4
"""Largest accepted distance between matching contacts, m, and between their normals."""


def replace_inexact(sys, model, data, states: States, i: int) -> list[str]:
    """Replace MuJoCo's iterated contacts by eqsim's where MuJoCo's normal is inexact.

    A normal is inexact if a nearby normal, or eqsim's, separates the shapes more, in
    extended precision.

    **Returns:** descriptions of the replaced contacts, by kinds of shapes.
    """
    chosen: dict[tuple[int, int], list[int]] = {}
    for k, contact in enumerate(data.contact):
        pair = (int(contact.geom[0]), int(contact.geom[1]))
        if pair[0] >= 0 and _is_iterated(model, pair):
            chosen.setdefault(pair, []).append(k)
    if not chosen:
        return []
    state, ctrl = jax.tree.map(lambda x: x[i], batch_of(sys, states))
    ours = found_contacts(
        eqsim.Generalized(max_contacts=1000).contacts(sys, state, ctrl),
        geom_numbers(sys, model),
    )
    single = _single_normals(model, data)
    replaced = []
    for pair, rows in chosen.items():
        own = ours.get(frozenset(pair), [])
        normal = single.get(pair)
        if normal is None or not _is_inexact(model, data, pair, normal, own):
            continue
        if _replace(data, rows, own):
            kinds = sorted(_ROUND[int(model.geom_type[geom])] for geom in pair)
            replaced.append(f"contact points of {kinds[0]} and {kinds[1]}")
    return list(dict.fromkeys(replaced))


def _is_iterated(model, pair: tuple[int, int]) -> bool:
    found = [int(model.geom_type[geom]) for geom in pair]
    if any(kind not in _ROUND for kind in found):
        return False
    kinds = sorted(_ROUND[kind] for kind in found)
    return not any(kinds == sorted(known) for known in _WITH_FORMULAS)


def _single_normals(model, data) -> dict[tuple[int, int], np.ndarray]:
    """Return the normals found by MuJoCo's iterations. If a pair has several contacts, they
    are computed from that normal, but may have the normal of a face instead."""
    before = model.opt.disableflags
    try:
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)
        alone = mujoco.MjData(model)
        alone.qpos[:] = data.qpos
        mujoco.mj_fwdPosition(model, alone)
    finally:
        model.opt.disableflags = before
    return {
        (int(c.geom[0]), int(c.geom[1])): np.array(c.frame[:3]) for c in alone.contact
    }


def _is_inexact(model, data, pair, normal: np.ndarray, own: list[Any]) -> bool:
    best = largest_separation(model, data, pair, normal)
    near = (frame[0] for _, _, frame in own if _apart(frame[0], normal) < _NEAR)
    best = max([best, *(separation(model, data, pair, n) for n in near)])
    return bool(best - separation(model, data, pair, normal) > _GAIN)


def _replace(data, rows: list[int], own: list[Any]) -> bool:
    """Replace contacts by the nearest ones of eqsim; False if they are not near."""
    if len(own) < len(rows):
        return False
    pairs = _matched(data, rows, own)
    for k, (dist, pos, frame) in pairs:
        contact = data.contact[k]
        turned, gap = _apart(frame.ravel(), contact.frame), _apart(pos, contact.pos)
        if max(gap, turned, abs(dist - contact.dist)) > _NEAR:
            return False
    for k, values in pairs:
        _set(data.contact[k], *values)
    return True


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a - b)))
