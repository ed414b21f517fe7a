"""Rows of arrays `(n, *batch)` whose number differs between environments."""

import jax.numpy as jnp

from .._each import read_rows as read_rows


def count_rows(x):
    """Return the number of each row."""
    rows = jnp.arange(x.shape[0], dtype=jnp.int32)
    return rows.reshape(-1, *(1 for _ in x.shape[1:])) + jnp.zeros(x.shape, jnp.int32)


def write_row(x, number, value, when):
    """Replace one row of each environment, where `when` holds."""
    batch = x.shape[1:]
    whole = lambda y: jnp.broadcast_to(y, (1, *batch))
    others = jnp.indices((1, *batch), dtype=jnp.int32, sparse=True)[1:]
    place = whole(jnp.where(when, number, x.shape[0]))
    rows = x.at[(place, *others)]
    return rows.set(whole(value), mode="drop", wrap_negative_indices=False)


def largest_row(x):
    """Return the number of the first row with the largest value."""
    return jnp.argmax(x, axis=0)[None].astype(jnp.int32)
