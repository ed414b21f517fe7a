"""The plots of the demonstration."""

import pathlib

import matplotlib


matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import SymLogNorm

from eqsim.identify import Validation

from .fleet import Throughput
from .identification import Fit
from .linearization import LinearModel
from .quadruped import Walk
from .recording import Recording
from .robot import Parameter


MEASURED, BEFORE, AFTER = "#222222", "#d1701f", "#1f6fb2"
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
    "savefig.dpi": 130,
}


def trajectories(
    path: pathlib.Path, recording: Recording, before: np.ndarray, after: np.ndarray
) -> None:
    """Plot measured and simulated coordinates over time."""
    rows = [
        ("torso height, m", lambda q: q[:, 2]),
        ("torso x, m", lambda q: q[:, 0]),
        ("hip_1, degrees", lambda q: np.rad2deg(q[:, 7])),
        ("ankle_1, degrees", lambda q: np.rad2deg(q[:, 8])),
    ]
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(2, 2, figsize=(10, 5.6), sharex=True)
        for axes, (title, pick) in zip(grid.flat, rows, strict=True):
            axes.plot(
                recording.time, pick(before), color=BEFORE, label="file's parameters"
            )
            axes.plot(
                recording.time, pick(after), color=AFTER, label="identified parameters"
            )
            axes.plot(
                recording.time[::4],
                pick(recording.q)[::4],
                ".",
                color=MEASURED,
                markersize=4,
                label="measured",
            )
            axes.set_title(title)
            axes.margins(x=0)
        for axes in grid[1]:
            axes.set_xlabel("time, s")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=3)
        _save(figure, path)


def parameters(path: pathlib.Path, rows: list[Parameter], fit: Fit) -> None:
    """Plot errors of initial and identified parameters, with two standard deviations."""
    names = [row.name for row in rows]
    true = np.array([row.hidden for row in rows])
    nominal = np.array([row.nominal for row in rows])
    at = np.arange(len(rows))
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10, 3.6), sharey=True, width_ratios=(1.2, 1)
        )
        start, found = (
            100 * (nominal / true - 1),
            100 * (fit.scales * nominal / true - 1),
        )
        left.barh(at - 0.19, start, 0.36, color=BEFORE, label="start (the file's)")
        left.barh(at + 0.19, found, 0.36, color=AFTER, label="found")
        left.set_title("error of start and found, %")
        left.legend(loc="best")
        spread = 200 * fit.deviation * fit.scales * nominal / true
        right.errorbar(
            found, at, xerr=spread, fmt="o", color=AFTER, capsize=4, elinewidth=2
        )
        limit = max(2.4, 1.15 * float(np.max(np.abs(found) + spread)))
        right.set_xlim(-limit, limit)
        right.axvspan(-2, 2, color="#e8eef4", zorder=0)
        right.set_title("error of found, %, ± two standard deviations")
        for axes in (left, right):
            axes.axvline(0, color=MEASURED, linewidth=0.8)
        left.set_yticks(at, names)
        left.invert_yaxis()
        _save(figure, path)


def linear_model(
    path: pathlib.Path, ours: LinearModel, theirs: LinearModel, names: list[str]
) -> None:
    """Plot A and B, and their differences from MuJoCo's finite differences."""
    nv = len(names)
    values = np.concatenate([ours.A, ours.B], axis=1)
    differ = np.abs(values - np.concatenate([theirs.A, theirs.B], axis=1))
    with plt.rc_context(STYLE | {"font.size": 9}):
        figure, grid = plt.subplots(1, 2, figsize=(12.5, 6.2), sharey=True)
        big = float(np.max(np.abs(values)))
        norm = SymLogNorm(1e-3, vmin=-big, vmax=big)
        image = grid[0].imshow(values, norm=norm, cmap="RdBu_r", aspect="auto")
        figure.colorbar(image, ax=grid[0], location="bottom", shrink=0.8, aspect=40)
        grid[0].set_title("A and B by eqsim")
        log = np.log10(np.maximum(differ, 1e-16))
        image = grid[1].imshow(log, cmap="magma", vmin=-14, vmax=-4, aspect="auto")
        bar = figure.colorbar(
            image, ax=grid[1], location="bottom", shrink=0.8, aspect=40
        )
        bar.set_label("power of ten")
        grid[1].set_title("difference from mjd_transitionFD")
        for axes in grid:
            _blocks(axes, nv, values.shape[1] - 2 * nv)
        grid[0].set_yticks(np.arange(2 * nv), names + [f"d {name}" for name in names])
        grid[0].set_ylabel("after the step")
        _save(figure, path)


