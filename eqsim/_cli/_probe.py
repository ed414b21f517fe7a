"""Import tests of plugins in separate processes, because an import may print, hang,
crash or exit."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from ..plugins import Plugin, Registry


_START = 120.0
"""Timeout for starting Python and eqsim, s."""


def probe(
    registry: Registry, plugins: Mapping[str, Plugin], timeout: float
) -> dict[str, str]:
    """Return the reason why each plugin cannot be used, by name; empty if it can.

    One process imports all plugins of a package. If it hangs or exits, another process
    continues after the plugin that caused it.

    **Arguments:**

    - `timeout`: time limit of an import, s.
    """
    out: dict[str, str] = {}
    package = lambda name: plugins[name].package
    for _, names in itertools.groupby(sorted(plugins, key=package), package):
        rest = list(names)
        while rest:
            reasons, end = _import_all(registry.group, rest, timeout)
            out |= zip(rest, reasons)
            rest = rest[len(reasons) :]
            if rest:
                out[rest.pop(0)] = end
    return out


def _import_all(group: str, names: list[str], timeout: float) -> tuple[list[str], str]:
    """Return the reasons of the first plugins, and the outcome of the next one."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report")
        report.touch()
        command = [sys.executable, "-P", "-m", "eqsim._cli._probe", str(report), group]
        path = os.pathsep.join(str(folder) for folder in sys.path)
        process = subprocess.Popen(
            [*command, *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
        )
        try:
            end = _wait(process, report, timeout)
        finally:
            process.kill()
            process.wait()
        lines = report.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]], end


def _wait(process: subprocess.Popen, report: pathlib.Path, timeout: float) -> str:
    """Wait for the end, or until nothing was reported for too long; return which of the
    two."""
    size, limit, since = 0, _START, time.monotonic()
    while process.poll() is None:
        if report.stat().st_size != size:
            size, limit, since = report.stat().st_size, timeout, time.monotonic()
        if time.monotonic() - since > limit:
            return f"hangs: its import did not end within {limit:g} s"
        time.sleep(0.02)
    return f"crashes: its import ended Python with status {process.returncode}"


def _main() -> None:
    """Run the process: print a line after the start, and one for each plugin."""
    from ..plugins import PluginError, REGISTRIES

    report, group, *names = sys.argv[1:]
    registry = next(registry for registry in REGISTRIES if registry.group == group)
    with open(report, "a", encoding="utf-8", buffering=1) as file:
        file.write("\n")
        for name in names:
            try:
                registry.get(name)
                reason = ""
            except PluginError as error:
                reason = str(error)
            file.write(json.dumps(reason) + "\n")


if __name__ == "__main__":
    _main()
