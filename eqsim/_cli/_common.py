"""Names given by users, and tables, shared by several commands."""

import difflib
import inspect
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from ..envs import AbstractEnv, is_import_path, make
from ..pipelines import AbstractPipeline
from ..plugins import CommandError, ENVS, PIPELINES, Registry
from ..randomize import AbstractRandomizer, presets


_WIDE = 1000


def console() -> Console:
    """Return a console, for a terminal or a file, that does not cut lines."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(highlight=False, width=width)


def plain_table(first: str, *others: str, show_header: bool = True) -> Table:
    """Return a table without lines, whose first column is not wrapped."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", show_header=show_header
    )
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name)
    return table


def paragraph(value: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def environment(name: str, pipeline: str | None) -> AbstractEnv:
    """Create an environment with a pipeline, by name or as `module:object`."""
    if not is_import_path(name):
        _known("environment", name, ENVS)
    if pipeline is not None:
        _known("pipeline", pipeline, PIPELINES)
    try:
        return make(name, pipeline=pipeline)
    except (TypeError, ValueError) as error:
        raise CommandError(f"Cannot make {name!r}: {error}") from error


def check_not_imported(what: str, name: str) -> None:
    """Raise `CommandError` if a file names an environment by `module:object`: only names
    given by the user import a module."""
    if is_import_path(name):
        raise CommandError(
            f"{what} names the environment {name!r}. Modules named by files are not "
            f"imported: if you trust this one, pass `--env {name}`."
        )


def physics(name: str | None) -> AbstractPipeline | None:
    """Return the pipeline with a name; None without a name."""
    if name is None:
        return None
    _known("pipeline", name, PIPELINES)
    return PIPELINES.get(name)()


def preset(env: str, name: str) -> AbstractRandomizer:
    """Return a randomization preset by name."""
    found = presets(plain(env))
    check_known("preset of randomization", name, found)
    return found[name]


def plain(env: str) -> str:
    """Return the name of an environment without the name of its package."""
    return env.rpartition(":")[2]


def at_least_one(option: str, value: int) -> None:
    """Raise `CommandError` unless the number is positive."""
    if value < 1:
        raise CommandError(f"`{option}` must be at least 1, got {value}.")


def _known(what: str, name: str, registry: Registry) -> None:
    if name not in {**registry.plugins(), **registry.hidden()}:
        check_known(what, name, registry.names())


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise `CommandError` with close names unless a name is known."""
    names = sorted(known)
    if name in names:
        return
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise CommandError(f"There is no {what} {name!r}.{hint} Known: {', '.join(names)}.")
