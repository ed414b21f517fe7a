"""The loop of all agents: turns, until there are steps enough."""

import dataclasses
import time
from typing import Any

import numpy as np

from ..blocks.collecting import OBSERVATIONS, REWARDS, TERM
from ..runs._metrics import Row
from ..runs._plan import Counters
from ..runs._run import Run
from ._callbacks import AbstractCallback, Control, Turn
from ._evaluate import Evaluation
from ._evaluator import Evaluator
from ._failures import advance, ADVICE, complaint, nonfinite_steps
from ._interrupt import Interrupt, wait
from ._processes import agreed
from ._progress import AbstractProgress, News
from ._saving import Checkpoint, NOTHING_KEPT
from ._turn import float_paths, on_host, Report, run_turn


@dataclasses.dataclass
class Loop:
    """The state of a run.

    **Arguments:**

    - `run`: agents, environment and plan.
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
        """Take turns until the plan is done, a signal comes, or a callback asks to stop.

        **Raises:** `FloatingPointError` if no member is left whose numbers are finite.
        """
        plan, begin = self.run.plan, self.begin - self.counters.seconds
        paths = float_paths(self.state)
        pace: tuple[float, int] | None = None
        stopped = 0
        while self.counters.steps < plan.steps and not interrupt.number and not stopped:
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
            control = self._observe(rows, found, best, interrupt)
            if failure and not self._alive():
                raise FloatingPointError(f"{failure} {self.kept()}")
            interrupt.number, stopped, unsaved = agreed(
                interrupt.number, int(bool(control.stop)), int(bool(control.unsaved))
            )
            elsewhere = "another process could not write" if unsaved else ""
            self.unsaved = control.unsaved or elsewhere
            if control.stop:
                self.progress.say(f"Stopping, as {control.stop}.")
            pace = pace or (now, self.counters.steps)
            self.progress.turn(self._news(report, rate, found, pace))

    def _observe(
        self,
        rows: list[Row],
        found: Evaluation | None,
        best: bool,
        interrupt: Interrupt,
    ) -> Control:
        """Call the callbacks."""
        done = self.counters.steps >= self.run.plan.steps
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
            Control(),
        )
        for callback in self.callbacks:
            callback.turn(turn)
        return turn.control

    def kept(self) -> str:
        """Describe the last checkpoint in a sentence."""
        found = [x.kept for x in self.callbacks if isinstance(x, Checkpoint)]
        return found[0] if found else NOTHING_KEPT

    def _turn(self, paths: list[str]) -> Report:
        n = self.run.plan.iterations(self.counters)
        self.state, report = run_turn(self.run.members, self.source, n, self.state)
        wait(report)
        report = on_host(report)
        planned = self.run.plan.steps
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
        plan, counters = self.run.plan, self.counters
        if not self._alive() or not plan.evaluates(before.steps, counters.steps):
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
        value = best_agent(found.mean(), self.run.plan.num_seeds, self._alive())
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
        known = None if self.run.data is None else self.run.data.about
        if known is None or known.random_return is None or known.expert_return is None:
            return {}
        return {"eval/score": known.score(returns)}

    def _news(self, report: Report, rate: float, found, pace) -> News:
        total, steps = int(self.run.plan.steps), self.counters.steps
        alive = self._alive()
        values = [_means(report, k).get("return", np.nan) for k in alive]
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
    finite; the last value if there were none."""
    row: Row = {}
    for name, total in report.total.items():
        number = int(report.number[name][member])
        last = float(report.last[name][member])
        row[name] = float(total[member]) / number if number else last
    counted = "steps", "updates", "nonfinite", REWARDS, OBSERVATIONS
    own = lambda name: name not in counted and not name.startswith(TERM)
    return {name: value for name, value in row.items() if own(name)}
