"""Replacement of contacts that MuJoCo computes by iteration with eqsim's."""

import itertools
from typing import Any

import jax
import mujoco
import numpy as np

import eqsim
from eqsim.io.mjcf._names import element_names

from .reference import batch_of
from .separation import largest_separation, separation
from .states import States


_KINDS = {
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


def set_points(sys, model, data, states: States, i: int) -> list[str]:
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
    ours = _ours(sys, model, states, i)
    single = _single_normals(model, data)
    names = []
    for pair, rows in chosen.items():
        own = ours.get(frozenset(pair), [])
        normal = single.get(pair)
        if normal is None or not _is_inexact(model, data, pair, normal, own):
            continue
        if _replace(data, rows, own):
            kinds = sorted(_KINDS[int(model.geom_type[geom])] for geom in pair)
            names.append(f"contact points of {kinds[0]} and {kinds[1]}")
    return list(dict.fromkeys(names))


def _is_iterated(model, pair: tuple[int, int]) -> bool:
    found = [int(model.geom_type[geom]) for geom in pair]
    if any(kind not in _KINDS for kind in found):
        return False
    kinds = sorted(_KINDS[kind] for kind in found)
    return not any(kinds == sorted(known) for known in _WITH_FORMULAS)


def _ours(sys, model, states: States, i: int) -> dict[frozenset[int], list[Any]]:
    """Return eqsim's contacts `(dist, pos, frame)` of each pair of shapes."""
    state, ctrl = jax.tree.map(lambda x: x[i], batch_of(sys, states))
    found = eqsim.Generalized(max_contacts=1000).contacts(sys, state, ctrl)
    # A file may have shapes that eqsim leaves out.
    names = element_names(model, "geom")
    index = [names.index(name) for name in sys.geoms.names]
    arrays = found.geoms, found.dist, found.pos, found.frame
    rows = zip(*(np.asarray(x)[np.asarray(found.exists)] for x in arrays))
    contacts: dict[frozenset[int], list[Any]] = {}
    for (a, b), *row in rows:
        contacts.setdefault(frozenset((index[a], index[b])), []).append(tuple(row))
    return contacts


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
    own, pairs = list(own), []
    for k in rows:
        contact = data.contact[k]
        if not own:
            return False
        gaps = [_apart(pos, contact.pos) for _, pos, _ in own]
        best = int(np.argmin(gaps))
        dist, pos, frame = own.pop(best)
        turned = _apart(frame.ravel(), contact.frame)
        if max(gaps[best], turned, abs(dist - contact.dist)) > _NEAR:
            return False
        pairs.append((contact, dist, pos, frame))
    for contact, dist, pos, frame in pairs:
        contact.dist = dist
        contact.pos[:], contact.frame[:] = pos, frame.ravel()
    return True


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a - b)))
