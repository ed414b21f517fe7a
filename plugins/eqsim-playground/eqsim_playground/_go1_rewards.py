"""Reward terms of the joystick task of the Go1."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from eqsim.spatial import safe_sqrt

from ._joystick_rewards import beyond, clearance, swing_error
from ._reading import LeggedSensors
from ._task import number


class JoystickWeights(eqx.Module):
    r"""Weights of the terms of the joystick reward.

    With the command $c = (v_x, v_y, \omega_z)$, velocities $v$, $\omega$ of the IMU in its
    axes and $\bar v$, $\bar\omega$ in the world, its vertical axis $u$, joint angles $q$ and
    their default $q_0$, torques $\tau$, action $a$ and the last action $a'$; for each foot
    $i$ height $z_i$, horizontal velocity $w_i$, contact $k_i$ (0 or 1), time in the air $t_i$,
    largest height of a swing $p_i$, and $f_i$, 1 at the first contact after a swing; $m$ is 1
    if the command is longer than 0.01, else 0:

    - `tracking_lin_vel`: $\exp(-|c_{xy} - v_{xy}|^2 / \sigma)$
    - `tracking_ang_vel`: $\exp(-(c_\omega - \omega_z)^2 / \sigma)$
    - `lin_vel_z`: $\bar v_z^2$
    - `ang_vel_xy`: $|\bar\omega_{xy}|^2$
    - `orientation`: $|u_{xy}|^2$
    - `dof_pos_limits`: $\sum_j$ distance of $q_j$ beyond its soft limits
    - `pose`: $\exp(-\sum_j w_j (q_j - q_{0j})^2)$, $w = 0.1$ for knees, else 1
    - `termination`: 1 if the robot has fallen
    - `stand_still`: $\sum_j |q_j - q_{0j}|$ if the command is shorter than 0.01, else 0
    - `torques`: $|\tau| + \sum_j |\tau_j|$
    - `action_rate`: $|a - a'|^2$
    - `energy`: $\sum_j |\dot q_j| |\tau_j|$
    - `feet_clearance`: $\sum_i |z_i - h| \sqrt{|w_i|}$
    - `feet_height`: $m \sum_i f_i (p_i / h - 1)^2$
    - `feet_slip`: $m \sum_i k_i |w_i|^2$
    - `feet_air_time`: $m \sum_i f_i (t_i - 0.1)$
    """

    tracking_lin_vel: Float[Array, ""] = number(1.0)
    tracking_ang_vel: Float[Array, ""] = number(0.5)
    lin_vel_z: Float[Array, ""] = number(-0.5)
    ang_vel_xy: Float[Array, ""] = number(-0.05)
    orientation: Float[Array, ""] = number(-5.0)
    dof_pos_limits: Float[Array, ""] = number(-1.0)
    pose: Float[Array, ""] = number(0.5)
    termination: Float[Array, ""] = number(-1.0)
    stand_still: Float[Array, ""] = number(-1.0)
    torques: Float[Array, ""] = number(-0.0002)
    action_rate: Float[Array, ""] = number(-0.01)
    energy: Float[Array, ""] = number(-0.001)
    feet_clearance: Float[Array, ""] = number(-2.0)
    feet_height: Float[Array, ""] = number(-0.2)
    feet_slip: Float[Array, ""] = number(-0.1)
    feet_air_time: Float[Array, ""] = number(0.1)


def level(seen: LeggedSensors) -> dict[str, Float[Array, ""]]:
    """Compute the terms for a trunk that is level and does not move up and down."""
    return {
        "lin_vel_z": seen.world_velocity[2] ** 2,
        "ang_vel_xy": jnp.sum(seen.world_rate[:2] ** 2),
        "orientation": jnp.sum(seen.up[:2] ** 2),
    }


def posture(
    angles: Float[Array, " nu"],
    default: Float[Array, " nu"],
    limits: Float[Array, "nu 2"],
    moving: Bool[Array, ""],
) -> dict[str, Float[Array, ""]]:
    """Compute the terms of joint angles; `limits` are the soft limits, rad."""
    weight = jnp.tile(jnp.asarray([1.0, 1.0, 0.1], angles.dtype), 4)
    off = angles - default
    return {
        "dof_pos_limits": beyond(angles, limits),
        "pose": jnp.exp(-jnp.sum(weight * off**2)),
        "stand_still": jnp.where(moving, 0.0, jnp.sum(jnp.abs(off))),
    }


def torques(torque: Float[Array, " nu"]) -> Float[Array, ""]:
    """Compute the term `torques`."""
    return safe_sqrt(jnp.sum(torque**2)) + jnp.sum(jnp.abs(torque))


def gait(
    seen: LeggedSensors,
    air_time: Float[Array, "4"],
    swing_peak: Float[Array, "4"],
    landed: Bool[Array, "4"],
    moving: Bool[Array, ""],
    height: Float[Array, ""],
) -> dict[str, Float[Array, ""]]:
    """Compute the terms of the feet.

    **Arguments:**

    - `air_time`, `swing_peak`: air time, s, and largest height during it, m.
    - `landed`: true for feet that touch for the first time after a swing.
    - `height`: target height of a swing, m.
    """
    speed2 = jnp.sum(seen.feet_velocity[:, :2] ** 2, axis=1)
    counts = landed & moving
    return {
        "feet_clearance": clearance(seen, height),
        "feet_height": swing_error(swing_peak, counts, height),
        "feet_slip": jnp.sum(jnp.where(seen.contact & moving, speed2, 0.0)),
        "feet_air_time": jnp.sum(jnp.where(counts, air_time - 0.1, 0.0)),
    }
