"""What the table of features decides: refusals, notes, and the page of the docs."""

import difflib
from collections.abc import Sequence

from ._detect import Source
from ._feature import Feature, Status, UnsupportedMJCF
from ._unsupported import FEATURES


def check_ignored(ignore: Sequence[str]) -> frozenset[str]:
    """Checks that what is to be ignored can be.

    **Raises:** `ValueError` with the names that are known.
    """
    known = sorted({feature.key for feature in FEATURES if feature.key is not None})
    names = [ignore] if isinstance(ignore, str) else list(ignore)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"`ignore` has {name!r}, which cannot be ignored.{hint} These can be: "
                f"{', '.join(known)}."
            )
    return frozenset(names)


def check_supported(
    label: str, source: Source, ignore: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Refuses what cannot be simulated, and notes what is accepted without effect.

    **Arguments:**

    - `label`: how messages call the file.
    - `source`: the compiled model.
    - `ignore`: keys of refused features that the user wants to leave out.

    **Returns:** one note per feature that was accepted without effect, or ignored.

    **Raises:** `UnsupportedMJCF`, listing every feature that is refused.
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
    """The table of what is supported, as a Markdown page."""
    lines = [
        "# MJCF support",
        "",
        "`eqsim.load_mjcf` reads a file with MuJoCo's own compiler, so defaults, "
        "classes,",
        "includes, frames, `fromto`, inertia from shapes and all `compiler` settings "
        "mean",
        "what they mean in MuJoCo. Every feature below is simulated as MuJoCo "
        "simulates",
        "it, or accepted because it does not change the motion (and mentioned in",
        "`System.notes`), or refused. One error lists everything that is refused, by "
        "name.",
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
        "`ignore` names features that are left out instead of being refused; they are the",
        "ones with a name under *Refused*. The robot then moves as MuJoCo would simulate",
        "the file without them.",
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
