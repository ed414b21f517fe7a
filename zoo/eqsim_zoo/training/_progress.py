"""Surroundings of a run: several processes, progress on a screen, and signals.

In a run of several processes (`jax.distributed`), all take the same turns; the first one
writes and prints.
"""

import abc
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np
from jax.experimental import multihost_utils

from ..blocks.parallel import replicate


def is_first() -> bool:
    """Return whether this is the process that writes files and prints."""
    return jax.process_index() == 0


def gathered(tree: Any) -> Any:
    """Gather arrays with the rows of all processes; all of them must call it."""
    return tree if jax.process_count() == 1 else _gathered(tree)


@eqx.filter_jit
def _gathered(tree: Any) -> Any:
    return replicate(tree)


def agreed(*numbers: int) -> tuple[int, ...]:
    """Return the maximum of each number over the processes, whose clocks and signals
    may differ; all of them must call it."""
    if jax.process_count() == 1:
        return numbers
    found = multihost_utils.process_allgather(np.asarray(numbers))
    return tuple(int(x) for x in np.max(np.asarray(found), axis=0))


class RunWarning(UserWarning):
    """Something went wrong that does not end a run."""


class News(NamedTuple):
    """Progress after a turn, as the mean over members.

    - `steps`, `total`: control steps so far and planned, of a member.
    - `rate`: control steps per second, of all members.
    - `value`, `evaluated`: return while learning, and of the last evaluation; NaN if not
        known.
    - `left`: seconds, about.
    - `fresh`: true if there was an evaluation in this turn.
    - `task`: numbers of the task by name, see `eqsim.wrappers.progress_of`.
    """

    steps: int
    total: int
    rate: float
    value: float
    evaluated: float
    left: float
    fresh: bool
    task: Mapping[str, float]

    def text(self) -> str:
        """Return the progress as one line."""
        parts = [f"{self.rate:,.0f} steps/s"]
        if self.value == self.value:
            parts.append(f"return {self.value:.4g}")
        if self.evaluated == self.evaluated:
            parts.append(f"evaluated {self.evaluated:.4g}")
        for name, value in self.task.items():  # Units are in the files of metrics.
            parts.append(f"{name.partition(',')[0]} {value:.2g}")
        return ", ".join(parts)


class AbstractProgress(abc.ABC):
    """Shows how far a run is."""

    @abc.abstractmethod
    def turn(self, news: News) -> None:
        """Show the progress after a turn."""

    @abc.abstractmethod
    def say(self, text: str) -> None:
        """Show a message."""

    @abc.abstractmethod
    def warn(self, text: str) -> None:
        """Show a warning."""

    @abc.abstractmethod
    def close(self) -> None:
        """Finish the display at the end of the run, also after an error."""


class Silent(AbstractProgress):
    """Says only what goes wrong, as warnings."""

    def turn(self, news: News) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""

    def warn(self, text: str) -> None:
        warnings.warn(text, RunWarning, stacklevel=2)

    def close(self) -> None:
        """Do nothing."""


class Bar(AbstractProgress):
    """A bar on a terminal, lines elsewhere. Extra: `cli`.

    **Raises:** `ImportError` without rich.
    """

    def __init__(self):
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn
        except ImportError as error:
            raise ImportError(
                "A progress bar needs rich. Run `pip install 'eqsim-zoo[cli]'`."
            ) from error
        self._console: Any = Console(highlight=False, soft_wrap=True, markup=False)
        self._bar: Any = None
        self._task: Any = None
        self._said = time.monotonic()
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.percentage:>3.0f} %"),
                BarColumn(),
                TextColumn("{task.description}"),
            )
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task("compiling", total=None)
            self._bar.start()

    def turn(self, news: News) -> None:
        if self._bar is not None:
            text = f"{news.text()}, {_span(news.left)} left"
            done = min(news.steps, news.total)
            self._bar.update(
                self._task, completed=done, total=news.total, description=text
            )
            return
        now = time.monotonic()
        # Into a file: at evaluations, and where there is nothing else to say.
        if news.fresh or now - self._said > 30.0 or news.steps >= news.total:
            self._said = now
            share = 100 * min(news.steps / news.total, 1.0)
            self.say(
                f"{share:3.0f} %  {news.steps:,} steps: {news.text()}, "
                f"{_span(news.left)} left"
            )

    def say(self, text: str) -> None:
        self._console.print(text)

    def warn(self, text: str) -> None:
        self._console.print(f"warning: {text}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _span(seconds: float) -> str:
    if seconds != seconds:
        return "?"
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    )


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Request to stop. `number`: number of the signal, 0 without one."""

    def __init__(self):
        self.number = 0


@contextmanager
def listening(progress: AbstractProgress) -> Iterator[Interrupt]:
    """Treat the first SIGINT or SIGTERM as a request to stop; a second one has its usual
    effect.

    Elsewhere than in the main thread, signals are left alone.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def answer(number: int, frame: Any) -> None:
        interrupt.number = number
        restore()
        progress.say("Stopping after this turn. Repeat to stop immediately.")

    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    for number in _SIGNALS:
        signal.signal(number, answer)
    try:
        yield interrupt
    finally:
        restore()


def wait(tree: Any) -> None:
    """Wait until arrays are computed; unlike in `jax.block_until_ready`, Python handles
    signals meanwhile."""
    begin = time.monotonic()
    leaves: list[Any] = jtu.tree_leaves(tree)
    for leaf in leaves:
        while not leaf.is_ready():
            waited = time.monotonic() - begin
            time.sleep(min(1e-4 + 0.02 * waited, 0.02))
