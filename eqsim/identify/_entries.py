"""Entries of arrays of a robot, chosen by `where` and by indices."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from ..model import System


Where = Callable[[System], Any]
Entries = tuple[int | tuple[int, ...], ...]


def check_start(name: str, labels, value: np.ndarray, transform) -> None:
    """Raise `ValueError` if a value cannot be a start."""
    for label, number in zip(labels, value, strict=True):
        if not np.isfinite(number):
            raise ValueError(
                f"Unknown {name!r}: the initial value of {label} must be finite, got "
                f"{number}."
            )
        problem = transform.problem(float(number))
        if problem is not None:
            raise ValueError(f"Unknown {name!r}: {label} {problem}.")


def values_of(sys: System, where: Where, entries: Entries | None):
    """Return the chosen entries as one vector."""
    parts = []
    for leaf in _leaves(sys, where):
        chosen = [leaf] if entries is None else [leaf[index] for index in entries]
        parts += [part.reshape(-1) for part in chosen]
    if isinstance(parts[0], np.ndarray | np.generic):
        return np.concatenate(parts)
    return jnp.concatenate(parts)


def replaced(sys: System, where: Where, entries: Entries | None, value: Array):
    """Return the robot with other values of the chosen entries."""
    new, at = [], 0
    for leaf in _leaves(sys, where):
        for index in [...] if entries is None else entries:
            size = leaf[index].size
            part = value[at : at + size].reshape(leaf[index].shape)
            leaf, at = leaf.at[index].set(part.astype(leaf.dtype)), at + size
        new.append(leaf)
    single = not isinstance(where(sys), tuple | list)
    return eqx.tree_at(where, sys, new[0] if single else tuple(new))


def labels_of(sys: System, where: Where, entries: Entries | None) -> list[str]:
    """Return the index of each chosen entry, such as `[0]` or `[1,2]`; with several
    arrays, their paths before it."""
    leaves = _leaves(sys, where)
    paths = {id(x): jtu.keystr(path) for path, x in jtu.tree_leaves_with_path(sys)}
    out = []
    for leaf in leaves:
        if id(leaf) not in paths:
            raise ValueError(
                "`where` must return unchanged arrays of the robot, such as "
                "`sys.links.mass`; select entries with `entries`."
            )
        path = paths[id(leaf)] if len(leaves) > 1 else ""
        places = np.arange(leaf.size).reshape(leaf.shape)
        chosen = places if entries is None else [places[index] for index in entries]
        for place in np.concatenate([np.ravel(x) for x in [*chosen]] or [[]]):
            index = np.unravel_index(int(place), leaf.shape)
            out.append(f"{path}[{','.join(map(str, index))}]")
    if not out:
        raise ValueError(
            "`where` and `entries` select nothing. Select at least one entry of the "
            "robot."
        )
    return out


def _leaves(sys: System, where: Where) -> list:
    chosen = where(sys)
    return list(chosen) if isinstance(chosen, tuple | list) else [chosen]
