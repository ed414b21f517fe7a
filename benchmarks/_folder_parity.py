"""Comparison of the MJCF files of a folder with MuJoCo C: a table by folder."""

import argparse
import collections
import dataclasses
import pathlib
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import mujoco
import numpy as np
from _agreement import compared, ours, quick_compile, theirs
from _causes import deviations
from _command import say
from _feature_parity import deviation_list
from _features import features
from _records import columns, Record
from _reference import converge
from _states import draw
from _tables import table

import eqsim
from eqsim.collision import contact_plan


class Files(NamedTuple):
    """The files of a folder.

    - `compared`: records of compared files.
    - `left_out`: path and reason of the others.
    """

    compared: list[Record]
    left_out: list[tuple[str, str]]


def as_json(files: Files) -> dict[str, Any]:
    """Convert files to a structure that JSON can store."""
    compared = [dataclasses.asdict(record) for record in files.compared]
    return {"compared": compared, "left_out": files.left_out}


def read_folders(runs: Iterable[dict[str, Any]]) -> dict[str, Files]:
    """Return the folders of earlier runs, by label. If a file was compared twice, the
    last result is used."""
    folders: dict[str, Files] = {}
    for run in runs:
        for label, found in run["folders"].items():
            old = folders.get(label, Files([], []))
            names = {data["robot"] for data in found["compared"]}
            names |= {name for name, _ in found["left_out"]}
            compared = [record for record in old.compared if record.robot not in names]
            left_out = [line for line in old.left_out if line[0] not in names]
            compared += [Record.read(record) for record in found["compared"]]
            left_out += [(name, reason) for name, reason in found["left_out"]]
            folders[label] = Files(compared, left_out)
    return folders


NOT_COMPILED, REFUSED = "not compiled by MuJoCo", "refused"
STILL, LARGE = "no joints", "too large"


def check_folder(
    folder: pathlib.Path,
    options: argparse.Namespace,
    tolerance: float,
    save: Callable[[Files], None],
) -> Files:
    """Compare every loadable file below a folder; save the results after each file."""
    found = Files([], [])
    paths = sorted(folder.rglob(options.pattern))
    if not paths:
        raise SystemExit(f"There is no {options.pattern} below {folder}.")
    started = time.time()
    for path in paths:
        if time.time() - started > 60 * options.minutes:
            say(f"{options.minutes} minutes are over")
            break
        name = str(path.relative_to(folder))
        try:
            result = _check(path, name, options, tolerance)
        except Exception as error:
            result = f"internal error {type(error).__name__}: {error}"
        if isinstance(result, str):
            found.left_out.append((name, result))
            say(f"{name}: {result}")
        else:
            found.compared.append(result)
            say(f"{name}: {max(result.qdd):.1e}, {max(result.step):.1e}")
            for line in result.deviations:
                say(f"  {line}")
        save(found)
    return found


def _check(
    path: pathlib.Path, name: str, options: argparse.Namespace, tolerance: float
) -> Record | str:
    """Return the record of a file, or the reason why it was not compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = mujoco.MjModel.from_xml_path(str(path))
        except Exception:
            return NOT_COMPILED
        try:
            sys = eqsim.load_mjcf(path)
        except ValueError:
            return REFUSED
    if not model.nv:
        return STILL
    if model.nv > options.largest or contact_plan(sys).size > options.largest_plan:
        return LARGE
    model = converge(model)
    states = draw(model, options.folder_states, options.seed)
    value = ours(sys, states, quick_compile())
    target, rows = theirs(sys, model, states)
    error = compared(value, target)
    found = deviations(name, sys, model, states, value, error, tolerance)
    group = str(pathlib.PurePath(name).parent)
    return Record.of(name, group, sys, features(sys), error, rows, found)


def folder_report(
    label: str, files: Files, options: argparse.Namespace, tolerance: float
) -> list[str]:
    """Return a table by folder, the files not compared, and all deviations."""
    reasons = collections.Counter(reason for _, reason in files.left_out)
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    count = len(files.compared) + len(files.left_out)
    large = [name for name, reason in files.left_out if reason == LARGE]
    parts = [
        f"### {label}",
        f"{len(files.compared)} of {count} files were compared. Not compared: "
        f"{counts or 'none'}. Too large: more than {options.largest} degrees of "
        f"freedom or {options.largest_plan} possible contact points"
        + (f" ({', '.join(large)})." if large else "."),
        table(list(_rows(files.compared, tolerance))),
        *deviation_list(files.compared),
    ]
    return parts


def _rows(records: list[Record], tolerance: float):
    for group in sorted({record.group for record in records}):
        own = [record for record in records if record.group == group]
        rows: list[Any] = [count for record in own for count in record.rows]
        yield {
            "folder": group,
            "files": len(own),
            "rows": float(np.mean(rows)),
            "most": max(rows),
            "MuJoCo residual": max(x for record in own for x in record.residual),
        } | columns(own, tolerance)
