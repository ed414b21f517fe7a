"""Models of motors from recorded commands, motions and torques, without simulation."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from _bench import say

from eqsim import actuators, identify, System
from eqsim.identify import (
    Adam,
    Bounded,
    Candidate,
    LogNormalPrior,
    NormalPrior,
    Positive,
    Recording,
    Unbounded,
    Windows,
)


TORQUES = identify.ActuatorForces("tau")
WINDOWS = Windows(0.5, stride=1.0, settle=0.05)
"""Half of the samples are fitted; all of the held-out ones are predicted, in windows of
2 s."""


class Motors(NamedTuple):
    """Recordings with commands and torques of one robot, and runs that are left out
    together."""

    runs: list[Recording]
    folds: Sequence[Sequence[str]]
    windows: Windows


def double_pendulum(folder: pathlib.Path) -> Motors:
    """Read all runs of both motors with recorded commands and torques, but those sampled
    at 30 ms. Every second run of each group is left out."""
    runs, folds = [], ([], [])
    for path in sorted(folder.glob("*.npz")):
        if "mcpilco" in path.stem or "rest" in path.stem:
            continue
        with np.load(path) as data:
            arrays = {k: data[k] for k in data.files}
        found = []
        for k, (first, last) in enumerate(
            zip(arrays["offsets"], arrays["offsets"][1:])
        ):
            part = {key: arrays[key][first:last] for key in _ARRAYS}
            found += _run(part, f"{path.stem}/{arrays['name'][k]}")
        runs += found
        for k, run in enumerate(found):
            folds[k % 2].append(run.run)
    return Motors(runs, folds, WINDOWS)


_ARRAYS = ("time", "q", "tau_command", "tau_measured", "tau_perturbation")


def _run(part: dict[str, Any], name: str) -> list[Recording]:
    """Return a run with torques that were measured, and commands that were recorded."""
    time = part["time"].astype(float)
    ctrl, tau, push = (
        part[f"tau_{key}"].astype(float)
        for key in ("command", "measured", "perturbation")
    )
    if not (np.isfinite(ctrl).all() and np.isfinite(tau).all()):
        return []
    if np.isfinite(push).all():
        # Perturbations are added to commands, and stand on a grid of their own.
        grid = 0.002 * np.arange(len(push))
        ctrl = ctrl + np.stack([np.interp(time, grid, p) for p in push.T], axis=1)
    kept = np.concatenate([[True], np.diff(time) > 0])
    channels = {"q": part["q"][kept], "tau": tau[kept]}
    return [Recording(time[kept], ctrl[kept], channels, name)]


def simple_pendulum(folder: pathlib.Path) -> Motors:
    """Read the runs whose controllers send torques; the others are tracked by the motor
    itself. Each run is left out once."""
    runs = []
    for name in ("runs.npz", "other_runs.npz"):
        runs += identify.load_recordings(
            folder / name,
            ctrl="tau_desired",
            channels={"q": "q", "tau": "tau_measured"},
        )
    chosen = ("ilqr", "energy_shaping_1kg", "gravity_compensation_by_hand")
    runs = [run for run in runs if run.name in chosen]
    return Motors(runs, [[run.run] for run in runs], WINDOWS._replace(half=3))


def candidates(sys: System, seeds: int = 3) -> dict[str, Candidate]:
    """Return classes of models of motors, each with the affine law before it."""
    names = sys.actuators.names
    first = tuple((k, 0) for k in range(len(names)))
    affine = {
        "gain": Unbounded(lambda s: s.actuators.gain, entries=first),
        "bias": Unbounded(lambda s: s.actuators.bias, entries=first),
    }
    delayed = sys.with_actuator_model(names, actuators.Delay(0.004, 10))
    delay = affine | {
        "delay": Bounded(lambda s: s.actuator_models[0].model.delay, 0.0, 0.02)
    }
    lagging = delayed.with_actuator_model(names, actuators.TorqueLag(0.004))
    lag = delay | {"lag": Positive(lambda s: s.actuator_models[1].model.time_constant)}
    rough = lagging.with_actuator_model(
        names, actuators.StribeckFriction(0.0, 0.02, 0.5, 0.0, 0.05)
    )
    small = NormalPrior(0.0, 0.2)
    friction = lag | {
        "coulomb": Unbounded(lambda s: s.actuator_models[2].model.coulomb, prior=small),
        "static": Unbounded(lambda s: s.actuator_models[2].model.static, prior=small),
        "viscous": Unbounded(lambda s: s.actuator_models[2].model.viscous, prior=small),
        "speed": Positive(
            lambda s: s.actuator_models[2].model.stribeck_velocity,
            prior=LogNormalPrior(None, 1.0),
        ),
    }
    rotor = delayed.with_actuator_model(names, actuators.OutputTorque(0.004, 0.002))
    inertia = lag | {"rotor": Unbounded(lambda s: s.actuator_models[1].model.inertia)}
    adam = {"solver": Adam(800, 1e-2, batch=8)}
    inputs, scales = ("control", "velocity"), (1.0, 5.0)

    def perceptron(sys, history):
        def initial(key):
            model = actuators.MLPActuator(
                inputs, scales, (16, 16), history=history, force_scale=0.3, key=key
            )
            return sys.with_actuator_model(names, model, shared=True)

        return initial

    def recurrent(key):
        model = actuators.GRUActuator(inputs, scales, 16, force_scale=0.3, key=key)
        return sys.with_actuator_model(names, model, shared=True)

    last = lambda law: (
        {"weights": Unbounded(_weights, prior=NormalPrior(0.0, 1.0))} | law
    )
    gates = {"weights": Unbounded(_gates, prior=NormalPrior(0.0, 1.0))} | affine
    return {
        "affine law": Candidate(sys, affine),
        "and delay": Candidate(delayed, delay),
        "and lag": Candidate(lagging, lag),
        "and friction": Candidate(rough, friction),
        "delay, lag and rotor": Candidate(rotor, inertia),
        "perceptron": Candidate(perceptron(sys, 10), last(affine), adam, seeds, 5),
        "recurrent unit": Candidate(recurrent, gates, adam, seeds, 5),
        "rotor and perceptron": Candidate(
            perceptron(rotor, 6), last(inertia), adam, seeds, 5
        ),
    }


def _weights(sys: System):
    model: Any = sys.actuator_models[-1].model
    return (*model.weights, *model.biases)


def _gates(sys: System):
    model: Any = sys.actuator_models[-1].model
    gates = model.update, model.reset, model.candidate, model.gate_biases
    return (*gates, model.readout, model.offset)


def compare_motors(sys: System, motors: Motors, seeds: int = 3) -> dict[str, Any]:
    """Compare models of motors by errors of torques, N m, on runs that were left out."""
    found = identify.compare(
        candidates(sys, seeds),
        motors.runs,
        folds=motors.folds,
        windows=motors.windows,
        horizon=2.0,
        objective=TORQUES,
        progress=lambda score: say(json.dumps(_row(score))),
    )
    say(found)
    return {
        "runs": len(motors.runs),
        "best": found.best,
        "chosen": found.chosen,
        "models": [_row(score) for score in found.scores],
    }


def _row(score: identify.ModelScore) -> dict[str, Any]:
    groups: dict[str, list[float]] = {}
    for run, errors in score.windows.items():
        groups.setdefault(run.rpartition("/")[0] or run, []).append(
            float(np.sqrt(np.mean(errors**2)))
        )
    return {
        "model": score.name,
        "parameters": score.parameters,
        "error": score.error,
        "interval": [score.low, score.high],
        "difference": [score.difference, score.difference_low, score.difference_high],
        "seed_sd": score.seed_sd,
        "rms": jax.tree.map(lambda x: x.tolist(), score.rms)["tau"],
        "groups": {name: float(np.mean(rows)) for name, rows in groups.items()},
    }
