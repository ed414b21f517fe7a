"""How long a run is, and when it does what."""

import dataclasses
import math
from typing import Any, NamedTuple


_MOST = 2**30
"""Steps of a turn, which are counted in 32 bits."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is decided about a run beside its agent and its environment.

    **Arguments:**

    - `steps`: control steps of each member, in all its environments together. A run ends
        with the iteration in which they are reached.
    - `seed`: of all that is random.
    - `num_seeds`: how many seeds, from `seed` on, learn side by side in one program.
    - `episode_length`: control steps of an episode, at most.
    - `pool_size`: episodes begin with one of so many resets, made in advance; 0: with a
        reset of their own, which in a batch is dear. See `training_env`.
    - `turns`: about how many rows of metrics there are. A turn is one compiled call.
    - `evaluations`: how often the agent is evaluated; 0: never.
    - `episodes`: of each evaluation.
    - `planned`: steps by which turns and evaluations are spaced, if not `steps`: a run
        that was made longer keeps its pace.

    **Raises:** `ValueError` if a number makes no sense.
    """

    steps: int | float
    seed: int = 0
    num_seeds: int = 1
    episode_length: int = 1000
    pool_size: int = 1024
    turns: int = 100
    evaluations: int = 10
    episodes: int = 32
    planned: int = 0

    def __post_init__(self):
        least = {"seed": 0, "pool_size": 0, "evaluations": 0, "planned": 0}
        for name, value in dataclasses.asdict(self).items():
            if (
                not isinstance(value, int | float)
                or value != value // 1
                or value >= 2**53
            ):
                raise ValueError(f"`{name}` is {value}: an integer is expected.")
            object.__setattr__(self, name, int(value))
            if value < least.get(name, 1):
                raise ValueError(
                    f"`{name}` is {value}: at least {least.get(name, 1)} is expected."
                )
        if not self.planned:
            object.__setattr__(self, "planned", self.steps)

    def longer(self, steps: int | float) -> "Plan":
        """The same with more steps."""
        if not steps >= 0 or math.isinf(steps):
            raise ValueError(f"More steps by {steps}: a positive number is expected.")
        return dataclasses.replace(self, steps=self.steps + int(steps))

    def iterations(self, counters: "Counters") -> int:
        """Of the next turn. It depends on the plan and on what was counted, never on time,
        so that a run that was stopped takes the same turns."""
        if not counters.iterations:
            return 1  # To see how many steps one takes.
        turn = min(math.ceil(self.planned / self.turns), _MOST)
        wanted = min(turn, self.steps - counters.steps)
        return max(1, math.ceil(wanted / counters.pace))

    def evaluates(self, before: int, after: int) -> bool:
        """Whether an evaluation is due, between two numbers of steps; always at the end."""
        if not self.evaluations:
            return False
        passed = lambda steps: steps * self.evaluations // self.planned
        return after >= self.steps or passed(after) > passed(before)


class Counters(NamedTuple):
    """What was counted so far.

    - `turn`, `iterations`, `steps`: taken; steps of the member that took fewest.
    - `pace`: steps per iteration in the last turn.
    - `seconds`: since `train` was called, with compiling and evaluating; while a run was
        stopped they are not counted.
    - `best`, `best_turn`: highest mean return of an agent, over its seeds, in an
        evaluation, and when.
    - `evaluated`: mean return of each member in the last evaluation.
    - `failed`: members whose numbers are not finite: what was, and when.
    - `seen`: statistics of episodes that are known, by member: they are NaN before.
    - `exempt`: leaves of the state that were not finite before the first turn.
    """

    turn: int = 0
    iterations: int = 0
    steps: int = 0
    pace: float = 1.0
    seconds: float = 0.0
    best: float | None = None
    best_turn: int = 0
    evaluated: tuple[float | None, ...] = ()
    failed: tuple[tuple[int, str], ...] = ()
    seen: tuple[tuple[int, str], ...] = ()
    exempt: tuple[str, ...] = ()


def counters_from_json(stored: dict[str, Any]) -> Counters:
    """Out of JSON, which knows no tuples."""
    return Counters(**{name: _tuples(value) for name, value in stored.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
