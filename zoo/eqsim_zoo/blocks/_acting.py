"""Actions for batches of observations."""

import functools as ft
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Float, PRNGKeyArray

from ._encoding import Encoders, named


def acts_on_batches(act: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of the method `act` of an agent, which computes one action, so that it also
    takes observations with leading batch axes.

    Images are recognized by the `Encoders` in the state; every other observation is a
    vector. With a key, each observation of a batch has a key of its own. The state needs
    the field `key`.

    !!! example

        ```python
        @blocks.acts_on_batches
        def act(self, state, obs, *, key=None):
            return blocks.scale(state.bounds, state.learner.model(obs))
        ```

    The method raises `ValueError` if the observation is a single number, its parts have
    different batch axes, or the state is that of several members.
    """

    @ft.wraps(act)
    def batched(
        self: Any, state: Any, obs: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*batch nu"]:
        name = f"`{type(self).__name__}.act`"
        _check_single(name, state)
        parts, batch = _parts(name, state, obs)
        if not batch:
            return act(self, state, obs, key=key)
        flat = lambda x: jnp.reshape(x, (-1, *jnp.shape(x)[len(batch) :]))
        rows = {part: flat(x) for part, x in parts.items()}
        one = lambda row, key: act(
            self, state, row if isinstance(obs, dict) else row["obs"], key=key
        )
        keys = None if key is None else jr.split(key, math.prod(batch))
        found = jax.vmap(one, in_axes=(0, None if key is None else 0))(rows, keys)
        return found.reshape(*batch, *found.shape[1:])

    return batched


def _check_single(name: str, state: Any) -> None:
    if state.key.ndim:
        raise ValueError(
            f"{name} needs the state of one member, got that of {state.key.size} members. "
            "Select one with `result.members.pick(state, member)`, or map over all of "
            "them with `eqx.filter_vmap`."
        )


def _parts(name: str, state: Any, obs: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the parts of an observation that networks see, by name, and their batch
    axes."""
    found = lambda x: isinstance(x, Encoders)
    encoders = [x for x in jtu.tree_leaves(state, is_leaf=found) if found(x)]
    parts = named(obs)
    if encoders and all(x.parts for x in encoders):
        used = {part for x in encoders for part in x.parts}
        parts = {part: x for part, x in parts.items() if part in used}
    images = {part for x in encoders for part in x.networks}
    batch = {}
    for part, x in parts.items():
        rank, shape = 3 if part in images else 1, jnp.shape(x)
        if len(shape) < rank:
            kind = "an image (height, width, channels)" if rank == 3 else "a vector"
            raise ValueError(
                f"{name}: the observation {part!r} must be {kind}, or a batch of them, "
                f"got shape {shape}."
            )
        batch[part] = shape[: len(shape) - rank]
    if len({*batch.values()}) > 1:
        raise ValueError(
            f"{name}: the parts of an observation must have the same batch axes, got "
            f"{batch}."
        )
    return parts, next(iter(batch.values()), ())
