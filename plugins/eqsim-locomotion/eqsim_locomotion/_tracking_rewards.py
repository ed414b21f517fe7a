"""Reward terms of motion tracking, by name.

A term is a function of `TrackingStep`, the quantities of one control step.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class LinkStates(NamedTuple):
    """Poses and velocities of links in world axes.

    - `pos`, `rot`: positions of the origins, m, and rotation matrices.
    - `lin`, `ang`: velocities of the origins, m/s, and angular velocities, rad/s.
    """

    pos: Float[Array, "n 3"]
    rot: Float[Array, "n 3 3"]
    lin: Float[Array, "n 3"]
    ang: Float[Array, "n 3"]


class TrackingStep(NamedTuple):
    """Quantities of one control step, from which reward terms are computed.

    - `links`, `target`: the tracked links of the robot and of the reference.
    - `anchor`: number of the anchor among them.
    - `relative_pos`, `relative_rot`: poses of the reference, moved to the anchor of the
        robot, see `about_anchor`.
    - `angle_error`, `rate_error`: joint angles and velocities minus those of the reference,
        rad, rad/s.
    - `acceleration`: mean joint acceleration over the control step, rad/s$^2$.
    - `beyond`: angles beyond the soft joint limits, rad, not negative.
    - `torque`, `torque_limit`: torques of the servos, and half the widths of their ranges,
        N m.
    - `action`, `last_action`: this action and the one before.
    - `failed`: true if an error is too large.
    - `sigma`: width of each term that has one.
    """

    links: LinkStates
    target: LinkStates
    anchor: int
    relative_pos: Float[Array, "n 3"]
    relative_rot: Float[Array, "n 3 3"]
    angle_error: Float[Array, " nu"]
    rate_error: Float[Array, " nu"]
    acceleration: Float[Array, " nu"]
    beyond: Float[Array, " nu"]
    torque: Float[Array, " nu"]
    torque_limit: Float[Array, " nu"]
    action: Float[Array, " nu"]
    last_action: Float[Array, " nu"]
    failed: Bool[Array, ""]
    sigma: dict[str, Float[Array, ""]]


Term = Callable[[TrackingStep], Float[Array, ""]]


def square_angle(
    one: Float[Array, "*n 3 3"], other: Float[Array, "*n 3 3"]
) -> Float[Array, "*n"]:
    r"""Compute $\tfrac12 \lVert R_1 - R_2 \rVert_F^2 = 4 \sin^2(\theta / 2)$, about
    the square of the angle $\theta$ between two orientations.

    Unlike the angle, it has derivatives everywhere.
    """
    return 0.5 * jnp.sum((one - other) ** 2, axis=(-2, -1))


def about_anchor(
    target: LinkStates,
    anchor_pos: Float[Array, "3"],
    anchor_rot: Float[Array, "3 3"],
    k,
) -> tuple[Float[Array, "n 3"], Float[Array, "n 3 3"]]:
    r"""Move the poses of a reference to the anchor of the robot: horizontally and about the
    vertical, but not up or down.

    $p_i' = (p_x, p_y, \hat p_{kz}) + Y (\hat p_i - \hat p_k)$ and $R_i' = Y \hat R_i$, with
    the position $p$ of the anchor and $Y$ the rotation about the vertical that is nearest to
    $R \hat R_k^T$ (BeyondMimic, section III-B).

    **Arguments:**

    - `target`: links of the reference.
    - `anchor_pos`, `anchor_rot`: pose of the anchor of the robot.
    - `k`: number of the anchor in `target`.
    """
    turn = anchor_rot @ target.rot[k].T
    cos, sin = turn[0, 0] + turn[1, 1], turn[1, 0] - turn[0, 1]
    square = cos**2 + sin**2
    # The yaw is undefined if the anchors are upside down relative to each other; use zero.
    lost = square < 1e-8
    scale = 1.0 / jnp.sqrt(jnp.where(lost, 1.0, square))
    cos, sin = jnp.where(lost, 1.0, cos * scale), jnp.where(lost, 0.0, sin * scale)
    zero = jnp.zeros_like(cos)
    rows = (cos, -sin, zero), (sin, cos, zero), (zero, zero, zero + 1.0)
    yaw = jnp.stack([jnp.stack(row) for row in rows])
    origin = jnp.stack([anchor_pos[0], anchor_pos[1], target.pos[k, 2]])
    arms = (target.pos - target.pos[k][None]) @ yaw.T
    return origin[None] + arms, yaw[None] @ target.rot


def _gaussian(square: Float[Array, "..."], width: Float[Array, ""]) -> Float[Array, ""]:
    """Return exp of minus the mean square error over the square of a width."""
    return jnp.exp(-jnp.mean(square) / width**2)


def anchor_position(now: TrackingStep) -> Float[Array, ""]:
    r"""$\exp(-|p - \hat p|^2 / \sigma^2)$, of the anchor in the world, m."""
    gap = now.links.pos[now.anchor] - now.target.pos[now.anchor]
    return _gaussian(jnp.sum(gap**2), now.sigma["anchor_position"])


def anchor_orientation(now: TrackingStep) -> Float[Array, ""]:
    r"""$\exp(-\theta^2 / \sigma^2)$, of the anchor in the world, rad; $\theta^2$ by
    `square_angle`."""
    gap = square_angle(now.links.rot[now.anchor], now.target.rot[now.anchor])
    return _gaussian(gap, now.sigma["anchor_orientation"])


def link_positions(now: TrackingStep) -> Float[Array, ""]:
    r"""$\exp(-\frac1n \sum_i |p_i - p_i'|^2 / \sigma^2)$, with the reference $p'$ about the
    anchor of the robot, m."""
    gap = jnp.sum((now.links.pos - now.relative_pos) ** 2, axis=1)
    return _gaussian(gap, now.sigma["link_positions"])


def link_orientations(now: TrackingStep) -> Float[Array, ""]:
    r"""$\exp(-\frac1n \sum_i \theta_i^2 / \sigma^2)$, with the reference about the anchor of
    the robot, rad."""
    gap = square_angle(now.links.rot, now.relative_rot)
    return _gaussian(gap, now.sigma["link_orientations"])


def link_velocities(now: TrackingStep) -> Float[Array, ""]:
    r"""$\exp(-\frac1n \sum_i |v_i - \hat v_i|^2 / \sigma^2)$ in the world, m/s."""
    gap = jnp.sum((now.links.lin - now.target.lin) ** 2, axis=1)
    return _gaussian(gap, now.sigma["link_velocities"])


def link_rates(now: TrackingStep) -> Float[Array, ""]:
    r"""$\exp(-\frac1n \sum_i |\omega_i - \hat \omega_i|^2 / \sigma^2)$ in the world, rad/s."""
    gap = jnp.sum((now.links.ang - now.target.ang) ** 2, axis=1)
    return _gaussian(gap, now.sigma["link_rates"])


def joint_positions(now: TrackingStep) -> Float[Array, ""]:
    r"""$\exp(-\frac1n \sum_j (q_j - \hat q_j)^2 / \sigma^2)$, rad."""
    return _gaussian(now.angle_error**2, now.sigma["joint_positions"])


def joint_velocities(now: TrackingStep) -> Float[Array, ""]:
    r"""$\exp(-\frac1n \sum_j (\dot q_j - \hat{\dot q}_j)^2 / \sigma^2)$, rad/s."""
    return _gaussian(now.rate_error**2, now.sigma["joint_velocities"])


def action_rate(now: TrackingStep) -> Float[Array, ""]:
    """$|a_t - a_{t-1}|^2$."""
    return jnp.sum((now.action - now.last_action) ** 2)


def joint_limits(now: TrackingStep) -> Float[Array, ""]:
    """Sum of the angles beyond the soft joint limits, rad."""
    return jnp.sum(now.beyond)


def torques(now: TrackingStep) -> Float[Array, ""]:
    r"""$\sum_j (\tau_j / \tau_{\max,j})^2$, with the torque limits $\tau_{\max,j}$."""
    return jnp.sum((now.torque / now.torque_limit) ** 2)


def joint_acceleration(now: TrackingStep) -> Float[Array, ""]:
    r"""$|\ddot q|^2$, of the mean acceleration over the control step."""
    return jnp.sum(now.acceleration**2)


def failed(now: TrackingStep) -> Float[Array, ""]:
    """1 if an error is too large, see `limits`."""
    return now.failed.astype(now.action.dtype)


TRACKING_TERMS: Mapping[str, Term] = MappingProxyType(
    {
        term.__name__: term
        for term in (
            *(anchor_position, anchor_orientation, link_positions, link_orientations),
            *(link_velocities, link_rates, joint_positions, joint_velocities),
            *(action_rate, joint_limits, torques, joint_acceleration, failed),
        )
    }
)
"""All terms by name."""
