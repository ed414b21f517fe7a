"""Checks of models and settings that pipelines in maximal coordinates do not
support."""

import equinox as eqx
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer

from .._errors import check_count
from ..collision import contact_plan
from ..constraint import contact_dimensions
from ..dynamics._passive import armature
from ..model import JointKind, System, tree
from ._rigid_bodies import body_layout


_SHARES = ("stiffness", "damping", "erp", "relaxation", "restitution")


def check_substeps(substeps: int) -> None:
    """Check that there is at least one substep."""
    check_count("substeps", substeps)


def check_parameters(pipeline: eqx.Module) -> None:
    """Check that known parameters of a pipeline are finite and not negative."""
    for path, leaf in jtu.tree_leaves_with_path(eqx.filter(pipeline, eqx.is_array)):
        if isinstance(leaf, Tracer):
            continue
        name = f"{type(pipeline).__name__}{jtu.keystr(path)}"
        value = np.asarray(leaf)
        if path[-1].name in _SHARES and np.any(value > 1.0):
            raise ValueError(f"`{name}` must be at most 1, got {leaf}.")
        if not np.all(np.isfinite(value) & (value >= 0.0)):
            raise ValueError(f"`{name}` must be finite and not negative, got {leaf}.")


def check_model(sys: System) -> None:
    """Reject models that maximal coordinates cannot represent."""
    nodes, links, joints = tree(sys), sys.links, sys.joints
    known = lambda x: not isinstance(x, Tracer)
    if known(links.mass) and known(links.inertia):
        mass, inertia = np.asarray(links.mass), np.asarray(links.inertia)
        for node in body_layout(nodes).nodes:
            riders = np.array(nodes.link_nodes) == node
            heavy = np.all(np.sum(mass[..., riders], axis=-1) > 0)
            turns = np.any(np.all(inertia[..., riders, :] > 0, axis=-1), axis=-1)
            if not (heavy and np.all(turns)):
                name = links.names[nodes.links[node]]
                raise ValueError(
                    f"Link {name!r} moves but has no mass or no inertia. Give it both, "
                    "or use `Generalized`, which needs neither where a joint has "
                    "armature."
                )
    _check_actuators(sys)
    _check_tendons(sys)
    _check_constraints(sys)
    for j, kind in enumerate(joints.kinds):
        dofs = slice(joints.v_starts[j], joints.v_starts[j] + 6)
        if kind is JointKind.FREE and any(joints.has_friction[dofs]):
            raise ValueError(
                f"Free joint {joints.names[j]!r} has frictionloss. Set `has_friction` to "
                "False there, or use `Generalized`, which supports it."
            )
        rotor = armature(sys) if kind is JointKind.FREE else None
        if rotor is None or not known(rotor):
            continue
        rotor = np.asarray(rotor)[..., dofs]
        if np.any(rotor != 0.0):
            raise ValueError(
                f"Free joint {joints.names[j]!r} has armature {rotor}. Set it to "
                "zero, or use `Generalized`, which supports it."
            )


def _check_actuators(sys: System) -> None:
    """Reject actuators that need constraints or joint forces of the whole robot."""
    actuators, joints = sys.actuators, sys.joints
    others = [n for n, joint in zip(actuators.names, actuators.joints) if joint < 0]
    if others:
        raise ValueError(
            f"Actuator {others[0]!r} does not act on a joint. Use `Generalized`, which "
            "supports it."
        )
    powered = sys.nactuator > 0 and actuators.active
    for j, name in enumerate(joints.names):
        if joints.actuator_gravity[j] and (joints.force_limited[j] or not powered):
            raise ValueError(
                f"Actuators compensate gravity at joint {name!r} within limits. Set "
                "`actuator_gravity` to False, or use `Generalized`, which supports it."
            )


def _check_tendons(sys: System) -> None:
    """Reject tendons with constraints or inertia."""
    tendons = sys.tendons
    for word, marks in (
        ("a limit", tendons.limited),
        ("dry friction", tendons.has_friction),
        ("armature", tendons.has_armature),
    ):
        for name, has in zip(tendons.names, marks):
            if has:
                raise ValueError(
                    f"Tendon {name!r} has {word}. Remove it, or use `Generalized`, which "
                    "supports it."
                )


def _check_constraints(sys: System) -> None:
    """Reject equality constraints, and torsional and rolling friction."""
    for name in sys.equalities.names:
        raise ValueError(
            f"Equality constraint {name!r} cannot be simulated in maximal coordinates. "
            "Remove it, or use `Generalized`, which supports it."
        )
    plan = contact_plan(sys)
    for size, pair in zip(contact_dimensions(sys, plan), plan.point_pairs):
        if size > 3:
            one, two = (sys.geoms.names[k] for k in plan.pairs[pair][:2])
            raise ValueError(
                f"Contacts of shape {one!r} with {two!r} have torsional friction (condim "
                f"{size}). Set `condim` to 3, or use `Generalized`, which supports it."
            )
