"""Reward terms of legged locomotion and of motion tracking, by name.

A term is a function of `Motion` or of `TrackingStep`, the quantities of one control step. A
task computes the terms that its weights name, so a term without a weight costs nothing.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from eqsim.spatial import safe_sqrt
from eqsim.spatial.clamps import at_most


class Motion(NamedTuple):
    """What is known at the end of a control step, for reward terms and observations.

    - `command`: forward and lateral velocity, m/s, and yaw rate, rad/s.
    - `moving`: true if the command is not to stand.
    - `velocity`, `angular_velocity`: velocities of the root in its own axes, m/s, rad/s.
    - `world_velocity`: velocity in world axes, m/s.
    - `gravity`: direction of gravity in the axes of the root.
    - `height`: height of the root, m.
    - `deviation`: joint angles minus those of the default pose, rad.
    - `rates`: joint velocities, rad/s.
    - `acceleration`: mean joint acceleration over the control step, rad/s$^2$.
    - `beyond`: angles beyond the soft joint limits, rad, not negative.
    - `pose_weights`: weights of `deviation`.
    - `torque`, `torque_limit`: torques of the servos, and half the widths of their ranges,
        N m.
    - `action`, `last_action`: this action and the one before.
    - `contact`: true for feet that touch the ground.
    - `other_contact`: the same of the foot on the other side of each.
    - `landed`: true for feet that touch it for the first time after a swing.
    - `air_time`: time of each foot in the air, s; of a foot that landed, that of the swing.
    - `swing_peak`: largest height of each foot in that time, m.
    - `foot_height`: heights of the soles, m.
    - `foot_velocity`: velocities of the feet in world axes, m/s.
    - `foot_force`: contact forces on the feet in world axes, N.
    - `swing_height`: height of a swing that the task asks for, m.
    - `fallen`: true if the robot has fallen.
    """

    command: Float[Array, "3"]
    moving: Bool[Array, ""]
    velocity: Float[Array, "3"]
    angular_velocity: Float[Array, "3"]
    world_velocity: Float[Array, "3"]
    gravity: Float[Array, "3"]
    height: Float[Array, ""]
    deviation: Float[Array, " nu"]
    rates: Float[Array, " nu"]
    acceleration: Float[Array, " nu"]
    beyond: Float[Array, " nu"]
    pose_weights: Float[Array, " nu"]
    torque: Float[Array, " nu"]
    torque_limit: Float[Array, " nu"]
    action: Float[Array, " nu"]
    last_action: Float[Array, " nu"]
    contact: Bool[Array, " nfeet"]
    other_contact: Bool[Array, " nfeet"]
    landed: Bool[Array, " nfeet"]
    air_time: Float[Array, " nfeet"]
    swing_peak: Float[Array, " nfeet"]
    foot_height: Float[Array, " nfeet"]
    foot_velocity: Float[Array, "nfeet 3"]
    foot_force: Float[Array, "nfeet 3"]
    swing_height: Float[Array, ""]
    fallen: Bool[Array, ""]


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


Term = Callable[[Any], Float[Array, ""]]

_WIDTH = 0.25  # Of tracking terms: squares of m/s and rad/s.


def track_velocity(now: Motion) -> Float[Array, ""]:
    r"""$\exp(-|c_{xy} - v_{xy}|^2 / \sigma)$, $\sigma$ = 0.25 m$^2$/s$^2$."""
    return jnp.exp(-jnp.sum((now.command[:2] - now.velocity[:2]) ** 2) / _WIDTH)


def track_yaw_rate(now: Motion) -> Float[Array, ""]:
    r"""$\exp(-(c_\omega - \omega_z)^2 / \sigma)$, $\sigma$ = 0.25 rad$^2$/s$^2$."""
    return jnp.exp(-((now.command[2] - now.angular_velocity[2]) ** 2) / _WIDTH)


def progress(now: Motion) -> Float[Array, ""]:
    r"""$\min(c_{xy} \cdot v_{xy} / |c_{xy}|,\; |c_{xy}|)$, the velocity along the commanded
    direction, m/s; 0 without one.

    Its slope does not vanish far from the command, where that of `track_velocity` does
    (Cheng et al., *Extreme parkour with legged robots*, 2023).
    """
    speed = safe_sqrt(jnp.sum(now.command[:2] ** 2))
    along = jnp.sum(now.command[:2] * now.velocity[:2])
    return at_most(along / jnp.where(speed > 0.0, speed, 1.0), speed)


def vertical_velocity(now: Motion) -> Float[Array, ""]:
    """$v_z^2$ in the world."""
    return now.world_velocity[2] ** 2


def tilt_rate(now: Motion) -> Float[Array, ""]:
    r"""$\omega_x^2 + \omega_y^2$."""
    return jnp.sum(now.angular_velocity[:2] ** 2)


def tilt(now: Motion) -> Float[Array, ""]:
    """$g_x^2 + g_y^2$, with the direction of gravity $g$ in the axes of the root."""
    return jnp.sum(now.gravity[:2] ** 2)


def alive(now: Motion) -> Float[Array, ""]:
    """1 while the robot has not fallen."""
    return 1.0 - now.fallen.astype(now.height.dtype)


def fallen(now: Motion) -> Float[Array, ""]:
    """1 if the robot has fallen."""
    return now.fallen.astype(now.height.dtype)


def pose(now: Motion) -> Float[Array, ""]:
    r"""$\sum_j w_j (q_j - q_{0j})^2$, with the default pose $q_0$."""
    return jnp.sum(now.pose_weights * now.deviation**2)


def stand_still(now: Motion) -> Float[Array, ""]:
    r"""$\sum_j |q_j - q_{0j}|$ if the command is to stand."""
    return jnp.where(now.moving, 0.0, jnp.sum(jnp.abs(now.deviation)))


def joint_limits(now: Motion | TrackingStep) -> Float[Array, ""]:
    """Sum of the angles beyond the soft joint limits."""
    return jnp.sum(now.beyond)


def torques(now: Motion | TrackingStep) -> Float[Array, ""]:
    r"""$\sum_j (\tau_j / \tau_{\max,j})^2$, with the torque limits $\tau_{\max,j}$."""
    return jnp.sum((now.torque / now.torque_limit) ** 2)


def energy(now: Motion) -> Float[Array, ""]:
    r"""$\sum_j |\dot q_j \tau_j|$, W."""
    return jnp.sum(jnp.abs(now.rates) * jnp.abs(now.torque))


def joint_acceleration(now: Motion | TrackingStep) -> Float[Array, ""]:
    r"""$|\ddot q|^2$, of the mean acceleration over the control step."""
    return jnp.sum(now.acceleration**2)


def action_rate(now: Motion | TrackingStep) -> Float[Array, ""]:
    """$|a_t - a_{t-1}|^2$."""
    return jnp.sum((now.action - now.last_action) ** 2)


def air_time(now: Motion) -> Float[Array, ""]:
    r"""$\sum_i f_i (\min(t_i, 0.5) - 0.1)$ over feet that land ($f_i$ = 1) after $t_i$
    seconds, if the command is to move."""
    gain = at_most(now.air_time, 0.5) - 0.1
    return jnp.sum(jnp.where(now.landed & now.moving, gain, 0.0))


def alternation(now: Motion) -> Float[Array, ""]:
    """Share of the feet that touch while the foot on the other side does not, or the reverse;
    0 without a command to move. It is 1 in a trot without flight, and 0 in standing, in
    flight and in bounding."""
    one = now.contact != now.other_contact
    return jnp.where(now.moving, jnp.mean(one, dtype=now.height.dtype), 0.0)


def slip(now: Motion) -> Float[Array, ""]:
    """$\\sum_i k_i |w_i|^2$ over feet that touch ($k_i$ = 1), with horizontal velocity
    $w_i$."""
    speed2 = jnp.sum(now.foot_velocity[:, :2] ** 2, axis=1)
    return jnp.sum(jnp.where(now.contact, speed2, 0.0))


def stumble(now: Motion) -> Float[Array, ""]:
    """Number of feet whose contact force is more horizontal than vertical, as of feet that
    hit the riser of a step."""
    across = jnp.sum(now.foot_force[:, :2] ** 2, axis=1)
    hit = across > now.foot_force[:, 2] ** 2
    return jnp.sum(hit, dtype=now.height.dtype)


def clearance(now: Motion) -> Float[Array, ""]:
    r"""$\sum_i |z_i - h| \sqrt{|w_i|}$, with the foot's height $z_i$ above the ground and the
    height $h$ of a swing."""
    speed2 = jnp.sum(now.foot_velocity[:, :2] ** 2, axis=1)
    lift = jnp.abs(now.foot_height - now.swing_height)
    return jnp.sum(lift * safe_sqrt(safe_sqrt(speed2)))


def swing_height(now: Motion) -> Float[Array, ""]:
    r"""$\sum_i f_i (p_i / h - 1)^2$ over feet that land ($f_i$ = 1) after a swing up to
    $p_i$."""
    off = (now.swing_peak / now.swing_height - 1.0) ** 2
    return jnp.sum(jnp.where(now.landed & now.moving, off, 0.0))


def hop(now: Motion) -> Float[Array, ""]:
    """1 if no foot touches the ground."""
    return 1.0 - jnp.any(now.contact).astype(now.height.dtype)


TERMS: Mapping[str, Term] = MappingProxyType(
    {
        term.__name__: term
        for term in (
            *(track_velocity, track_yaw_rate, progress),
            *(vertical_velocity, tilt_rate, tilt),
            *(alive, fallen, pose, stand_still, joint_limits, torques, energy),
            *(joint_acceleration, action_rate, air_time, alternation, slip, stumble),
            *(clearance, swing_height, hop),
        )
    }
)
"""All terms of velocity tracking by name."""


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
