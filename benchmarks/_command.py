"""Common parts of the commands: options, robots, and output of results."""

import argparse
import pathlib
import sys as _sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import mujoco
from _models import mujoco_model, NotInstalled, system
from _tables import circumstances, write

import eqsim


def parser(doc: str, *, repeats: int, limit: float | None = None):
    """Create a parser with the options of all timings, described by a docstring.

    **Arguments:**

    - `repeats`: default number of repeats of each measurement.
    - `limit`: default time limit of one runner in one cell, s; without it there is no
        such option.
    """
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
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


def robots(
    names: Sequence[str], *, euler: bool = True
) -> Iterator[tuple[str, eqsim.System, mujoco.MjModel]]:
    """Yield each robot in eqsim and in MuJoCo, with Euler or the integrator of the
    file; report missing robots."""
    for name in names:
        try:
            yield name, system(name, euler=euler), mujoco_model(name, euler=euler)
        except NotInstalled as error:
            say(f"{name} is left out: {error}")


def publish(options: argparse.Namespace, name: str, data: Any, text: str) -> None:
    """Write the measurements so far: data as JSON, a report as Markdown."""
    write(options.out / f"{name}.json", data)
    write(options.out / f"{name}.md", text)
    write(options.markdown, text)


def say(line: object) -> None:
    """Print progress, separately from the report."""
    print(line, file=_sys.stderr, flush=True)
