"""Differences between two robots of the same structure."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu

from ._system import System


def check_same_structure(old: System, new: Any, who: str) -> None:
    """Raise `ValueError` unless structure, shapes and types are the same."""
    if not isinstance(new, System):
        raise ValueError(f"{who} must be a `System`, got {type(new).__name__}.")
    if jtu.tree_structure(old) != jtu.tree_structure(new):
        raise ValueError(
            f"{who} has a different structure{_difference(old, new)} than `env.sys`. Only "
            "values of arrays can differ between episodes."
        )
    leaves = jtu.tree_leaves_with_path(old)
    for (path, x), y in zip(leaves, jtu.tree_leaves(new), strict=True):
        found = jnp.shape(y), jnp.result_type(y)
        if found != (x.shape, x.dtype):
            raise ValueError(
                f"{who}: `sys{jtu.keystr(path)}` must keep shape {x.shape} and type "
                f"{x.dtype}, got {found[0]} and {found[1]}."
            )


def _difference(old: System, new: System) -> str:
    """Describe which field has a different structure, if possible."""
    path = _differing(old, new, "sys")
    return "" if path is None else f" (`{path}`)"


def _differing(old: Any, new: Any, path: str) -> str | None:
    """Return the deepest path of the first field whose structure differs."""
    if jtu.tree_structure(old) == jtu.tree_structure(new):
        return None
    if not isinstance(old, eqx.Module) or type(old) is not type(new):
        return path
    for field in dataclasses.fields(old):
        pair = vars(old)[field.name], vars(new)[field.name]
        inner = f"{path}.{field.name}"
        if not field.metadata.get("static", False):
            found = _differing(*pair, inner)
            if found is not None:
                return found
        elif pair[0] != pair[1]:
            return inner
    return path


def changed_parameters(old: System, new: System) -> System:
    """Return the robot with None for all parameters that are identical array objects in
    both."""
    return jtu.tree_map(lambda x, y: None if x is y else jnp.asarray(y), old, new)
