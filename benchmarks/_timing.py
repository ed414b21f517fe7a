"""Protocol of all timings: compile, warm up, then alternate; the best repeat counts."""

import dataclasses
import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Timing:
    """Wall-clock seconds of the same work, in the order in which they were taken."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """How much slower than the best the median is: 0.1 is 10 %."""
        ordered = sorted(self.seconds)
        return ordered[len(ordered) // 2] / self.best - 1


def seconds(call: Callable[[], Any]) -> float:
    """Wall-clock time until the result of a call is there."""
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def interleaved(
    calls: Mapping[str, Callable[[], Any]], repeats: int, limit: float
) -> dict[str, Timing]:
    """Times calls in turn, so that what else the machine does hits all alike.

    Each is called once more before, to compile and to warm up.

    **Arguments:**

    - `calls`: by name; each does the same work every time.
    - `repeats`: rounds.
    - `limit`: seconds after which a call takes no further part; it has at least one
        round.
    """
    for call in calls.values():
        seconds(call)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, call in calls.items():
                if sum(taken[name]) < limit:
                    taken[name].append(seconds(call))
    finally:
        gc.enable()
    return {name: Timing(tuple(taken[name])) for name in calls}


def affordable(call: Callable[[int], Any], most: int, limit: float) -> int:
    """How many steps `call` can do within `limit` seconds: at least 1, at most `most`.

    `call(1)` is made twice: the first compiles.
    """
    seconds(lambda: call(1))
    return max(1, min(most, int(limit / seconds(lambda: call(1)))))
