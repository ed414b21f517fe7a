"""Nested dictionaries of arrays as arrays with path names."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def flat(name: str, tree: Any) -> dict[str, np.ndarray]:
    """Return an array under `name`, those of a dictionary under `name/KEY`.

    **Raises:** `ValueError` if `tree` is neither an array nor a dictionary of arrays.
    """
    if isinstance(tree, np.ndarray):
        return {name: tree}
    if not isinstance(tree, dict) or not tree:
        raise ValueError(
            f"`{name}` is {type(tree).__name__}; files hold an array or a dictionary of "
            "arrays."
        )
    out = {}
    for key, value in tree.items():
        if not isinstance(key, str) or not key or "/" in key:
            raise ValueError(
                f"`{name}` has the key {key!r}; keys in files are names without `/`."
            )
        out |= flat(f"{name}/{key}", value)
    return out


def nested(name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    """Invert `flat`; return an empty dictionary if no array has that name."""
    if name in arrays:
        return arrays[name]
    rest = [key[len(name) + 1 :] for key in arrays if key.startswith(f"{name}/")]
    keys = sorted({key.partition("/")[0] for key in rest})
    return {key: nested(f"{name}/{key}", arrays) for key in keys}
