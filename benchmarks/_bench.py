"""What all benchmarks share: options, the protocol of timings, tables, and facts about
the machine.

A command reads `parser`, calls `setting` for machine and versions, times with
`interleaved`, and calls `publish` after each table cell, so that an interrupted run keeps
its results.
"""

import argparse
import dataclasses
import gc
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax


def parser(doc: str | None, *, repeats: int, limit: float | None = None):
    """Create a parser with the options of all timings, described by a docstring.

    **Arguments:**

    - `repeats`: default number of repeats of each measurement.
    - `limit`: default time limit of one runner in one cell, s; without it there is no
        such option.
    """
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    add = made.add_argument
    add("--repeats", type=int, default=repeats)
    if limit is not None:
        add("--limit", type=float, default=limit, help="seconds for one measurement")
    add("--precision", choices=("single", "double"), default="single")
    add("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    add("--markdown", type=pathlib.Path, help="a second place for the table")
    return made


def setting(options: argparse.Namespace) -> dict[str, Any]:
    """Set the precision, and print machine and versions."""
    jax.config.update("jax_enable_x64", options.precision == "double")
    return circumstances() | {"precision": options.precision}


def publish(options: argparse.Namespace, name: str, data: Any, text: str) -> None:
    """Write the measurements so far: data as JSON, a report as Markdown."""
    write(options.out / f"{name}.json", data)
    write(options.out / f"{name}.md", text)
    write(options.markdown, text)


def say(line: object) -> None:
    """Print progress, separately from the report."""
    print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Timing:
    """Wall-clock seconds of the same work, in the order in which they were taken."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Relative difference between median and best: 0.1 is 10 %."""
        ordered = sorted(self.seconds)
        return ordered[len(ordered) // 2] / self.best - 1


def seconds(call: Callable[[], Any]) -> float:
    """Measure the wall-clock time until the result of a call is available, s."""
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def interleaved(
    calls: Mapping[Any, Callable[[], Any]], repeats: int, limit: float
) -> dict[Any, Timing]:
    """Time calls alternately, so that other load of the machine affects all of them
    equally.

    Each is called once before, to compile and to warm up.

    **Arguments:**

    - `calls`: calls by name; each does the same work every time.
    - `repeats`: number of rounds.
    - `limit`: time after which a call is no longer repeated, s; each has at least one
        round.
    """
    for call in calls.values():
        seconds(call)
    taken: dict[Any, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, call in calls.items():
                if sum(taken[name]) < limit:
                    taken[name].append(seconds(call))
    finally:
        gc.enable()
    return {name: Timing(tuple(taken[name])) for name in calls}


def affordable(call: Callable[[int], Any], most: int, limit: float) -> int:
    """Return how many steps `call` can take within `limit` seconds: at least 1, at most
    `most`.

    `call(1)` is called twice: the first call compiles.
    """
    seconds(lambda: call(1))
    return max(1, min(most, int(limit / seconds(lambda: call(1)))))


PACKAGES = (
    "eqsim",
    "jax",
    "jaxlib",
    "equinox",
    "numpy",
    "mujoco",
    "mujoco-mjx",
    "brax",
    "gymnasium",
)


def child(words: Sequence[Any], limit: float) -> tuple[list[dict[str, Any]], str]:
    """Run a Python script in a process without caches.

    **Arguments:**

    - `words`: script and arguments.
    - `limit`: time limit, s.

    **Returns:** the lines of JSON that it printed, and the reason if it failed.
    """
    fresh = {"JAX_ENABLE_COMPILATION_CACHE": "false", "EQSIM_KERNELS_CACHE": ""}
    command, trouble = [sys.executable, *map(str, words)], ""
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=limit, env=os.environ | fresh
        )
        out = done.stdout
        if done.returncode:
            last = done.stderr.decode().strip().splitlines()[-1:]
            trouble = f"ended with status {done.returncode}: {' '.join(last)}"
    except subprocess.TimeoutExpired as error:
        out, trouble = error.stdout or b"", f"not finished in {limit:g} s"
    lines = out.decode().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")], trouble


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Format rows as an aligned Markdown table; a missing entry is a dash.

    **Arguments:**

    - `columns`: columns in order; by default all.
    """
    if not rows:
        return "Nothing was measured."
    columns = columns or list(dict.fromkeys(key for row in rows for key in row))
    cells = [[show(row.get(column)) for column in columns] for row in rows]
    texts = [
        all(isinstance(row.get(column, ""), str) for row in rows) for column in columns
    ]
    lines = [list(columns), *cells]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(columns))]

    def join(line):
        parts = [
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, texts)
        ]
        return f"| {' | '.join(parts)} |"

    rule = [
        "-" * width if text else "-" * (width - 1) + ":"
        for width, text in zip(widths, texts)
    ]
    return "\n".join([join(columns), f"| {' | '.join(rule)} |", *map(join, cells)])


def show(value: Any) -> str:
    """Format a number or a text for a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        if value != value:
            return "-"
        if value == 0 or 0.01 <= abs(value) < 1e5:
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
        return f"{value:.1e}"
    return str(value)


def circumstances() -> dict[str, Any]:
    """Return machine, versions, commit and date."""
    device = jax.devices()[0]
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": _git("describe", "--always", "--dirty", "--abbrev=12"),
        "processor": _processor(),
        "cores": _cores(),
        "device": f"{device.platform}: {device.device_kind}",
        "devices": len(jax.devices()),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _cores() -> int | None:
    """Return the number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def caption(where: Mapping[str, Any]) -> str:
    """Describe machine, versions, commit and date in one paragraph."""
    versions = (f"{name} {v}" for name, v in where["versions"].items() if v)
    cores = f"{where['cores']} core{'' if where['cores'] == 1 else 's'}"
    return (
        f"{where['processor']}, {cores}; {where['device']} "
        f"({where['devices']} devices); {', '.join(versions)}; "
        f"Python {where['python']}; commit {where['commit']}; {where['date']}."
    )


def write(path: pathlib.Path | None, content: Any) -> None:
    """Write text, or anything else as JSON; create the folder."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, str):
        content = json.dumps(content, indent=2, default=_plain) + "\n"
    path.write_text(content)


def _plain(value):
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _git(*arguments):
    folder = pathlib.Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _processor():
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
