"""Identifiability: combinations of parameters that the data determine."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Combination(NamedTuple):
    """A direction in parameter space.

    - `singular_value`: information about a change by one unit of scale in this
        direction, in units of the noise: the data determine it to `1 / singular_value`.
    - `direction`: unit vector, in units of `scale`.
    - `text`: `"+0.71 friction -0.71 damping"`, in units of `scale`.
    """

    singular_value: float
    direction: np.ndarray
    text: str


class Identifiability(NamedTuple):
    """Combinations of parameters, and how well the data determine them.

    - `scale`: unit of each free number: standard deviation of its prior, or one (a factor
        of e for positive parameters), or its value.
    - `singular_values`: singular values of the reduced Jacobian in these units, largest
        first.
    - `unknown`: combinations that the data cannot tell: their standard deviation exceeds
        one unit of scale, or their information is rounding error.
    - `condition`: ratio of the largest and smallest singular value.
    """

    scale: np.ndarray
    singular_values: np.ndarray
    combinations: tuple[Combination, ...]
    unknown: tuple[Combination, ...]
    condition: float

    def __str__(self) -> str:
        lines = [f"condition number {self.condition:.3g}"]
        for item in self.unknown:
            lines.append(f"cannot be told ({item.singular_value:.2g}): {item.text}")
        return "\n".join(lines)


_ROUNDING = 1e-7
"""Singular values below this share of the largest one are rounding error."""


def identifiability(
    information: np.ndarray, scale: np.ndarray, labels: Sequence[str]
) -> Identifiability:
    """Find what can be told.

    **Arguments:**

    - `information`: Gauss-Newton matrix of the parameters after elimination of the
        starts, without priors of the parameters.
    - `scale`: unit of each free number.
    - `labels`: name of each free number.
    """
    values, vectors = np.linalg.eigh(information * scale * scale[:, None])
    order = np.argsort(values)[::-1]
    singular = np.sqrt(np.maximum(values[order], 0.0))
    largest = max(float(singular[0]), 1e-300)
    combinations = tuple(
        Combination(float(s), vectors[:, k], describe(vectors[:, k], labels))
        for s, k in zip(singular, order)
    )
    weak = lambda c: c.singular_value < max(1.0, _ROUNDING * largest)
    condition = largest / max(float(singular[-1]), 1e-16 * largest)
    unknown = tuple(c for c in combinations if weak(c))
    return Identifiability(scale, singular, combinations, unknown, condition)


def describe(direction: np.ndarray, labels: Sequence[str]) -> str:
    """Write a direction as a sum of its largest parts."""
    order = np.argsort(-np.abs(direction))
    kept = [k for k in order if abs(direction[k]) > 0.1 * np.abs(direction).max()]
    sign = np.sign(direction[kept[0]])
    return " ".join(f"{sign * direction[k]:+.2f} {labels[k]}" for k in kept)
