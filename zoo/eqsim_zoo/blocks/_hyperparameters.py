"""Fields of agents: real numbers are arrays, so that `eqx.filter_vmap` can sweep them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from eqsim.bridges import check_count


def as_scalar(x: Any) -> Any:
    """Convert a real number to an array. Anything else is returned unchanged, because
    pytree transformations fill fields with other objects."""
    if isinstance(x, bool):
        raise ValueError(f"Expected a real number, got the boolean {x}.")
    known = int | float | np.number | np.ndarray
    return jnp.asarray(x, jnp.result_type(float)) if isinstance(x, known) else x


def static(default: Any) -> Any:
    """Declare a static field for a size, a shape or a flag. Lists become tuples, and
    integers of NumPy those of Python."""
    return eqx.field(static=True, converter=_hashable, default=default)


def _hashable(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return tuple(map(_hashable, x))
    return int(x) if isinstance(x, np.integer) else x


def cast_floats(tree: Any, dtype: Any) -> Any:
    """Cast real numbers of a PyTree to a type."""
    cast = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
    return jtu.tree_map(cast, tree)


def check_positive(agent: eqx.Module, *names: str) -> None:
    """Raise `ValueError` unless fields are positive integers, or tuples of them if their
    default is a tuple."""
    _check_integers(agent, names, 1)


def check_counts(agent: eqx.Module, *names: str) -> None:
    """Raise `ValueError` unless fields are integers of at least 0."""
    _check_integers(agent, names, 0)


def _check_integers(agent: eqx.Module, names: tuple[str, ...], least: int) -> None:
    for name in names:
        full, value = f"{type(agent).__name__}.{name}", vars(agent)[name]
        if isinstance(type(agent).__dataclass_fields__[name].default, tuple):
            if not isinstance(value, tuple):
                raise ValueError(
                    f"`{full}` must be a tuple of integers, got {value!r}."
                )
            for k, one in enumerate(value):
                check_count(f"{full}[{k}]", one, least)
        else:
            check_count(full, value, least)


def number_of_steps(name: str, value: Any, least: int = 1) -> int:
    """Return a number of steps, which may be a whole float, such as 1e6.

    **Raises:** `ValueError` if it is not whole, or less than `least`.
    """
    exact = isinstance(value, float | np.floating) and abs(value) < 2**53
    value = int(value) if exact and value == value // 1 else value
    check_count(name, value, least)
    return int(value)


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
