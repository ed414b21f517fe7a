"""Contacts in eqsim's form, from MJX's constraint rows."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ._forward import Forward
from ._mjx import mjx
from ._rows import contact_of_row
from ._template import Template


def contact_geoms(template: Template) -> tuple[tuple[int, int], ...]:
    """Return the two shapes of the `System` at each point."""
    if template.data._impl.contact.dim.size == 0:
        return ()
    # Only the state-independent part of the collision is compiled.
    with jax.ensure_compile_time_eval():
        found = np.asarray(jax.jit(ft.partial(_geoms, template))())
    return tuple((int(template.geoms[a]), int(template.geoms[b])) for a, b in found)


def _geoms(template: Template) -> Any:
    model, data = jtu.tree_map(jnp.asarray, (template.model, template.data))
    found: Any = mjx.collision(model, data)
    return found._impl.contact.geom


def contacts_of(now: Forward) -> tuple[Any, Any, Any, Any, Any]:
    r"""Return whether there is a contact, distance, position, frame, and the force on the
    second shape, of each point.

    The edges of a pyramid are $n \pm \mu_k t_k$. Torsional and rolling friction are
    torques and are not part of the force.
    """
    contact = now.data._impl.contact
    dims = contact.dim
    if not dims.size:
        none = jnp.zeros((0, 3, 3), now.force.dtype)
        return none[:, 0, 0] > 0.0, none[:, 0, 0], none[:, 0], none, none[:, 0]
    owner = contact_of_row(dims)
    rows = now.force[now.force.shape[0] - owner.size :]
    normal = jnp.zeros(dims.size, rows.dtype).at[owner].add(rows)
    first = np.searchsorted(owner, np.arange(dims.size))
    edges = rows[np.minimum(first[:, None] + np.arange(4), owner.size - 1)]
    slides = (dims > 1)[:, None] * contact.friction[:, :2]
    sliding = (edges[:, 0::2] - edges[:, 1::2]) * slides
    local = jnp.concatenate([normal[:, None], sliding], axis=1)
    force = jnp.einsum("kij,ki->kj", contact.frame, local)
    exists = contact.dist < contact.includemargin
    return exists, contact.dist, contact.pos, contact.frame, force
