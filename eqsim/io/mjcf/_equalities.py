"""Conversion of MuJoCo's equality constraints."""

from typing import Any

import numpy as np

from ...model import Equalities, EqualityKind
from ._flags import Flags
from ._mujoco import engine
from ._names import element_names


def read_equalities(model: Any, flags: Flags) -> Equalities:
    """Convert the equality constraints of a `mujoco.MjModel`."""
    mujoco = engine()
    kept = np.flatnonzero(simulated_equalities(model) & flags.equality)
    kinds = [EqualityKind(int(kind)) for kind in model.eq_type[kept]]
    at_sites = model.eq_objtype[kept] == int(mujoco.mjtObj.mjOBJ_SITE)
    first, second = model.eq_obj1id[kept], model.eq_obj2id[kept]
    data = model.eq_data[kept]
    links = np.array(
        [kind in (EqualityKind.CONNECT, EqualityKind.WELD) for kind in kinds]
    )
    # MuJoCo's body 0 is the world, which is link -1.
    shift = np.where(links & ~at_sites, 1, 0) if len(kept) else 0
    weld = np.array([kind is EqualityKind.WELD for kind in kinds], bool)[:, None]
    connect = np.array([kind is EqualityKind.CONNECT for kind in kinds], bool)[:, None]
    one, two = data[:, :3], data[:, 3:6]
    anchor1 = np.where(weld, two, one) * (weld | connect)
    anchor2 = np.where(weld, one, two) * (weld | connect)
    polynomial = ~(weld | connect)
    names = element_names(model, "equality")
    return Equalities(
        names=tuple(names[k] for k in kept),
        kinds=tuple(kinds),
        objects=tuple((int(a), int(b)) for a, b in zip(first - shift, second - shift)),
        at_sites=tuple(bool(mark) for mark in at_sites),
        active=model.eq_active0[kept].astype(float),
        anchors=np.stack([anchor1, anchor2], axis=1),
        relative_quat=np.where(weld, data[:, 6:10], [1.0, 0.0, 0.0, 0.0]),
        torque_scale=np.where(weld[:, 0], data[:, 10], 1.0),
        coefficients=data[:, :5] * polynomial,
        solref=model.eq_solref[kept],
        solimp=model.eq_solimp[kept],
    )


def simulated_equalities(model: Any) -> np.ndarray:
    """Return true for simulated constraints; those of flexes are not simulated."""
    return model.eq_type <= EqualityKind.TENDON.value
