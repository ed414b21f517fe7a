"""Contacts of eqsim and of MuJoCo C in one state, pair of shapes by pair of shapes."""

from typing import Any, NamedTuple

import mujoco
import numpy as np


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


def found_contacts(contacts: Any, i: int, geoms: list[int]) -> Contacts:
    """Return the contacts of eqsim in a state, with MuJoCo's numbers of the shapes."""
    found: Contacts = {}
    rows = (x[i] for x in (contacts.geoms, contacts.dist, contacts.pos, contacts.frame))
    for (one, two), dist, pos, frame in zip(*rows, strict=True):
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
            contact = data.contact[k]
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
