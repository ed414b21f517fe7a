"""Count the MJCF files that eqsim loads and steps as MuJoCo does.

python benchmarks/load.py FOLDER
python benchmarks/load.py NAME=FOLDER NAME=FOLDER --json out/load.json
python benchmarks/load.py NAME=FOLDER --json out/load.json --step 100 --match 'scene.*'
python benchmarks/load.py --json out/load.json --table docs/robots.md

Files that MuJoCo itself cannot compile are counted separately: fragments that others
include, and files whose meshes are missing. `--step N` compares N steps from the keyframe
`home` under random controls with MuJoCo C in double precision. Files that are in the JSON
file are not measured again. Each file runs in a process that is restarted if it fails or
exceeds `--limit`.

Most of the time is compilation. `EQSIM_KERNELS_LEVEL=0` reduces it; steps are then slower.
"""

import argparse
import dataclasses
import json
import multiprocessing
import pathlib
import re
import time
from typing import Any

import jax
from _command import say
from _load_file import check_file, File, INTERNAL, LOADS
from _load_report import page, report
from _tables import circumstances, write


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


if __name__ == "__main__":
    raise SystemExit(main())
