"""Count the MJCF files that eqsim loads and steps as MuJoCo does.

python tests/parity files FOLDER
python tests/parity files NAME=FOLDER NAME=FOLDER --json out/load.json
python tests/parity files NAME=FOLDER --json out/load.json --step 100 --match 'scene.*'
python tests/parity files --json out/load.json --table docs/robots.md

Files that MuJoCo itself cannot compile are counted separately: fragments that others
include, and files whose meshes are missing. `--step N` compares N steps from the keyframe
`home` under random controls with MuJoCo C in double precision. Files that are in the JSON
file are not measured again. Each file runs in a process that is restarted if it fails or
exceeds `--limit`.

Most of the time is compilation. `EQSIM_KERNELS_LEVEL=0` reduces it; steps are then slower.
"""

import argparse
import collections
import dataclasses
import json
import multiprocessing
import pathlib
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from _bench import caption, circumstances, say, table, write

from .motion import (
    check_file,
    CLOSE,
    File,
    INTERNAL,
    LOADS,
    Motion,
    NOT_COMPILED,
    REFUSED,
)


def report(files: list[File], named: bool = False) -> str:
    """Return the tables: sources, reasons, motion, internal errors, optionally all files."""
    parts = [
        "By source\n\n" + table(list(_by_source(files))),
        "By reason (a file may have several; `only`: it is the only one)\n\n"
        + table(list(_by_reason(files))),
    ]
    moved = list(_motions(files))
    if moved:
        parts.append("Motion beside MuJoCo\n\n" + table(moved))
    failed = [f"- {f.key}: {f.reasons[0]}" for f in files if f.outcome == INTERNAL]
    if failed:
        parts.append("Internal errors\n\n" + "\n".join(failed))
    if named:
        lines = [f"- {f.key}: {f.outcome} {'; '.join(f.reasons)}" for f in files]
        parts.append("Files\n\n" + "\n".join(line.rstrip() for line in lines))
    return "\n\n".join(parts)


def page(files: list[File], where: Mapping[str, Any], note: str = "") -> str:
    """Return the page of the documentation.

    **Arguments:**

    - `where`: machine and versions of the last run.
    - `note`: origin of the files.
    """
    count = sum(file.outcome != NOT_COMPILED for file in files)
    loads = sum(file.outcome == LOADS for file in files)
    moved = [file for file in files if isinstance(file.motion, Motion)]
    close = sum(_motion(file).largest <= CLOSE for file in moved)
    return (
        "\n\n".join(
            [
                "# Public robot files",
                f"MuJoCo compiles {count} MJCF files of public packages, and eqsim loads "
                f"{loads} of them. {len(moved)} were simulated with random controls in "
                f"eqsim and MuJoCo C, in double precision. {close} trajectories agree to "
                f"{CLOSE:.0e}; for the others, the table gives the reason.",
                "Test your own files:",
                "```bash\npython tests/parity files FOLDER\n"
                "python tests/parity files FOLDER --step 100 --json out/load.json\n```",
                "## Sources",
                "- `not compiled`: files that MuJoCo does not compile, because they are fragments "
                "for inclusion in other files, because meshes are missing in the package, or "
                "because they are for other versions of MuJoCo.\n"
                "- `with ignore`: refused files that load with "
                "`load_mjcf(path, ignore=(...))`, which leaves out the named features.\n"
                "- `moved`: files whose trajectories were compared with MuJoCo.\n"
                f"- `agree`: files without an error above {CLOSE:.0e}.",
                table(list(_by_source(files))),
                *([note] if note else []),
                "## Refused files",
                "A file may be refused for several reasons. `only`: number of files for "
                "which it is the only reason.",
                table(list(_by_reason(files))),
                "## Motion",
                "Simulations start at the keyframe `home`, else at the first keyframe, else "
                "at the reference pose. Controls are drawn from their range in each step. "
                "The error is the largest difference of positions, velocities and activations, "
                "relative to max(1, largest value). MuJoCo's solver runs to convergence.",
                "- `1 step`, `largest`: error after one step, and largest error of all "
                "steps.\n"
                "- `single`: largest error of a single step from any of MuJoCo's "
                "states.\n"
                "- `compile`: seconds for the first step, with the fast compiler settings of "
                "the tests.",
                table(list(_motions(files))),
                _not_moved(files),
                "Written by `python tests/parity files --table` from several runs. Last run: "
                f"{caption(where)}",
            ]
        )
        + "\n"
    )


