"""The packages of the extra `viewer`, imported when they are first used."""

import importlib
from typing import Any


def import_viser() -> Any:
    """Return the module `viser`.

    **Raises:** `ImportError` that names the extra.
    """
    return _imported("viser")


def import_trimesh() -> Any:
    """Return the module `trimesh`, on which viser depends.

    **Raises:** `ImportError` that names the extra.
    """
    return _imported("trimesh")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"The viewer needs the package {name}, which cannot be imported ({error}). Run "
            "`pip install 'eqsim[viewer]'`."
        ) from error
