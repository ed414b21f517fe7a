"""Training runs in separate processes, and pages and tables about them."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from _bench import say

import eqsim
from eqsim_zoo.runs import find_preset, read_metrics, write_curves


def train(
    agent: str, env: str, seed: int, folder: pathlib.Path, more: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Run `eqsim train` without precompiled programs; return its evaluations."""
    say(f"{agent} {env} seed {seed}")
    own = "--seed", str(seed), "--out", str(folder), "--overwrite"
    command(("train", agent, env, *own, *more))
    return [row for row in read_metrics(folder) if "eval/return" in row]


def command(words: Sequence[str]) -> None:
    """Run `eqsim` without precompiled programs."""
    code = "import sys; from eqsim._cli import main; sys.exit(main())"
    clean = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    subprocess.run(
        [sys.executable, "-c", code, *words],
        env=clean,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def draw(folders: Sequence[pathlib.Path], out: pathlib.Path, name: str) -> None:
    """Plot the learning curves of runs."""
    out.mkdir(parents=True, exist_ok=True)
    write_curves(folders, out / f"{name}.png")


def physics(agent: str, env: str) -> str:
    """Return pipeline and integrator of a preset."""
    preset = find_preset(agent, env)
    made = eqsim.make(env, pipeline=None if preset is None else preset.pipeline)
    return f"{type(made.pipeline).__name__}, {made.sys.integrator.name}"


def kept(path: pathlib.Path, again: set[tuple], *names: str) -> list[dict[str, Any]]:
    """Return the rows of an earlier call that this call does not repeat: whose columns
    `names` are not in `again`."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return [row for row in rows if tuple(row[name] for name in names) not in again]


def by_agent(
    rows: Sequence[Mapping[str, Any]], digits: int = 0
) -> list[dict[str, str]]:
    """Return one line for all seeds of an agent.

    **Arguments:**

    - `rows`: `agent`, `steps`, `return` and `seconds` of each run.
    - `digits`: decimal places of returns.
    """
    lines = []
    for name in dict.fromkeys(row["agent"] for row in rows):
        own = [row for row in rows if row["agent"] == name]
        returns = [row["return"] for row in own]
        lines.append(
            {
                "agent": name,
                "steps": f"{own[0]['steps']:,}",
                "return by seed": ", ".join(f"{x:.{digits}f}" for x in returns),
                "mean": f"{statistics.fmean(returns):.{digits}f}",
                "seconds": ", ".join(f"{row['seconds']:.0f}" for row in own),
            }
        )
    return lines


def sections(path: pathlib.Path | None) -> list[str]:
    """Return the sections of second level in a Markdown file, each with its heading;
    none if there is no file."""
    if path is None or not path.exists():
        return []
    _, *parts = f"\n{path.read_text()}".split("\n## ")
    return [f"## {part.strip()}\n" for part in parts]


def write_section(path: pathlib.Path | None, text: str) -> None:
    """Write a section of second level into a Markdown file, in place of the one with the
    same heading, or at the end."""
    if path is None:
        return
    old = path.read_text() if path.exists() else ""
    begin = f"\n{old}".partition("\n## ")[0].strip()
    heading, parts = text.split("\n")[0], sections(path)
    same = [part for part in parts if part.split("\n")[0] == heading]
    new = [text if part in same else part for part in parts] + [text] * (not same)
    path.write_text("\n\n".join(part.strip() for part in (begin, *new)) + "\n")
