"""Fields of agents: real numbers are arrays, so that `eqx.filter_vmap` can sweep them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float


def as_scalar(x: Any) -> Any:
    """Convert a real number to an array. Anything else is returned unchanged, because
    pytree transformations fill fields with other objects."""
    if isinstance(x, bool):
        raise ValueError(f"Expected a real number, got the boolean {x}.")
    known = int | float | np.number | np.ndarray
    return jnp.asarray(x, jnp.result_type(float)) if isinstance(x, known) else x


def static(default: Any) -> Any:
    """Declare a static field for a size, a shape or a flag. Lists become tuples."""
    return eqx.field(static=True, converter=_hashable, default=default)


def _hashable(x: Any) -> Any:
    return tuple(x) if isinstance(x, list) else x


def cast_floats(tree: Any, dtype: Any) -> Any:
    """Cast real numbers of a PyTree to a type."""
    cast = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
    return jtu.tree_map(cast, tree)


def check_positive(agent: eqx.Module, *names: str) -> None:
    """Raise `ValueError` unless fields are positive integers."""
    _check_integers(agent, names, 1)


def check_counts(agent: eqx.Module, *names: str) -> None:
    """Raise `ValueError` unless fields are integers of at least 0."""
    _check_integers(agent, names, 0)


def _check_integers(agent: eqx.Module, names: tuple[str, ...], least: int) -> None:
    for name in names:
        check_count(f"{type(agent).__name__}.{name}", vars(agent)[name], least)


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise `ValueError` unless a value is an integer, of Python or NumPy, of at least
    `least`."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < least:
        raise ValueError(
            f"`{name}` must be an integer of at least {least}, got {value!r}."
        )


def check_num_levels(agent: Any) -> None:
    """Raise `ValueError` unless `agent.levels` is at least 2, or 0 for continuous
    actions."""
    check_counts(agent, "levels")
    if agent.levels == 1:
        raise ValueError(
            f"`{type(agent).__name__}.levels` must be at least 2, or 0 for continuous "
            "actions, got 1."
        )


def linear_schedule(
    rate: Float[Array, ""], steps: Float[Array, ""], anneal_steps: Float[Array, ""]
) -> Float[Array, ""]:
    """Return a schedule that decreases a rate linearly to zero over `anneal_steps`;
    constant if that is 0."""
    length = jnp.where(anneal_steps > 0.0, anneal_steps, 1.0)
    left = jnp.clip(1.0 - steps / length, 0.0, 1.0)
    return rate * jnp.where(anneal_steps > 0.0, left, 1.0)


def cosine_schedule(
    rate: Float[Array, ""], steps: Float[Array, ""], anneal_steps: Float[Array, ""]
) -> Float[Array, ""]:
    """Decrease of a rate to zero along half a cosine; constant if `anneal_steps` is 0."""
    part = linear_schedule(jnp.ones_like(rate), steps, anneal_steps)
    return rate * jnp.where(
        anneal_steps > 0.0, 0.5 * (1.0 - jnp.cos(jnp.pi * part)), 1.0
    )
