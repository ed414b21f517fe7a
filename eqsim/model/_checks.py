"""Helpers for checks of values that may be traced."""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def known(value: Any) -> np.ndarray | None:
    """Return the values, or None if they are traced or placeholders."""
    if isinstance(value, Tracer) or not isinstance(value, (jax.Array, np.ndarray)):
        return None
    return np.asarray(value)


def reject(value: Any, bad: Any, names: tuple[str, ...], message: str) -> None:
    """Raise `ValueError` for the first bad element. The last axis of `bad` corresponds
    to `names`.

    `message` may contain `{name}` and `{value}`.
    """
    numbers = known(value)
    if numbers is None:
        return
    marks = np.asarray(bad(numbers))
    if np.any(marks):
        index = tuple(np.argwhere(marks)[0])
        text = message.format(
            name=names[index[-1]], value=numbers[index[: numbers.ndim]].tolist()
        )
        raise ValueError(text)


def check_solimp(value: Any, names: tuple[str, ...], who: str, field: str) -> None:
    """Raise `ValueError` if impedances, width, midpoint or power of `solimp` are out of
    range.

    Impedances above 1 occur in public files; as in MuJoCo, a step clips them to 0.9999.
    """
    reject(
        value,
        lambda x: np.any(x[..., :2] < 0, axis=-1),
        names,
        f"{who} has {field} {{value}}. The first two numbers, impedances, must not be "
        "negative.",
    )
    reject(
        value,
        lambda x: (x[..., 2] < 0) | (x[..., 3] < 0) | (x[..., 3] > 1) | (x[..., 4] < 1),
        names,
        f"{who} has {field} {{value}}. The width must not be negative, the midpoint "
        "must lie between 0 and 1, and the power must be 1 or more.",
    )
