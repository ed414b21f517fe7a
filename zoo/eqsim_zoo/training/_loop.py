"""The loop of all agents: turns until there are enough steps, with evaluations, rows of
metrics, callbacks, and the members whose numbers are not finite.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..blocks.collecting import OBSERVATIONS, REWARDS, TASK, TERM
from ..runs.members import Members
from ..runs.metrics import Row
from ..runs.run import Counters, Run
from ._progress import AbstractProgress, agreed, Interrupt, News, wait
from ._turn import float_paths, of_experience, on_host, Report, run_turn
from .callbacks import AbstractCallback, Checkpoint, NOTHING_KEPT, Turn
from .evaluation import Evaluation, Evaluator


ADVICE = (
    "`eqsim rollout` raises where it does not, and `eqsim.testing.check_conformance` looks closer; "
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
    numbers = {k: n for k, n in report.number.items() if not of_experience(k)}
    finite = {name: int(n[member]) for name, n in numbers.items()}
    worst = min(finite, key=lambda name: finite[name], default="")
    seen = f", most often `{worst}`" if len({*finite.values()}) > 1 else ""
    return (
        f"a metric was not finite in at least half of the updates of {longest} consecutive "
        f"iterations, and in {bad} of {updates} updates{seen},"
    )


@dataclasses.dataclass
class Loop:
    """The state of a run.

    **Arguments:**

    - `run`: the run.
    - `source`: environment or dataset that the agents learn from.
    - `state`, `counters`: state of all members, and what was counted.
    - `evaluator`: evaluator of the members.
    - `callbacks`, `progress`: observers of each turn.
    - `begin`: time at which this process began with the run, by `time.monotonic()`.
    - `evaluations`: steps and evaluations of this process.
    - `warned`: members of which a reward or an observation was not finite.
    - `unsaved`: reason why files of the last turn are missing; empty if none are.
    """

    run: Run
    source: Any
    state: Any
    counters: Counters
    evaluator: Evaluator
    callbacks: list[AbstractCallback]
    progress: AbstractProgress
    begin: float
    evaluations: list[tuple[int, Evaluation]] = dataclasses.field(default_factory=list)
    warned: set[int] = dataclasses.field(default_factory=set)
    unsaved: str = ""

    def go(self, interrupt: Interrupt) -> None:
        """Take turns until the run is complete, a signal comes, or a callback asks to stop.

        **Raises:** `FloatingPointError` if no member is left whose numbers are finite.
        """
        run, begin = self.run, self.begin - self.counters.seconds
        paths = float_paths(self.state)
        pace: tuple[float, int] | None = None
        stopped = 0
        while self.counters.steps < run.steps and not interrupt.number and not stopped:
            before, start = self.counters, time.monotonic()
            report = self._turn(paths)
            took = time.monotonic() - start
            found = self._evaluation(before)
            best = self._best(found)
            now = time.monotonic()
            self.counters = self.counters._replace(seconds=now - begin)
            rate = float(report.steps.sum()) / max(took, 1e-9)
            failure = self._complaint(before)
            rows = self._rows(report, rate, found)
            turn = self._observe(rows, found, best, interrupt)
            if failure and not self._alive():
                raise FloatingPointError(f"{failure} {self.kept()}")
            interrupt.number, stopped, unsaved = agreed(
                interrupt.number, int(bool(turn.stop)), int(bool(turn.unsaved))
            )
            elsewhere = "another process could not write" if unsaved else ""
            self.unsaved = turn.unsaved or elsewhere
            if turn.stop:
                self.progress.say(f"Stopping, as {turn.stop}.")
            pace = pace or (now, self.counters.steps)
            self.progress.turn(self._news(report, rate, found, pace))

    def _observe(
        self,
        rows: list[Row],
        found: Evaluation | None,
        best: bool,
        interrupt: Interrupt,
    ) -> Turn:
        """Call the callbacks."""
        done = self.counters.steps >= self.run.steps
        turn = Turn(
            self.run,
            self.counters,
            rows,
            found,
            best,
            not self._alive(),
            self.state,
            lambda: done or bool(agreed(interrupt.number)[0]),
            self.progress.warn,
        )
        for callback in self.callbacks:
            callback.turn(turn)
        return turn

    def kept(self) -> str:
        """Describe the last checkpoint in a sentence."""
        found = [x.kept for x in self.callbacks if isinstance(x, Checkpoint)]
        return found[0] if found else NOTHING_KEPT

    def _turn(self, paths: list[str]) -> Report:
        n = self.run.iterations(self.counters)
        self.state, report = run_turn(self.run.members, self.source, n, self.state)
        wait(report)
        report = on_host(report)
        planned = self.run.steps
        self.counters = advance(self.counters, report, n, paths, int(planned))
        self._warn_nonfinite(report)
        return report

    def _warn_nonfinite(self, report: Report) -> None:
        """Warn of the first rewards and observations of a member that are not finite."""
        members, counters = self.run.members, self.counters
        failed = dict(counters.failed)
        for member in range(members.count):
            text = nonfinite_steps(report, member)
            if not text or member in self.warned:
                continue
            self.warned.add(member)
            if member in failed:
                continue  # Part of the message about its failure.
            of = f"{members.name(member)}: " if members.many else ""
            self.progress.warn(
                f"{of}{text} in turn {counters.turn} (up to step {counters.steps:,}). "
                f"Updates that are not finite are skipped. Check the environment: {ADVICE}. "
                "Later ones are counted in the metrics."
            )

    def _alive(self) -> list[int]:
        failed = dict(self.counters.failed)
        return [k for k in range(self.run.members.count) if k not in failed]

    def _evaluation(self, before: Counters) -> Evaluation | None:
        counters = self.counters
        if not self._alive() or not self.run.evaluates(before.steps, counters.steps):
            return None
        found = self.evaluator(self.state, counters.turn)
        self.evaluations.append((counters.steps, found))
        means = tuple(float(x) if np.isfinite(x) else None for x in found.mean())
        self.counters = counters._replace(evaluated=means)
        return found

    def _best(self, found: Evaluation | None) -> bool:
        """Return true, and record it, if an agent has a new best evaluation."""
        if found is None:
            return False
        value = best_agent(found.mean(), self.run.num_seeds, self._alive())
        if not np.isfinite(value):
            return False
        if self.counters.best is not None and value <= self.counters.best:
            return False
        turn = self.counters.turn
        self.counters = self.counters._replace(best=value, best_turn=turn)
        return True

    def _complaint(self, before: Counters) -> str:
        """Return a message about members that failed in this turn, and warn if others
        are left."""
        new = [item for item in self.counters.failed if item not in before.failed]
        text = complaint(self.run.members, new) if new else ""
        if text and self._alive():
            self.progress.warn(f"{text} The other members continue.")
        return text

    def _rows(self, report: Report, rate: float, found: Evaluation | None) -> list[Row]:
        counters, rows = self.counters, []
        for member in range(self.run.members.count):
            row: Row = {
                "turn": counters.turn,
                "member": member,
                "iterations": counters.iterations,
                "steps": counters.steps,
                "seconds": round(counters.seconds, 3),
                "rate": round(rate, 1),
            }
            row |= _means(report, member)
            row["nonfinite"] = int(report.nonfinite[member])
            for name in [x for x in (REWARDS, OBSERVATIONS) if x in report.total]:
                row[name] = int(report.total[name][member])
            if found is not None:
                row |= {
                    "eval/return": float(found.mean()[member]),
                    "eval/deviation": float(found.deviation()[member]),
                    "eval/error": float(found.error()[member]),
                    "eval/length": float(found.length()[member]),
                }
                if found.diversity is not None:
                    row["eval/diversity"] = float(found.diversity[member].mean())
                row |= self._score(float(found.mean()[member]))
            rows.append(row)
        return rows

    def _score(self, returns: float) -> Row:
        """Return the normalized score, if the recording has reference returns."""
        data = self.run.dataset()
        known = None if data is None else data.about
        if known is None or known.random_return is None or known.expert_return is None:
            return {}
        return {"eval/score": known.score(returns)}

    def _news(self, report: Report, rate: float, found, pace) -> News:
        total, steps = int(self.run.steps), self.counters.steps
        alive = self._alive()
        rows = [_means(report, k) for k in alive]
        values = [row.get("return", np.nan) for row in rows]
        evaluated = [
            self.counters.evaluated[k] for k in alive if self.counters.evaluated
        ]
        known = [x for x in evaluated if x is not None]
        done = steps - pace[1]
        left = np.nan
        if done:
            left = (time.monotonic() - pace[0]) * max(total - steps, 0) / done
        mean = lambda x: float(np.mean(x)) if len(x) else np.nan
        return News(
            steps,
            total,
            rate,
            mean(values),
            mean(known),
            float(left),
            found is not None,
            {
                name.removeprefix(TASK): mean([row[name] for row in rows])
                for name in (rows[0] if rows else ())
                if name.startswith(TASK)
            },
        )


def best_agent(means: np.ndarray, num_seeds: int, alive: list[int]) -> float:
    """Return the highest mean return of an agent over its seeds. Agents with failed
    seeds count only if there are no others, and then without these seeds.

    **Arguments:**

    - `means`: mean return of each member, one agent with all its seeds after the other.
    - `alive`: members that did not fail.
    """
    fine = np.isin(np.arange(len(means)), alive) & np.isfinite(means)
    agents, fine = means.reshape(-1, num_seeds), fine.reshape(-1, num_seeds)
    whole = fine.all(axis=1, keepdims=True)
    fine = fine & whole if whole.any() else fine
    number = fine.sum(axis=1)
    total = np.where(fine, agents, 0.0).sum(axis=1)
    known = number > 0
    return float(np.max(total[known] / number[known])) if known.any() else np.nan


def _means(report: Report, member: int) -> Row:
    """Return the metrics of one member: means over the iterations in which they were
    finite, or over episodes; the last value if there were none."""
    row: Row = {}
    for name, total in report.total.items():
        number = int(report.number[name][member])
        last = float(report.last[name][member])
        row[name] = float(total[member]) / number if number else last
    counted = "steps", "updates", "nonfinite", REWARDS, OBSERVATIONS
    own = lambda name: name not in counted and not name.startswith(TERM)
    return {name: value for name, value in row.items() if own(name)}
