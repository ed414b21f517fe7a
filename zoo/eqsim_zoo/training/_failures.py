"""Detection of non-finite values in a turn, and their messages."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runs._members import Members
from ..runs._plan import Counters
from ._turn import EPISODES, float_paths, Report


def advance(
    counters: Counters, report: Report, iterations: int, paths: Sequence[str]
) -> Counters:
    """Count a turn, and record which members failed in it.

    **Arguments:**

    - `report`: result of `on_host`.
    - `paths`: names of the leaves of the state in the report.
    """
    turn, steps = counters.turn + 1, int(report.steps.min())
    seen, failed = {*counters.seen}, dict(counters.failed)
    for member in range(len(report.steps)):
        wrong = _wrong(report, member, paths, counters)
        if wrong and member not in failed:
            done = counters.iterations
            failed[member] = (
                f"{wrong} in turn {turn} (iterations {done + 1} to {done + iterations}, "
                f"steps {counters.steps:,} to {counters.steps + steps:,})"
            )
        known = [name for name in EPISODES if name in report.number]
        seen |= {(member, name) for name in known if report.number[name][member]}
    return counters._replace(
        turn=turn,
        iterations=counters.iterations + iterations,
        steps=counters.steps + steps,
        pace=max(steps, 1) / iterations,
        seen=tuple(sorted(seen)),
        failed=tuple(sorted(failed.items())),
    )


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
        " ".join(lines) + " Try (a) a smaller learning rate, or clipped gradients; "
        "(b) rewards and observations of a smaller scale; (c) whether the environment "
        "itself stays finite: `eqsim rollout` raises where it does not, and "
        "`eqsim.testing.check_env` looks closer; a shorter time step helps a robot that "
        "flies apart; (d) double precision (`jax.config.update('jax_enable_x64', True)`)."
    )


def _wrong(
    report: Report, member: int, paths: Sequence[str], counters: Counters
) -> str:
    """Explain why a member failed: a state that is not finite, a statistic of episodes that
    is not finite any more, or at least half of the updates with a metric that is not
    finite. Empty if it did not fail."""
    for path, flag in zip(paths, report.broken[member]):
        if flag and path not in counters.exempt:
            return f"`state{path}` became NaN or infinite"
    for name in EPISODES:
        if name in report.last and not np.isfinite(last := report.last[name][member]):
            known = report.number[name][member] > 0 or (member, name) in counters.seen
            if known or np.isinf(last):
                return f"`{name}` became {last}"
    bad, updates = int(report.nonfinite[member]), int(report.updates[member])
    if not bad or 2 * bad < updates:
        return ""
    numbers = {k: n for k, n in report.number.items() if k not in EPISODES}
    finite = {name: int(n[member]) for name, n in numbers.items()}
    worst = min(finite, key=lambda name: finite[name], default="")
    seen = f", most often `{worst}`" if len({*finite.values()}) > 1 else ""
    return f"a metric was not finite in {bad} of {updates} updates{seen}"
