"""Parameters that change a robot through a function of the user."""

from collections.abc import Callable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..model import System
from ._entries import check_start
from ._priors import AbstractPrior
from ._transforms import Box
from ._unknowns import AbstractUnknown, Context, Model


class Custom(AbstractUnknown):
    """Numbers that change the robot through a function.

    **Arguments:**

    - `change`: `(sys, value) -> sys`, differentiable in `value`, an array of one axis.
        Recompiles if it is another function, so define it once.
    - `initial`: start, one number or several.
    - `lower`, `upper`: bounds; without them every number is allowed.
    - `prior`: prior of the values.
    """

    change: Callable[[System, Array], System] = eqx.field(static=True)
    initial: tuple[float, ...] = eqx.field(
        static=True, converter=lambda x: tuple(np.ravel(x).tolist())
    )
    lower: float = eqx.field(static=True, default=-np.inf)
    upper: float = eqx.field(static=True, default=np.inf)
    prior: AbstractPrior | None = None

    def labels(self, name: str, context: Context) -> tuple[str, ...]:
        count = len(self.initial)
        return (name,) if count == 1 else tuple(f"{name}[{k}]" for k in range(count))

    def start(self, name: str, context: Context) -> np.ndarray:
        value = np.asarray(self.initial)
        box = Box(self.lower, self.upper)
        check_start(name, self.labels(name, context), value, box)
        return value

    def bounds(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return Box(self.lower, self.upper).bounds(start)

    def values(self, free: Float[Array, " n"]) -> Float[Array, " values"]:
        return free

    def apply(self, model: Model, free: Float[Array, " n"]) -> Model:
        return model._replace(sys=self.change(model.sys, free))

    def scales(self, value: np.ndarray) -> np.ndarray:
        return Box(self.lower, self.upper).scales(value)

    def inactive(self, mask: System) -> np.ndarray | None:
        return None
