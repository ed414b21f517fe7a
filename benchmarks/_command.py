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
    """A parser of the options that all timings have, described by a docstring.

    **Arguments:**

    - `repeats`: by default, of each measurement.
    - `limit`: by default, seconds for one runner in one cell; without it there is no
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
    """Sets the precision, and says what runs where."""
    jax.config.update("jax_enable_x64", options.precision == "double")
    return circumstances() | {"precision": options.precision}


def robots(
    names: Sequence[str], *, euler: bool = True
) -> Iterator[tuple[str, eqsim.System, mujoco.MjModel]]:
    """Each robot here and in MuJoCo, integrated by Euler or as the file says; says which
    are missing."""
    for name in names:
        try:
            yield name, system(name, euler=euler), mujoco_model(name, euler=euler)
        except NotInstalled as error:
            say(f"{name} is left out: {error}")


def publish(options: argparse.Namespace, name: str, data: Any, text: str) -> None:
    """Writes what is measured so far: data as JSON, a report as Markdown."""
    write(options.out / f"{name}.json", data)
    write(options.out / f"{name}.md", text)
    write(options.markdown, text)


def say(line: object) -> None:
    """Progress, beside the report."""
    print(line, file=_sys.stderr, flush=True)
