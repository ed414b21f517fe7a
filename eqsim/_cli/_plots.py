"""Plots of `eqsim rollout`."""

import pathlib
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from .._trajectory import Episodes
from ..model import JointKind, System


_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
    "savefig.dpi": 110,
}
_BLUE, _ORANGE, _GRAY = "#1f6fb2", "#d1701f", "#444444"
_BANDS = ((0.05, 0.95, 0.16), (0.25, 0.75, 0.32))


def plot(
    path: pathlib.Path,
    title: str,
    sys: System,
    arrays: dict[str, np.ndarray],
    statistics: Episodes,
) -> None:
    """Plot returns, reward terms and some coordinates over time, for all environments.

    **Arguments:**

    - `arrays`: arrays of the data file, by name.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(12.5, 6.6))
        grid: Any = figure.subplots(2, 3)
        time = float(arrays["dt"]) * np.arange(arrays["rewards"].shape[1])
        after = time + float(arrays["dt"])
        _spread(grid[0, 0], after, np.asarray(statistics.returns))
        grid[0, 0].set_title("return of the episode so far")
        _terms(grid[0, 1], after, arrays)
        _histogram(grid[0, 2], arrays, statistics)
        chosen = coordinates(sys)[:3]
        for axes, (index, label) in zip(grid[1], chosen):
            _spread(axes, time, arrays["q"][..., index])
            axes.set_title(label)
        for axes in grid[1, len(chosen) :]:
            axes.remove()
        for axes in (*grid[0, :2], *grid[1, : len(chosen)]):
            axes.set_xlabel("time, s")
            axes.margins(x=0.0)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=4)
        figure.savefig(path)


def coordinates(sys: System) -> list[tuple[int, str]]:
    """Return indices and labels of coordinates, without quaternions, and with the
    height of a free body first."""
    joints, out = sys.joints, []
    for joint, kind in enumerate(joints.kinds):
        at, name = joints.q_starts[joint], joints.names[joint]
        link = sys.links.names[joints.links[joint]]
        if kind is JointKind.FREE:
            places = ("z", 2), ("x", 0), ("y", 1)
            out += [(at + k, f"{link}: {axis}, m") for axis, k in places]
        elif kind is JointKind.PRISMATIC:
            out.append((at, f"{name}, m"))
        elif kind is JointKind.REVOLUTE:
            out.append((at, f"{name}, rad"))
    if joints.kinds and joints.kinds[0] is JointKind.FREE:
        # For a robot with a free base, prefer one of its joints to a third position.
        out[2:3] = []
    return out


def _spread(axes, time: np.ndarray, values: np.ndarray) -> None:
    """Plot median and quantiles over environments, and the first environment."""
    if len(values) > 1:
        for low, high, alpha in _BANDS:
            edges = np.quantile(values, (low, high), axis=0)
            label = f"{low:.0%} to {high:.0%} of environments"
            axes.fill_between(
                time, *edges, color=_BLUE, alpha=alpha, linewidth=0, label=label
            )
        axes.plot(time, np.median(values, axis=0), color=_BLUE, label="median")
    axes.plot(time, values[0], color=_ORANGE, linewidth=0.9, label="environment 0")


def _terms(axes, time: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
    for name, values in arrays.items():
        if name.startswith("terms/"):
            label = name.removeprefix("terms/")
            axes.plot(time, values.mean(axis=0), label=label, linewidth=1.2)
    axes.axhline(0.0, color=_GRAY, linewidth=0.6)
    axes.margins(y=0.35)  # Room for the legend.
    axes.set_title("reward per step, mean of environments")
    axes.legend(loc="upper left", ncols=3, fontsize=9)


def _histogram(axes, arrays: dict[str, np.ndarray], statistics: Episodes) -> None:
    ended = np.asarray(statistics.ended)
    returns, terminated = np.asarray(statistics.returns), arrays["terminated"]
    axes.set_title("return of whole episodes")
    if not ended.any():
        axes.text(0.5, 0.5, "none has ended", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    ends = [("terminated", ended & terminated, _ORANGE)]
    ends.append(("time limit", ended & ~terminated, _BLUE))
    ends = [end for end in ends if end[1].any()]
    axes.hist(
        [returns[which] for _, which, _ in ends],
        np.histogram_bin_edges(returns[ended], bins=20),
        stacked=True,
        color=[color for _, _, color in ends],
        label=[f"{name} ({which.sum()})" for name, which, _ in ends],
    )
    axes.set_xlabel("return")
    axes.set_ylabel("episodes")
    axes.legend(loc="best", fontsize=9, frameon=True, framealpha=0.8)
