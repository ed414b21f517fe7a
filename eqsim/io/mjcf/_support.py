"""Uses of the feature table: refusals, notes, and the page of the documentation."""

import difflib
from collections.abc import Sequence

from ._detect import Source
from ._feature import Feature, Status, UnsupportedMJCF
from ._unsupported import FEATURES


def check_ignored(ignore: Sequence[str]) -> frozenset[str]:
    """Check that features can be ignored.

    **Raises:** `ValueError` that lists the names that can be ignored.
    """
    known = sorted({feature.key for feature in FEATURES if feature.key is not None})
    names = [ignore] if isinstance(ignore, str) else list(ignore)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"`ignore` contains {name!r}, which cannot be ignored.{hint} Accepted: "
                f"{', '.join(known)}."
            )
    return frozenset(names)


def check_supported(
    label: str, source: Source, ignore: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Reject unsupported features, and note features that have no effect.

    **Arguments:**

    - `label`: name of the file in messages.
    - `source`: the compiled model.
    - `ignore`: keys of unsupported features to leave out.

    **Returns:** one note per feature that has no effect or is ignored.

    **Raises:** `UnsupportedMJCF`, which lists all unsupported features.
    """
    found = [
        (feature, elements)
        for feature in FEATURES
        if feature.find is not None and (elements := feature.find(source))
    ]
    problems = tuple(
        (feature, elements)
        for feature, elements in found
        if feature.status is Status.REFUSED and feature.key not in ignore
    )
    if problems:
        count = "1 feature" if len(problems) == 1 else f"{len(problems)} features"
        lines = [f"{label} uses {count} that eqsim does not simulate:"]
        for feature, elements in problems:
            lines.append(f"  - {feature.name} {_listed(elements)}: {feature.remedy}")
        raise UnsupportedMJCF("\n".join(lines), problems)
    return tuple(_note(feature, elements) for feature, elements in found)


def _note(feature: Feature, elements: list[str]) -> str:
    if feature.status is Status.REFUSED:
        advice = f'not simulated, because of `ignore=("{feature.key}",)`.'
        return f"{feature.name} {_listed(elements)}: {advice}"
    return f"{feature.name} {_listed(elements)}: {feature.advice}"


def support_table() -> str:
    """Return the page of supported features, in Markdown."""
    lines = [
        "# MJCF support",
        "",
        "`eqsim.load_mjcf` reads MJCF files with MuJoCo's own compiler, so defaults, "
        "classes,",
        "includes, frames, `fromto`, inertia from shapes and all `compiler` settings "
        "have the",
        "same meaning as in MuJoCo. A feature is either simulated as in MuJoCo, or "
        "accepted",
        "because it does not affect the motion (and listed in `System.notes`), or "
        "refused.",
        "One error lists all refused features of a file by name.",
        "",
        "```python",
        'sys = eqsim.load_mjcf("robot.xml")',
        'sys = eqsim.load_mjcf(text, {"mesh.stl": data, "parts.xml": other_text})',
        "sys = eqsim.load_mjcf(spec)  # mujoco.MjSpec or mujoco.MjModel",
        'sys = eqsim.load_mjcf("robot.xml", ignore=("noslip",))',
        "",
        'state = pipeline.init_keyframe(sys, "home")  # with the activations',
        'ctrl = sys.keyframe("home").ctrl',
        'angle = state.q[sys.joint("knee").q]',
        'speed = state.qd[sys.joint("knee").qd]',
        'mass = sys.links.mass[sys.link("torso").index]',
        "```",
        "",
        "`ignore` lists features to leave out instead of refusing the file. The table "
        "*Refused*",
        "contains their names. The robot is then simulated as if the file did not use them.",
    ]
    headings = {
        Status.SUPPORTED: ("Supported", "What is covered"),
        Status.NO_EFFECT: ("Accepted, without effect", "Why"),
        Status.REFUSED: ("Refused", "What to do"),
    }
    for status, (heading, column) in headings.items():
        lines += ["", f"## {heading}", "", f"| Feature | {column} |", "|---|---|"]
        lines += [
            f"| {feature.name} | {feature.remedy} |"
            for feature in FEATURES
            if feature.status is status
        ]
    return "\n".join(lines) + "\n"


def _listed(elements: list[str], limit: int = 10) -> str:
    text = ", ".join(elements[:limit])
    left = len(elements) - limit
    return f"{text} and {left} more" if left > 0 else text
