"""Reward terms of legged robots."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from eqsim.spatial import positive_part, safe_sqrt

from ._drawn import is_moving
from ._joystick import JoystickStep
from ._legged import LeggedSensors
from ._task import number


def common_terms(
    now: JoystickStep,
    default: Float[Array, " nu"],
    limits: Float[Array, "nu 2"],
    sigma: Float[Array, ""],
    height: Float[Array, ""],
    still: Float[Array, ""] | float,
) -> dict[str, Float[Array, ""]]:
    """Compute the terms that all joystick tasks share, before weights.

    **Arguments:**

    - `default`, `limits`: default joint angles and their soft limits, rad.
    - `sigma`: width of the tracking terms.
    - `height`: target height of a swing, m.
    - `still`: length of a command below which the robot should stand.
    """
    state, seen, command = now.state, now.seen, now.state.command
    angles, rates = state.robot.q[7:], state.robot.qd[6:]
    slow, turn = command[:2] - seen.velocity[:2], command[2] - seen.gyro[2]
    speed2 = jnp.sum(seen.feet_velocity[:, :2] ** 2, axis=1)
    lift = jnp.abs(seen.feet_height - height)
    swing = (state.swing_peak / height - 1.0) ** 2
    bend = jnp.sum(jnp.abs(angles - default))
    return {
        "tracking_lin_vel": jnp.exp(-jnp.sum(slow**2) / sigma),
        "tracking_ang_vel": jnp.exp(-(turn**2) / sigma),
        "dof_pos_limits": beyond(angles, limits),
        "stand_still": jnp.where(is_moving(command, still), 0.0, bend),
        "feet_clearance": jnp.sum(lift * safe_sqrt(safe_sqrt(speed2))),
        "feet_height": jnp.sum(jnp.where(now.landed, swing, 0.0)),
        "termination": now.terminated.astype(angles.dtype),
        **effort(seen.torque, rates, now.action, state.last_action),
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


def torques(torque: Float[Array, " nu"]) -> Float[Array, ""]:
    """Compute the term `torques`."""
    return safe_sqrt(jnp.sum(torque**2)) + jnp.sum(jnp.abs(torque))


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
