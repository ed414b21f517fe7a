"""Short runs of a tiny agent that are disturbed, and must end as if they were not."""

import os
import signal

from toys import Rail
from zoo.search import Search
from zoo.states import bits, without_times

from eqsim_zoo import load_run
from eqsim_zoo.runs import read_metrics
from eqsim_zoo.training import AbstractCallback


ARGS = {
    "steps": 400,
    "episode_length": 10,
    "pool_size": 8,
    "turns": 12,
    "evaluations": 12,
    "episodes": 4,
}
AGENT = {"agent": Search(), "env": Rail()}


class EachTurn(AbstractCallback):
    """Calls a function after each turn.

    - `closed`: true after the run.
    """

    def __init__(self, act):
        self.act, self.closed = act, False

    def start(self, run, folder, turn):
        pass

    def turn(self, turn):
        self.act(turn)

    def close(self):
        self.closed = True


def signaled(turn, number=signal.SIGINT):
    """Return a callback that sends a signal to this process after so many turns."""

    def act(now):
        if now.counters.turn == turn:
            os.kill(os.getpid(), number)

    return EachTurn(act)


def same(folder, whole, agent=AGENT["agent"]):
    """Check that the files of two runs hold the same states, counters and metrics."""
    for best in (False, True):
        made = {"best": best, "agent": agent, "env": AGENT["env"]}
        one, two = (load_run(x, **made) for x in (folder, whole))
        assert bits(one.state) == bits(two.state)
        counters = [x.counters._replace(seconds=0.0) for x in (one, two)]
        assert counters[0] == counters[1]
    one, two = (without_times(read_metrics(x)) for x in (folder, whole))
    assert one == two
    one, two = (_table(x) for x in (folder, whole))
    assert one == two
    for name in ("curves.png", "index.html"):
        assert (folder / name).exists() and (whole / name).exists()


def _table(folder):
    """Return the rows of `metrics.csv` without seconds and rate."""
    lines = (folder / "metrics.csv").read_text().splitlines()
    return [line.split(",")[:4] + line.split(",")[6:] for line in lines]
