"""A differentiable robot simulator in JAX and Equinox."""

import importlib.metadata
import os


if os.environ.get("EQSIM_TYPECHECK", "0") not in ("", "0"):
    # Checks every argument and result; must come before the modules are imported.
    from jaxtyping import install_import_hook

    install_import_hook("eqsim", "beartype.beartype")

from . import model as model, spatial as spatial
from ._errors import RESULTS as RESULTS
from ._registry import ENVS as ENVS, PIPELINES as PIPELINES
from .model import State as State, System as System


__version__ = importlib.metadata.version("eqsim")
