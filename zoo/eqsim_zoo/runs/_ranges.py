"""Ranges of hyper-parameters, by the names that all agents give them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


_UNIT = 0.0, 1.0
_POSITIVE = 0.0, math.inf
_RANGES = {
    "batch_size": _POSITIVE,
    "capacity": _POSITIVE,
    "clip": _POSITIVE,
    "discount": _UNIT,
    "expectile": _UNIT,
    "gae_decay": _UNIT,
    "max_grad_norm": _POSITIVE,
    "noise": _POSITIVE,
    "target_decay": _UNIT,
    "target_rate": _UNIT,
    "td_decay": _UNIT,
    "weight_decay": _POSITIVE,
}


def check_range(agent: str, name: str, value: Any) -> None:
    """Raise `ValueError` if a hyper-parameter is outside its range.

    Discounts, decays and rates of target networks lie between 0 and 1; learning rates,
    norms and deviations of noise are not negative. Other names may have any value.

    **Arguments:**

    - `agent`: class of the agent.
    - `name`: name of the field, such as `discount` or `sac.discount`.
    """
    own = name.rpartition(".")[2]
    learning = own == "learning_rate" or own.endswith("_learning_rate")
    low, high = _POSITIVE if learning else _RANGES.get(own, (-math.inf, math.inf))
    if isinstance(value, str | Mapping) or value is None or np.ndim(value):
        return
    if not low <= float(value) <= high:
        expected = (
            "at least 0" if math.isinf(high) else f"a number from {low:g} to {high:g}"
        )
        if math.isinf(low):
            expected = "a number"
        raise ValueError(f"`{agent}.{name}` is {value}: {expected} is expected.")
