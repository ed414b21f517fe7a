"""Parameters of a `System` in MJX's model.

| `System` | `mjx.Model` |
|---|---|
| `links.pos quat mass com inertia inertia_quat` | `body_pos quat mass ipos inertia iquat` |
| `links.gravity_compensation` | `body_gravcomp` |
| `joints.anchor axis range limit_margin` | `jnt_pos axis range margin` |
| `joints.limit_solref limit_solimp` | `jnt_solref solimp` |
| `joints.stiffness`, of hinges and slides | `jnt_stiffness`; of others a force |
| `joints.ref spring_ref` | `qpos0 qpos_spring` |
| `joints.damping armature frictionloss` | `dof_damping armature frictionloss` |
| `joints.friction_solref friction_solimp` | `dof_solref solimp` |
| `geoms.pos quat size friction solref solimp solmix margin` | `geom_*` |
| `pairs.friction solref solimp margin` | `pair_*` |
| `actuators.gear gain bias time_constant` | `actuator_gear gainprm biasprm dynprm` |
| `actuators.ctrl_range force_range act_range` | `actuator_ctrlrange forcerange actrange` |
| `gravity wind density viscosity impratio dt` | `opt.*`, `dt` as `timestep` |

These are all parameters of a `System`; its static parts are static in the template.
MuJoCo's inverse weights are computed from the parameters (`inverse_weights`). Steps do not
use other values of MJX's model.

Inverse weights are those of links and degrees of freedom at the reference pose.

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

from ._template import mjx, Template


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


def fill(sys: System, template: Template, tolerance: Any) -> Any:
    """Return MJX's model of a robot, differentiable with respect to all parameters of
    the robot."""
    model = jtu.tree_map(jnp.asarray, template.model)
    model = model.replace(
        **_bodies(sys, model),
        **_joints(sys),
        **_shapes(sys, template),
        **_actuators(sys, model),
        opt=_option(sys, model.opt, tolerance),
    )
    return model.replace(**inverse_weights(sys, model, template))


def turning(sys: System) -> np.ndarray:
    """Return true for ball and free joints."""
    kinds = (JointKind.FREE, JointKind.SPHERICAL)
    return np.array([kind in kinds for kind in sys.joints.kinds], bool)


def _unit(vectors: Any) -> Any:
    """Normalize vectors; zero vectors are returned."""
    square = jnp.sum(vectors**2, axis=-1, keepdims=True)
    return vectors / jnp.sqrt(jnp.where(square > 0.0, square, 1.0))


def _bodies(sys: System, model: Any) -> dict[str, Any]:
    links = sys.links
    with_world = lambda old, new: jnp.concatenate([old[:1], new])
    return dict(
        body_pos=with_world(model.body_pos, links.pos),
        body_quat=with_world(model.body_quat, _unit(links.quat)),
        body_mass=with_world(model.body_mass, links.mass),
        body_ipos=with_world(model.body_ipos, links.com),
        body_inertia=with_world(model.body_inertia, links.inertia),
        body_iquat=with_world(model.body_iquat, _unit(links.inertia_quat)),
        body_gravcomp=with_world(model.body_gravcomp, links.gravity_compensation),
    )


def _joints(sys: System) -> dict[str, Any]:
    joints = sys.joints
    loss = joints.frictionloss
    return dict(
        jnt_pos=joints.anchor,
        jnt_axis=_unit(joints.axis),
        jnt_range=joints.range,
        jnt_margin=joints.limit_margin,
        jnt_solref=joints.limit_solref,
        jnt_solimp=joints.limit_solimp,
        # MJX's spring of a ball or free joint has zero derivative at rest: see
        # `_dynamics.py`.
        jnt_stiffness=jnp.where(turning(sys), 0.0, joints.stiffness),
        qpos0=joints.ref,
        qpos_spring=joints.spring_ref,
        dof_damping=joints.damping,
        dof_armature=joints.armature,
        # In MJX, a joint whose dry friction is zero would be stuck.
        dof_frictionloss=loss + jnp.where(loss > 0.0, 0.0, 1e-12),
        dof_solref=joints.friction_solref,
        dof_solimp=joints.friction_solimp,
    )


def _shapes(sys: System, template: Template) -> dict[str, Any]:
    at, of = template.geoms, template.pairs
    geoms, pairs = sys.geoms, sys.pairs
    return dict(
        geom_pos=geoms.pos[at],
        geom_quat=_unit(geoms.quat[at]),
        geom_size=geoms.size[at],
        geom_friction=geoms.friction[at],
        geom_solref=geoms.solref[at],
        geom_solimp=geoms.solimp[at],
        geom_solmix=geoms.solmix[at],
        geom_margin=geoms.margin[at],
        pair_friction=pairs.friction[of],
        pair_solref=pairs.solref[of],
        pair_solimp=pairs.solimp[of],
        pair_margin=pairs.margin[of],
    )


def _actuators(sys: System, model: Any) -> dict[str, Any]:
    actuators = sys.actuators
    return dict(
        actuator_gear=actuators.gear,
        actuator_gainprm=model.actuator_gainprm.at[:, :3].set(actuators.gain),
        actuator_biasprm=model.actuator_biasprm.at[:, :3].set(actuators.bias),
        actuator_dynprm=model.actuator_dynprm.at[:, 0].set(actuators.time_constant),
        actuator_ctrlrange=actuators.ctrl_range,
        actuator_forcerange=actuators.force_range,
        actuator_actrange=actuators.act_range,
    )


def _option(sys: System, option: Any, tolerance: Any) -> Any:
    return option.replace(
        gravity=sys.gravity,
        wind=sys.wind,
        density=sys.density,
        viscosity=sys.viscosity,
        impratio=sys.impratio,
        timestep=sys.dt,
        tolerance=tolerance,
    )
