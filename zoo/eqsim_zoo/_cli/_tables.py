"""Tables that several commands print."""

import sys

from rich.console import Console
from rich.table import Table

from .._evaluate import Evaluation
from .._members import Members


_WIDE = 1000


def console() -> Console:
    """A terminal, or a file, in which no line is cut to fit."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(highlight=False, soft_wrap=True, markup=False, width=width)


def plain_table(first: str, *others: str) -> Table:
    """A table without lines, with numbers to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def evaluation_table(members: Members, found: Evaluation) -> Table:
    """A row per member: mean return with its 95 % confidence interval, and more."""
    names = ("return", "± (95 %)", "deviation", "least", "most", "length", "terminated")
    labels = members.labels()
    table = plain_table(", ".join(labels[0]), *names)
    for member, label in enumerate(labels):
        returns = found.returns[member]
        numbers = (
            found.mean()[member],
            found.error()[member],
            found.deviation()[member],
            returns.min(),
            returns.max(),
            found.length()[member],
        )
        share = f"{100 * found.terminated[member].mean():.0f} %"
        text = ", ".join(map(str, label.values()))
        table.add_row(text, *(f"{x:.4g}" for x in numbers), share)
    return table
