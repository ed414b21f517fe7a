"""Optimal control of the double pendulum: scores, robustness, knock-downs, Crocoddyl.

python benchmarks/control.py score --out out/bench
"""

import argparse
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax


# Swing-ups are planned in double precision.
jax.config.update("jax_enable_x64", True)

import jax.random as jr
import numpy as np
from _bench import say
from _crocoddyl import compare
from _double_pendulum import (
    DT,
    KINDS,
    parameters,
    recordings,
    Run,
    score,
    simulate,
    upright,
)
from _identified import latency, MujocoPlant, parameters_of, robots
from _knock_downs import build, knocks, LibraryController
from _plan_library import Library
from _receding import RecedingController
from _swing_up import plan_of, search
from _bench import caption, circumstances, table, write
from _tracking import DoublePendulumController, Nominal


EXPLANATION = {
    "score": "Swing-up scores of the RealAI gym (design C.1, model_1.0 without friction, "
    "6 N m, 10 s). The plant is NumPy, Runge-Kutta 4 with 2 ms.",
    "robustness": "Runs that are upright for the last second, with the published models "
    "as plants, torques one step (2 ms) late, and encoders of 12 bits; velocities with "
    "noise of 0.05 rad/s. `planned on`: the model of the controller.",
    "knocks": "Share of 60 s upright. Every 8 to 12 s both joints get torque pulses of "
    "the plant for 0.2 s. Plans are from a library; `choices`: how often one was chosen.",
    "identified": "Runs that are upright for the last second. Planned on the robot that "
    "one half of the runs with excitation identified; the plants are MuJoCo C with robots "
    "from the posterior of the other half. Encoders and noise as in `robustness`.",
    "crocoddyl": "Swing-up of the double pendulum with 200 steps of 10 ms, from rest and "
    "from a batch of states near it; the guess is no torque. Crocoddyl runs on one thread, "
    "eqsim on all. `best optimum`: share of the batch with a cost within 1e-6 of the best.",
    "search": "Best coarse plans among random guesses.",
}


def main() -> None:
    """Run one comparison, and write its rows."""
    options = _options()
    runners = {
        "score": _scores,
        "robustness": _robustness,
        "knocks": _knocks,
        "identified": _identified,
        "crocoddyl": lambda o: compare(o.repeats, o.batch, say),
        "search": _searched,
    }
    rows = runners[options.what](options)
    where, file = circumstances(), options.out / f"control_{options.what}.json"
    write(file, {"where": where, "rows": rows})
    text = f"{EXPLANATION[options.what]}\n\n{table(rows)}\n\n{caption(where)}\n"
    write(file.with_suffix(".md"), text)
    print(text)


def _scores(options) -> list[dict[str, Any]]:
    rows = []
    for kind in options.kinds:
        begin = time.perf_counter()
        controller = _controller(kind, options)
        planned = time.perf_counter() - begin
        p = parameters()
        run = simulate(p, kind, controller)
        rows.append({"robot": kind} | score(p, run) | {"seconds to plan": planned})
        _keep(options, kind, run)
    return rows


def encoder(seed: int):
    """Make the measurement of a run: angles in steps of 12 bits, noisy velocities."""
    rng, bit = np.random.default_rng(seed), 2.0 * np.pi / 4096
    return lambda q, qd: (np.round(q / bit) * bit, qd + rng.normal(0.0, 0.05, 2))


MODELS = ("model_1.0", "model_2.0", "model_3.0")


def _robustness(options) -> list[dict[str, Any]]:
    rows = []
    for kind in options.kinds:
        pairs = [("model_1.0", False, m, dry) for dry in (False, True) for m in MODELS]
        pairs += [("model_1.0", True, m, True) for m in MODELS]
        pairs += [(m, True, m, True) for m in MODELS[1:]]
        for own, compensated, plant, friction in pairs:
            controller = _controller(kind, options, own, compensated)
            p, good = parameters(plant, friction=friction), 0
            for seed in range(options.seeds):
                run = simulate(p, kind, controller, measure=encoder(seed), delay=1)
                good += bool(upright(p, run)[-500:].all())
            name = lambda m, dry: m if dry else f"{m} without friction"
            row = {"robot": kind, "planned on": name(own, compensated)}
            row |= {"plant": name(plant, friction)}
            rows.append(row | {"upright": f"{good} of {options.seeds}"})
            say(str(rows[-1]))
    return rows