def _blocks(axes, nv: int, nu: int) -> None:
    """Mark coordinates, velocities and controls."""
    centers = [(nv - 1) / 2, nv + (nv - 1) / 2, 2 * nv + (nu - 1) / 2]
    axes.set_xticks(centers, ["coordinates", "velocities", "controls"])
    axes.tick_params(axis="x", length=0)
    for edge in (nv, 2 * nv):
        axes.axvline(edge - 0.5, color="#777777", linewidth=0.8)
    axes.axhline(nv - 0.5, color="#777777", linewidth=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)


def throughput(path: pathlib.Path, result: Throughput) -> None:
    """Plot environment steps per second."""
    rates = [result.eqsim / 1e3, result.mujoco / 1e3]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.5, 2.3))
        bars = axes.barh(["eqsim", "MuJoCo C"], rates, 0.6, color=[AFTER, BEFORE])
        axes.bar_label(bars, [f" {rate:.1f}" for rate in rates])
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlabel("thousand environment steps per second")
        _save(figure, path)


def gaits(path: pathlib.Path, walk: Walk) -> None:
    """Plot the speeds of all gaits by round, and height and tilt of the best one."""
    time = walk.dt * np.arange(1, len(walk.q) + 1)
    up = 1.0 - 2.0 * (walk.q[:, 4] ** 2 + walk.q[:, 5] ** 2)
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2))
        for number, speeds in enumerate(walk.speeds, 1):
            spread = np.linspace(-0.3, 0.3, len(speeds))
            left.plot(number + spread, np.sort(speeds), ".", color=AFTER, markersize=2)
            left.plot(number + 0.3, speeds.max(), "o", color=BEFORE, markersize=6)
        left.set_xticks(range(1, len(walk.speeds) + 1))
        left.set_xlabel("round")
        left.set_title("speed of each gait, m/s (orange: best; 0: fell)")
        right.plot(time, 100.0 * walk.q[:, 2], color=AFTER, label="height, cm")
        tilt = np.rad2deg(np.arccos(np.clip(up, -1.0, 1.0)))
        right.plot(time, tilt, color=BEFORE, label="tilt, degrees")
        right.set_ylim(0.0, 40.0)
        right.set_xlabel("time, s")
        right.set_title("trunk of the best gait")
        right.legend(loc="upper right", ncols=2)
        _save(figure, path)


def pendulum(path: pathlib.Path, validation: Validation) -> None:
    """Plot errors of predictions of held-out runs by horizon."""
    rows = validation.horizons
    time = [row.horizon for row in rows]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.5, 3.2))
        for median, color, label in (
            ([row.baseline_median["q"] for row in rows], BEFORE, "given model"),
            ([row.median["q"] for row in rows], AFTER, "identified model"),
        ):
            axes.plot(time, np.rad2deg(median), "o-", color=color, label=label)
        axes.set_title("error of joint angles, degrees")
        axes.set_xlabel("horizon of the prediction, s")
        axes.set_ylim(bottom=0.0)
        axes.legend(loc="upper left")
        _save(figure, path)


def _save(figure, path: pathlib.Path) -> None:
    figure.savefig(path)
    plt.close(figure)
