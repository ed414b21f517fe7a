"""Compare one step and the contacts of robots with meshes with MuJoCo C, file by file.

python tests/parity scenes MENAGERIE --markdown out/scenes.md
python tests/parity scenes FOLDER --scenes robot.xml --states 20 --details

MENAGERIE is a copy of https://github.com/google-deepmind/mujoco_menagerie.
"""

import collections
import pathlib
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _bench import caption, parser, publish, say, setting, table
from _robots import MENAGERIE, menagerie_start, SETTLE

import eqsim

from .contacts import (
    compared,
    Difference,
    found_contacts,
    geom_numbers,
    replaced,
    with_normals_of_vertices,
)
from .reference import batch_of, converge, errors, forward
from .states import draw, KINDS, States


LIMIT = 1e-9
"""Largest error of a state that counts as equal."""
REPORTED = 400
"""Largest number of contacts that are compared in a state."""
EXACT = 1e-15
"""Tolerance of MuJoCo's search for the nearest points. With 0 it misses some contacts."""
EXPLANATION = f"""\
One step of eqsim and of MuJoCo C from the same states, in double precision. `usual`: states
after {SETTLE} steps of MuJoCo C under small random controls, see `benchmarks/scenes.py`.
`hard`: states of {len(KINDS)} kinds in turn ({", ".join(KINDS)}), with
parts that overlap deeply. MuJoCo runs the integrator and the cone of the file, and Newton's
method with 200 iterations and tolerance 0.

The error of a state is the largest difference of coordinates, velocities and activations
after the step, relative to max(1, largest value of MuJoCo). `within`: fraction of the states
with an error up to {LIMIT:g}.

- `contacts`: mean number of contacts in MuJoCo.
- `MuJoCo`: error, with `ccd_tolerance` 1e-12.
- `exact`: error, with `ccd_tolerance` {EXACT:g}, and normals of polygons of meshes computed from
  their vertices. MuJoCo computes them before it rounds the vertices to single precision.
- `contacts of eqsim`: error if MuJoCo also takes over distance, position and frame of each
  contact from eqsim, in states in which all pairs of shapes have as many contacts in both.
- `count`: states in which some pair has a different number of contacts than in `exact`.
- `distance`, `position`: largest difference of contacts from `exact` in the other states, m."""


class Scene(NamedTuple):
    """A robot in both simulators, and its states.

    - `geoms`: MuJoCo's numbers of eqsim's shapes.
    """

    sys: eqsim.System
    model: mujoco.MjModel
    states: States
    geoms: list[int]


class Ours(NamedTuple):
    """Coordinates, velocities and activations after a step of eqsim, whether the solver
    has converged, and the contacts before the step."""

    step: np.ndarray
    converged: np.ndarray
    contacts: Any


def main() -> None:
    """Compare all scenes, and write the table after each."""
    options = _options()
    where = setting(options)
    cells: list[dict[str, Any]] = []
    for name in options.scenes:
        for kind in options.kinds:
            cells.append(compare(options.folder / name, name, kind, options))
            text = report(where, cells)
            publish(options, "scene_parity", {"where": where, "cells": cells}, text)
    print(f"\n{text}")


def compare(path: pathlib.Path, name: str, kind: str, options) -> dict[str, Any]:
    """Return the table row of a scene, with the causes of differences."""
    scene = load(path, kind, options.states)
    model, states = scene.model, scene.states
    mine = ours(scene)
    usual = errors(
        mine.step, np.stack([_step(model, states, i) for i in _range(scene)])
    )
    model.opt.ccd_tolerance = EXACT
    with_normals_of_vertices(model)
    exact, same, differences = [], [], []
    for i in _range(scene):
        exact.append(_step(model, states, i))
        data = mujoco.MjData(model)
        forward(model, data, states, i)
        own = found_contacts(jax.tree.map(lambda x: x[i], mine.contacts), scene.geoms)
        differences.append(compared(model, data, own))
        same.append(np.full_like(exact[-1], np.nan))
        if not differences[-1].count:
            replaced(model, data, own)
            same[-1] = _advanced(model, data)
    columns = {
        "MuJoCo": usual,
        "exact": errors(mine.step, np.stack(exact)),
        "contacts of eqsim": errors(mine.step, np.stack(same)),
    }
    causes = _causes(mine, columns, differences, options.details)
    row: dict[str, Any] = {"scene": name.removesuffix(".xml"), "states": kind}
    row |= {"nv": model.nv, "contacts": float(np.mean([d.total for d in differences]))}
    for label, error in columns.items():
        known = error[np.isfinite(error)]
        row[label] = float(np.max(known))
        row[f"{label}: within"] = float(np.mean(known <= LIMIT))
    row["count"] = sum(bool(d.count) for d in differences)
    row["distance"] = max(d.distance for d in differences)
    row["position"] = max(d.position for d in differences)
    say(f"{name}, {kind}: {row}")
    return row | {"causes": causes}


