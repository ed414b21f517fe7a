"""Parameters without influence on the motion, whose gradient is always zero.

They are computed from the program of a step: an entry has influence if the next state is
computed from it. `_REASONS` only explains the result.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

from .._batching import influences
from ..model import array_ranks, candidate_pairs, GeomKind, System
from ._generalized import Generalized


class Inactive(NamedTuple):
    """The parameters of a robot without influence on its motion.

    **Arguments:**

    - `mask`: the robot with a boolean NumPy array in place of each array, True for
        entries without influence.
    - `reasons`: reason and number of entries without influence, by path, such as
        `"joints.frictionloss"`.
    """

    mask: System
    reasons: dict[str, str]


def inactive_parameters(sys: System) -> Inactive:
    """Find the parameters that cannot influence the motion of this robot, because a
    static flag is off or the part that they describe is absent.

    Derivatives with respect to them are zero in every state. Only the structure is
    used, so this works for batches and while tracing. The first call for a structure
    traces a step. The result applies to `Generalized`; `Spring` and `Positional` ignore
    further parameters, see `docs/pipelines.md`.

    **Arguments:**

    - `sys`: the robot.

    **Returns:** a mask and the reasons. Parameters that have no influence because of
    the value of another parameter (the rest position of a spring with zero stiffness)
    or because of the state (the friction of a foot in the air) are not included.
    """
    leaves, structure = jtu.tree_flatten_with_path(eqx.filter(sys, _is_array))
    ranks, paths = array_ranks(sys), [_name(path) for path, _ in leaves]
    pairs = [(x, x.ndim - ranks[path]) for path, (_, x) in zip(paths, leaves)]
    entries = tuple((x.shape[batch:], x.dtype) for x, batch in pairs)
    double = bool(jax.config.read("jax_enable_x64"))
    found = _inactive_entries(structure, entries, double)
    masks, reasons = [], {}
    for path, (x, _), mask in zip(paths, pairs, found, strict=True):
        mask = np.array(np.broadcast_to(mask, x.shape))
        if mask.any():
            reasons[path] = f"{_reason(path)} ({_count(mask)})"
        masks.append(mask)
    return Inactive(jtu.tree_unflatten(structure, masks), reasons)


@functools.lru_cache(maxsize=64)
def _inactive_entries(structure, entries: tuple, double: bool) -> list[np.ndarray]:
    """Return the mask of each array of a robot of given structure.

    **Arguments:**

    - `entries`: shapes and types of the arrays.
    """
    del double
    leaves = [jax.ShapeDtypeStruct(*entry) for entry in entries]
    sys = jtu.tree_unflatten(structure, leaves)
    sizes = sys.nq, sys.nv, sys.na, sys.nu
    inputs = [jax.ShapeDtypeStruct((size,), sys.dt.dtype) for size in sizes]
    flags = influences(_step, sys, *inputs)[: len(leaves)]
    tables = _unread_tables(sys)
    paths = [_name(path) for path, _ in jtu.tree_leaves_with_path(sys)]
    pairs = zip(paths, flags, strict=True)
    return [np.asarray(~flag | tables.get(path, False)) for path, flag in pairs]


def _step(sys: System, q, qd, act, ctrl):
    pipeline = Generalized()
    state = eqx.tree_at(lambda s: s.act, pipeline.init(sys, q, qd), act)
    new = pipeline.step(sys, state, ctrl)
    return new.q, new.qd, new.act


def _unread_tables(sys: System) -> dict[str, np.ndarray]:
    """Return flags of the vertices and heights of shapes that nothing can touch. All
    meshes share one table, which a step reads at computed places."""
    geoms, hulls, fields = sys.geoms, sys.meshes.hulls, sys.height_fields
    touching = {geom for pair in candidate_pairs(sys) for geom in pair[:2]}
    apart = lambda kind, count: (
        ~np.isin(
            np.arange(count),
            [geoms.data[geom] for geom in touching if geoms.kinds[geom] is kind],
        )
    )
    vertices = np.repeat(apart(GeomKind.MESH, sys.nmesh), np.diff(hulls.vertex_starts))
    sizes = np.multiply(fields.rows, fields.columns).astype(int)
    heights = np.repeat(apart(GeomKind.HFIELD, sys.nfield), sizes)
    return {"meshes.vertices": vertices[:, None], "height_fields.heights": heights}


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _name(path) -> str:
    return jtu.keystr(path).lstrip(".")


def _count(mask: np.ndarray) -> str:
    marked = int(np.sum(mask))
    return "all of it" if marked == mask.size else f"{marked} of {mask.size} entries"


# Reasons.


def _reason(path: str) -> str:
    """Return the reason of an array, or that of its part."""
    part = path.rpartition(".")[0]
    return _REASONS.get(path) or _REASONS.get(part) or "the equations do not contain it"


_FLUID = "System.has_fluid is False"
_APART = "the shape cannot touch another one"
_OTHERS = (
    f"{_APART}, or another parameter decides (Pairs, or a shape of higher priority)"
)
_GAP = "it only says where contacts begin"
_FIXED = "the link is fixed to the world"
_PLACED = "the coordinates of a free joint place the link"
_UNLIMITED, _SMOOTH = "Joints.limited is False", "Joints.has_friction is False"
_NO_VIOLATION = "dry friction has no violation, on which the impedance could depend"
_UNATTACHED = "nothing is attached to the site"
_LAW = "the actuator is disabled, or its force law has other parameters"
_SINGLE = "the actuator does not act on a joint or tendon with one force"
_KIND = "this kind of constraint has no such parameter"
_REASONS = {
    "density": _FLUID,
    "viscosity": _FLUID,
    "wind": _FLUID,
    "impratio": "no contact has friction",
    "links": _FIXED,
    "links.pos": _PLACED,
    "links.quat": _PLACED,
    "joints.range": _UNLIMITED,
    "joints.limit_margin": _UNLIMITED,
    "joints.limit_solref": _UNLIMITED,
    "joints.limit_solimp": _UNLIMITED,
    "joints.frictionloss": _SMOOTH,
    "joints.friction_solref": _SMOOTH,
    "joints.friction_solimp": f"{_SMOOTH}, or {_NO_VIOLATION}",
    "joints.force_range": "Joints.force_limited is False",
    "joints.anchor": "the joint does not turn about a point",
    "joints.axis": "free and spherical joints have no axis",
    "geoms": _APART,
    "geoms.size": f"{_APART}, or has fewer sizes",
    "geoms.friction": f"{_OTHERS}, or condim leaves out this friction",
    "geoms.solref": _OTHERS,
    "geoms.solimp": _OTHERS,
    "geoms.solmix": _OTHERS,
    "geoms.margin": _OTHERS,
    "geoms.adhesion": _OTHERS,
    "geoms.gap": _GAP,
    "geoms.surface_velocity": f"{_APART}, or its contacts have no friction",
    "geoms.fluid_coefficients": "no fluid acts on the shape",
    "pairs": "the two shapes cannot touch",
    "pairs.friction": "the shapes cannot touch, or condim leaves out this friction",
    "pairs.gap": _GAP,
    "pairs.solref_friction": (
        "only elliptic cones with friction have a softness along friction axes"
    ),
    "actuators.ctrl_range": "Actuators.ctrl_limited is False",
    "actuators.force_range": "Actuators.force_limited is False",
    "actuators.act_range": "Actuators.act_limited is False, or states have other bounds",
    "actuators.time_constant": "the actuator has no filter",
    "actuators.crank_length": "the actuator has no crank",
    "actuators.gear": "the transmission has fewer directions",
    "actuators.gain": _LAW,
    "actuators.bias": _LAW,
    "actuators.damping": _SINGLE,
    "actuators.damping_poly": _SINGLE,
    "actuators.armature": _SINGLE,
    "actuators.muscles.force": "the peak force is scaled",
    "actuators.muscles.scale": "the peak force is given",
    "actuators.motors": "the motor is disabled, or has no such controller or state",
    "actuators.pids": "the servo is disabled, or has no such state",
    "actuators.pids.max_integral": "it only says when the integral stops",
    "actuators.discrete_pids": "the servo has no such state, or no bound",
    "tendons.coef": "the tendon exerts no force",
    "tendons.stiffness": "Tendons.has_spring is False",
    "tendons.stiffness_poly": "Tendons.has_spring is False",
    "tendons.spring_length": (
        "Tendons.has_spring is False, or Tendons.rests_at_reference is True"
    ),
    "tendons.damping": "Tendons.has_damping is False",
    "tendons.damping_poly": "Tendons.has_damping is False",
    "tendons.range": "Tendons.limited is False",
    "tendons.limit_margin": "Tendons.limited is False",
    "tendons.limit_solref": "Tendons.limited is False",
    "tendons.limit_solimp": "Tendons.limited is False",
    "tendons.frictionloss": "Tendons.has_friction is False",
    "tendons.friction_solref": "Tendons.has_friction is False",
    "tendons.friction_solimp": f"Tendons.has_friction is False, or {_NO_VIOLATION}",
    "tendons.armature": "Tendons.has_armature is False",
    "tendons.actuator_force_range": "Tendons.actuator_force_limited is False",
    "equalities": _KIND,
    "equalities.active": "it is a switch, without a derivative",
    "equalities.coefficients": f"{_KIND}, or the joint or tendon has no partner",
    "sites": _UNATTACHED,
    "sites.size": "the shape of a site does not change the motion",
    "sensors": "sensors do not influence the motion",
    "keyframes": "keyframes do not change the motion",
    "meshes.vertices": "no shape with this mesh can touch another one",
    "meshes.other_vertices": "only vertices of the convex hull touch",
    "height_fields": "nothing can touch this height field",
}
"""Reasons for which entries of an array, or of the arrays of a part, have no influence."""
