"""Training plans: length, seeds and evaluations of a run."""

import dataclasses
import math
from typing import Any, NamedTuple

from eqsim.bridges import check_count

from ..blocks.hyperparameters import number_of_steps


_MOST = 2**30
"""Maximum number of steps of a turn, as they are counted in 32 bits."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Length, seeds and evaluations of a run.

    **Arguments:**

    - `steps`: control steps of each member, summed over its environments; also a whole
        float, such as 1e6. A run ends with the iteration in which this number is reached.
    - `seed`: first seed.
    - `num_seeds`: number of seeds, trained in one program. The result of each is that
        of a run with this seed alone, up to rounding.
    - `episode_length`: maximum number of control steps of an episode.
    - `pool_size`: number of precomputed resets from which initial states are drawn; 0
        computes a reset for each episode, which is slow in a batch. Each seed has its
        own. See `training_env`.
    - `turns`: approximate number of rows of metrics. A turn is one compiled call.
    - `evaluations`: number of evaluations; 0 disables them.
    - `episodes`: number of episodes of each evaluation.
    - `planned`: number of steps over which turns and evaluations are spaced; by default
        `steps`. A run that is extended keeps its spacing.

    **Raises:** `ValueError` if a value is not an integer or out of range.
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
            if name == "steps":
                value = number_of_steps(name, value)
            check_count(name, value, least.get(name, 1))
            object.__setattr__(self, name, int(value))
        if not self.planned:
            object.__setattr__(self, "planned", self.steps)

    def longer(self, steps: int | float) -> "Plan":
        """Return the plan extended by a number of steps."""
        more = number_of_steps("steps", steps, 0)
        return dataclasses.replace(self, steps=self.steps + more)

    def iterations(self, counters: "Counters") -> int:
        """Return the number of iterations of the next turn. It depends only on the plan
        and the counters, not on time, so that a resumed run takes the same turns."""
        if not counters.iterations:
            return 1  # Measures the number of steps per iteration.
        turn = min(math.ceil(self.planned / self.turns), _MOST)
        wanted = min(turn, self.steps - counters.steps)
        return max(1, math.ceil(wanted / counters.pace))

    def evaluates(self, before: int, after: int) -> bool:
        """Return whether an evaluation is due between two step counts; always true at
        the end."""
        if not self.evaluations:
            return False
        passed = lambda steps: steps * self.evaluations // self.planned
        return after >= self.steps or passed(after) > passed(before)


class Counters(NamedTuple):
    """Progress of a run.

    - `turn`, `iterations`, `steps`: numbers of turns, iterations and steps so far; steps
        of the member with the fewest.
    - `pace`: steps per iteration in the last turn.
    - `seconds`: run time, including compilation and evaluation, without the time between
        an interruption and `resume`.
    - `best`, `best_turn`: highest evaluated mean return of an agent over its seeds, and its
        turn.
    - `evaluated`: mean return of each member in the last evaluation.
    - `failed`: members with non-finite values, with the reason and the turn.
    - `exempt`: leaves of the state that were not finite before the first turn.
    - `streaks`: number of last iterations of each member in which at least half of the
        updates were not finite.
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
    exempt: tuple[str, ...] = ()
    streaks: tuple[int, ...] = ()


def counters_from_json(stored: dict[str, Any]) -> Counters:
    """Convert counters from JSON, which has no tuples; those of earlier versions that are
    not used any more are left out."""
    known = {name: x for name, x in stored.items() if name in Counters._fields}
    return Counters(**{name: _tuples(value) for name, value in known.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