def _motion(file: File) -> Motion:
    assert isinstance(file.motion, Motion)
    return file.motion


def _by_source(files: list[File]) -> Iterable[dict[str, Any]]:
    sources: dict[str, list[File]] = {}
    for file in files:
        sources.setdefault(file.source, []).append(file)
    for source, members in [*sorted(sources.items()), ("all", files)]:
        counts = collections.Counter(file.outcome for file in members)
        moved = [f.motion for f in members if isinstance(f.motion, Motion)]
        yield {
            "source": source,
            "files": len(members),
            "not compiled": counts[NOT_COMPILED],
            LOADS: counts[LOADS],
            REFUSED: counts[REFUSED],
            "with ignore": sum(bool(file.ignore) for file in members),
            "errors": counts[INTERNAL],
            "moved": len(moved),
            "agree": sum(motion.largest <= CLOSE for motion in moved),
        }


def _by_reason(files: list[File]) -> Iterable[dict[str, Any]]:
    refused = [file for file in files if file.outcome == REFUSED]
    named = [tuple(sorted(set(_reasons(file)))) for file in refused]
    counts = collections.Counter(reason for names in named for reason in names)
    alone = collections.Counter(names[0] for names in named if len(names) == 1)
    for reason, count in counts.most_common():
        yield {"reason": reason, "files": count, "only": alone[reason]}


def _reasons(file: File) -> Iterable[str]:
    """Return the reasons of a file; for contacts, one for each pair of shapes."""
    details = file.details or ("",) * len(file.reasons)
    for reason, detail in zip(file.reasons, details, strict=True):
        if not reason.startswith("contact between shapes"):
            yield reason
            continue
        for text in detail.split("; "):
            yield f"contact of {text.split(' (')[0]}"


def _motions(files: list[File]) -> Iterable[dict[str, Any]]:
    for file in files:
        if isinstance(file.motion, Motion):
            motion = file.motion
            yield {
                "file": f"{file.source}/{_short(file.path)}",
                "nv": file.nv,
                "contacts": motion.contacts,
                "1 step": motion.first,
                "steps": motion.steps,
                "largest": motion.largest,
                "single": motion.local,
                "compile": round(motion.compile_seconds),
                "reason": motion.reason,
            }


_GENERIC = ("xmls", "assets", "robot_model")


def _short(path: str) -> str:
    """Return the name of a file and of the folder that identifies it."""
    parts = [part for part in pathlib.PurePath(path).parts if part not in _GENERIC]
    return "/".join(parts[-2:])


def _not_moved(files: list[File]) -> str:
    lines = [
        f"- {file.source}/{_short(file.path)}: {file.motion}."
        for file in files
        if isinstance(file.motion, str) and file.motion != "nothing moves"
    ]
    return "\n".join(["Not compared:", "", *lines]) if lines else ""


def main() -> int:
    """Print the tables; return the number of internal errors."""
    options = _options()
    files, where = _known(options.json)
    if options.forget:
        files = {k: f for k, f in files.items() if not re.search(options.forget, k)}
    started, worker = time.time(), _Worker()
    todo = [entry for entry in _paths(options) if _is_new(files, *entry, options)]
    where = circumstances() if todo else where
    for number, (source, folder, name) in enumerate(todo, 1):
        if time.time() - started > 60 * options.minutes:
            say(f"{options.minutes} minutes are over")
            break
        steps = _steps(f"{source}/{name}", options)
        file = worker.run(source, folder, name, steps, options.limit)
        files[file.key] = file
        say(f"{number}/{len(todo)} {_line(file)}")
        data = [dataclasses.asdict(each) for each in files.values()]
        write(options.json, {"where": where, "files": data})
    worker.stop()
    found = [files[key] for key in sorted(files)]
    print(report(found, options.list))
    if options.table is not None:
        write(options.table, page(found, where, options.note))
    return min(sum(file.outcome == INTERNAL for file in found), 100)