def _knocks(options) -> list[dict[str, Any]]:
    rows = []
    for kind in options.kinds:
        controller = LibraryController(kind, parameters(), _library(kind, options))
        p, shares, choices = parameters(), [], 0
        for seed in range(options.seeds):
            run = simulate(p, kind, controller, duration=60.0, pulses=knocks(seed))
            shares.append(float(upright(p, run).mean()))
            choices += controller.choices
            say(f"{kind} seed {seed}: {shares[-1]:.3f}")
        row = {"robot": kind, "upright share": np.mean(shares), "least": np.min(shares)}
        more = {"choices": choices / options.seeds, "runs": options.seeds}
        rows.append(row | more)
    return rows


def _identified(options) -> list[dict[str, Any]]:
    rows, found = [], robots(recordings() / "double_pendulum", options.seed, say)
    p, steps = parameters_of(found.fitted.sys), lambda r: round(latency(r) / DT)
    own, delay = steps(found.fitted), steps(found.other)
    for kind in options.kinds:
        controller, good = RecedingController(kind, p, plan_of(kind, p), own), 0
        for seed, key in enumerate(jr.split(jr.key(options.seed), options.seeds)):
            plant = MujocoPlant(found.other.sample(key))
            run = simulate(
                p,
                kind,
                controller,
                measure=encoder(seed),
                delay=delay,
                advance=plant,
            )
            good += bool(upright(p, run)[-500:].all())
            say(f"{kind} seed {seed}: {good} upright")
        row = {"robot": kind, "upright": f"{good} of {options.seeds}"}
        rows.append(row | {"latency assumed, ms": 2 * own, "latency, ms": 2 * delay})
    return rows


def _searched(options) -> list[dict[str, Any]]:
    rows = []
    for kind in options.kinds:
        for draw, value, costs in search(kind, options.seed, options.horizon):
            names = ("time", "energy", "torque", "smoothness", "velocity")
            row = {"robot": kind, "seed": options.seed, "draw": draw, "score": value}
            rows.append(row | dict(zip(names, costs, strict=True)))
    return rows


def _controller(
    kind: str, options, model: str = "model_1.0", friction: bool = False
) -> DoublePendulumController:
    name = f"swing_up_{kind}"
    if friction:
        name += f"_{model}"
    p = parameters(model, friction=friction)
    nominal = _stored(options, name, Nominal, lambda: plan_of(kind, p))
    return DoublePendulumController(kind, nominal)


def _library(kind: str, options) -> Library:
    make = lambda: build(kind, options.rounds, say=say)
    return _stored(options, f"plans_{kind}", Library, make)


def _stored(options, name: str, kind: Any, make: Callable) -> Any:
    """Read the arrays of an earlier run, or compute them."""
    file = options.out / f"{name}.npz"
    if file.exists() and not options.fresh:
        stored = np.load(file, allow_pickle=False)
        return kind(*(stored[field] for field in kind._fields))
    found = make()
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **found._asdict())
    return found


def _keep(options, kind: str, run: Run) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / f"run_{kind}.npz", **run._asdict())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("what", choices=tuple(EXPLANATION))
    add("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    add("--seeds", type=int, default=20, help="runs per row")
    add(
        "--seed",
        type=int,
        default=0,
        help="seed of a search, or of the split of recordings",
    )
    add("--horizon", type=int, default=150, help="coarse steps of a search")
    add("--rounds", type=int, default=4, help="rounds of plans for a library")
    add("--batch", type=int, default=256, help="problems in a batch, beside Crocoddyl")
    add("--repeats", type=int, default=20, help="calls to time, beside Crocoddyl")
    add("--fresh", action="store_true", help="plan anew")
    add("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
