"""Tools for checks of numbers that may be traced."""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def known(value: Any) -> np.ndarray | None:
    """The numbers, or None if they are being traced or are placeholders."""
    if isinstance(value, Tracer) or not isinstance(value, (jax.Array, np.ndarray)):
        return None
    return np.asarray(value)


def reject(value: Any, bad: Any, names: tuple[str, ...], message: str) -> None:
    """Raises for the first bad element. The last axis of `bad` runs over `names`.

    `message` may use `{name}` and `{value}`.
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
    """Raises if impedances, widths, midpoints or powers of `solimp` are out of range.

    Impedances above 1 occur in public files; like MuJoCo, a step reduces them to 0.9999.
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
