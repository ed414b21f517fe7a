"""Tables of files that load and step."""

import collections
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from _load_file import File, INTERNAL, LOADS, NOT_COMPILED, REFUSED
from _motion import CLOSE, Motion
from _tables import caption, table


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
                "```bash\npython benchmarks/load.py FOLDER\n"
                "python benchmarks/load.py FOLDER --step 100 --json out/load.json\n```",
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
                "Written by `benchmarks/load.py --table` from several runs. Last run: "
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
