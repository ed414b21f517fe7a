"""Plots of skills (paths, coverage, confusion, predictions) and of planning towards
goals."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..runs.pages import STYLE
from .paths import SkillPaths
from .planning import Reached


def write_skills(
    paths: SkillPaths, path: str | os.PathLike, title: str = "skills"
) -> None:
    """Plot the descriptors along episodes by skill, the visits of grid cells if
    descriptors have limits, the confusion matrix of skills and, for agents with skill
    dynamics, the predicted and actual changes of the descriptor.

    **Arguments:**

    - `paths`: result of `follow_skills`.
    - `path`: path of the image file.
    - `title`: title of the plot.

    **Raises:** `ImportError` without matplotlib.
    """
    known = paths.limits is not None and bool(np.all(np.isfinite(paths.limits[:2])))
    panels = [_paths, *([_coverage] if known else []), _confusion]
    panels += [] if paths.predicted is None else [_changes]
    _draw(panels, paths, len(paths.skills), path, title)


def write_goals(
    reached: Reached, path: str | os.PathLike, title: str = "goals"
) -> None:
    """Plot the paths towards goals, colored by goal, and the distance after each step.

    **Arguments:**

    - `reached`: result of `reach_goals`.
    - `path`: path of the image file.
    - `title`: title of the plot.

    **Raises:** `ImportError` without matplotlib.
    """
    number = len(np.unique(reached.goals, axis=0))
    _draw([_goal_paths, _distances], reached, number, path, title)


def _draw(
    panels: Sequence[Callable[[Any, Any, Any], None]],
    what: Any,
    number: int,
    path: str | os.PathLike,
    title: str,
) -> None:
    """Draw panels in one row, with `number` colors."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib. Run `pip install 'eqsim-zoo[cli]'`."
        ) from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.3 * len(panels), 4.4))
        axes = figure.subplots(1, len(panels))
        colors = matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, number))
        for panel, own in zip(panels, axes, strict=True):
            panel(own, what, colors)
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
    axes.set_title("paths of skills")
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
    axes.figure.colorbar(image, ax=axes, shrink=0.7, label="log10(visits)")


def _confusion(axes: Any, paths: SkillPaths, colors: Any) -> None:
    image = axes.imshow(paths.confusion(), vmin=0, vmax=1, cmap="Blues")
    axes.figure.colorbar(image, ax=axes, shrink=0.7)
    step, episode = paths.accuracy()
    axes.set_title(f"accuracy: {step:.0%} by step, {episode:.0%} by episode")
    axes.set_xlabel("inferred skill")
    axes.set_ylabel("skill")


def _changes(axes: Any, paths: SkillPaths, colors: Any) -> None:
    """Plot changes over whole episodes, as those of single steps are mostly the gait."""
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
    axes.set_ylabel("actual")


def _goal_paths(axes: Any, reached: Reached, colors: Any) -> None:
    """Plot paths and goals (crosses); over steps for a one-dimensional descriptor."""
    flat = reached.goals.shape[1] == 1
    length = reached.descriptors.shape[1]
    for goal, row, color in _by_goal(reached, reached.descriptors, colors):
        place = (np.arange(1, length + 1), row[:, 0]) if flat else row[:, :2].T
        axes.plot(*place, color=color, lw=1, alpha=0.8)
        axes.plot(*(x[-1] for x in place), "o", color=color, ms=3)
        end = (length, goal[0]) if flat else goal[:2]
        axes.plot(*end, "X", color=color, ms=9, mec="white")
    axes.set_title("paths to goals")
    if flat:
        axes.set_xlabel("steps")
    else:
        axes.set_aspect("equal", adjustable="datalim")
    axes.locator_params(nbins=6)


def _distances(axes: Any, reached: Reached, colors: Any) -> None:
    for _, row, color in _by_goal(reached, reached.distances(), colors):
        axes.plot(np.arange(1, len(row) + 1), row, color=color, lw=1, alpha=0.8)
    axes.set_ylim(bottom=0.0)
    axes.set_title("distance to the goal")
    axes.set_xlabel("steps")


def _by_goal(
    reached: Reached, rows: np.ndarray, colors: Any
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Yield each goal with its row and color."""
    _, index = np.unique(reached.goals, axis=0, return_inverse=True)
    for goal, row, number in zip(reached.goals, rows, index.ravel(), strict=True):
        yield goal, row, colors[number]
