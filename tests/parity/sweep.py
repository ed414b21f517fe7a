"""Compare eqsim with MuJoCo C in many random states, and report the differences.

    python tests/parity sweep                                   # Gymnasium's files
    python tests/parity sweep --models ant humanoid --n 50
    python tests/parity sweep --models --random 300 --json out/random.json
    python tests/parity sweep --models --folder FOLDER --json out/folder.json
    python tests/parity sweep --models --add out/*.json --markdown out/parity.md

The last line combines the results of several runs: of random systems with other seeds
(`--first-seed`), of files and of folders. The exit status is the number of deviations
without a known cause. `test_parity.py` makes the same comparison with few states.
"""

import argparse
import collections
import dataclasses
import functools
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import assets
import numpy as np
from _bench import caption, say, setting, table, write

from .causes import Deviation, UNEXPLAINED
from .compare import (
    check_file,
    check_gymnasium,
    check_structure,
    FILES,
    LARGE,
    RANDOM,
    Record,
)
from .reference import Summary, TOLERANCE
from .robots import EXCLUSIVE, FAMILIES, GROUPS, LINKS
from .states import KINDS


def _work(options) -> Iterator[tuple[str, Callable[[], list[Record] | str]]]:
    """Yield the name of each part of the work, and a function that does it."""
    for name in options.models:
        yield name, lambda name=name: [check_gymnasium(name, options)]
    sizes = options.random_states, options.precision, options.random_links
    more = TOLERANCE[options.precision], options.variations
    for seed in range(options.first_seed, options.first_seed + options.random):
        check = functools.partial(check_structure, seed, *sizes, *more)
        yield f"random {seed}", check
    for folder in options.folder:
        label, paths = (
            options.label or folder.name,
            sorted(folder.rglob(options.pattern)),
        )
        if not paths:
            raise SystemExit(f"There is no {options.pattern} below {folder}.")
        for path in paths:
            name = str(path.relative_to(folder))

            def check(path=path, label=label, name=name):
                try:
                    found = check_file(path, label, name, options)
                except Exception as error:
                    return f"internal error {type(error).__name__}: {error}"
                return found if isinstance(found, str) else [found]

            yield f"{label}/{name}", check


def main() -> int:
    """Print the tables; return the number of unexplained deviations."""
    options = _options()
    places, records, left_out = read(options.add)
    old, started = len(records), time.time()
    own: dict[str, Any] = {"where": setting(options), "records": [], "left_out": []}
    for name, check in _work(options):
        if time.time() - started > 60 * options.minutes:
            say(f"{options.minutes} minutes are over")
            break
        found = check()
        if isinstance(found, str):
            left_out[name] = found
            own["left_out"].append((name, found))
            say(f"{name}: {found}")
            continue
        records += found
        worst = (max(max(getattr(r, x)) for r in found) for x in ("qdd", "step"))
        say(f"{name}: {', '.join(f'{error:.1e}' for error in worst)}")
        for line in (line for record in found for line in record.deviations):
            say(f"  {line}")
        own["records"] += map(dataclasses.asdict, found)
        write(options.json, own)
    if len(records) > old or own["left_out"]:
        places.append(own["where"])
    text = report(options, places, records, left_out)
    print(f"\n{text}")
    write(options.markdown, text)
    causes = [line.cause for record in records for line in record.deviations]
    return min(causes.count(UNEXPLAINED), 100)


def read(paths: Iterable[pathlib.Path]) -> tuple[list[dict], list[Record], dict]:
    """Return machines, records and left out files of earlier runs; of a robot that was
    compared twice, the last record."""
    places, records, left_out = [], {}, {}
    for path in paths:
        data = json.loads(path.read_text())
        places.append(data["where"])
        for record in map(Record.read, data["records"]):
            records[record.origin, record.robot] = record
        left_out |= dict(data["left_out"])
    return places, list(records.values()), left_out


def report(options, places: list[dict], records: list[Record], left_out: dict) -> str:
    """Return the tables with explanations, in Markdown."""
    tolerance = TOLERANCE[options.precision]
    parts = [
        f"## Parity with MuJoCo C, {options.precision} precision",
        "The error of a state is its largest difference, relative to max(1, largest value "
        f"of MuJoCo). States are drawn from {len(KINDS)} kinds in turn: "
        f"{', '.join(KINDS)}. MuJoCo uses the Newton solver with 200 iterations and "
        "tolerance 0.",
        f"- `within`: fraction of the states with an error up to {tolerance:g}.\n"
        "- `rows`, `most`: mean and largest number of constraint rows.\n"
        "- `MuJoCo residual`: largest |M^-1 gradient of the cost| that remains in MuJoCo's "
        "solution, normalized like the error.\n"
        "- `10 % chaotic at`: step after which the error of 10 % of the trajectories "
        "exceeds 1e-3.",
    ]
    origins = dict.fromkeys(record.origin for record in records)
    for origin in origins:
        own = [record for record in records if record.origin == origin]
        if origin == FILES:
            rows = [{"model": r.robot} | _row([r], tolerance) for r in own]
            parts += ["### Accelerations, one step and sensors", table(rows)]
            paths = [{"model": r.robot} | r.path for r in own if r.path]
            parts += ["### Trajectories", table(paths)] if paths else []
        elif origin == RANDOM:
            parts += _random_report(own, tolerance)
        else:
            parts += _folder_report(origin, own, left_out, options, tolerance)
        parts += deviation_list(own)
    return "\n\n".join([*parts, _captions(places)]) + "\n"


