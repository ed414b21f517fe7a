"""Muscles: active and passive force over length and velocity, and activation.

MuJoCo documentation, *Modeling*, "Muscles"; `mju_muscleGain`, `mju_muscleBias`,
`mju_muscleDynamics`. Time constants after Millard, Uchida, Seth and Delp, *Flexing
computational muscle*, 2013.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..model import MuscleActivations, Muscles
from ..model._gather import replace, take
from ..spatial import clamp


TINY = 1e-15


class MuscleScale(NamedTuple):
    """Peak force, and optimal length, of each row of `Muscles`."""

    force: Any
    optimal_length: Any


def muscle_scale(muscles: Muscles, unit_accelerations) -> MuscleScale:
    """Compute peak forces and optimal lengths.

    **Arguments:**

    - `unit_accelerations`: norm of the joint accelerations that a unit force causes at
        the reference coordinates, for each row that is scaled; see
        `muscle_scales`.
    """
    force, scaled = muscles.force, np.flatnonzero(muscles.scaled)
    if len(scaled):
        auto = take(muscles.scale, scaled) / jnp.maximum(unit_accelerations, TINY)
        force = replace(force, scaled, auto)
    length = muscles.length_range[:, 1] - muscles.length_range[:, 0]
    span = muscles.range[:, 1] - muscles.range[:, 0]
    return MuscleScale(force, length / jnp.maximum(span, TINY))


def _normal_length(muscles: Muscles, scale: MuscleScale, length):
    start = length - muscles.length_range[:, 0]
    return muscles.range[:, 0] + start / jnp.maximum(scale.optimal_length, TINY)


def active_force(muscles: Muscles, scale: MuscleScale, length, velocity):
    r"""Compute $-F_0 F_L F_V$, the force at full activation."""
    x = _normal_length(muscles, scale, length)
    speed = _max_speed(muscles, scale)
    curve = _length_curve(x, muscles.shortest, muscles.longest)
    return -scale.force * curve * _velocity_curve(muscles, velocity / speed)


def active_force_rate(muscles: Muscles, scale: MuscleScale, length, velocity):
    """Compute the derivative of `active_force` by the velocity."""
    x = _normal_length(muscles, scale, length)
    speed = _max_speed(muscles, scale)
    curve = _length_curve(x, muscles.shortest, muscles.longest)
    v, y = velocity / speed, muscles.max_lengthening - 1.0
    lengthening = 2.0 * (y - v) / jnp.maximum(y, TINY)
    slope = jnp.where(v <= 0.0, 2.0 * (v + 1.0), lengthening)
    slope = jnp.where((v <= -1.0) | (v > y), 0.0, slope)
    return -scale.force * curve * slope / speed


def passive_force(muscles: Muscles, scale: MuscleScale, length):
    r"""Compute $-F_0 F_P$: zero up to the optimal length, then quadratic, then linear."""
    x = _normal_length(muscles, scale, length)
    middle = 0.5 * (1.0 + muscles.longest)
    width = jnp.maximum(middle - 1.0, TINY)
    stretch, beyond = (x - 1.0) / width, (x - middle) / width
    curve = jnp.where(x <= middle, 0.5 * stretch * stretch, 0.5 + beyond)
    return -scale.force * muscles.max_passive * jnp.where(x <= 1.0, 0.0, curve)


def _max_speed(muscles: Muscles, scale: MuscleScale):
    return jnp.maximum(scale.optimal_length * muscles.max_speed, TINY)


def _length_curve(x, shortest, longest):
    """Compute $F_L$: one at length 1, zero outside, of four parabolas."""
    rise, fall = 0.5 * (shortest + 1.0), 0.5 * (1.0 + longest)
    outer = lambda y, width: 0.5 * (y / jnp.maximum(width, TINY)) ** 2
    inner = lambda y, width: 1.0 - 0.5 * (y / jnp.maximum(width, TINY)) ** 2
    left = jnp.where(
        x <= rise, outer(x - shortest, rise - shortest), inner(1.0 - x, 1.0 - rise)
    )
    right = jnp.where(
        x <= fall, inner(x - 1.0, fall - 1.0), outer(longest - x, longest - fall)
    )
    inside = (shortest <= x) & (x <= longest)
    return jnp.where(inside, jnp.where(x <= 1.0, left, right), 0.0)


def _velocity_curve(muscles: Muscles, v):
    """Compute $F_V$: zero at -1, one at rest, `max_lengthening` beyond."""
    most = muscles.max_lengthening
    y = most - 1.0
    lengthening = most - (y - v) ** 2 / jnp.maximum(y, TINY)
    curve = jnp.where(v <= 0.0, (v + 1.0) ** 2, lengthening)
    return jnp.where(v <= -1.0, 0.0, jnp.where(v > y, most, curve))


def muscle_activation_rate(parameters: MuscleActivations, act, ctrl):
    r"""Compute $\dot a = (u - a)/\tau$."""
    level = 0.5 + 1.5 * clamp(act, 0.0, 1.0)
    rise, fall = parameters.rise * level, parameters.fall / level
    excess = clamp(ctrl, 0.0, 1.0) - act
    width = parameters.smoothing
    smooth = width >= TINY
    x = excess / jnp.where(smooth, width, 1.0) + 0.5
    x = clamp(x, 0.0, 1.0)
    blend = x**3 * (3.0 * x * (2.0 * x - 5.0) + 10.0)
    switch = jnp.where(excess < 0.0, fall, rise)
    time = jnp.where(smooth, fall + (rise - fall) * blend, switch)
    return excess / jnp.maximum(time, TINY)
