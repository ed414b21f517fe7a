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
    poses, links = forward(sys, q), jnp.asarray([*sys.geoms.links, -1])
    normal, force = contacts.frame[:, 0], contacts.force
    pressure = jnp.sum(normal * force, axis=1)
    # A normal points from the first shape to the second.
    first = links[contacts.geoms[:, 0]] == link
    ray = jnp.where(first[:, None], normal, -normal)
    center = poses.pos[link] + poses.rot[link] @ place
    away = contacts.pos - center[None]
    # The ray is |away + t ray| = radius for some t >= 0.
    along = jnp.sum(away * ray, axis=1)
    outside = jnp.sum(away**2, axis=1) - radius**2
    hit = (outside <= 0.0) | ((along <= 0.0) & (along**2 >= outside))
    hit = hit & contacts.of_link(sys, link)
    return jnp.sum(jnp.where(hit, pressure, jnp.zeros_like(pressure)))
