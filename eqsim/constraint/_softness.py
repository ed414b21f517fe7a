"""MuJoCo's soft constraints: reference acceleration and impedance of a row.

Source: MuJoCo documentation, *Computation*, "Constraint model"; `getimpedance` and
`mj_makeImpedance` in `engine_core_constraint.c`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Softness(NamedTuple):
    """The state-independent part of a row.

    - `b`, `k`: damping and stiffness of the reference acceleration.
    - `solimp`: parameters of the impedance, clipped.
    """

    b: Any
    k: Any
    solimp: list


def softness(solref, solimp, dt, safe: bool) -> Softness:
    r"""Compute damping and stiffness of a row.

    Standard format (both numbers positive: time constant $t$, damping ratio $\zeta$):
    $b = 2/(d\,t)$, $k = 1/(d\,t\,\zeta)^2$, with $d$ the largest impedance; direct
    format (both negative or zero): $b = -r_1/d$, $k = -r_0/d^2$. Time constants below
    `2 dt` are raised to it if `safe`. A mixture of the formats counts as the default
    `(0.02, 1)`.
    """
    dmin, dmax = (jnp.clip(x, 1e-4, 0.9999) for x in solimp[:2])
    width = jnp.maximum(solimp[2], 0.0)
    middle = jnp.clip(solimp[3], 1e-4, 0.9999)
    power = jnp.maximum(solimp[4], 1.0)
    mixed = (solref[0] > 0.0) != (solref[1] > 0.0)
    time = jnp.where(mixed, 0.02, solref[0])
    ratio = jnp.where(mixed, 1.0, solref[1])
    standard = time > 0.0
    raised = jnp.maximum(time, 2.0 * dt) if safe else time
    t = jnp.where(standard, raised, 1.0)
    z = jnp.where(standard, ratio, 1.0)
    k = jnp.where(standard, 1.0 / (dmax * t * z) ** 2, -time / dmax**2)
    b = jnp.where(standard, 2.0 / (dmax * t), -ratio / dmax)
    return Softness(b, k, [dmin, dmax, width, middle, power])


def impedance(soft: Softness, violation):
    r"""Compute the impedance $d(r)$ of a row at constraint violation `violation`, negative inside.

    It rises from `dmin` to `dmax` over the width, along two powers that meet at
    `middle`.
    """
    dmin, dmax, width, middle, power = soft.solimp
    flat = (width <= 1e-15) | (dmin == dmax)
    x = jnp.abs(violation) / jnp.where(flat, 1.0, width)
    saturated = x >= 1.0
    # Keep powers away from zero: their derivative there is not finite.
    started = x > 0.0
    inner = jnp.where(started & ~saturated, x, 0.5)
    early = inner <= middle
    near = jnp.where(early, inner, 1.0 - inner)
    meet = jnp.where(early, middle, 1.0 - middle)
    curve = near * (near / meet) ** (power - 1.0)
    y = jnp.where(early, curve, 1.0 - curve)
    y = jnp.where(saturated, 1.0, jnp.where(started, y, 0.0))
    return jnp.where(flat, 0.5 * (dmin + dmax), dmin + y * (dmax - dmin))


LAST_ONSET = 12.0
"""Distance from a surface, in widths of the onset, beyond which no contact exists."""


class Onset(NamedTuple):
    """The onset of a constraint.

    - `exists`: true if there is a constraint.
    - `violation`: effective violation, m.
    - `share`: factor on the stiffness.
    """

    exists: Any
    violation: Any
    share: Any


def onset(violation, width) -> Onset:
    r"""Smooth the onset of a constraint, which in MuJoCo begins abruptly at $r = 0$.

    With a width $w > 0$ the violation is $r_w = -w \log(1 + e^{-r/w})$, and the
    stiffness is multiplied by $\partial r_w / \partial r = 1/(1 + e^{r/w})$. Both tend to
    those of MuJoCo for $w \to 0$, exponentially where $|r| \gg w$; at $r = 0$, $r_w = -w
    \log 2$ and the share is 1/2. Beyond $12\,w$ (a share of 6e-6) there is none.
    Without a width the onset is MuJoCo's.
    """
    if width is None:
        return Onset(violation < 0.0, violation, jnp.ones_like(violation))
    smooth = width > 0.0
    x = violation / jnp.where(smooth, width, 1.0)
    share = jnp.where(smooth, jax.nn.sigmoid(-x), 1.0)
    moved = jnp.where(smooth, -width * jax.nn.softplus(-x), violation)
    return Onset(jnp.where(smooth, x < LAST_ONSET, violation < 0.0), moved, share)


def stiffness_weight(imp, inverse_weight):
    r"""Compute $D = 1/R$ with $R = (1 - d)/d \cdot A$, where $A$ is the inverse weight."""
    return 1.0 / jnp.maximum((1.0 - imp) / imp * inverse_weight, 1e-15)


def has_effect(jac, inverse_weight):
    """Return which rows are part of the problem, `(n, *batch)`.

    MuJoCo leaves out rows whose Jacobian is zero: no joint acceleration changes them. Here
    they are left out only if their inverse weight is zero too, so that their force would
    be about 1e15. The force of the others does not act either, but keeps the derivative
    right where a Jacobian passes through zero.

    **Arguments:**

    - `jac`: `(n, nv, *batch)`.
    """
    return jnp.any(jac != 0.0, axis=1) | (inverse_weight > 1e-15)


def columns(array, n: int) -> list:
    """Split axis 1 of an array `(m, n, *batch)`."""
    return [array[:, k] for k in range(n)]
