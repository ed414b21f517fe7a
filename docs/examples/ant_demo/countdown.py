"""Estimate of the time that is left."""

import time
from collections.abc import Callable, Mapping


class Countdown:
    """Remaining time of a sequence of parts, from their usual durations.

    If the finished parts took twice as long as usual, so will the others.

    **Arguments:**

    - `usual`: usual duration of each part in their order, s.
    - `clock`: function that returns the time, s.
    """

    def __init__(
        self, usual: Mapping[str, float], clock: Callable[[], float] = time.perf_counter
    ):
        self._rest = dict(usual)
        self._clock = clock
        self._usual = self._spent = 0.0
        self._part, self._begin, self._text = "", clock(), ""

    def start(self, part: str) -> None:
        """Finish the current part, and start another one."""
        now = self._clock()
        if self._part:
            self._usual += self._rest.pop(self._part)
            self._spent += now - self._begin
        self._part, self._begin = part, now

    def left(self) -> float:
        """Return the estimated remaining time, s."""
        pace = self._spent / self._usual if self._usual else 1.0
        part = pace * self._rest.get(self._part, 0.0)
        others = pace * sum(self._rest.values()) - part
        return max(0.0, part - (self._clock() - self._begin)) + others

    def say(self, text: str) -> None:
        """Set the text that is shown with the remaining time."""
        self._text = text

    def __rich__(self) -> str:
        return f"{self._text} ({self.words()})"

    def words(self) -> str:
        """Return the remaining time as text, rounded to 5 s."""
        return f"about {max(5, 5 * round(self.left() / 5))} s left"
