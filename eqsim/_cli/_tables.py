"""Tables and texts shared by several commands."""

import inspect
import sys

from rich.console import Console
from rich.table import Table


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
