"""Ctrl-C, answered at the end of a turn; and waiting for a device such that it is heard."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax.tree_util as jtu

from ._progress import AbstractProgress


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
