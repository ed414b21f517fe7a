"""Sensors and frames for the observations of several tasks."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from eqsim import AbstractPipeline, Generalized, State, System
from eqsim.kinematics import forward, forward_velocity, LinkPoses
from eqsim.spatial import quaternion_matrix, safe_sqrt

from ._task import index


def sensors(
    pipeline: AbstractPipeline, sys: System, state: State, action: Float[Array, " nu"]
) -> dict[str, Float[Array, " size"]]:
    """Compute the values of all sensors of a robot, including force sensors.

    **Raises:** `ValueError` if the pipeline is not `Generalized`, the only one with
    sensors.
    """
    if not isinstance(pipeline, Generalized):
        raise ValueError(
            f"This task observes force sensors, which `{type(pipeline).__name__}` does not "
            "have. Pass `pipeline=eqsim.Generalized()`."
        )
    return pipeline.sensors(sys, state, action)


def geom_position(
    sys: System, poses: LinkPoses, name: str
) -> tuple[int, Float[Array, "3"]]:
    """Return the index of a shape, and its center in the world, m."""
    geom = index(sys.geoms.names, name, "shape")
    pos, link = sys.geoms.pos[geom], sys.geoms.links[geom]
    return geom, pos if link < 0 else poses.pos[link] + poses.rot[link] @ pos


def subtree_velocity(sys: System, state: State, name: str) -> Float[Array, "3"]:
    r"""Compute the velocity of the center of mass of a link and all links that it
    carries, m/s: $\sum_i m_i (v_i + \omega_i \times R_i c_i) / \sum_i m_i$ (MuJoCo:
    `subtreelinvel`)."""
    carried = {index(sys.links.names, name, "link")}
    # Parents come before their children.
    for link, parent in enumerate(sys.links.parents):
        if parent in carried:
            carried.add(link)
    chosen = jnp.asarray(sorted(carried))
    speed = forward_velocity(sys, state.q, state.qd)
    rot, com = forward(sys, state.q).rot[chosen], sys.links.com[chosen]
    arm = jnp.sum(rot * com[:, None], axis=2)
    velocity = speed.lin[chosen] + jnp.cross(speed.ang[chosen], arm)
    mass = sys.links.mass[chosen]
    return mass @ velocity / jnp.sum(mass)


def rotation(quat: Float[Array, "4"]) -> Float[Array, "3 3"]:
    """Return the matrix of a unit quaternion."""
    return jnp.stack(quaternion_matrix(quat)).reshape(3, 3)


def distance(vector: Float[Array, " n"]) -> Float[Array, ""]:
    """Compute the length of a vector, with derivative zero at zero."""
    return safe_sqrt(jnp.sum(vector**2))
