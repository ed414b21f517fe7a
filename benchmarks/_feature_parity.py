"""Comparison of random robots with MuJoCo C: a table by feature."""

import argparse
import collections
import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from _agreement import compared, ours_of_each, quick_compile, theirs
from _cases import GROUPS, random_cases
from _causes import deviations
from _command import say
from _features import EXCLUSIVE, FAMILIES, features
from _records import columns, Deviation, Record
from _tables import table


def check_random(
    options: argparse.Namespace,
    tolerance: float,
    save: Callable[[list[Record]], None],
) -> list[Record]:
    """Compare random robots, and save the results after each structure."""
    records: list[Record] = []
    started = time.time()
    for seed in range(options.first_seed, options.first_seed + options.random):
        if time.time() - started > 60 * options.minutes:
            say(f"{options.minutes} minutes are over")
            break
        own = check_structure(
            seed,
            options.random_states,
            options.precision,
            options.random_links,
            tolerance,
            options.variations,
        )
        records += own
        save(records)
        worst = (max(max(e) for e in es) for es in zip(*((r.qdd, r.step) for r in own)))
        say(
            f"random {seed}: {', '.join(f'{error:.1e}' for error in worst)}, "
            f"{(time.time() - started) / len(records):.1f} s each"
        )
        for record in own:
            for line in record.deviations:
                say(f"  {line}")
    return records


def check_one(
    seed: int, count: int, precision: str, links: int, tolerance: float
) -> Record:
    """Compare one random robot."""
    (record,) = check_structure(seed, count, precision, links, tolerance, 0)
    return record


def check_structure(
    seed: int,
    count: int,
    precision: str,
    links: int,
    tolerance: float,
    variations: int,
) -> list[Record]:
    """Compare a random robot, and `variations` of it with other parameters."""
    cases = random_cases(seed, count, precision, links, variations)
    systems, states = [case.sys for case in cases], [case.states for case in cases]
    values = ours_of_each(systems, states, quick_compile())
    found = []
    for k, (case, value) in enumerate(zip(cases, values, strict=True)):
        target, rows = theirs(case.sys, case.model, case.states)
        error = compared(value, target)
        name = f"random {seed}.{k}" if k else f"random {seed}"
        wrong = deviations(
            name, case.sys, case.model, case.states, value, error, tolerance
        )
        alone, own = case.alone or "", features(case.sys)
        found.append(Record.of(name, alone, case.sys, own, error, rows, wrong))
    return found


def read_random(runs: Iterable[dict[str, Any]]) -> list[Record]:
    """Return the random systems of earlier runs, each once.

    **Raises:** `SystemExit` if two runs contain the same system.
    """
    found: dict[str, Record] = {}
    for run in runs:
        for record in map(Record.read, run["random"]):
            if record.robot in found:
                raise SystemExit(f"Two of the runs contain {record.robot}.")
            found[record.robot] = record
    return list(found.values())


def feature_report(records: list[Record], tolerance: float) -> list[str]:
    """Return the tables by feature, by kind of sensor, by size, and all deviations."""
    names = sorted({name for record in records for name in record.features})
    found, possible = _pairs(records, names)
    alone = collections.Counter(record.group for record in records)
    drawn = ", ".join(f"{group} {alone[group]}" for group in GROUPS)
    states = sum(len(record.qdd) for record in records)
    most = max(record.links for record in records)
    return [
        f"### {len(records)} random systems by feature",
        f"{states} states of systems with 1 to {most} links. A system counts in the rows of "
        "all its features, so rows overlap. `sensors`: number of sensors compared. Errors "
        "of a sensor are relative to its largest value, or to 1 if that is larger.",
        f"{possible} pairs of the {len(names)} features can occur together; {found} of them "
        f"occur in at least one system. Systems with a single group of features: {drawn}.",
        table([_row(records, name, tolerance) for name in names]),
        "### By kind of sensor",
        table(list(_sensor_rows(records, tolerance))),
        "### By number of links",
        table(list(_size_rows(records, tolerance))),
        *deviation_list(records),
    ]


def _row(records: list[Record], name: str, tolerance: float) -> dict[str, Any]:
    own = [record for record in records if name in record.features]
    return {"feature": name, "systems": len(own)} | columns(own, tolerance)


def _pairs(records: list[Record], names: list[str]) -> tuple[int, int]:
    """Return the number of pairs of features that occur in one system, and the number
    of possible pairs."""
    possible = {
        pair
        for pair in itertools.combinations(names, 2)
        if not any(all(name in group for name in pair) for group in EXCLUSIVE)
    }
    found = {
        pair
        for record in records
        for pair in itertools.combinations(sorted(record.features), 2)
    }
    return len(possible & found), len(possible)


def _sensor_rows(records: list[Record], tolerance: float):
    errors: dict[str, list[list[float]]] = {}
    for record in records:
        for kind, own in record.sensors:
            errors.setdefault(kind, []).append(own)
    for kind in FAMILIES:
        if kind in errors:
            values = np.array([x for own in errors[kind] for x in own])
            yield {
                "sensor": kind,
                "sensors": len(errors[kind]),
                "values": len(values),
                "max": float(np.nanmax(values)),
                "median": float(np.nanmedian(values)),
                "within": float(np.mean(values <= tolerance)),
            }


def _size_rows(records: list[Record], tolerance: float):
    for links in sorted({record.links for record in records}):
        own = [record for record in records if record.links == links]
        rows = [count for record in own for count in record.rows]
        yield {
            "links": links,
            "systems": len(own),
            "rows": float(np.mean(rows)),
            "most": max(rows),
            "in contact": float(np.mean([c > 0 for r in own for c in r.contacts])),
            "MuJoCo residual": max(x for record in own for x in record.residual),
        } | columns(own, tolerance)


def deviation_list(records: list[Record]) -> list[str]:
    """Return all deviations, one line for each state, under a heading with their
    number."""
    groups: dict[tuple[str, int], list[Deviation]] = {}
    for record in records:
        for line in record.deviations:
            groups.setdefault((line.robot, line.state), []).append(line)
    if not groups:
        return ["No state deviates."]
    lines = []
    for (robot, state), own in groups.items():
        quantities = ", ".join(f"{d.quantity} {d.error:.1e}" for d in own)
        lines.append(
            f"- {robot}, state {state} ({own[0].kind}): {quantities}. {own[0].cause}"
        )
    count = len(groups)
    heading = f"### {count} state{' deviates' if count == 1 else 's deviate'}"
    return [heading, "\n".join(lines)]
