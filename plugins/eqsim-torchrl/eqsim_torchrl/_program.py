"""Compiled programs of environments."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from eqsim import AbstractEnv

from ._operator import Compiled, Operator
from ._shared import functions_of, structure_of, Where


class Program:
    """Operators of many environments, one per row of their inputs and outputs.

    Environments that differ only in the values of arrays share compiled functions.

    **Arguments:**

    - `env`: the environment.
    - `rows`: number of environments.
    - `wheres`: functions that return the array of `env` for each parameter; parameters
        are the last arguments of every operator.
    - `table`: table of actions, if actions are discrete.
    - `device`: JAX device.

    Compiled programs cannot be pickled, so an unpickled object compiles again. A deep
    copy is the object itself, which is immutable.
    """

    def __init__(
        self,
        env: AbstractEnv,
        rows: int,
        wheres: Sequence[Where] = (),
        table: np.ndarray | None = None,
        device: Any = None,
    ):
        place = None if device is None else (device.platform, device.id)
        self._arguments = env, rows, tuple(wheres), table, place
        structure, arrays = structure_of(env, wheres, rows)
        self._functions = functions = functions_of(structure)
        self.packing, self.timestep = functions.packing, functions.timestep
        self.shapes, self.number = functions.shapes, functions.number
        self.rows, self.poses = rows, functions.poses
        self._policies: dict[Any, Operator] = {}
        fixed = jax.device_put((arrays, table), device)
        operators = [Operator(compiled, fixed) for compiled in functions.compiled]
        self.begin, self.reset, self.step, self.unroll = operators

    def __deepcopy__(self, memo: dict) -> "Program":
        return self

    def __reduce__(self) -> tuple[Callable, tuple]:
        return _rebuild, self._arguments

    def under(self, policy: Callable, key: Any, length: int) -> Operator:
        """Return `unroll_policy` with `policy(weights, obs)`; one for each key and
        length."""
        name = key, length
        if name not in self._policies:
            f = ft.partial(self._functions.unroll_policy, policy, length)
            self._policies[name] = Operator(Compiled(f), self.step.fixed)
        return self._policies[name]


def _rebuild(env, rows, wheres, table, place: tuple[str, int] | None) -> Program:
    """Create an unpickled program, on the device with the same platform and number."""
    device = None
    if place is not None:
        device = next(x for x in jax.devices(place[0]) if x.id == place[1])
    return Program(env, rows, wheres, table, device)
