"""What pipelines in maximal coordinates refuse."""

import equinox as eqx
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer

from ..model import JointKind, System, tree
from ._bodies import layout
from ._pipeline import AbstractPipeline


_SHARES = ("stiffness", "damping", "erp", "relaxation", "restitution")


def check_substeps(substeps: int) -> None:
    """There must be at least one substep."""
    if not isinstance(substeps, int) or substeps < 1:
        raise ValueError(
            f"`substeps` is {substeps!r}: a number of substeps, 1 or more, is expected."
        )


def check_numbers(pipeline: AbstractPipeline) -> None:
    """Numbers of a pipeline that are known must be finite and not negative."""
    for path, leaf in jtu.tree_leaves_with_path(eqx.filter(pipeline, eqx.is_array)):
        if isinstance(leaf, Tracer):
            continue
        name = f"{type(pipeline).__name__}{jtu.keystr(path)}"
        value = np.asarray(leaf)
        if path[-1].name in _SHARES and np.any(value > 1.0):
            raise ValueError(f"`{name}` is {leaf}: a share, at most 1, is expected.")
        if not np.all(np.isfinite(value) & (value >= 0.0)):
            raise ValueError(
                f"`{name}` is {leaf}: a finite number that is not negative is expected."
            )


def check_model(sys: System) -> None:
    """Refuses what maximal coordinates cannot represent."""
    nodes, links, joints = tree(sys), sys.links, sys.joints
    known = lambda x: not isinstance(x, Tracer)
    if known(links.mass) and known(links.inertia):
        carried = np.array(nodes.link_nodes)
        mass, inertia = np.asarray(links.mass), np.asarray(links.inertia)
        for node in layout(nodes).nodes:
            riders = carried == node
            heavy = np.all(np.sum(mass[..., riders], axis=-1) > 0)
            turns = np.any(np.all(inertia[..., riders, :] > 0, axis=-1), axis=-1)
            if heavy and np.all(turns):
                continue
            name = links.names[nodes.links[node]]
            raise ValueError(
                f"Link {name!r} moves but has no mass or no inertia. Give it both, or "
                "use `Generalized`, which needs neither where a joint has armature."
            )
    for j, kind in enumerate(joints.kinds):
        if kind is not JointKind.FREE:
            continue
        dofs = slice(joints.v_starts[j], joints.v_starts[j] + 6)
        if any(joints.has_friction[dofs]):
            raise ValueError(
                f"Free joint {joints.names[j]!r} has frictionloss. Set `has_friction` to "
                "False there, or use `Generalized`, which supports it."
            )
        armature = joints.armature
        if known(armature) and np.any(np.asarray(armature)[..., dofs] != 0.0):
            raise ValueError(
                f"Free joint {joints.names[j]!r} has armature "
                f"{np.asarray(armature)[..., dofs]}. Set it to zero, or use "
                "`Generalized`, which supports it."
            )
