"""Support status of MJCF features, and the error for unsupported ones."""

import enum
from collections.abc import Callable
from typing import NamedTuple

from ._detect import Source


class Status(enum.Enum):
    """Support status of a feature."""

    SUPPORTED = "supported"
    NO_EFFECT = "accepted, no effect"
    REFUSED = "refused"


class Feature(NamedTuple):
    """A row of the feature table.

    **Arguments:**

    - `name`: name of the feature, in the singular.
    - `status`: support status.
    - `advice`: remedy if refused, reason if without effect, or the supported parts.
    - `find`: function that returns the elements that use the feature. None: nothing to
        report.
    - `key`: name of a refused feature in `load_mjcf(..., ignore=(key,))`. None if it
        cannot be ignored.
    """

    name: str
    status: Status
    advice: str
    find: Callable[[Source], list[str]] | None = None
    key: str | None = None

    @property
    def remedy(self) -> str:
        """Return the advice, and how to leave out the feature if possible."""
        if self.key is None:
            return self.advice
        return f'{self.advice} Or leave it out: `ignore=("{self.key}",)`.'


class UnsupportedMJCF(ValueError):
    """A file uses unsupported features. The message lists all of them.

    `problems` contains `(feature, elements)` for each feature.
    """

    def __init__(
        self, message: str, problems: tuple[tuple[Feature, list[str]], ...] = ()
    ):
        ValueError.__init__(self, message)
        self.problems = problems
