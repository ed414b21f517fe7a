"""The loop of all agents: turns, until there are steps enough."""

import dataclasses
import time
from typing import Any

import numpy as np

from ..runs._folder import Run
from ..runs._metrics import Row
from ..runs._plan import Counters
from ._evaluate import Evaluation
from ._evaluator import Evaluator
from ._failures import advance, complaint, nonfinite_iterations
from ._interrupt import Interrupt, wait
from ._output import Output
from ._processes import agreed, gathered
from ._progress import AbstractProgress, News
from ._turn import float_paths, on_host, Report, run_turn


@dataclasses.dataclass
class Loop:
    """A run on its way.

    **Arguments:**

    - `run`: agents, environment and plan.
    - `env`: what the agents learn in.
    - `state`, `counters`: where it is.
    - `evaluator`: tells how good it is.
    - `output`, `progress`: who is told.
    - `save_every`: seconds, see `train`.
    - `begin`: when this process began with the run, by `time.monotonic()`.
    - `evaluations`: steps and what was found, of this process.
    """

    run: Run
    env: Any
    state: Any
    counters: Counters
    evaluator: Evaluator
    output: Output
    progress: AbstractProgress
    save_every: int | float
    begin: float
    evaluations: list[tuple[int, Evaluation]] = dataclasses.field(default_factory=list)

    def go(self, interrupt: Interrupt) -> None:
        """Takes turns until the plan is done, or someone interrupts.

        **Raises:** `FloatingPointError` if no member is left whose numbers are finite.
        """
        plan, begin = self.run.plan, self.begin - self.counters.seconds
        paths = float_paths(self.state)
        pace: tuple[float, int] | None = None
        while self.counters.steps < plan.steps and not interrupt.number:
            before, start = self.counters, time.monotonic()
            report = self._turn(paths)
            took = time.monotonic() - start
            found = self._evaluation(before)
            best = self._best(found)
            now = time.monotonic()
            self.counters = self.counters._replace(seconds=now - begin)
            rate = float(report.steps.sum()) / max(took, 1e-9)
            self.output.write(self._rows(before, report, rate, found))
            self._complain(before)
            due = int(self.output.due(self.save_every))
            interrupt.number, due = agreed(interrupt.number, due)
            ended = self.counters.steps >= plan.steps or interrupt.number
            if found is not None or ended or due:
                self._save(before, best)
            pace = pace or (now, self.counters.steps)
            self.progress.turn(self._news(report, rate, found, pace))

    def _turn(self, paths: list[str]) -> Report:
        n = self.run.plan.iterations(self.counters)
        self.state, report = run_turn(self.run.members, self.env, n, self.state)
        wait(report)
        report = on_host(report)
        self.counters = advance(self.counters, report, n, paths)
        return report

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
        """Whether an agent was evaluated better than any before; that is noted."""
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

    def _save(self, before: Counters, best: bool) -> None:
        if not self.output.save(gathered(self.state), self.counters, best) and best:
            # There is no file of it.
            old = before.best, before.best_turn
            self.counters = self.counters._replace(best=old[0], best_turn=old[1])

    def _complain(self, before: Counters) -> None:
        new = [item for item in self.counters.failed if item not in before.failed]
        if not new:
            return
        text = complaint(self.run.members, new)
        if self._alive():
            self.progress.warn(f"{text} The other members go on.")
            return
        self.output.curves()
        raise FloatingPointError(f"{text} {self.output.kept}")

    def _rows(
        self, before: Counters, report: Report, rate: float, found: Evaluation | None
    ) -> list[Row]:
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
            taken = counters.iterations - before.iterations
            row["nonfinite"] = nonfinite_iterations(report, member, taken)
            if found is not None:
                row |= {
                    "eval/return": float(found.mean()[member]),
                    "eval/deviation": float(found.deviation()[member]),
                    "eval/error": float(found.error()[member]),
                    "eval/length": float(found.length()[member]),
                }
                row |= self._score(float(found.mean()[member]))
            rows.append(row)
        return rows

    def _score(self, returns: float) -> Row:
        """Normalized, where the recording says by what."""
        known = None if self.run.data is None else self.run.data.about
        if known is None or known.random_return is None or known.expert_return is None:
            return {}
        return {"eval/score": known.score(returns)}

    def _news(self, report: Report, rate: float, found, pace) -> News:
        total, steps = self.run.plan.steps, self.counters.steps
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
    """The mean return over the seeds of the agent for which that is highest; of agents with
    seeds that failed only where there are no others, and then without those.

    **Arguments:**

    - `means`: of members, one agent with all its seeds after the other.
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
    """Metrics of one member: means over the iterations in which they were finite; the last
    value if there were none."""
    row: Row = {}
    for name, total in report.total.items():
        number = int(report.number[name][member])
        last = float(report.last[name][member])
        row[name] = float(total[member]) / number if number else last
    row.pop("steps", None)
    return row