def load(path: pathlib.Path, kind: str, count: int) -> Scene:
    """Load a file into both simulators, and draw states."""
    model = mujoco.MjModel.from_xml_path(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys = eqsim.load_mjcf(path)
    if kind == "hard":
        states = draw(model, count)
    else:
        start = menagerie_start(model, count)
        states = States(*start[:3], start.ctrl[:, 0], kinds=(kind,) * count)
    return Scene(sys, converge(model), states, geom_numbers(sys, model))


def ours(scene: Scene) -> Ours:
    """Advance all states by a step of eqsim."""
    pipeline = eqsim.Generalized(max_contacts=REPORTED)

    def one(state, ctrl):
        new, solved = pipeline.advance(scene.sys, state, ctrl)
        after = jnp.concatenate([new.q, new.qd, new.act])
        return Ours(after, solved.converged, solved.contacts)

    found = jax.jit(jax.vmap(one))(*batch_of(scene.sys, scene.states))
    return jax.tree.map(np.asarray, found)


def _step(model, states: States, i: int) -> np.ndarray:
    data = mujoco.MjData(model)
    forward(model, data, states, i)
    mujoco.mj_step(model, data)
    return _after(data)


def _advanced(model, data) -> np.ndarray:
    """Finish a step from contacts that have been replaced."""
    for stage in (
        mujoco.mj_makeConstraint,
        mujoco.mj_transmission,
        mujoco.mj_projectConstraint,
        mujoco.mj_fwdVelocity,
        mujoco.mj_fwdActuation,
        mujoco.mj_fwdAcceleration,
        mujoco.mj_fwdConstraint,
    ):
        stage(model, data)
    euler = int(model.opt.integrator) == int(mujoco.mjtIntegrator.mjINT_EULER)
    (mujoco.mj_Euler if euler else mujoco.mj_implicit)(model, data)
    return _after(data)


def _after(data) -> np.ndarray:
    return np.concatenate([data.qpos, data.qvel, data.act])


def _range(scene: Scene) -> range:
    return range(len(scene.states))


def _causes(mine: Ours, columns, differences: list[Difference], details) -> dict:
    """Return how many states of `exact` differ for each cause."""
    causes: collections.Counter[str] = collections.Counter()
    for i, difference in enumerate(differences):
        if columns["exact"][i] <= LIMIT:
            continue
        left = columns["contacts of eqsim"][i]
        if not mine.converged[i]:
            cause = "eqsim reports that its solver has not converged"
        elif difference.count:
            cause = f"numbers of contacts: {', '.join(difference.count)}"
        elif left <= LIMIT:
            cause = f"contacts: {', '.join(difference.kinds)}"
        else:
            cause = "not explained"
        causes[cause] += 1
        if details:
            say(f"state {i}: error {columns['exact'][i]:.1e}, {left:.1e} with eqsim's")
            say(f"  contacts; {cause}\n  {difference}")
    return dict(causes)


def report(where: dict[str, Any], cells: list[dict[str, Any]]) -> str:
    """Return the table, and the causes of differences."""
    rows = [{k: v for k, v in cell.items() if k != "causes"} for cell in cells]
    lines = [
        f"- {cell['scene']}, {cell['states']}: "
        + "; ".join(f"{cause} ({count})" for cause, count in cell["causes"].items())
        for cell in cells
        if cell["causes"]
    ]
    title = "## Robots with meshes, double precision"
    causes = "States of `exact` beyond the limit, by cause:\n\n" + "\n".join(lines)
    parts = title, EXPLANATION, table(rows), causes if lines else "", caption(where)
    return "\n\n".join(part for part in parts if part) + "\n"


def _options():
    made = parser(__doc__ or "", repeats=1)
    add = made.add_argument
    add("folder", type=pathlib.Path, help="folder of MuJoCo Menagerie")
    add("--scenes", nargs="*", default=list(MENAGERIE), help="files below the folder")
    add("--states", type=int, default=100, help="states of each kind")
    add("--kinds", nargs="*", choices=("usual", "hard"), default=["usual", "hard"])
    add("--details", action="store_true", help="print each state that differs")
    made.set_defaults(precision="double")
    return made.parse_args()
