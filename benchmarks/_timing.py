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
        """Relative difference between median and best: 0.1 is 10 %."""
        ordered = sorted(self.seconds)
        return ordered[len(ordered) // 2] / self.best - 1


def seconds(call: Callable[[], Any]) -> float:
    """Measure the wall-clock time until the result of a call is available, s."""
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def interleaved(
    calls: Mapping[str, Callable[[], Any]], repeats: int, limit: float
) -> dict[str, Timing]:
    """Time calls alternately, so that other load of the machine affects all of them
    equally.

    Each is called once before, to compile and to warm up.

    **Arguments:**

    - `calls`: calls by name; each does the same work every time.
    - `repeats`: number of rounds.
    - `limit`: time after which a call is no longer repeated, s; each has at least one
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
    """Return how many steps `call` can take within `limit` seconds: at least 1, at most
    `most`.

    `call(1)` is called twice: the first call compiles.
    """
    seconds(lambda: call(1))
    return max(1, min(most, int(limit / seconds(lambda: call(1)))))