def _random_report(records: list[Record], tolerance: float) -> list[str]:
    """Return the tables by feature, by kind of sensor and by size."""
    names = sorted({name for record in records for name in record.features})
    found, possible = _pairs(records, names)
    alone = collections.Counter(record.group for record in records)
    drawn = ", ".join(f"{group} {alone[group]}" for group in GROUPS)
    states = sum(len(record.qdd) for record in records)
    having = lambda name: [record for record in records if name in record.features]
    sized = lambda size: [record for record in records if record.links == size]
    sizes = sorted({record.links for record in records})
    return [
        f"### {len(records)} random systems by feature",
        f"{states} states of systems with 1 to {sizes[-1]} links. A system counts in the "
        "rows of all its features, so rows overlap. `sensors`: number of sensors compared. "
        "Errors of a sensor are relative to its largest value, or to 1 if that is larger.",
        f"{possible} pairs of the {len(names)} features can occur together; {found} of them "
        f"occur in at least one system. Systems with a single group of features: {drawn}.",
        table(
            [
                {"feature": name, "systems": len(own)} | columns(own, tolerance)
                for name in names
                for own in [having(name)]
            ]
        ),
        "### By kind of sensor",
        table(list(_sensor_rows(records, tolerance))),
        "### By number of links",
        table(
            [
                {"links": size, "systems": len(own)} | _row(own, tolerance)
                for size in sizes
                for own in [sized(size)]
            ]
        ),
    ]


def _folder_report(label, records: list[Record], left_out, options, tolerance: float):
    """Return a table by folder, and the files not compared."""
    skipped = {
        name.removeprefix(f"{label}/"): reason
        for name, reason in left_out.items()
        if name.startswith(f"{label}/")
    }
    reasons = collections.Counter(skipped.values())
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    large = [name for name, reason in skipped.items() if reason == LARGE]
    rows = []
    for group in sorted({record.group for record in records}):
        own = [record for record in records if record.group == group]
        rows.append({"folder": group, "files": len(own)} | _row(own, tolerance))
    return [
        f"### {label}",
        f"{len(records)} of {len(records) + len(skipped)} files were compared. Not "
        f"compared: {counts or 'none'}. Too large: more than {options.largest} degrees of "
        f"freedom or {options.largest_plan} possible contact points"
        + (f" ({', '.join(large)})." if large else "."),
        table(rows),
    ]


def _row(records: list[Record], tolerance: float) -> dict[str, Any]:
    """Return the columns about constraints and errors."""
    rows = [count for record in records for count in record.rows]
    return {
        "rows": float(np.mean(rows)),
        "most": max(rows),
        "in contact": float(np.mean([c > 0 for r in records for c in r.contacts])),
        "MuJoCo residual": max(x for record in records for x in record.residual),
    } | columns(records, tolerance)


def columns(records: list[Record], tolerance: float) -> dict[str, Any]:
    """Return the columns that summarize errors."""
    join = lambda lists: np.array([x for row in lists for x in row], float)
    qdd = Summary.of(join(r.qdd for r in records), tolerance)
    step = Summary.of(join(r.step for r in records), tolerance)
    sensed = Summary.of(join(e for r in records for _, e in r.sensors), tolerance)
    return {
        "states": sum(len(r.qdd) for r in records),
        "qdd max": qdd.max,
        "qdd median": qdd.median,
        "qdd within": qdd.within,
        "step max": step.max,
        "step within": step.within,
        "sensors": sum(len(r.sensors) for r in records),
        "sensors max": sensed.max if sensed.count else None,
        "sensors within": sensed.within if sensed.count else None,
    }


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


def _sensor_rows(records: list[Record], tolerance: float) -> Iterator[dict[str, Any]]:
    sensed = [pair for record in records for pair in record.sensors]
    for kind in FAMILIES:
        own = [error for name, error in sensed if name == kind]
        if own:
            values = np.concatenate(own)
            found = Summary.of(values, tolerance)
            yield {
                "sensor": kind,
                "sensors": len(own),
                "values": len(values),
                "max": found.max,
                "median": found.median,
                "within": found.within,
            }


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


def _captions(places: list[dict[str, Any]]) -> str:
    """Describe the last run, with commits and dates of the others."""
    if not places:
        return ""
    *others, last = sorted(places, key=lambda where: where["date"])
    if not others:
        return caption(last)
    names = dict.fromkeys(f"{where['commit']} ({where['date']})" for where in others)
    return f"{caption(last)} Other runs included: {', '.join(names)}."


def _options():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--n", type=int, default=300, help="states of each of Gymnasium's files")
    add("--models", nargs="*", choices=assets.FILES, default=list(assets.FILES))
    add("--precision", choices=list(TOLERANCE), default="double")
    add("--steps", type=int, default=100, help="of a trajectory; 0 leaves them out")
    add("--random", type=int, default=0, help="random systems")
    add("--first-seed", type=int, default=0, help="of the random systems")
    add("--variations", type=int, default=0, help="of each random system")
    add("--random-states", type=int, default=9, help="states of each")
    add("--random-links", type=int, default=LINKS, help="links of the largest")
    add("--folder", type=pathlib.Path, nargs="*", default=[], help="of MJCF files")
    add("--pattern", default="*.xml", help="names of the files in the folder")
    add("--label", help="name of the folder in tables; by default its last part")
    add("--folder-states", type=int, default=5, help="states of each file")
    add("--largest", type=int, default=60, help="degrees of freedom of files")
    add(
        "--largest-plan", type=int, default=300, help="possible contact points of files"
    )
    add("--minutes", type=float, default=600.0, help="no more work after this time")
    add("--add", type=pathlib.Path, nargs="*", default=[], help="JSON of other runs")
    add("--seed", type=int, default=0)
    add("--json", type=pathlib.Path)
    add("--markdown", type=pathlib.Path)
    return parser.parse_args()
