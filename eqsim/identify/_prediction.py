"""Problems that predict other recordings than those of a fit."""

import dataclasses
from collections.abc import Sequence

from ._checks import predicted_channels
from ._evaluate import Problem
from ._objective import Simulation
from ._recording import Recording
from ._windows import Cut, cut, Windows


def prediction(
    problem: Problem, recordings: Sequence[Recording], windows: Windows, before: float
) -> tuple[Problem, Cut]:
    """Return the problem of simulating windows of other recordings.

    Whatever a fit compares, its predictions are simulations.

    **Arguments:**

    - `before`: time before the start of a window for which commands are kept, s.
    """
    channels = list(predicted_channels(problem.sys, problem.measure))
    found = cut(problem.sys, list(recordings), channels, windows, before)
    new = dataclasses.replace(
        problem,
        batch=found.batch,
        steps=found.steps,
        rows=found.rows,
        objective=Simulation(problem.objective.control),
    )
    return new, found
