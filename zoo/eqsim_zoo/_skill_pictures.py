"""Pictures of skills: where they lead, what they cover, and how well they are told apart."""

import os
from typing import Any

import numpy as np

from ._curves import STYLE
from ._skill_paths import SkillPaths


def write_skills(
    paths: SkillPaths, path: str | os.PathLike, title: str = "skills"
) -> None:
    """Draws the descriptors along episodes, by skill; how often each place was visited, if
    descriptors have limits; for which skill each one is taken; and, of an agent with skill
    dynamics, how the descriptor changes and was to change.

    **Arguments:**

    - `paths`: of `follow_skills`.
    - `path`: of the picture.
    - `title`: above it.

    **Raises:** `ImportError` without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib. Run `pip install 'eqsim-zoo[cli]'`."
        ) from error
    known = paths.limits is not None and bool(np.all(np.isfinite(paths.limits[:2])))
    panels = [_paths, *([_coverage] if known else []), _confusion]
    panels += [] if paths.predicted is None else [_changes]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.3 * len(panels), 4.4))
        axes = figure.subplots(1, len(panels))
        colors = matplotlib.colormaps["turbo"](
            np.linspace(0.05, 0.95, len(paths.skills))
        )
        for panel, own in zip(panels, axes, strict=True):
            panel(own, paths, colors)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13)
        figure.savefig(path)


def _paths(axes: Any, paths: SkillPaths, colors: Any) -> None:
    flat = paths.descriptors.shape[-1] == 1
    for rows, valid, color in zip(paths.descriptors, paths.valid, colors, strict=True):
        for row, taken in zip(rows, valid, strict=True):
            row = row[: 1 + int(taken.sum())]
            place = (np.arange(len(row)), row[:, 0]) if flat else row[:, :2].T
            axes.plot(*place, color=color, lw=1, alpha=0.8)
            axes.plot(*(x[-1] for x in place), "o", color=color, ms=3)
    axes.set_title("where skills lead")
    if flat:
        axes.set_xlabel("steps")
    else:
        axes.set_aspect("equal", adjustable="datalim")
    axes.locator_params(nbins=6)


def _coverage(axes: Any, paths: SkillPaths, colors: Any) -> None:
    limits = paths.limits
    assert limits is not None
    axes.set_title(f"covered: {paths.coverage():.0%}")
    if len(limits) == 1:
        low, high = limits[0]
        axes.stairs(paths.visits(), np.linspace(low, high, len(paths.visits()) + 1))
        axes.set_ylabel("visits")
        return
    wide = limits[:2]
    visits = np.log10(np.maximum(paths.visits(), 0.1))
    shown = np.where(visits < 0, np.nan, visits)
    image = axes.imshow(
        shown.T, origin="lower", extent=wide.ravel(), cmap="viridis", aspect="equal"
    )
    axes.locator_params(nbins=5)
    axes.figure.colorbar(image, ax=axes, shrink=0.7, label="visits, decimal logarithm")


def _confusion(axes: Any, paths: SkillPaths, colors: Any) -> None:
    image = axes.imshow(paths.confusion(), vmin=0, vmax=1, cmap="Blues")
    axes.figure.colorbar(image, ax=axes, shrink=0.7)
    step, episode = paths.accuracy()
    axes.set_title(f"told rightly: {step:.0%} by step, {episode:.0%} by episode")
    axes.set_xlabel("taken for skill")
    axes.set_ylabel("skill")


def _changes(axes: Any, paths: SkillPaths, colors: Any) -> None:
    """Over whole episodes, as single steps are mostly the gait."""
    assert paths.predicted is not None
    taken = paths.valid[..., None]
    real = np.diff(paths.descriptors, axis=2)
    sums = [np.where(taken, x, 0.0).sum(axis=2) for x in (paths.predicted, real)]
    for predicted, found, color in zip(*sums, colors, strict=True):
        axes.plot(predicted.ravel(), found.ravel(), "o", color=color, ms=3, alpha=0.8)
    axes.locator_params(nbins=6)
    ends = np.array([min(x.min() for x in sums), max(x.max() for x in sums)])
    axes.plot(ends, ends, color="0.6", lw=0.8, zorder=0)
    axes.set_title("change in an episode")
    axes.set_xlabel("predicted")
    axes.set_ylabel("real")
