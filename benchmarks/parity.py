"""Compare eqsim with MuJoCo C, on the same files and in the same states.

python benchmarks/parity.py                                 # Gymnasium's files
python benchmarks/parity.py --models ant humanoid --n 50
python benchmarks/parity.py --models --random 300 --json out/random.json
python benchmarks/parity.py --models --folder FOLDER --json out/folder.json
python benchmarks/parity.py --models --add out/*.json --markdown out/parity.md

The last line combines the results of several runs: of random systems with other seeds
(`--first-seed`), of files and of folders.
"""

import argparse
import dataclasses
import functools
import gc
import json
import pathlib
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from _cases import drawn_states, LINKS
from _causes import UNEXPLAINED
from _command import say, setting
from _feature_parity import check_random, feature_report, read_random
from _folder_parity import as_json, check_folder, Files, folder_report, read_folders
from _models import GYMNASIUM, mujoco_model, system
from _records import Record
from _reference import (
    accelerations,
    converge,
    Disagreement,
    disagreements,
    errors,
    Reference,
    reference,
    steps_until,
    Summary,
    TOLERANCE,
    trajectories,
)
from _states import KINDS
from _tables import caption, show, table, write


class Checked(NamedTuple):
    """Results for one robot or several: a table row, and the states that disagree."""

    row: dict[str, Any]
    found: list[Disagreement]


class Run(NamedTuple):
    """Results of one run on files, with machine and versions."""

    where: dict[str, Any]
    files: list[dict[str, Any]]
    disagreements: list[str]


def main() -> int:
    """Print the tables; return the number of unexplained deviations."""
    options = _options()
    where, tolerance = setting(options), TOLERANCE[options.precision]
    files = [_progress(check_file, name, options) for name in options.models]
    bad = [str(found) for checked in files for found in checked.found]
    run = Run(where, [checked.row for checked in files], bad)
    data = run._asdict() | {"options": vars(options), "random": [], "folders": {}}
    added = [json.loads(path.read_text()) for path in options.add]
    drawn, folders = read_random(added), read_folders(added)
    runs = [Run(old["where"], old["files"], old["disagreements"]) for old in added]

    def save(records: list[Record]) -> None:
        data["random"] = [dataclasses.asdict(record) for record in records]
        write(options.json, data)

    def save_folder(label: str, found: Files) -> None:
        data["folders"][label] = as_json(found)
        write(options.json, data)

    if options.random:
        drawn += check_random(options, tolerance, save)
    for folder in options.folder:
        keep = functools.partial(save_folder, options.label or folder.name)
        folders[options.label or folder.name] = check_folder(
            folder, options, tolerance, keep
        )
    measured = files or options.random or options.folder
    text = report(options, [*runs, *([run] if measured else [])], drawn, folders)
    print(f"\n{text}")
    write(options.markdown, text)
    write(options.json, data)
    records = [*drawn, *(r for found in folders.values() for r in found.compared)]
    causes = [line.cause for record in records for line in record.deviations]
    return min(len(bad) + causes.count(UNEXPLAINED), 100)


def check_file(name: str, options: argparse.Namespace) -> Checked:
    """Compare accelerations, one step and trajectories for one of Gymnasium's files."""
    model, sys = converge(mujoco_model(name)), system(name)
    states = drawn_states(model, options.n, options.seed, options.precision)
    target = reference(model, states, options.steps)
    tolerance = TOLERANCE[options.precision]
    qdd = accelerations(sys, states)
    error = errors(qdd, target.qdd)
    row = {"model": name} | summary(target, error, tolerance)
    if options.steps:
        path = trajectories(sys, states, options.steps)
        row |= along(errors(path, target.path), tolerance, options.steps)
    return Checked(row, disagreements(name, model, states, qdd, error, tolerance))


def summary(target: Reference, error: np.ndarray, tolerance: float) -> dict[str, Any]:
    """Return the columns on accelerations."""
    acceleration = Summary.of(error, tolerance)
    return {
        "states": len(error),
        "rows": float(np.mean(target.rows)),
        "most": int(np.max(target.rows)),
        "in contact": float(np.mean(target.contacts > 0)),
        "qdd max": acceleration.max,
        "qdd median": acceleration.median,
        "qdd within": acceleration.within,
        "MuJoCo residual": float(np.max(target.residual)),
    }


def along(error: np.ndarray, tolerance: float, steps: int) -> dict[str, Any]:
    """Return the columns on trajectories, from errors `(count, steps)`."""
    first, last = (
        Summary.of(error[:, 0], tolerance),
        Summary.of(error[:, -1], tolerance),
    )
    until = np.sort(steps_until(error))
    when = lambda share: _step(until, share, steps)
    return {
        "1 step max": first.max,
        "1 step median": first.median,
        "1 step within": first.within,
        f"{steps} steps median": last.median,
        f"{steps} steps within": last.within,
        "10 % chaotic at": when(0.1),
        "50 % chaotic at": when(0.5),
    }


def _step(until, share, steps):
    if not until.size:
        return None
    at = until[min(int(share * until.size), until.size - 1)]
    return int(at) if np.isfinite(at) else f"> {steps}"


def report(options, runs: list[Run], drawn: list[Record], folders) -> str:
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
    rows = [row for run in runs for row in run.files]
    if rows:
        split = next((i for i, key in enumerate(rows[0]) if key == "1 step max"), None)
        keys = list(rows[0])
        parts += ["### Accelerations", table(rows, keys[:split])]
        if split is not None:
            parts += ["### Trajectories", table(rows, ["model", *keys[split:]])]
        bad = [line for run in runs for line in run.disagreements]
        parts += [f"### {len(bad)} states disagree" if bad else "No state disagrees."]
        parts += ["\n".join(f"- {line}" for line in bad)]
    if drawn:
        parts += feature_report(drawn, tolerance)
    for folder, found in folders.items():
        parts += folder_report(folder, found, options, tolerance)
    parts += [_captions([run.where for run in runs])] if runs else []
    return "\n\n".join(part for part in parts if part) + "\n"


def _captions(places: list[dict[str, Any]]) -> str:
    """Describe the last run, with commits and dates of the others."""
    *others, last = sorted(places, key=lambda where: where["date"])
    if not others:
        return caption(last)
    names = dict.fromkeys(f"{where['commit']} ({where['date']})" for where in others)
    return f"{caption(last)} Other runs included: {', '.join(names)}."


def _progress(check, name, options):
    started = time.time()
    checked = check(name, options)
    cells = [f"{key} {show(value)}" for key, value in checked.row.items()]
    say(f"{', '.join(cells)} [{time.time() - started:.0f} s]")
    for line in checked.found:
        say(f"  {line}")
    return checked


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--n", type=int, default=300, help="states of each file")
    add("--models", nargs="*", default=list(GYMNASIUM))
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
    add("--minutes", type=float, default=600.0, help="for robots, or for a folder")
    add("--add", type=pathlib.Path, nargs="*", default=[], help="JSON of other runs")
    add("--seed", type=int, default=0)
    add("--json", type=pathlib.Path)
    add("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    if options.n < 1 or options.random < 0 or options.steps < 0:
        parser.error("--n must be positive, --random and --steps not negative")
    return options


if __name__ == "__main__":
    # Tracing creates millions of long-lived objects, which slow down garbage
    # collection.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    # MuJoCo's warning about an attribute of half_cheetah.xml.
    warnings.filterwarnings("ignore", message=".*settotalmass.*")
    raise SystemExit(main())
