"""Tables that several commands print."""

import sys
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ..runs._members import Members
from ..skills.paths import SkillPaths
from ..training._evaluate import Evaluation


_WIDE = 1000


def console(quiet: bool = False) -> Console:
    """Return a console that does not wrap or cut lines; a quiet one prints nothing."""
    width = None if sys.stdout.isatty() else _WIDE
    options: Any = {"highlight": False, "soft_wrap": True, "markup": False}
    return Console(**options, width=width, quiet=quiet)


def plain_table(first: str, *others: str) -> Table:
    """Return a table without lines and with right-aligned numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def evaluation_table(members: Members, found: Evaluation) -> Table:
    """Return one row per member: mean return, its 95 % confidence interval, ranges."""
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


def skill_line(paths: SkillPaths) -> str:
    """Return a sentence about how well skills can be identified."""
    step, episode = paths.accuracy()
    limits = paths.limits
    known = limits is not None and np.all(np.isfinite(limits[:2]))
    covered = f"; {paths.coverage():.0%} of the descriptors covered" if known else ""
    return (
        f"{len(paths.skills)} skills in {paths.returns.size} episodes: reward "
        f"{paths.reward():.3g} per step, at most {np.log(len(paths.skills)):.3g}; identified "
        f"from {step:.0%} of the steps and {episode:.0%} of the episodes{covered}"
    )
