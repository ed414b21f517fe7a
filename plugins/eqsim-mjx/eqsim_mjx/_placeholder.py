"""A robot of a given structure with placeholder values that MuJoCo's compiler accepts.

The compiler derives static facts from some values: that a body is simple, that there is
no gravity compensation or dry friction. The placeholder values are chosen such that
these facts depend only on the structure of the `System`.
"""

import dataclasses

import numpy as np

from eqsim import System
from eqsim.model import (
    Actuators,
    GeomKind,
    Geoms,
    HeightFields,
    JointKind,
    Joints,
    Links,
    Meshes,
    Pairs,
)


_SOLREF = (0.02, 1.0)
_SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)
_QUAT = (1.0, 0.0, 0.0, 0.0)
WITH_DATA = (GeomKind.MESH, GeomKind.HFIELD)
"""Kinds of shapes with data in addition to sizes."""


def _rows(count: int, row) -> np.ndarray:
    return np.tile(np.asarray(row, float), (count, 1))


def placeholder(sys: System) -> System:
    """Return the robot; only the structure of `sys` is used."""
    medium = float(sys.has_fluid)
    return dataclasses.replace(
        sys,
        links=_links(sys.links),
        joints=_joints(sys.joints),
        geoms=_geoms(sys.geoms),
        pairs=_pairs(sys.pairs),
        actuators=_actuators(sys.actuators),
        meshes=Meshes.none(),
        height_fields=HeightFields.none(),
        gravity=np.array([0.0, 0.0, -1.0]),
        wind=np.full(3, medium),
        density=np.array(medium),
        viscosity=np.array(medium),
        impratio=np.array(1.0),
        dt=np.array(0.01),
    )


def _links(links: Links) -> Links:
    n = len(links.names)
    return dataclasses.replace(
        links,
        quat=_rows(n, _QUAT),
        mass=np.ones(n),
        com=_rows(n, (0.1, 0.2, 0.3)),
        inertia=np.ones((n, 3)),
        inertia_quat=_rows(n, _QUAT),
        gravity_compensation=np.ones(n),
    )


def _joints(joints: Joints) -> Joints:
    n, nv = len(joints.names), sum(kind.nv for kind in joints.kinds)
    rest = {
        JointKind.FREE: (0.0, 0.0, 0.0, *_QUAT),
        JointKind.SPHERICAL: _QUAT,
    }
    parts = [rest.get(kind, (0.0,)) for kind in joints.kinds]
    ref = np.array([number for part in parts for number in part])
    low = [0.0 if kind is JointKind.SPHERICAL else -1.0 for kind in joints.kinds]
    return dataclasses.replace(
        joints,
        axis=_rows(n, (0.6, 0.0, 0.8)),
        range=np.stack([np.array(low), np.ones(n)], axis=1),
        limit_solref=_rows(n, _SOLREF),
        limit_solimp=_rows(n, _SOLIMP),
        ref=ref,
        spring_ref=ref,
        armature=np.ones(nv),
        frictionloss=np.array(joints.has_friction, float),
        friction_solref=_rows(nv, _SOLREF),
        friction_solimp=_rows(nv, _SOLIMP),
    )


def _geoms(geoms: Geoms) -> Geoms:
    n = len(geoms.names)
    # Meshes and height fields do not collide here (see `_refuse_parts`), and the
    # compiler would check their values.
    kinds = (GeomKind.BOX if kind in WITH_DATA else kind for kind in geoms.kinds)
    return dataclasses.replace(
        geoms,
        kinds=tuple(kinds),
        data=(),
        quat=_rows(n, _QUAT),
        size=np.ones((n, 3)),
        friction=np.ones((n, 3)),
        solref=_rows(n, _SOLREF),
        solimp=_rows(n, _SOLIMP),
        solmix=np.ones(n),
    )


def _pairs(pairs: Pairs) -> Pairs:
    n = len(pairs.geoms)
    return dataclasses.replace(
        pairs,
        friction=np.ones((n, 5)),
        solref=_rows(n, _SOLREF),
        solimp=_rows(n, _SOLIMP),
    )


def _actuators(actuators: Actuators) -> Actuators:
    n = len(actuators.names)
    span = _rows(n, (-1.0, 1.0))
    return dataclasses.replace(
        actuators,
        gear=np.ones((n, 6)),
        # Not a position servo, whose gain equals the second coefficient of its bias.
        gain=_rows(n, (1.0, 0.3, 0.2)),
        bias=_rows(n, (0.1, 0.2, 0.3)),
        time_constant=np.ones(n),
        ctrl_range=span,
        force_range=span,
        act_range=span,
    )
