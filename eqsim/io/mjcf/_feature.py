"""What becomes of a feature of MJCF, and the error for those that are refused."""

import enum
from collections.abc import Callable
from typing import NamedTuple

from ._detect import Source


class Status(enum.Enum):
    """What becomes of a feature."""

    SUPPORTED = "supported"
    NO_EFFECT = "accepted, no effect"
    REFUSED = "refused"


class Feature(NamedTuple):
    """One row of the table.

    **Arguments:**

    - `name`: what it is, in the singular.
    - `status`: what becomes of it.
    - `advice`: what to do instead, or why it changes nothing, or what is covered.
    - `find`: returns the elements that use it. None: nothing to report.
    - `key`: what `load_mjcf(..., ignore=(key,))` calls a refused feature that can be
        left out. None: it cannot.
    """

    name: str
    status: Status
    advice: str
    find: Callable[[Source], list[str]] | None = None
    key: str | None = None

    @property
    def remedy(self) -> str:
        """The advice, and how to leave the feature out where that is possible."""
        if self.key is None:
            return self.advice
        return f'{self.advice} Or leave it out: `ignore=("{self.key}",)`.'


class UnsupportedMJCF(ValueError):
    """The file uses features that are not simulated. The message lists every one.

    `problems` holds `(feature, elements)` for each.
    """

    def __init__(
        self, message: str, problems: tuple[tuple[Feature, list[str]], ...] = ()
    ):
        ValueError.__init__(self, message)
        self.problems = problems
