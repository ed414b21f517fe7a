"""MuJoCo's touch sensor, for spherical sites."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from eqsim import System
from eqsim.kinematics import forward
from eqsim.pipelines import Contacts


def touch(
    sys: System,
    q: Float[Array, " nq"],
    contacts: Contacts,
    link: int,
    place: Float[Array, "3"],
    radius: Float[Array, ""],
) -> Float[Array, ""]:
    r"""Compute the contact force on a ball that is fixed to a link, N.

    $\sum_k n_k \cdot f_k$ over those contacts $k$ of the link whose ray, from the
    contact point along the normal that points away from the link, intersects the ball.

    **Arguments:**

    - `sys`, `q`: the robot and its coordinates.
    - `contacts`: contacts from `pipeline.contacts` at these coordinates.
    - `link`: index of the link.
    - `place`, `radius`: center of the ball in the link, and its radius, m.
    """
    links = [[sys.geoms.links[g] for g in pair] for pair in contacts.geoms]
    own = [k for k, ends in enumerate(links) if link in ends]
    if not own:
        return jnp.zeros((), q.dtype)
    poses, at = forward(sys, q), jnp.asarray(own)
    # A normal points from the first shape to the second.
    signs = [1.0 if links[k][0] == link else -1.0 for k in own]
    normal, force = contacts.frame[at, 0], contacts.force[at]
    pressure = jnp.sum(normal * force, axis=1)
    ray = jnp.asarray(signs, q.dtype)[:, None] * normal
    center = poses.pos[link] + poses.rot[link] @ place
    away = contacts.pos[at] - center[None]
    # The ray is |away + t ray| = radius for some t >= 0.
    along = jnp.sum(away * ray, axis=1)
    outside = jnp.sum(away**2, axis=1) - radius**2
    hit = (outside <= 0.0) | ((along <= 0.0) & (along**2 >= outside))
    return jnp.sum(jnp.where(hit, pressure, jnp.zeros_like(pressure)))
