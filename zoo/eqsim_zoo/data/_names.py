"""Trees of arrays as arrays with names."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def flat(name: str, tree: Any) -> dict[str, np.ndarray]:
    """One array by that name, those of a dictionary by `name/KEY`.

    **Raises:** `ValueError` if it is anything else.
    """
    if isinstance(tree, np.ndarray):
        return {name: tree}
    if not isinstance(tree, dict) or not tree:
        raise ValueError(
            f"`{name}` is {type(tree).__name__}: an array, or a dictionary of arrays, is "
            "expected in a file."
        )
    out = {}
    for key, value in tree.items():
        if not isinstance(key, str) or not key or "/" in key:
            raise ValueError(
                f"`{name}` has the key {key!r}: a name without `/` is expected in a file."
            )
        out |= flat(f"{name}/{key}", value)
    return out


def nested(name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of `flat`; an empty dictionary if there is nothing of that name."""
    if name in arrays:
        return arrays[name]
    rest = [key[len(name) + 1 :] for key in arrays if key.startswith(f"{name}/")]
    keys = sorted({key.partition("/")[0] for key in rest})
    return {key: nested(f"{name}/{key}", arrays) for key in keys}
