"""Tables for the terminal, the page and `results.json`."""

import datetime
import importlib.metadata
import os
import platform
from typing import NamedTuple

import numpy as np

from eqsim.identify import Result

from .fleet import Throughput
from .identification import Fit
from .linearization import LinearModel
from .quadruped import HIGH, LOW, NAMES, Walk
from .robot import Parameter


IDENTIFIABLE = 0.02
"""Largest value of two standard deviations of an identifiable parameter."""


class Table(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def identified(rows: list[Parameter], fit: Fit) -> list[dict]:
    """Return one dictionary per parameter."""
    return [
        {
            "name": row.name,
            "unit": row.unit,
            "true": row.hidden,
            "start": row.nominal,
            "found": row.nominal * float(scale),
            "standard_deviation": row.nominal * float(scale * deviation),
            "error_percent": 100 * (row.nominal * float(scale) / row.hidden - 1),
            "identifiable": bool(2 * deviation <= IDENTIFIABLE),
        }
        for row, scale, deviation in zip(rows, fit.scales, fit.deviation, strict=True)
    ]


def identification_table(entries: list[dict]) -> Table:
    columns = ("parameter", "true", "start", "found", "std. dev.", "error")
    rows = [
        (
            entry["name"] + (f", {entry['unit']}" if entry["unit"] != "1" else ""),
            f"{entry['true']:.4g}",
            f"{entry['start']:.4g}",
            f"{entry['found']:.5g}",
            f"{entry['standard_deviation']:.2g}",
            f"{entry['error_percent']:+.2f} %",
            "yes" if entry["identifiable"] else "no",
        )
        for entry in entries
    ]
    title = "Identification from 2 s of MuJoCo C"
    return Table(title, (*columns, "identifiable to 2 %"), rows)


def pendulum_table(result: Result) -> Table:
    """Return the parameters of the pendulum with their intervals."""
    rows = [
        (
            row.name,
            f"{row.start:.3g}",
            f"{row.value:.3g}",
            f"{row.low:.3g} to {row.high:.3g}",
            "yes" if row.clear else "no",
        )
        for row in result.table()
    ]
    columns = ("parameter", "start", "identified", "95 % interval", "determined")
    return Table("A real double pendulum", columns, rows)


def gait_table(walk: Walk) -> Table:
    """Return the parameters of the best gait."""
    rows = [
        (name, f"{low:g} to {high:g}", f"{value:.3f}")
        for name, low, high, value in zip(NAMES, LOW, HIGH, walk.gait, strict=True)
    ]
    return Table("Parameters of the gait", ("parameter", "range", "best"), rows)


def throughput_table(result: Throughput) -> Table:
    per_step = result.substeps
    rows = [
        (name, f"{rate:,.0f}", f"{rate * per_step:,.0f}", f"{rate / result.mujoco:.2f}")
        for name, rate in (("eqsim", result.eqsim), ("MuJoCo C", result.mujoco))
    ]
    columns = ("simulator", "env steps / s", "time steps / s", "ratio")
    return Table(f"{result.ants:,} different ants", columns, rows)


def linear_entries(ours: LinearModel, theirs: LinearModel) -> list[dict]:
    """Return the largest entries and differences of A and B."""
    return [
        {
            "matrix": name,
            "shape": list(a.shape),
            "largest_entry": float(np.max(np.abs(a))),
            "largest_difference": float(np.max(np.abs(a - b))),
        }
        for name, a, b in zip("AB", ours, theirs, strict=True)
    ]


def linear_table(entries: list[dict]) -> Table:
    rows = [
        (
            entry["matrix"],
            " x ".join(map(str, entry["shape"])),
            f"{entry['largest_entry']:.4g}",
            f"{entry['largest_difference']:.2g}",
        )
        for entry in entries
    ]
    columns = ("matrix", "size", "largest entry", "largest difference")
    return Table("A and B beside mjd_transitionFD", columns, rows)


def learning_table(entries: list[dict]) -> Table:
    rows = [
        (
            f"{entry['steps']:,.0f}",
            f"{entry['seconds']:.0f} s",
            f"{entry['mean_return']:,.0f}",
            f"{entry['confidence']:.0f}",
            f"{entry['standard_deviation']:.0f}",
            f"{entry['length']:.0f}",
        )
        for entry in entries
    ]
    columns = ("steps", "time", "mean return", "± (95 %)", "std. dev.", "length")
    return Table("Evaluations while learning", columns, rows)


def circumstances() -> dict[str, str]:
    """Return date, versions and machine."""
    packages = (
        "eqsim",
        "eqsim-zoo",
        "jax",
        "equinox",
        "optimistix",
        "mujoco",
        "gymnasium",
    )
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        **versions,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }
