"""Tables of what loads and steps."""

import collections
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from _load_file import File, INTERNAL, LOADS, NOT_COMPILED, REFUSED
from _motion import CLOSE, Motion
from _tables import caption, table


def report(files: list[File], named: bool = False) -> str:
    """The tables: sources, reasons, motion, internal errors, and maybe every file."""
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
    """The page of the docs.

    **Arguments:**

    - `where`: versions of the last run.
    - `note`: describes where the files came from.
    """
    count = sum(file.outcome != NOT_COMPILED for file in files)
    loads = sum(file.outcome == LOADS for file in files)
    moved = [file for file in files if isinstance(file.motion, Motion)]
    close = sum(_motion(file).largest <= CLOSE for file in moved)
    return (
        "\n\n".join(
            [
                "# Public robot files",
                f"Of {count} MJCF files of public packages that MuJoCo compiles, {loads} "
                f"load. {len(moved)} of these were moved under random controls beside "
                f"MuJoCo C in double precision; {close} trajectories agree to {CLOSE:.0e}, "
                "and the reason is given for each of the others.",
                "Try a file or a folder of your own:",
                "```bash\npython benchmarks/load.py FOLDER\n"
                "python benchmarks/load.py FOLDER --step 100 --json out/load.json\n```",
                "## Sources",
                "`not compiled`: parts that other files include, files whose meshes are not "
                "part of the package, and files for other versions of MuJoCo. `with ignore`: "
                "those of the refused files that load with `load_mjcf(path, ignore=(...))`, "
                "without the features that are named. `moved`: "
                f"compared with MuJoCo. `agree`: no error above {CLOSE:.0e}.",
                table(list(_by_source(files))),
                *([note] if note else []),
                "## Refused files",
                "A file may have several reasons; `only`: it is the only one.",
                table(list(_by_reason(files))),
                "## Motion",
                "From the keyframe `home` (the first one, or the reference pose, where there "
                "is none) under controls drawn from their range in each step. Errors are "
                "those of positions, velocities and activations, relative to max(1, largest "
                "number): after 1 step, the largest of all steps, and of `single` "
                "steps that start from MuJoCo's states. MuJoCo's solver runs to convergence. "
                "`compile`: seconds for the first step, with the fast settings of the tests.",
                table(list(_motions(files))),
                _not_moved(files),
                "Written by `benchmarks/load.py --table` from several runs; of the last "
                f"one: {caption(where)}",
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
    """The reasons of a file; of contacts, one for each pair of shapes."""
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
    """The name of a file, and the folder that tells what it is."""
    parts = [part for part in pathlib.PurePath(path).parts if part not in _GENERIC]
    return "/".join(parts[-2:])


def _not_moved(files: list[File]) -> str:
    lines = [
        f"- {file.source}/{_short(file.path)}: {file.motion}."
        for file in files
        if isinstance(file.motion, str) and file.motion != "nothing moves"
    ]
    return "\n".join(["Not compared:", "", *lines]) if lines else ""
