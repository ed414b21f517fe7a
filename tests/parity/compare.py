"""Compare one robot with MuJoCo C in many states: a file of Gymnasium, a random robot with
variations, or a file of a folder."""

import argparse
import dataclasses
import pathlib
import warnings
from typing import Any

import assets
import mujoco
import numpy as np

import eqsim
from eqsim.collision import contact_plan

from .causes import Deviation, deviations
from .reference import (
    compared,
    converge,
    errors,
    mujoco_trajectories,
    ours,
    ours_of_each,
    Outcome,
    quick_compile,
    steps_until,
    Summary,
    theirs,
    TOLERANCE,
    trajectories,
)
from .robots import features, random_cases
from .states import draw, drawn_states, States


FILES, RANDOM = "files", "random"
NOT_COMPILED, REFUSED = "not compiled by MuJoCo", "refused"
STILL, LARGE = "no joints", "too large"


@dataclasses.dataclass(frozen=True)
class Record:
    """The errors of one robot in each of its states, in a form that JSON can store.

    - `origin`: `FILES` (of Gymnasium), `RANDOM`, or the label of a folder.
    - `robot`: name of a file, or seed of a random robot.
    - `group`: the feature that was drawn alone (or empty), or the folder of the file.
    - `sensors`: kind and errors of each sensor.
    - `path`: table columns about trajectories.
    """

    origin: str
    robot: str
    group: str
    links: int
    features: tuple[str, ...]
    qdd: list[float]
    step: list[float]
    sensors: list[tuple[str, list[float]]]
    rows: list[int]
    contacts: list[int]
    residual: list[float]
    deviations: list[Deviation]
    path: dict[str, Any]

    @staticmethod
    def read(data: dict[str, Any]) -> "Record":
        """Create a record from JSON data."""
        found = [Deviation(**line) for line in data["deviations"]]
        fields: Any = data | {"deviations": found}
        return Record(**fields)


def compare(
    names: tuple[str, str, str],
    sys: eqsim.System,
    model: mujoco.MjModel,
    states: States,
    value: Outcome,
    tolerance: float,
) -> Record:
    """Compare results of eqsim with those of MuJoCo, and find the causes of deviations.

    **Arguments:**

    - `names`: origin, robot and group.
    - `value`: results of eqsim in the states.
    """
    target, rows = theirs(sys, model, states)
    error = compared(value, target)
    kinds = dict(zip(sys.sensors.names, sys.sensors.kinds))
    return Record(
        *names,
        sys.nlink,
        features(sys),
        error.qdd.tolist(),
        error.step.tolist(),
        [(kinds[name].value, e.tolist()) for name, e in error.sensors.items()],
        *(values.tolist() for values in rows),
        deviations(names[1], sys, model, states, value, error, tolerance),
        {},
    )


def check_gymnasium(name: str, options: argparse.Namespace) -> Record:
    """Compare one of Gymnasium's files, also along trajectories."""
    model = converge(mujoco.MjModel.from_xml_path(str(assets.path(name))))
    sys, tolerance = eqsim.load_mjcf(assets.path(name)), TOLERANCE[options.precision]
    states = drawn_states(model, options.n, options.seed, options.precision)
    value = ours(sys, states, quick_compile())
    record = compare((FILES, name, ""), sys, model, states, value, tolerance)
    if not options.steps:
        return record
    error = errors(
        trajectories(sys, states, options.steps),
        mujoco_trajectories(model, states, options.steps),
    )
    return dataclasses.replace(record, path=along(error, tolerance, options.steps))


def check_structure(
    seed: int,
    count: int,
    precision: str,
    links: int,
    tolerance: float,
    variations: int,
) -> list[Record]:
    """Compare a random robot, and `variations` of it with other parameters."""
    cases = random_cases(seed, count, precision, links, variations)
    systems, states = [case.sys for case in cases], [case.states for case in cases]
    values = ours_of_each(systems, states, quick_compile())
    found = []
    for k, (case, value) in enumerate(zip(cases, values, strict=True)):
        name = f"random {seed}.{k}" if k else f"random {seed}"
        names = RANDOM, name, case.alone or ""
        found.append(compare(names, *case[:3], value, tolerance))
    return found


def check_file(
    path: pathlib.Path, label: str, name: str, options: argparse.Namespace
) -> Record | str:
    """Return the record of a file, or the reason why it was not compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = mujoco.MjModel.from_xml_path(str(path))
        except Exception:
            return NOT_COMPILED
        try:
            sys = eqsim.load_mjcf(path)
        except ValueError:
            return REFUSED
    if not model.nv:
        return STILL
    if model.nv > options.largest or contact_plan(sys).size > options.largest_plan:
        return LARGE
    states = draw(converge(model), options.folder_states, options.seed)
    names = label, name, str(pathlib.PurePath(name).parent)
    value = ours(sys, states, quick_compile())
    return compare(names, sys, model, states, value, TOLERANCE[options.precision])


def along(error: np.ndarray, tolerance: float, steps: int) -> dict[str, Any]:
    """Return the columns about trajectories, from errors `(count, steps)`."""
    first, last = (Summary.of(error[:, k], tolerance) for k in (0, -1))
    until = np.sort(steps_until(error))

    def when(share: float):
        if not until.size:
            return None
        at = until[min(int(share * until.size), until.size - 1)]
        return int(at) if np.isfinite(at) else f"> {steps}"

    return {
        "1 step max": first.max,
        "1 step median": first.median,
        "1 step within": first.within,
        f"{steps} steps median": last.median,
        f"{steps} steps within": last.within,
        "10 % chaotic at": when(0.1),
        "50 % chaotic at": when(0.5),
    }
