"""Actions out of a finite number: each actuator has some levels, evenly from -1 to 1."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from eqsim.bridges import check_count


_MOST = 4096


class Levels(eqx.Module):
    """All combinations of the levels of all actuators, by number.

    **Arguments:**

    - `levels`: number of levels of each actuator, from -1 to 1. `nu`: number of actuators.

    **Raises:** `ValueError` if there are fewer than two levels, or more than 4,096
    combinations.
    """

    levels: int = eqx.field(static=True)
    nu: int = eqx.field(static=True)

    def __check_init__(self):
        check_count("levels", self.levels, 2)
        if self.count > _MOST:
            raise ValueError(
                f"{self.levels} levels for each of {self.nu} actuators give "
                f"{self.count:,} actions, but at most {_MOST:,} are supported. Use "
                "fewer `levels`, or an agent with continuous actions."
            )

    @property
    def count(self) -> int:
        """Number of actions."""
        return self.levels**self.nu

    def index(self, action: Float[Array, "*rows nu"]) -> Int[Array, "*rows"]:
        """Return the index of the nearest action."""
        digit = jnp.round(0.5 * (action + 1.0) * (self.levels - 1)).astype(jnp.int32)
        return digit @ jnp.asarray(self._places(), jnp.int32)

    def action(
        self, index: Int[Array, "*rows"], dtype: Any
    ) -> Float[Array, "*rows nu"]:
        """Return the action of an index."""
        return jnp.asarray(self.table(), dtype)[index]

    def table(self) -> Float[np.ndarray, "count nu"]:
        """Return all actions."""
        digits = np.arange(self.count)[:, None] // self._places()[None] % self.levels
        return 2.0 * digits / (self.levels - 1) - 1.0

    def _places(self) -> Int[np.ndarray, " nu"]:
        return self.levels ** np.arange(self.nu)


def check_levels(
    agent: eqx.Module, levels: Levels, action: Float[np.ndarray, "steps nu"]
) -> None:
    """Raise `ValueError` unless recorded actions, between -1 and 1, are among the
    levels."""
    nearest = np.round(0.5 * (action + 1.0) * (levels.levels - 1))
    off = np.abs(2.0 * nearest / (levels.levels - 1) - 1.0 - action).max(axis=1) > 1e-4
    if off.any():
        first = int(np.argmax(off))
        raise ValueError(
            f"`{type(agent).__name__}` chooses among {levels.levels} levels per "
            f"actuator, but {int(off.sum())} of {len(off)} recorded actions are not on "
            f"these levels, first in step {first}: {action[first]} (scaled to [-1, "
            "1]). Set `levels` as in the recording, or use an agent with `levels=0`."
        )
