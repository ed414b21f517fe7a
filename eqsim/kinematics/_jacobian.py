"""The Jacobian of a point on a link."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batching import batch_last
from .._errors import check_shape
from ..model import check_state, System, tree
from ..model._gather import take
from ..spatial import Vec3
from ._forward import frames, kinematics, link_poses
from ._sites import point_jacobian


def jacobian(
    sys: System,
    q: Float[Array, " nq"],
    link: int,
    point: Float[Array, "3"] | None = None,
) -> Float[Array, "6 nv"]:
    r"""Compute the matrix $J(q)$ that maps $\dot q$ to the velocity of a point on a link.

    Column by column, $J_j = (\omega_j,\; v_j + \omega_j \times p)$ with the motion
    axis $(\omega_j, v_j)$ of each degree of freedom that moves the link, else zero.
    $J^T$ maps a torque and a force at the point to joint forces.

    **Arguments:**

    - `sys`: the robot.
    - `q`: coordinates.
    - `link`: index of the link, static: `sys.link("foot").index`.
    - `point`: point on the link, in its frame, m. Default: its origin.

    **Returns:** rows 0 to 2 angular velocity, rows 3 to 5 velocity of the point, in
    world axes (MuJoCo: `jacr` above `jacp` of `mj_jac`).

    ??? cite "Reference"
        Featherstone, *Rigid Body Dynamics Algorithms*, 2008, section 4.5 (geometric
        Jacobian).
    """
    check_state(sys, q)
    if point is not None:
        check_shape("point", point, {"xyz": 3})
    if not 0 <= link < sys.nlink:
        raise ValueError(
            f"There is no link {link}: links are numbered from 0 to {sys.nlink - 1}. "
            "Find the number of a link with `sys.link(name).index`."
        )
    return _jacobian(sys, q, int(link), point)


def _jacobian_fn(sys, q, link, point):
    nodes = tree(sys)
    fixed = frames(sys, nodes)
    kin = kinematics(sys, nodes, fixed, q)
    node = nodes.link_nodes[link]
    if node < 0:
        return jnp.zeros((6, sys.nv, *q.shape[1:]), q.dtype)
    pose = take(link_poses(nodes, fixed, kin), [link])
    pos = pose.pos
    if point is not None:
        pos = pose.point(Vec3(*(point[k][None] for k in range(3))))
    return point_jacobian(nodes, kin, node, pos)


_jacobian = batch_last(_jacobian_fn)
