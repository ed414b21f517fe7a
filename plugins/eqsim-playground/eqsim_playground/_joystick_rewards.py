"""Reward terms that the joystick tasks share."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from eqsim.spatial import positive_part, safe_sqrt

from ._reading import LeggedSensors


def tracking(
    seen: LeggedSensors, command: Float[Array, "3"], sigma: Float[Array, ""]
) -> dict[str, Float[Array, ""]]:
    """Compute the terms for following the command."""
    off = command[:2] - seen.velocity[:2]
    turn = command[2] - seen.gyro[2]
    return {
        "tracking_lin_vel": jnp.exp(-jnp.sum(off**2) / sigma),
        "tracking_ang_vel": jnp.exp(-(turn**2) / sigma),
    }


def effort(
    torque: Float[Array, " nu"],
    rates: Float[Array, " nu"],
    action: Float[Array, " nu"],
    last_action: Float[Array, " nu"],
) -> dict[str, Float[Array, ""]]:
    """Compute the terms of power and of changes of the action."""
    return {
        "action_rate": jnp.sum((action - last_action) ** 2),
        "energy": jnp.sum(jnp.abs(rates) * jnp.abs(torque)),
    }


def soft_limits(
    joint_range: Float[Array, "nu 2"], share: Float[Array, ""]
) -> Float[Array, "nu 2"]:
    """Return joint limits that are a share of the range, about its center, rad."""
    low, high = joint_range.T
    middle, half = 0.5 * (low + high), 0.5 * share * (high - low)
    return jnp.stack([middle - half, middle + half], axis=1)


def beyond(
    angles: Float[Array, " nu"], limits: Float[Array, "nu 2"]
) -> Float[Array, ""]:
    """Sum the distances of joint angles beyond their soft limits, rad."""
    low, high = limits.T
    return jnp.sum(positive_part(low - angles) + positive_part(angles - high))


def clearance(seen: LeggedSensors, height: Float[Array, ""]) -> Float[Array, ""]:
    """Compute the term `feet_clearance`; `height` is the target height of a swing, m."""
    speed2 = jnp.sum(seen.feet_velocity[:, :2] ** 2, axis=1)
    lift = jnp.abs(seen.feet_height - height)
    return jnp.sum(lift * safe_sqrt(safe_sqrt(speed2)))


def swing_error(
    swing_peak: Float[Array, " nfeet"],
    landed: Bool[Array, " nfeet"],
    height: Float[Array, ""],
) -> Float[Array, ""]:
    """Compute the term `feet_height`: squared relative errors of swings that end."""
    return jnp.sum(jnp.where(landed, (swing_peak / height - 1.0) ** 2, 0.0))
