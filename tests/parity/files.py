"""Count the MJCF files that eqsim loads and steps as MuJoCo does.

python tests/parity files FOLDER
python tests/parity files NAME=FOLDER NAME=FOLDER --json out/load.json
python tests/parity files NAME=FOLDER --json out/load.json --step 100 --match 'scene.*'
python tests/parity files --json out/load.json --table out/robots.md

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


EXPLANATION = """\
- `not compiled`: files that MuJoCo does not compile, because they are fragments for inclusion
  in other files, because meshes are missing, or because they are for other versions of MuJoCo.
- `with ignore`: refused files that load with `load_mjcf(path, ignore=(...))`.
- `moved`, `agree`: files whose trajectories under random controls were compared with MuJoCo C,
  and those without an error above {close:.0e}."""
MOTION = """\
Simulations start at the keyframe `home`, else at the first keyframe, else at the reference
pose. The error is the largest difference of positions, velocities and activations, relative to
max(1, largest value). MuJoCo's solver runs to convergence.

- `1 step`, `largest`: error after one step, and largest error of all steps.
- `single`: largest error of a single step from any of MuJoCo's states.
- `compile`: seconds for the first step, with the fast compiler settings of the tests."""


def report(files: list[File], where: Mapping[str, Any], options) -> str:
    """Return the tables: sources, reasons, motion, internal errors, optionally all
    files."""
    parts = ["## Sources", EXPLANATION.format(close=CLOSE), options.note]
    parts += [table(list(_by_source(files)))]
    reasons = list(_by_reason(files))
    if reasons:
        note = "`only`: number of files for which it is the only reason."
        parts += ["## Refused files", note, table(reasons)]
    moved = list(_motions(files))
    if moved:
        parts += ["## Motion", MOTION, table(moved), _not_moved(files)]
    failed = [f"- {f.key}: {f.reasons[0]}" for f in files if f.outcome == INTERNAL]
    if failed:
        parts += ["## Internal errors", "\n".join(failed)]
    if options.list:
        lines = [f"- {f.key}: {f.outcome} {'; '.join(f.reasons)}" for f in files]
        parts += ["## Files", "\n".join(line.rstrip() for line in lines)]
    return "\n\n".join(part for part in [*parts, caption(where)] if part) + "\n"


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
    text = report(found, where, options)
    print(text)
    write(options.table, text)
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
    add("--table", type=pathlib.Path, help="where to write the tables")
    add("--note", default="", help="what the sources are")
    add("--list", action="store_true", help="name every file")
    add("--step", type=int, default=0, help="steps to compare with MuJoCo")
    add("--match", default="", help="regular expression: files to compare")
    add("--forget", default="", help="regular expression: files to measure again")
    add("--limit", type=float, default=400.0, help="seconds for one file")
    add("--minutes", type=float, default=1e6, help="no new file after this time")
    return parser.parse_args()
