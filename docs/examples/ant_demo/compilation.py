"""Seconds that JAX takes to compile: tracing, lowering and compiling programs.

As a program, `compilation.py FILE ...` runs `eqsim ...`, and writes the seconds to a file.
"""

import pathlib
import sys
import time

import jax


class CompileClock:
    """Measurement of the time in which this process compiles.

    Programs are traced inside others: times that overlap count once.
    """

    def __init__(self):
        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, name: str, seconds: float, **_) -> None:
        if name.startswith("/jax/core/compile/"):
            now = time.perf_counter()
            self._spans.append((now - seconds, now))

    def since(self, begin: float) -> float:
        """Return the seconds of compilation since a moment of `time.perf_counter`."""
        total, last = 0.0, begin
        for start, end in sorted(self._spans):
            total += max(0.0, end - max(start, last))
            last = max(last, end)
        return total


def main() -> int:
    """Run a command of eqsim."""
    from eqsim._cli import main as command

    begin, clock = time.perf_counter(), CompileClock()
    file = pathlib.Path(sys.argv.pop(1))
    try:
        return command()
    finally:
        file.write_text(str(clock.since(begin)))


if __name__ == "__main__":
    sys.exit(main())
