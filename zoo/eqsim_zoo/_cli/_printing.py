"""Output of the commands: errors as sentences, tables, and results as JSON."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from eqsim.plugins import CommandError

from ..runs.checkpoints import CheckpointError
from ..runs.folders import env_name
from ..runs.members import Members
from ..runs.offline import kind_of
from ..skills.paths import SkillPaths
from ..training import bootstrap_interval, interquartile_mean, Result
from ..training.evaluation import Evaluation, Tracking
from ..training.train_resume import UnsavedError


@contextmanager
def sentences() -> Iterator[None]:
    """Print expected errors without a traceback, and end the command."""
    try:
        yield
    except (CheckpointError, UnsavedError) as error:
        raise CommandError(str(error), 1) from error
    except (ValueError, FileExistsError, FileNotFoundError, ImportError) as error:
        raise CommandError(str(error), 2) from error


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


def tracking_table(label: str, found: Tracking) -> Table:
    """Return one row per quantity: the mean absolute error, and that in each fifth of the
    range of targets; `none` for a fifth without targets.

    **Arguments:**

    - `label`: name of the member, empty for a single one.
    """
    first = f"mean absolute error, {label}" if label else "mean absolute error"
    parts = [f"{part} fifth of targets" for part in _FIFTHS]
    table = plain_table(first, "all", *parts)
    errors = found.error()
    for name, parts in found.by_target(len(_FIFTHS)).items():
        text = lambda error: "none" if np.isnan(error) else f"{error:.3f}"
        own = [f"{text(error)} ({low:.2g} to {high:.2g})" for low, high, error in parts]
        table.add_row(name, f"{errors[name]:.3f}", *own)
    return table


_FIFTHS = "first", "second", "third", "fourth", "last"


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


class Group(NamedTuple):
    """Members that differ only by their seed.

    - `fields`: fields of the agent that differ between groups.
    - `seeds`: seed of each member.
    - `mean`: interquartile mean of the members' mean returns.
    - `interval`: its 95 % confidence interval.
    """

    fields: dict[str, Any]
    seeds: list[int]
    mean: float
    interval: tuple[float, float]


def groups(members: Members, found: Evaluation) -> list[Group]:
    """Return the members by agent, if the agent has several seeds."""
    parts: dict[tuple, list[int]] = {}
    labels = members.labels()
    for member, label in enumerate(labels):
        fields = tuple((k, v) for k, v in label.items() if k != "seed")
        parts.setdefault(fields, []).append(member)
    made = []
    for fields, own in parts.items():
        means = found.mean()[own]
        if len(own) > 1 and np.all(np.isfinite(means)):
            seeds = [labels[member]["seed"] for member in own]
            interval = bootstrap_interval(means)
            made.append(Group(dict(fields), seeds, interquartile_mean(means), interval))
    return made


def group_line(group: Group) -> str:
    """Return one group as a sentence."""
    low, high = group.interval
    fields = "".join(f", {name} {value}" for name, value in group.fields.items())
    return (
        f"{len(group.seeds)} seeds{fields}: interquartile mean {group.mean:.4g}, 95 % "
        f"interval {low:.4g} to {high:.4g} (bootstrap over seeds)"
    )


def report(
    run: Result, found: Evaluation, tracking: Sequence[Tracking]
) -> dict[str, Any]:
    """Return an evaluation as JSON can write it; numbers that are not finite are null.

    **Arguments:**

    - `tracking`: one for each member, or none.
    """
    members = run.members
    about = {
        "agent": kind_of(run.members.agent(0)).__name__,
        "env": env_name(run.environment()),
        "options": run.run.options,
        "steps": run.counters.steps,
        "episodes": found.returns.shape[-1],
        "episode_length": run.run.episode_length,
    }
    rows = []
    for member, label in enumerate(members.labels()):
        row = {
            "return": found.mean()[member],
            "error": found.error()[member],
            "deviation": found.deviation()[member],
            "length": found.length()[member],
            "terminated": found.terminated[member].mean(),
        }
        if found.diversity is not None:
            row["diversity"] = found.diversity[member].mean()
        returns = [_number(x) for x in found.returns[member]]
        numbers = {name: _number(x) for name, x in row.items()}
        rows.append({**label, **numbers, "returns": returns})
        if tracking:
            errors = tracking[member].error().items()
            rows[-1]["tracking"] = {name: _number(x) for name, x in errors}
    made = [group._asdict() for group in groups(members, found)]
    return about | {"members": rows, "groups": made}


def _number(x: Any) -> float | None:
    return float(x) if np.isfinite(x) else None
