"""`eqsim runs`"""

from typing import Annotated

import numpy as np
import tyro

from eqsim.plugins import CommandError

from ..runs._curves import Series, write_curves
from ._errors import sentences
from ._tables import console, plain_table


def compare_runs(
    folders: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")
    ],
    out: str = "compare.png",
) -> None:
    """Plot the returns of several runs over steps and seconds, or all metrics of one run.

    The runs may still be in progress.

    Args:
        folders: folders of the runs.
        out: file of the plot.
    """
    if not folders:
        raise CommandError("Name at least one run folder.")
    screen = console()
    with sentences():
        found = write_curves(folders, out)
    table = plain_table(
        "run", "steps", "seconds", "steps/s", "return (last)", "return (best)"
    )
    for one in found:
        table.add_row(*_row(one))
    screen.print(table)
    screen.print(f"wrote {out}")


def _row(one: Series) -> tuple[str, ...]:
    steps, seconds = one.columns["steps"][0, -1], one.columns["seconds"][0, -1]
    # The first turn compiles.
    rate = np.median(one.columns["rate"][0][1:] if steps.size else [np.nan])
    turns, values = one.known("eval/return")
    last, best = "none", "none"
    if turns.size:
        fine = np.where(np.isfinite(values), values, -np.inf)
        last = f"{np.mean(values[np.isfinite(values[:, -1]), -1]):.4g}"
        best = f"{np.max(fine):.4g}"
    return one.label, f"{steps:,.0f}", f"{seconds:.0f}", f"{rate:,.0f}", last, best


runs = {"compare": compare_runs}
