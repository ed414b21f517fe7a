"""How many MJCF files below a folder eqsim loads, and what stands in the way of the others.

python benchmarks/load.py FOLDER
python benchmarks/load.py FOLDER --json out/load.json --markdown out/load.md

Files that MuJoCo itself cannot compile are counted apart: parts that others include, and
files whose meshes are missing. The exit status is the number of internal errors.
"""

import argparse
import collections
import dataclasses
import importlib.metadata
import pathlib
import sys
import textwrap
import warnings
from collections.abc import Iterable
from typing import Any

import mujoco
from _tables import table, write

from eqsim.io import load_mjcf, UnsupportedMJCF


LOADS, REFUSED, NOT_COMPILED = "loads", "refused", "MuJoCo cannot compile"
INTERNAL = "internal error"


@dataclasses.dataclass(frozen=True)
class File:
    """What became of a file.

    **Arguments:**

    - `path`: below the folder.
    - `outcome`: `LOADS`, `REFUSED`, `NOT_COMPILED` or `INTERNAL`.
    - `reasons`: each feature that is refused, or the message of the error.
    - `details`: the elements that use each feature.
    """

    path: str
    outcome: str
    reasons: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


def main() -> int:
    """Prints the tables; returns the number of internal errors."""
    options = _options()
    paths = sorted(options.folder.rglob(options.pattern))
    if not paths:
        raise SystemExit(f"There is no {options.pattern} below {options.folder}.")
    files = []
    for path in paths:
        print(f"{len(files) + 1}/{len(paths)} {path}", file=sys.stderr, flush=True)
        files.append(load(path, options.folder))
    text = report(files, options.list)
    print(text)
    write(options.markdown, text + "\n")
    data = {"versions": _versions(), "files": [dataclasses.asdict(f) for f in files]}
    write(options.json, data)
    return min(sum(file.outcome == INTERNAL for file in files), 100)


def load(path: pathlib.Path, folder: pathlib.Path) -> File:
    """Load one file, in MuJoCo and here."""
    name = str(path.relative_to(folder))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mujoco.set_mju_user_warning(lambda text: None)
            mujoco.MjModel.from_xml_path(str(path))
    except Exception as error:
        return File(name, NOT_COMPILED, (_first_line(error),))
    finally:
        mujoco.set_mju_user_warning(None)
    try:
        load_mjcf(path)
    except UnsupportedMJCF as error:
        reasons = tuple(feature.name for feature, _ in error.problems)
        details = tuple("; ".join(elements) for _, elements in error.problems)
        return File(name, REFUSED, reasons, details)
    except ValueError as error:
        # The message begins with the name of the file.
        reason = _first_line(error).removeprefix(f"{path.name} was read, but ")
        return File(name, REFUSED, (reason,))
    except Exception as error:
        return File(name, INTERNAL, (f"{type(error).__name__}: {_first_line(error)}",))
    return File(name, LOADS)


def report(files: list[File], named: bool = False) -> str:
    """The tables: outcomes, folders, reasons, internal errors, and maybe every file."""
    outcomes = collections.Counter(file.outcome for file in files)
    parts = [
        "Outcomes\n\n"
        + table(
            [
                {"outcome": outcome, "files": outcomes[outcome]}
                for outcome in (LOADS, REFUSED, NOT_COMPILED, INTERNAL)
            ]
        ),
        "By folder\n\n" + table(list(_by_folder(files))),
        "By reason (a file may have several; `only`: it is the only one)\n\n"
        + table(list(_by_reason(files))),
    ]
    failed = [f"- {f.path}: {f.reasons[0]}" for f in files if f.outcome == INTERNAL]
    if failed:
        parts.append("Internal errors\n\n" + "\n".join(failed))
    if named:
        lines = [f"- {f.path}: {f.outcome} {'; '.join(f.reasons)}" for f in files]
        parts.append("Files\n\n" + "\n".join(line.rstrip() for line in lines))
    return "\n\n".join(parts)


def _by_folder(files: list[File]) -> Iterable[dict[str, Any]]:
    folders: dict[str, list[File]] = {}
    for file in files:
        first, *rest = pathlib.PurePath(file.path).parts
        folders.setdefault(first if rest else ".", []).append(file)
    for folder, members in sorted(folders.items()):
        counts = collections.Counter(file.outcome for file in members)
        yield {
            "folder": folder,
            "files": len(members),
            **{outcome: counts[outcome] for outcome in (LOADS, REFUSED, NOT_COMPILED)},
        }


def _by_reason(files: list[File]) -> Iterable[dict[str, Any]]:
    refused = [file for file in files if file.outcome == REFUSED]
    counts = collections.Counter(r for file in refused for r in set(file.reasons))
    alone = collections.Counter(f.reasons[0] for f in refused if len(f.reasons) == 1)
    for reason, count in counts.most_common():
        yield {"reason": reason, "files": count, "only": alone[reason]}


def _first_line(error: Exception) -> str:
    return textwrap.shorten((str(error).splitlines() or [""])[0], 100)


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("eqsim", "mujoco")}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--pattern", default="*.xml", help="names of the files")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every file")
    parser.add_argument(
        "--markdown", type=pathlib.Path, help="where to write the tables"
    )
    parser.add_argument("--list", action="store_true", help="name every file")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
