"""Optimal control of the double pendulum: swing-up scores, robustness, knock-downs.

python benchmarks/control.py score --out out/bench
"""

import argparse
import pathlib
import time
from typing import Any

import jax


# Swing-ups are planned in double precision.
jax.config.update("jax_enable_x64", True)

import numpy as np
from _double_pendulum import KINDS, parameters, Run, score, simulate, upright
from _swing_up import DoublePendulumController, Nominal, search
from _tables import caption, circumstances, table, write


EXPLANATION = {
    "score": "Swing-up scores of the RealAI gym (design C.1, model_1.0 without friction, "
    "6 N m, 10 s). The plant is NumPy, Runge-Kutta 4 with 2 ms.",
    "robustness": "Runs that are upright for the last second, with the published models "
    "as plants, torques one step (2 ms) late, and encoders of 12 bits; velocities with "
    "noise of 0.05 rad/s.",
    "knocks": "Share of 60 s upright. Every 8 to 12 s both joints get torque pulses of "
    "the plant for 0.2 s.",
    "search": "Best coarse plans among random guesses.",
}


def main() -> None:
    """Run one comparison, and write its rows."""
    options = _options()
    runners = {
        "score": _scores,
        "robustness": _robustness,
        "knocks": _knocks,
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


def _robustness(options) -> list[dict[str, Any]]:
    rows = []
    for kind in options.kinds:
        controller = _controller(kind, options)
        for model in ("model_1.0", "model_2.0", "model_3.0"):
            for friction in (False, True):
                p, good = parameters(model, friction=friction), 0
                for seed in range(options.seeds):
                    run = simulate(p, kind, controller, measure=encoder(seed), delay=1)
                    good += bool(upright(p, run)[-500:].all())
                plant = {"robot": kind, "plant": model, "friction": friction}
                rows.append(plant | {"upright": f"{good} of {options.seeds}"})
    return rows


def knocks(seed: int, duration: float = 60.0):
    """Draw the pulses of a run: beginning (s) and torques of both joints (N m)."""
    rng, now, pulses = np.random.default_rng(seed), 0.0, []
    while (now := now + rng.uniform(8.0, 12.0)) < duration:
        pulses.append((now, rng.choice((-1.0, 1.0), 2) * rng.uniform(3.0, 6.0, 2)))
    return pulses


def _knocks(options) -> list[dict[str, Any]]:
    rows = []
    for kind in options.kinds:
        controller = _controller(kind, options)
        p, shares = parameters(), []
        for seed in range(options.seeds):
            run = simulate(p, kind, controller, duration=60.0, pulses=knocks(seed))
            shares.append(float(upright(p, run).mean()))
        rows.append(
            {
                "robot": kind,
                "upright share": np.mean(shares),
                "least": np.min(shares),
                "runs": options.seeds,
            }
        )
    return rows


def _searched(options) -> list[dict[str, Any]]:
    rows = []
    for kind in options.kinds:
        for draw, value, costs in search(kind, options.seed, options.horizon):
            names = ("time", "energy", "torque", "smoothness", "velocity")
            row = {"robot": kind, "seed": options.seed, "draw": draw, "score": value}
            rows.append(row | dict(zip(names, costs, strict=True)))
    return rows


def _controller(kind: str, options) -> DoublePendulumController:
    """Plan, or read the plan of an earlier run."""
    file = options.out / f"swing_up_{kind}.npz"
    if file.exists() and not options.fresh:
        stored = np.load(file, allow_pickle=False)
        return DoublePendulumController(
            kind, Nominal(*(stored[name] for name in Nominal._fields))
        )
    controller = DoublePendulumController(kind)
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **controller.nominal._asdict())
    return controller


def _keep(options, kind: str, run: Run) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / f"run_{kind}.npz", **run._asdict())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("what", choices=tuple(EXPLANATION))
    add("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    add("--seeds", type=int, default=20, help="runs per row")
    add("--seed", type=int, default=0, help="of the guesses of a search")
    add("--horizon", type=int, default=150, help="coarse steps of a search")
    add("--fresh", action="store_true", help="plan anew")
    add("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
