"""How far eqsim is from MuJoCo C, on the same files and in the same states.

python benchmarks/parity.py                       # all of it
python benchmarks/parity.py --n 50 --random 0 --models ant humanoid
"""

import argparse
import pathlib
import time
import warnings
from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np
from _command import say, setting
from _models import GYMNASIUM, mujoco_model, system
from _reference import (
    accelerations,
    by_points,
    converge,
    Disagreement,
    disagreements,
    errors,
    Reference,
    reference,
    steps_until,
    Summary,
    TOLERANCE,
    trajectories,
)
from _states import draw, KINDS, rounded, States
from _tables import caption, show, table, write

from eqsim.io import write_mjcf
from eqsim.model import random_system


class Checked(NamedTuple):
    """One robot, or several: a row of the table, and where it disagrees."""

    row: dict[str, Any]
    found: list[Disagreement]


def main() -> int:
    """Prints the tables; returns how many states disagree for no known reason."""
    options = _options()
    where = setting(options)
    files = [_progress(check_file, name, options) for name in options.models]
    drawn = check_random(options.random, options) if options.random else []
    bad = [found for checked in files + drawn for found in checked.found]
    text = report(options, where, files, drawn, bad)
    print(f"\n{text}")
    write(options.markdown, text)
    write(
        options.json,
        {
            "where": where,
            "options": vars(options),
            "files": [checked.row for checked in files],
            "random": [checked.row for checked in drawn],
            "disagreements": [vars(d) | {"cause": d.cause} for d in bad],
        },
    )
    return min(sum(found.points is None for found in bad), 100)


def check_file(name: str, options: argparse.Namespace) -> Checked:
    """Compares accelerations, one step and many on one of Gymnasium's files."""
    model, sys = converge(mujoco_model(name)), system(name)
    states = drawn_states(model, options.n, options.seed, options.precision)
    target = reference(model, states, options.steps)
    tolerance = TOLERANCE[options.precision]
    qdd = accelerations(sys, states)
    error = errors(qdd, target.qdd)
    row = {"model": name} | summary(target, error, tolerance)
    if options.steps:
        path = trajectories(sys, states, options.steps)
        row |= along(errors(path, target.path), tolerance, options.steps)
    return Checked(row, disagreements(name, model, states, qdd, error, tolerance))


def drawn_states(
    model: mujoco.MjModel, count: int, seed: int, precision: str
) -> States:
    """The states of a comparison, exact in its precision."""
    states = draw(model, count, seed)
    return states if precision == "double" else rounded(states)


def summary(target: Reference, error: np.ndarray, tolerance: float) -> dict[str, Any]:
    """The columns on accelerations."""
    acceleration = Summary.of(error, tolerance)
    return {
        "states": len(error),
        "rows": float(np.mean(target.rows)),
        "most": int(np.max(target.rows)),
        "in contact": float(np.mean(target.contacts > 0)),
        "qdd max": acceleration.max,
        "qdd median": acceleration.median,
        "qdd within": acceleration.within,
        "MuJoCo residual": float(np.max(target.residual)),
    }


def along(error: np.ndarray, tolerance: float, steps: int) -> dict[str, Any]:
    """The columns on trajectories, of errors `(count, steps)`."""
    first, last = (
        Summary.of(error[:, 0], tolerance),
        Summary.of(error[:, -1], tolerance),
    )
    until = np.sort(steps_until(error))
    when = lambda share: _step(until, share, steps)
    return {
        "1 step max": first.max,
        "1 step median": first.median,
        "1 step within": first.within,
        f"{steps} steps median": last.median,
        f"{steps} steps within": last.within,
        "10 % chaotic at": when(0.1),
        "50 % chaotic at": when(0.5),
    }


def _step(until, share, steps):
    if not until.size:
        return None
    at = until[min(int(share * until.size), until.size - 1)]
    return int(at) if np.isfinite(at) else f"> {steps}"


def check_random(count: int, options: argparse.Namespace) -> list[Checked]:
    """Compares accelerations on random robots, written to MJCF; one row per size."""
    groups: dict[int, list[tuple]] = {}
    started, tolerance = time.time(), TOLERANCE[options.precision]
    for seed in range(count):
        sys, model, states = random_case(
            seed, options.random_states, options.precision, options.random_links
        )
        target = reference(model, states, 0)
        qdd = accelerations(sys, states, quick_compile())
        error = errors(qdd, target.qdd)
        found = disagreements(
            f"random {seed}",
            model,
            states,
            qdd,
            error,
            tolerance,
        )
        found = [by_points(sys, model, states, qdd, line, tolerance) for line in found]
        groups.setdefault(len(sys.links.parents), []).append((target, error, found))
        for line in found:
            say(f"  {line}")
        left = (count - seed - 1) * (time.time() - started) / (seed + 1)
        line = f"random {seed}: {np.max(error):.1e}, {left / 60:.0f} min left"
        say(line)
    return [_group(n, groups[n], options.precision) for n in sorted(groups)]