def _paths(options: argparse.Namespace) -> list[tuple[str, pathlib.Path, str]]:
    """Return source, folder and path of each file."""
    found = []
    for text in options.sources:
        source, _, rest = text.rpartition("=")
        folder = pathlib.Path(rest)
        paths = sorted(folder.rglob(options.pattern))
        if not paths:
            raise SystemExit(f"There is no {options.pattern} below {folder}.")
        names = [str(path.relative_to(folder)) for path in paths]
        found += [(source or folder.name, folder, name) for name in names]
    return found


def _is_new(files: dict[str, File], source, folder, name, options) -> bool:
    """Test if requested data of a file is missing."""
    key = f"{source}/{name}"
    if key not in files:
        return True
    known = files[key].outcome != LOADS or files[key].motion is not None
    return not known and _steps(key, options) > 0


def _steps(key: str, options: argparse.Namespace) -> int:
    return options.step if re.search(options.match, key) else 0


class _Worker:
    """A process that checks one file after another."""

    def __init__(self):
        self.process: Any = None
        self.line: Any = None
        self.work = 0

    def run(
        self, source: str, folder: pathlib.Path, name: str, steps: int, limit
    ) -> File:
        """Return the results of a file; a file that fails or takes too long is checked
        again in a new process."""
        # Compiled programs accumulate: a new process frees their memory.
        self.work += 1 + 20 * bool(steps)
        if self.work > 400:
            self.stop()
        if self.process is None:
            self._start()
        self.line.send((source, folder, name, steps))
        try:
            if self.line.poll(limit):
                return self.line.recv()
            reason = f"not finished after {limit:.0f} s"
        except EOFError:
            reason = "the process ended"
        self.stop()
        if not steps:
            return File(source, name, INTERNAL, (reason,))
        file = self.run(source, folder, name, 0, limit)
        return dataclasses.replace(file, motion=reason)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self.process, self.work = None, 0


def _serve(line) -> None:
    jax.config.update("jax_enable_x64", True)
    while True:
        line.send(check_file(*line.recv()))


def _known(path: pathlib.Path | None) -> tuple[dict[str, File], dict[str, Any]]:
    """Return results of earlier runs, and machine and versions of the last one."""
    if path is None or not path.exists():
        return {}, circumstances()
    data = json.loads(path.read_text())
    return {file.key: file for file in map(File.read, data["files"])}, data["where"]


def _line(file: File) -> str:
    text = f"{file.key}: {file.outcome} {'; '.join(file.reasons)}".rstrip()
    if file.motion is None:
        return text
    if isinstance(file.motion, str):
        return f"{text}, {file.motion}"
    m = file.motion
    return (
        f"{text}, {m.first:.0e} {m.largest:.0e}, compiled in {m.compile_seconds:.0f} s "
        f"{m.reason}".rstrip()
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("sources", nargs="*", help="FOLDER or NAME=FOLDER")
    add("--pattern", default="*.xml", help="names of the files")
    add("--json", type=pathlib.Path, help="results, which a later run continues")
    add("--table", type=pathlib.Path, help="where to write the page of the docs")
    add("--note", default="", help="what the sources are, for the page")
    add("--list", action="store_true", help="name every file")
    add("--step", type=int, default=0, help="steps to compare with MuJoCo")
    add("--match", default="", help="regular expression: files to compare")
    add("--forget", default="", help="regular expression: files to measure again")
    add("--limit", type=float, default=400.0, help="seconds for one file")
    add("--minutes", type=float, default=1e6, help="no new file after this time")
    return parser.parse_args()
