"""Reward terms of the joystick tasks of humanoids."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from eqsim.spatial import positive_part, safe_sqrt

from ._commands import is_moving
from ._joystick_rewards import beyond, clearance, soft_limits, swing_error
from ._reading import LeggedSensors
from ._task import number


class HumanoidWeights(eqx.Module):
    r"""Weights of the terms of humanoids; None for terms that a robot does not have.

    With the command $c = (v_x, v_y, \omega_z)$, velocities $v$, $\omega$ of the IMU in its
    axes and $\bar v$ in the world, height $z$ of the root and its target $z_0$, joint angles
    $q$ and their default $q_0$, torques $\tau$, action $a$ and the last action $a'$; for each
    foot $i$ height $z_i$, horizontal velocity $w_i$, contact $k_i$ (0 or 1), time in the air
    $t_i$ between $t_-$ and $t_+$, largest height of a swing $p_i$, phase $\phi_i$, and $f_i$,
    1 at the first contact after a swing; the target height of a swing is $h$:

    - `tracking_lin_vel`: $\exp(-|c_{xy} - v_{xy}|^2 / \sigma)$
    - `tracking_ang_vel`: $\exp(-(c_\omega - \omega_z)^2 / \sigma)$
    - `lin_vel_z`, `ang_vel_xy`, `orientation`: see the robot
    - `base_height`: $(z - z_0)^2$
    - `torques`: $\sum_j |\tau_j|$
    - `action_rate`: $|a - a'|^2$
    - `energy`: $\sum_j |\dot q_j| |\tau_j|$
    - `feet_clearance`: $\sum_i |z_i - h| \sqrt{|w_i|}$
    - `feet_air_time`: $\sum_i f_i \min(t_i - t_-, t_+ - t_-)$
    - `feet_slip`: $|\bar v_{xy}| \sum_i k_i$
    - `feet_height`: $\sum_i f_i (p_i / h - 1)^2$
    - `feet_phase`: $\exp(-\sum_i (z_i - h\,s(1 - |\phi_i|/\pi))^2 / \sigma_\phi)$,
        $s(x) = 3 x^2 - 2 x^3$
    - `alive`: 1
    - `stand_still`: $\sum_j |q_j - q_{0j}|$ while the command is short, else 0
    - `termination`: 1 if the episode terminates
    - `joint_deviation_knee`, `joint_deviation_hip`: $\sum |q_j - q_{0j}|$ of knees, and of
        roll and yaw of the hips
    - `dof_pos_limits`: $\sum_j$ distance of $q_j$ beyond its soft limits
    - `pose`: $\sum_j w_j (q_j - q_{0j})^2$
    - `dof_acc`, `dof_vel`: $|\ddot q|^2$ and $|\dot q|^2$. Playground's weight of `dof_acc`
        is zero; the default is None, as the term takes one more solution of the equations
        of motion in each control step.
    - `collision`, `contact_force`, `feet_distance`: see the robot
    """

    tracking_lin_vel: Float[Array, ""] = number(1.0)
    tracking_ang_vel: Float[Array, ""] = number(0.5)
    lin_vel_z: Float[Array, ""] = number(0.0)
    ang_vel_xy: Float[Array, ""] = number(-0.15)
    orientation: Float[Array, ""] = number(-1.0)
    base_height: Float[Array, ""] = number(0.0)
    torques: Float[Array, ""] = number(0.0)
    action_rate: Float[Array, ""] = number(0.0)
    energy: Float[Array, ""] = number(0.0)
    feet_clearance: Float[Array, ""] = number(0.0)
    feet_air_time: Float[Array, ""] = number(2.0)
    feet_slip: Float[Array, ""] = number(-0.25)
    feet_height: Float[Array, ""] = number(0.0)
    feet_phase: Float[Array, ""] = number(1.0)
    alive: Float[Array, ""] = number(0.0)
    stand_still: Float[Array, ""] = number(0.0)
    termination: Float[Array, ""] = number(0.0)
    joint_deviation_knee: Float[Array, ""] = number(-0.1)
    joint_deviation_hip: Float[Array, ""] = number(-0.25)
    dof_pos_limits: Float[Array, ""] = number(-1.0)
    pose: Float[Array, ""] = number(-1.0)
    dof_acc: Float[Array, ""] | None = number(None)
    dof_vel: Float[Array, ""] | None = number(None)
    collision: Float[Array, ""] | None = number(None)
    contact_force: Float[Array, ""] | None = number(None)
    feet_distance: Float[Array, ""] | None = number(None)


class HumanoidTargets(eqx.Module):
    r"""Targets and thresholds of the terms.

    **Arguments:**

    - `tracking_sigma`: width $\sigma$ of the tracking terms, m$^2$/s$^2$ and
        rad$^2$/s$^2$.
    - `foot_height`, `base_height`: target heights of a swing, $h$, and of the root, $z_0$, m.
    - `soft_limit`: soft joint limits as a fraction of the range, about its center.
    - `air_time`: $t_-$ and $t_+$, s.
    - `phase_width`: width $\sigma_\phi$ of `feet_phase`, m$^2$.
    - `still`: length of a command below which the robot should stand.
    - `lateral`: lateral velocity, m/s, above which the hips have other weights.
    """

    tracking_sigma: Float[Array, ""] = number(0.25)
    foot_height: Float[Array, ""] = number(0.12)
    base_height: Float[Array, ""] = number(0.5)
    soft_limit: Float[Array, ""] = number(0.95)
    air_time: Float[Array, "2"] = number((0.2, 0.5))
    phase_width: Float[Array, ""] = number(0.01)
    still: Float[Array, ""] = number(0.1)
    lateral: Float[Array, ""] = number(0.1)


def phase_height(
    phase: Float[Array, "2"], height: Float[Array, ""]
) -> Float[Array, "2"]:
    r"""Compute the target heights of feet by their phases, m: $h\,s(1 - |\phi|/\pi)$ with
    $s(x) = 3 x^2 - 2 x^3$."""
    x = 1.0 - jnp.abs(phase) / jnp.pi
    return height * x**2 * (3.0 - 2.0 * x)


def feet(
    seen: LeggedSensors,
    targets: HumanoidTargets,
    phase: Float[Array, "2"],
    air_time: Float[Array, "2"],
    swing_peak: Float[Array, "2"],
    landed: Bool[Array, "2"],
) -> dict[str, Float[Array, ""]]:
    """Compute the terms of the feet.

    **Arguments:**

    - `phase`: phases of the feet, rad.
    - `air_time`, `swing_peak`: air time, s, and largest height during it, m.
    - `landed`: true for feet that touch for the first time after a swing.
    """
    height, (least, most) = targets.foot_height, targets.air_time
    off = seen.feet_height - phase_height(phase, height)
    # The smaller one of time and limit.
    flight = (most - least) - positive_part(most - air_time)
    slip = safe_sqrt(jnp.sum(seen.world_velocity[:2] ** 2))
    return {
        "feet_clearance": clearance(seen, height),
        "feet_air_time": jnp.sum(jnp.where(landed, flight, 0.0)),
        "feet_slip": slip * jnp.sum(seen.contact.astype(slip.dtype)),
        "feet_height": swing_error(swing_peak, landed, height),
        "feet_phase": jnp.exp(-jnp.sum(off**2) / targets.phase_width),
    }


def posture(
    angles: Float[Array, " nu"],
    default: Float[Array, " nu"],
    joint_range: Float[Array, "nu 2"],
    targets: HumanoidTargets,
    command: Float[Array, "3"],
    weights: Float[Array, " nu"],
) -> dict[str, Float[Array, ""]]:
    """Compute the terms of all joint angles; `weights` are those of `pose`."""
    off = angles - default
    moving = is_moving(command, targets.still)
    return {
        "stand_still": jnp.where(moving, 0.0, jnp.sum(jnp.abs(off))),
        "dof_pos_limits": beyond(angles, soft_limits(joint_range, targets.soft_limit)),
        "pose": jnp.sum(weights * off**2),
    }