def random_case(seed: int, count: int, precision: str = "double", links: int = 7):
    """A random robot in eqsim and in MuJoCo, and states of it."""
    nlink = 1 + seed % links
    roots = 1 + (seed // links) % min(2, nlink)
    sys = random_system(seed, nlink, num_roots=roots, with_fluid=seed % 5 == 4)
    model = converge(mujoco.MjModel.from_xml_string(write_mjcf(sys)))
    return sys, model, drawn_states(model, count, seed, precision)


def quick_compile() -> dict[str, Any] | None:
    """Options of the compiler for what runs once: the same operations, less tuned."""
    if jax.default_backend() != "cpu":
        return None
    return {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def _group(nlink, cases, precision):
    targets = [case[0] for case in cases]
    joined = Reference(
        targets[0].qdd,
        *(np.concatenate([target[i] for target in targets]) for i in (1, 2, 3)),
        targets[0].path,
    )
    error = np.concatenate([case[1] for case in cases])
    row = {"links": nlink, "systems": len(cases)}
    row |= summary(joined, error, TOLERANCE[precision])
    return Checked(row, [found for case in cases for found in case[2]])


def report(options, where, files, drawn, bad) -> str:
    """The tables and what they mean, in Markdown."""
    tolerance = TOLERANCE[options.precision]
    parts = [
        f"## Parity with MuJoCo C, {options.precision} precision",
        "Error: largest difference of a state, relative to max(1, largest number of "
        f"MuJoCo's). `within`: share of the states with an error up to {tolerance:g}. "
        f"`rows`: mean number of constraint rows, `most`: the largest. States of "
        f"{len(KINDS)} kinds in turn: {', '.join(KINDS)}. MuJoCo solves by Newton with "
        "200 iterations and tolerance 0; `MuJoCo residual`: the largest "
        "|M^-1 gradient of its cost| that it leaves, relative in the same way. "
        "`chaotic at`: the step at which the error of that share of the trajectories "
        "has passed 1e-3.",
    ]
    if files:
        rows = [checked.row for checked in files]
        split = next((i for i, key in enumerate(rows[0]) if key == "1 step max"), None)
        keys = list(rows[0])
        parts += ["### Accelerations", table(rows, keys[:split])]
        if split is not None:
            parts += ["### Trajectories", table(rows, ["model", *keys[split:]])]
    if drawn:
        count = sum(checked.row["systems"] for checked in drawn)
        parts += [
            f"### Accelerations of {count} random systems",
            table([checked.row for checked in drawn]),
        ]
    heading = f"### {len(bad)} states disagree" if bad else "No state disagrees."
    known = sum(found.points is not None for found in bad)
    if known:
        heading += f", {known} of them in points of capsules against cylinders only"
    parts += [heading, "\n".join(f"- {line}" for line in bad), caption(where)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _progress(check, name, options):
    started = time.time()
    checked = check(name, options)
    cells = [f"{key} {show(value)}" for key, value in checked.row.items()]
    say(f"{', '.join(cells)} [{time.time() - started:.0f} s]")
    for line in checked.found:
        say(f"  {line}")
    return checked


def _options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--n", type=int, default=300, help="states of each file")
    add("--models", nargs="*", default=list(GYMNASIUM))
    add("--precision", choices=list(TOLERANCE), default="double")
    add("--steps", type=int, default=100, help="of a trajectory; 0 leaves them out")
    add("--random", type=int, default=200, help="random systems")
    add("--random-states", type=int, default=9, help="states of each")
    add("--random-links", type=int, default=7, help="links of the largest")
    add("--seed", type=int, default=0)
    add("--json", type=pathlib.Path)
    add("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    if options.n < 1 or options.random < 0 or options.steps < 0:
        parser.error("--n must be positive, --random and --steps not negative")
    return options


if __name__ == "__main__":
    # MuJoCo's remark on an attribute of half_cheetah.xml.
    warnings.filterwarnings("ignore", message=".*settotalmass.*")
    raise SystemExit(main())
