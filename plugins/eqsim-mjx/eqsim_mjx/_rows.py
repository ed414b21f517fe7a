r"""Softness of constraints: weight and reference acceleration of each row.

MJX computes both, but its formula for the impedance takes powers of negative numbers if
a constraint is beyond its width. These have no derivative with respect to the exponent,
which makes reverse mode fail. The same formula is implemented here with derivatives
everywhere.

With the violation $r$, its rate $J \dot q$, the impedance $d(r)$ and the inverse weight
$w$, a row has the weight and the reference acceleration

$$D = \frac{d}{w (1 - d)}, \qquad a = -b\,J \dot q - k\,d\,r.$$

Source: MuJoCo documentation, *Modeling*, "Solver parameters".
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from eqsim import System

from ._template import Template


# MuJoCo's `mjMINIMP`, `mjMAXIMP`, `mjMINVAL`.
_LEAST, _MOST, _TINY = 0.0001, 0.9999, 1e-15


class _Numbers(NamedTuple):
    """Parameters per row."""

    solref: Any
    solimp: Any
    weight: Any


def soften(sys: System, template: Template, model: Any, data: Any) -> tuple[Any, Any]:
    """Return weight and reference acceleration of each row of `data`, whose rows have
    been computed."""
    rows = _numbers(sys, template, model, data)
    found = data._impl
    violation = found.efc_pos - found.efc_margin
    least, most, width, middle, power = rows.solimp.T
    least, most = (jnp.clip(x, _LEAST, _MOST) for x in (least, most))
    middle = jnp.clip(middle, _LEAST, _MOST)
    share = jnp.abs(violation) / jnp.maximum(width, _TINY)
    level = least + _rise(share, middle, jnp.maximum(power, 1.0)) * (most - least)
    stiffness, damping = _reference(sys, rows.solref, most)
    resistance = jnp.maximum(rows.weight * (1.0 - level) / level, _TINY)
    target = -damping * (found.efc_J @ data.qvel) - stiffness * level * violation
    return 1.0 / resistance, target


def _rise(share: Any, middle: Any, power: Any) -> Any:
    """Compute the impedance profile from 0 to 1 over the width: two powers that meet in
    between."""
    low, high = share < middle, share >= 1.0
    first = jnp.where(low, share, middle)
    second = jnp.where(low | high, middle, share)
    rising = first**power / middle ** (power - 1.0)
    settling = 1.0 - (1.0 - second) ** power / (1.0 - middle) ** (power - 1.0)
    return jnp.where(high, 1.0, jnp.where(low, rising, settling))


def _reference(sys: System, solref: Any, most: Any) -> tuple[Any, Any]:
    """Return stiffness and damping; negative values specify them directly."""
    time, ratio = solref.T
    given, given_damping = time <= 0.0, ratio <= 0.0
    time = jnp.maximum(time, 2.0 * sys.dt) if sys.safe_solref else time
    time = jnp.where(time > 0.0, time, 1.0)
    ratio = jnp.where(given_damping, 1.0, ratio)
    stiffness = 1.0 / (most * time * ratio) ** 2
    stiffness = jnp.where(given, -solref[:, 0] / most**2, stiffness)
    damping = jnp.where(given_damping, -solref[:, 1] / most, 2.0 / (most * time))
    return stiffness, damping


def _numbers(sys: System, template: Template, model: Any, data: Any) -> _Numbers:
    """Return the parameters in the order of MJX's rows: dry friction, limits of
    spherical joints, other limits, contacts by their dimension."""
    starts = np.array(sys.joints.v_starts, int)
    dofs, parts = template.friction, []
    weight = model.dof_invweight0
    parts.append((model.dof_solref[dofs], model.dof_solimp[dofs], weight[dofs]))
    for joints in (template.ball_limits, template.limits):
        own = weight[starts[joints]]
        parts.append((model.jnt_solref[joints], model.jnt_solimp[joints], own))
    contact = data._impl.contact
    if contact.dim.size:
        place = contact_of_row(contact.dim)
        own = _contact_weight(sys, model, contact)
        numbers = (contact.solref, contact.solimp, own)
        parts.append(tuple(x[place] for x in numbers))
    return _Numbers(*(jnp.concatenate(x) for x in zip(*parts, strict=True)))


def contact_of_row(dims: np.ndarray) -> np.ndarray:
    """Return the contact of each contact row: one row without friction, else two edges
    of a pyramid per direction."""
    return np.repeat(np.arange(dims.size), np.where(dims == 1, 1, 2 * (dims - 1)))


def _contact_weight(sys: System, model: Any, contact: Any) -> Any:
    bodies = jnp.asarray(model.geom_bodyid)[contact.geom]
    weight = jnp.sum(model.body_invweight0[bodies, 0], axis=1)
    friction = contact.friction[:, 0] ** 2
    edge = weight * (1.0 + friction) * 2.0 * friction / sys.impratio
    return jnp.where(contact.dim == 1, weight, edge)
