"""Detection of non-finite values in a turn, and their messages."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..blocks.collecting import OBSERVATIONS, REWARDS, TERM
from ..runs._members import Members
from ..runs._plan import Counters
from ._turn import EPISODES, float_paths, Report


ADVICE = (
    "`eqsim rollout` raises where it does not, and `eqsim.testing.check_env` looks closer; "
    "a shorter time step helps a robot that flies apart"
)
"""Advice for an environment with values that are not finite."""

PATIENCE = 10
"""Consecutive iterations without enough finite updates after which a member fails."""


def advance(
    counters: Counters,
    report: Report,
    iterations: int,
    paths: Sequence[str],
    planned: int,
) -> Counters:
    """Count a turn, and record which members failed in it.

    **Arguments:**

    - `report`: result of `on_host`.
    - `paths`: names of the leaves of the state in the report.
    - `planned`: number of steps of the run.
    """
    turn, steps = counters.turn + 1, int(report.steps.min())
    failed, streaks = dict(counters.failed), []
    done = counters.iterations + iterations
    complete = counters.steps + steps >= planned
    for member in range(len(report.steps)):
        before = counters.streaks[member] if counters.streaks else 0
        longest, streak = _streak(report, member, iterations, before)
        streaks.append(streak)
        wrong = _broken(report, member, paths, counters)
        if not wrong and (longest >= PATIENCE or (complete and streak == done)):
            wrong = _skipped(report, member, longest)
        if wrong and member not in failed:
            failed[member] = (
                f"{wrong} in turn {turn} (iterations {counters.iterations + 1} to {done}, "
                f"steps {counters.steps:,} to {counters.steps + steps:,})"
                f"{nonfinite_steps(report, member, '; there, ')}"
            )
    return counters._replace(
        turn=turn,
        iterations=done,
        steps=counters.steps + steps,
        pace=max(steps, 1) / iterations,
        failed=tuple(sorted(failed.items())),
        streaks=tuple(streaks),
    )


def _streak(
    report: Report, member: int, iterations: int, before: int
) -> tuple[int, int]:
    """Return the largest and the last number of consecutive iterations without enough
    finite updates, with those before the turn."""
    leading, trailing = int(report.leading[member]), int(report.trailing[member])
    longest = max(int(report.longest[member]), before + leading)
    return longest, before + iterations if trailing == iterations else trailing


def nonfinite_steps(report: Report, member: int, begin: str = "") -> str:
    """Describe the rewards and observations of a turn that were not finite, after
    `begin`; empty if there are none."""
    count = lambda name: int(report.total.get(name, np.zeros(member + 1))[member])
    parts = []
    if rewards := count(REWARDS):
        terms = [name for name in report.total if name.startswith(TERM) and count(name)]
        names = ", ".join(f"`{name.removeprefix(TERM)}`" for name in terms)
        parts.append(f"{rewards:,} rewards" + (f" (terms: {names})" if names else ""))
    if observations := count(OBSERVATIONS):
        parts.append(f"{observations:,} observations")
    return f"{begin}{' and '.join(parts)} were not finite" if parts else ""


def exempt(broken: Any, state: Any) -> tuple[str, ...]:
    """Return the paths of leaves that are not finite in the initial state, such as a
    best value."""
    flags = np.any(np.atleast_2d(np.asarray(broken)), axis=0).tolist()
    return tuple(path for path, flag in zip(float_paths(state), flags) if flag)


def complaint(members: Members, failed: Sequence[tuple[int, str]]) -> str:
    """Return a message about members that failed, with remedies."""
    lines = []
    for member, text in failed:
        of = f"{members.name(member)}: " if members.many else ""
        lines.append(f"{of}{text}.")
    return (
        " ".join(lines) + f" Check (a) whether the environment stays finite: {ADVICE}; "
        "then try (b) rewards and observations of a smaller scale; (c) a smaller learning "
        "rate, or clipped gradients; (d) double precision "
        "(`jax.config.update('jax_enable_x64', True)`)."
    )


def _broken(
    report: Report, member: int, paths: Sequence[str], counters: Counters
) -> str:
    """Return which leaf of the state of a member is not finite; empty if there is none."""
    for path, flag in zip(paths, report.broken[member]):
        if flag and path not in counters.exempt:
            return f"`state{path}` became NaN or infinite"
    return ""


def _skipped(report: Report, member: int, longest: int) -> str:
    """Describe the updates of a turn that were not finite."""
    bad, updates = int(report.nonfinite[member]), int(report.updates[member])
    numbers = {k: n for k, n in report.number.items() if k not in EPISODES}
    finite = {name: int(n[member]) for name, n in numbers.items()}
    worst = min(finite, key=lambda name: finite[name], default="")
    seen = f", most often `{worst}`" if len({*finite.values()}) > 1 else ""
    return (
        f"a metric was not finite in at least half of the updates of {longest} consecutive "
        f"iterations, and in {bad} of {updates} updates{seen},"
    )
