"""One run by several processes, each with its devices: `jax.distributed`.

All of them take the same turns; the first one writes and speaks.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils

from ..blocks.parallel import replicate


def is_first() -> bool:
    """Return whether this is the process that writes files and prints."""
    return jax.process_index() == 0


def gathered(tree: Any) -> Any:
    """Gather arrays with the rows of all processes; all of them must call it."""
    return tree if jax.process_count() == 1 else _gathered(tree)


@eqx.filter_jit
def _gathered(tree: Any) -> Any:
    return replicate(tree)


def agreed(*numbers: int) -> tuple[int, ...]:
    """Return the maximum of each number over the processes, whose clocks and signals
    may differ; all of them must call it."""
    if jax.process_count() == 1:
        return numbers
    found = multihost_utils.process_allgather(np.asarray(numbers))
    return tuple(int(x) for x in np.max(np.asarray(found), axis=0))
