"""Sensors and frames for observations, and starts without contact."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from eqsim import AbstractPipeline, Generalized, State, System
from eqsim.collision import in_contact
from eqsim.kinematics import forward, forward_velocity, LinkPoses
from eqsim.pipelines import Contacts
from eqsim.spatial import quaternion_matrix, safe_sqrt

from ._task import index, random_joints


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


MOST_DRAWS = 10_000


def draw_without_contact(
    draw: Callable[[PRNGKeyArray, System], Any], key: PRNGKeyArray, sys: System
) -> Any:
    """Draw until no shapes are in contact, as in the suite (rejection sampling).

    The loop carries only keys, and the accepted draw is computed after it, so
    derivatives with respect to the robot are those of the accepted draw, in both modes.

    **Arguments:**

    - `draw`: function `(key, sys) -> (q, robot, result)`: coordinates and the robot,
        whose shapes must not be in contact, and the value to return.

    **Returns:** the result of the first draw without contact, or of the last of 10,000
    draws.
    """
    fixed = _without_derivatives(sys)

    # The result of the test is carried, because a condition would be computed twice in
    # a batch.
    def go_on(carry):
        return carry[3] & (carry[2] < MOST_DRAWS)

    def go(carry):
        chain, key = jr.split(carry[0])
        q, robot, _ = draw(key, fixed)
        return chain, key, carry[2] + 1, in_contact(robot, q)

    first = key, key, jnp.zeros((), jnp.int32), jnp.ones((), bool)
    return draw(lax.while_loop(go_on, go, first)[1], sys)[2]


def random_pose(key: PRNGKeyArray, sys: System):
    """Draw coordinates of a random pose, for `draw_without_contact`."""
    q = random_joints(sys, key)
    return q, sys, q


def random_quaternion(key: PRNGKeyArray, sys: System) -> Float[Array, "4"]:
    """Draw a uniformly distributed orientation."""
    quat = jr.normal(key, (4,), sys.joints.ref.dtype)
    return quat / jnp.linalg.norm(quat)


def lift_without_contact(
    sys: System, q: Float[Array, " nq"], height: int
) -> Float[Array, " nq"]:
    """Raise a robot from height 0 in steps of 1 cm until no shapes are in contact.

    **Arguments:**

    - `q`: coordinates.
    - `height`: index of the height among the coordinates.

    **Returns:** the coordinates, at a height of at most 100 m. Their derivatives are
    those of `q`, except that of the height, which is zero.
    """
    fixed, held = _without_derivatives((sys, q))
    raised = lambda q, count: q.at[height].set(0.01 * count.astype(q.dtype))

    def go_on(carry):
        return carry[1] & (carry[0] < MOST_DRAWS)

    def go(carry):
        count = carry[0] + 1
        return count, in_contact(fixed, raised(held, count))

    first = -jnp.ones((), jnp.int32), jnp.ones((), bool)
    return raised(q, lax.while_loop(go_on, go, first)[0])


def _without_derivatives(tree: Any) -> Any:
    hold = lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x
    return jtu.tree_map(hold, tree)
