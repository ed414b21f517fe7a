"""Training runs in separate processes."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from _command import say

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
