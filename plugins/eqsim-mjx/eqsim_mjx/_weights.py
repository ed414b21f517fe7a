r"""Inverse weights of links and degrees of freedom at the reference pose.

MuJoCo scales the softness of constraints by averages of diagonal entries of $M^{-1}$
and of $J M^{-1} J^T$ at the reference (`dof_invweight0`, `body_invweight0`). Its
compiler computes them. Here they are computed from the parameters of the robot, so
changed masses change them, and derivatives include them.

Source: MuJoCo documentation, *Computation*, "Parameters"; `engine_setconst.c`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from eqsim import System
from eqsim.model import JointKind

from ._mjx import mjx
from ._template import Template


def inverse_weights(sys: System, model: Any, template: Template) -> dict[str, Any]:
    """Compute `dof_invweight0` and `body_invweight0`."""
    data = jtu.tree_map(jnp.asarray, template.data).replace(qpos=sys.joints.ref)
    data = mjx.crb(model, mjx.com_pos(model, mjx.kinematics(model, data)))
    mass = mjx.full_m(model, data)
    inverse = jax.scipy.linalg.cho_solve(
        jax.scipy.linalg.cho_factor(mass), jnp.eye(sys.nv, dtype=mass.dtype)
    )

    def body(point, index):
        linear, _ = mjx.jac(model, data, point, index)
        return jnp.sum(linear * (inverse @ linear)) / 3

    weight = jax.vmap(body)(data.xipos, jnp.arange(model.nbody))
    slides = np.array(sys.links.translating, bool)
    light = 1.0 / jnp.where(sys.links.mass == 0.0, 1.0, sys.links.mass)
    link = jnp.where(slides, light, weight[1:])
    # Constraints do not use the second column, for rotations.
    both = jnp.stack([link, jnp.zeros_like(link)], axis=1)
    return dict(
        dof_invweight0=_dofs(sys, jnp.diagonal(inverse), light),
        body_invweight0=jnp.concatenate([jnp.zeros_like(both[:1]), both]),
    )


def _dofs(sys: System, diagonal: Any, light: Any) -> Any:
    """Return diagonal entries, averaged over the axes of a joint."""
    joints, parts = sys.joints, []
    for kind, start, link in zip(joints.kinds, joints.v_starts, joints.links):
        own = diagonal[start : start + kind.nv]
        if kind in (JointKind.FREE, JointKind.SPHERICAL):
            own = jnp.repeat(jnp.mean(own.reshape(-1, 3), axis=1), 3)
        elif sys.links.translating[link]:
            own = light[link][None]
        parts.append(own)
    return jnp.concatenate(parts)
