"""Model files of Gymnasium."""

import functools as ft
import importlib.util
import pathlib

import jax.numpy as jnp
import jax.tree_util as jtu

from ..io import load_mjcf
from ..model import System


def gymnasium_model(name: str) -> System:
    """Load one of Gymnasium's MuJoCo model files, for instance `"ant.xml"`.

    Files are read once. Each call returns arrays of its own, which may be donated.

    **Raises:** `ImportError` if Gymnasium is missing, `FileNotFoundError` if the file
    is.
    """
    return jtu.tree_map(jnp.copy, _load(name, jnp.result_type(float).name))


@ft.cache
def _load(name: str, dtype: str) -> System:
    del dtype  # For the cache: that of the numbers in a file is the default one.
    # The package is located without importing it: only its files are needed.
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or spec.origin is None:
        raise ImportError(
            "The model files come with Gymnasium, which is not installed. Run "
            "`pip install gymnasium`."
        )
    folder = pathlib.Path(spec.origin).parent / "envs" / "mujoco" / "assets"
    return load_mjcf(folder / name)
