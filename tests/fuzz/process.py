"""The process that runs inputs, seen from the tests."""

import collections
import json
import os
import pathlib
import selectors
import subprocess
import sys
import time
from typing import NamedTuple


ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 10.0
"""Time limit of an input, s."""
_START = 120.0


class Outcome(NamedTuple):
    """What became of an input: `accepted`, `refused` or `broken`, and a description."""

    kind: str
    seed: int
    status: str
    text: str
    seconds: float


class Worker:
    """A worker process, started again after an input that ends it."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.process = folder, None
        self.known: set[str] = set()

    def ask(self, kind: str, seed: int) -> Outcome:
        """Run the input of a seed."""
        if self.process is None:
            self._start()
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps([kind, seed]).encode() + b"\n")
        self.process.stdin.flush()
        if kind not in self.known:
            if self._line(_START) is None:
                raise RuntimeError(self._ended(kind, seed, _START).text)
            self.known.add(kind)
        begin = time.monotonic()
        if (line := self._line(SECONDS)) is None:
            return self._ended(kind, seed, time.monotonic() - begin)
        return Outcome(kind, seed, *json.loads(line))

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdin is not None and self.process.stdout is not None
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def _start(self) -> None:
        paths = [ROOT, ROOT / "zoo", ROOT / "tests", *filter(None, sys.path)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, dict.fromkeys(paths))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_PLATFORMS": "cpu",
            "EQSIM_KERNELS_CACHE": str(self.folder / "kernels"),
        }
        self.known.clear()
        self.errors = open(self.folder / "errors", "wb")
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", ROOT / "tests/fuzz/worker.py"]
            + [self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
        )
        self.errors.close()
        self._rest = b""

    def _line(self, seconds: float) -> bytes | None:
        """A line of the process; None if it ends, or is silent for too long."""
        assert self.process is not None and self.process.stdout is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                chunk = os.read(self.process.stdout.fileno(), 65536)
                if not chunk:
                    return None
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self, kind: str, seed: int, seconds: float) -> Outcome:
        assert self.process is not None
        try:
            how = f"ends the process with status {self.process.wait(1.0)}"
        except subprocess.TimeoutExpired:
            how = f"takes more than {seconds:.0f} s"
        self.close()
        errors = (self.folder / "errors").read_bytes()[-3000:].decode(errors="replace")
        return Outcome(kind, seed, "broken", f"{how}\n{errors}", seconds)


def summary(outcomes: list[Outcome]) -> str:
    """Counts, and one example of each different problem."""
    counts = collections.Counter(x.status for x in outcomes)
    slowest = max(outcomes, key=lambda x: x.seconds)
    lines = [f"{dict(counts)}, slowest {slowest.seconds:.1f} s (seed {slowest.seed})"]
    groups = collections.defaultdict(list)
    for one in (x for x in outcomes if x.status == "broken"):
        tail = one.text.strip().splitlines()
        places = [x.strip() for x in tail if "/eqsim" in x and "File " in x]
        groups[(places[-1:] or tail[:1])[0] + tail[-1][:60]].append(one)
    for group in sorted(groups.values(), key=len, reverse=True):
        one = group[0]
        lines.append(
            f"\n--- {len(group)} inputs such as {one.kind} {one.seed}:\n{one.text}"
        )
    return "\n".join(lines)
