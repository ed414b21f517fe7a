"""Results of an evaluation as JSON, and over the seeds of each agent."""

from typing import Any, NamedTuple

import numpy as np

from ..runs._members import Members
from ..runs._run import Run
from ..training import bootstrap_interval, interquartile_mean
from ..training._evaluate import Evaluation


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


def report(run: Run, found: Evaluation) -> dict[str, Any]:
    """Return an evaluation as JSON can write it; numbers that are not finite are null."""
    members = run.members
    about = {
        "agent": run.about["agents"][0]["class"],
        "env": run.about["env"],
        "steps": run.about["counters"]["steps"],
        "episodes": found.returns.shape[-1],
        "episode_length": run.plan.episode_length,
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
    made = [group._asdict() for group in groups(members, found)]
    return about | {"members": rows, "groups": made}


def _number(x: Any) -> float | None:
    return float(x) if np.isfinite(x) else None
