"""Progress of a run."""

import abc
import time
import warnings
from typing import Any, NamedTuple


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
    """

    steps: int
    total: int
    rate: float
    value: float
    evaluated: float
    left: float
    fresh: bool

    def text(self) -> str:
        """Return the progress as one line."""
        parts = [f"{self.rate:,.0f} steps/s"]
        if self.value == self.value:
            parts.append(f"return {self.value:.4g}")
        if self.evaluated == self.evaluated:
            parts.append(f"evaluated {self.evaluated:.4g}")
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
