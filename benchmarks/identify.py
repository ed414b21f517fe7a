"""Identify robots from recordings of their motion.

    python benchmarks/identify.py double_pendulum --recordings DIR --held-out
    python benchmarks/identify.py double_pendulum --peer
    python benchmarks/identify.py double_pendulum --actuators
    python benchmarks/identify.py double_pendulum --motors
    python benchmarks/identify.py cube_tosses --score out/identify/cube_tosses.xml

Writes `SET.xml` (the fitted robot as MJCF) and `SET.json` (parameters with intervals, and
errors on held-out runs with `--held-out`). With `--objective violation`, cube_tosses is
fitted by the violation of the laws of contact instead of by simulation. `--peer` compares
the time of one Jacobian with finite differences of MuJoCo C, as in `mujoco.sysid`.
`--actuators` compares models of the motors of the double pendulum by simulated motions, each
run left out once, and `--motors` models of motors by their torques alone, on held-out runs.
`--score` measures the errors of a written model in MuJoCo C.
"""

import argparse
import json
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import _identify_motors
import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import mujoco.rollout
import numpy as np
from _bench import say
from _identify_motors import compare_motors
from _identify_polish import polish

import eqsim
from eqsim import actuators, identify
from eqsim.identify import LogNormalPrior, NormalPrior, Positive, Recording, Windows
from eqsim.identify._fit_problem import evaluate


def main() -> None:
    """Fit one set of recordings, score a written model, or time a Jacobian."""
    options = _options()
    jax.config.update("jax_enable_x64", True)
    folder = options.recordings / options.set
    if not folder.is_dir():
        raise SystemExit(
            f"There are no recordings in {str(folder)!r}: pass --recordings, or set "
            "EQSIM_RECORDINGS. docs/identification.md says where they come from."
        )
    if options.peer:
        print(json.dumps(compare(options.recordings / "double_pendulum"), indent=1))
        return
    if options.motors:
        if options.set not in MOTORS:
            raise SystemExit(f"`--motors` is for {', '.join(MOTORS)}.")
        text, read = MOTORS[options.set]
        found = compare_motors(eqsim.load_mjcf(text), read(folder), options.seeds)
        print(json.dumps(found, indent=1))
        return
    if options.actuators:
        found = compare_actuators(options.recordings / "double_pendulum")
        print(json.dumps(found, indent=1))
        return
    if options.score:
        print(json.dumps(score(folder, options)))
        return
    fit = SETS[options.set]
    if options.objective == "violation":
        if options.set != "cube_tosses":
            raise SystemExit("`--objective violation` is for cube_tosses.")
        fit = cube_violation
    begin, cpu = time.perf_counter(), time.process_time()
    result, extra = fit(folder, options.seed, options.held_out)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.set}.json"
    result.save(path)
    extra |= {"seconds": time.perf_counter() - begin}
    extra |= {"cpu_seconds": time.process_time() - cpu}
    path.write_text(json.dumps(result.dictionary() | {"extra": extra}, indent=1) + "\n")
    print(result)
    print(json.dumps(extra, indent=1))


def told(values, cost, step) -> None:
    """Print the progress of a fit."""
    say(f"{step:3d} {cost:12.6g} {values}")


# Pendulums with geared motors: inertia, friction and torque gain.


EXAMPLES = pathlib.Path(__file__).parents[1] / "docs" / "examples"
DOUBLE = (EXAMPLES / "double_pendulum_c1.xml").read_text()
SINGLE = """<mujoco model="simple_pendulum">
<option timestep="0.002" integrator="implicitfast"/>
<worldbody>
  <body name="rod">
    <joint name="pivot" axis="0 -1 0" damping="0.02" frictionloss="0.1"
      armature="0.002"/>
    <inertial mass="0.676" pos="0 0 -0.45" diaginertia="0.005 0.005 0.005"/>
  </body>
</worldbody>
<actuator><motor name="pivot" joint="pivot"/></actuator>
</mujoco>"""


def unknowns_of_double(signals: bool = True) -> dict:
    """Return inertial parameters and friction, with the latency of commands. The torque
    gain is not identifiable together with masses: fits with it predict other runs
    worse."""
    found = {
        "damping": Positive(
            lambda s: s.joints.damping, prior=LogNormalPrior(None, 2.0)
        ),
        "friction": Positive(lambda s: s.joints.frictionloss),
        "armature": Positive(
            lambda s: s.joints.armature, prior=LogNormalPrior(None, 1.0)
        ),
        "mass": Positive(lambda s: s.links.mass, prior=LogNormalPrior(None, 0.2)),
        "com": identify.Unbounded(
            lambda s: s.links.com,
            entries=((0, 2), (1, 2)),
            prior=NormalPrior(None, 0.05),
        ),
        "inertia": Positive(
            lambda s: s.links.inertia,
            entries=((0, 1), (1, 1)),
            prior=LogNormalPrior(None, 0.5),
        ),
    }
    if signals:
        found["delay"] = identify.ChannelDelay(prior=NormalPrior(4e-3, 4e-3))
        found["zero"] = identify.ChannelBias(
            "q", per_run=True, prior=NormalPrior(0.0, 0.05)
        )
    return found


def zeroed(result: identify.Result, runs: Sequence[Recording]) -> list[Recording]:
    """Return recordings without the offsets of their encoders, which are set to zero before
    each run: those with which the fitted robot predicts them best."""
    delay = float(result.signals.delays["ctrl"])
    unknowns = {
        "delay": identify.ChannelDelay(initial=delay, prior=NormalPrior(delay, 1e-4)),
        "zero": identify.ChannelBias("q", per_run=True, prior=NormalPrior(0.0, 0.05)),
    }
    loss = identify.CauchyLoss(1.0, per_window=True)
    found = identify.fit(result.sys, runs, unknowns, windows=Windows(1.0), loss=loss)
    offsets = np.asarray(found.signals.run_biases["q"])
    order = sorted({run.run for run in runs})
    return [
        run.rows(slice(None), {"q": run.channels["q"] - offsets[order.index(run.run)]})
        for run in runs
    ]


def double_pendulum(
    folder: pathlib.Path, seed: int, held_out: bool
) -> tuple[identify.Result, dict]:
    """Identify the robot C.1 from its excitation by torque, with a lag of the torque."""
    runs = identify.load_recordings(
        folder / "identification_C1.npz", ctrl="tau_command", channels={"q": "q"}
    )
    lag = '<general dyntype="filterexact" dynprm="0.005"'
    sys = eqsim.load_mjcf(DOUBLE.replace("<motor", lag))
    fitted, others = identify.split(runs, 0.4, seed) if held_out else (runs, [])
    unknowns = unknowns_of_double()
    unknowns["lag"] = Positive(
        lambda s: s.actuators.time_constant, prior=LogNormalPrior(None, 1.0)
    )
    result = identify.fit(
        sys,
        fitted,
        unknowns,
        windows=Windows(1.0, settle=0.02),
        loss=identify.CauchyLoss(1.0, per_window=True),
        validate=others,
        progress=told,
    )
    extra = {}
    for path in sorted(folder.glob("swingup_C1_*.npz")) if held_out else []:
        if "perturbed" in path.stem:
            continue
        closed = identify.load_recordings(path, ctrl="tau_command", channels={"q": "q"})
        extra[path.stem] = {
            "fitted": _rms(result, result.sys, closed, 0.25),
            "given": _rms(result, sys, closed, 0.25),
        }
    if others:
        extra["held_out"] = _rms(result, result.sys, others, 1.0)
        extra["held_out_given"] = _rms(result, sys, others, 1.0)
        extra["held_out_zeroed"] = _rms(result, result.sys, zeroed(result, others), 1.0)
    return result, extra


def _friction(sys: eqsim.System) -> eqsim.System:
    law = actuators.StribeckFriction(0.0, 0.05, 0.3, 0.0, 0.05)
    return sys.with_actuator_model(sys.actuators.names, law)


def _lag(sys: eqsim.System) -> eqsim.System:
    return sys.with_actuator_model(sys.actuators.names, actuators.TorqueLag(0.005))


_FRICTION = {
    "static": identify.Unbounded(
        lambda s: s.actuator_models[0].model.static, prior=NormalPrior(0.0, 0.1)
    ),
    "speed": Positive(
        lambda s: s.actuator_models[0].model.stribeck_velocity,
        prior=LogNormalPrior(None, 1.0),
    ),
}
_DELAYED = {
    "lag": Positive(
        lambda s: s.actuator_models[-1].model.time_constant,
        prior=LogNormalPrior(None, 1.0),
    )
}
_GAIN = {
    "gain": Positive(
        lambda s: s.actuators.gear,
        entries=((0, 0), (1, 0)),
        prior=LogNormalPrior(None, 0.1),
    )
}
ACTUATORS = {
    "dry and viscous friction": (lambda sys: sys, {}),
    "and torque gain": (lambda sys: sys, _GAIN),
    "and lag of the torque": (_lag, _DELAYED),
    "and Stribeck effect": (_friction, _FRICTION),
    "and both": (lambda sys: _lag(_friction(sys)), _FRICTION | _DELAYED),
}
"""Models of the motors of the double pendulum: functions that attach them, and unknowns."""


def compare_actuators(folder: pathlib.Path) -> list[dict]:
    """Return errors of 1 s windows of each run of C.1 by a fit to the others, for each model
    of the motors. The zero of the encoders of the run is estimated."""
    runs = identify.load_recordings(
        folder / "identification_C1.npz", ctrl="tau_command", channels={"q": "q"}
    )
    sys = eqsim.load_mjcf(DOUBLE)
    found = identify.compare(
        {
            name: identify.Candidate(attach(sys), unknowns_of_double() | more)
            for name, (attach, more) in ACTUATORS.items()
        },
        runs,
        windows=Windows(1.0),
        adjust=zeroed,
        progress=lambda score: say(_windows_row(score)),
        loss=identify.CauchyLoss(1.0, per_window=True),
    )
    say(found)
    return [_windows_row(score) for score in found.scores]


def _windows_row(score: identify.ModelScore) -> dict:
    errors = np.concatenate([*score.windows.values()])
    return {
        "model": score.name,
        "median": float(np.median(errors)),
        "90 %": float(np.quantile(errors, 0.9)),
        "rms": score.rms["q"].tolist(),
    }


def simple_pendulum(
    folder: pathlib.Path, seed: int, held_out: bool
) -> tuple[identify.Result, dict]:
    """Identify the inertia of a pendulum from one tracked swing-up, with measured
    torque."""
    runs = identify.load_recordings(
        folder / "runs.npz", ctrl="tau_measured", channels={"q": "q"}
    )
    sys = eqsim.load_mjcf(SINGLE)
    chosen = [r for r in runs if r.name in ("direct_collocation", "ddp")]
    result = identify.fit(
        sys,
        chosen,
        {
            "damping": Positive(lambda s: s.joints.damping),
            "friction": Positive(lambda s: s.joints.frictionloss),
            "mass": Positive(lambda s: s.links.mass, prior=LogNormalPrior(0.676, 0.03)),
            # A weight of 0.546 kg at 0.5 m and a rod of 0.13 kg.
            "com": identify.Unbounded(
                lambda s: s.links.com, entries=((0, 2),), prior=NormalPrior(-0.45, 0.03)
            ),
            "inertia": Positive(
                lambda s: s.links.inertia,
                entries=((0, 1),),
                prior=LogNormalPrior(None, 1.0),
            ),
            "torque_gain": Positive(
                lambda s: s.actuators.gear,
                entries=((0, 0),),
                prior=LogNormalPrior(None, 0.1),
            ),
            "bias": identify.ChannelBias("ctrl", prior=NormalPrior(0.0, 0.05)),
            "delay": identify.ChannelDelay(prior=NormalPrior(4e-3, 4e-3)),
        },
        windows=Windows(0.5),
        loss=identify.HuberLoss(),
        progress=told,
    )
    links, joints = result.sys.links, result.sys.joints
    moment = float(-links.mass[0] * links.com[0, 2])
    about = float(links.inertia[0, 1] - moment * links.com[0, 2] + joints.armature[0])
    return result, {"inertia_about_joint": about, "mass_times_length": moment}


def _errors(
    result: identify.Result, sys: eqsim.System, runs: Sequence[Recording], length: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return errors of windows from measured initial states: rms of each window, sum of
    squares of each joint, and number of samples."""
    found, mask = result.prediction_errors(runs, Windows(length), sys)
    square = found["q"] ** 2 * mask[..., None]
    window = np.sqrt(square.sum(axis=1).mean(axis=1) / mask.sum(axis=1))
    return window, square.sum(axis=(0, 1)), int(mask.sum())


def _rms(
    result: identify.Result, sys: eqsim.System, runs: Sequence[Recording], length: float
) -> dict:
    """Return the rms of each joint, and the median window, see `_errors`."""
    window, square, count = _errors(result, sys, runs, length)
    rms = np.sqrt(square / count)
    return {"rms": rms.tolist(), "median": float(np.median(window))}


# Tossed cubes: friction, softness and size from motion capture.


RATE, SUBSTEPS, WIDTH = 148.0, 10, 0.1048
_GEOM = 'friction="0.18 0 0" solref="-4000 -300" solimp="0.93 0.999 0.001 0.5 2"'
_HEAD = f"""
<option timestep="{1 / (RATE * SUBSTEPS)!r}" cone="elliptic" integrator="Euler"/>
"""
CUBE = f"""<mujoco model="cube">{_HEAD}<worldbody>
  <geom name="table" type="plane" size="5 5 0.1" {_GEOM}/>
  <body name="cube"><freejoint/>
    <inertial mass="0.37" pos="0 0 0" diaginertia="8.1e-4 8.1e-4 8.1e-4"/>
    <geom name="cube" type="box" size="0.0524 0.0524 0.0524" {_GEOM}/>
  </body></worldbody></mujoco>"""


def _scaled(sys: eqsim.System, value) -> eqsim.System:
    """Scale lengths by a parameter, because those of the recording are a few per cent
    too short."""
    s = value[0]
    where = lambda x: (x.geoms.size, x.geoms.pos, x.links.pos, x.links.com)
    new = (x * s for x in where(sys))
    sys = eqx.tree_at(where, sys, tuple(new))
    where = lambda x: (x.gravity, x.links.inertia)
    return eqx.tree_at(where, sys, (sys.gravity * s, sys.links.inertia * s**2))


def _softness(sys: eqsim.System, value) -> eqsim.System:
    """Return logarithms of stiffness (1/s^2) and damping (1/s) of all contacts."""
    solref = jnp.broadcast_to(-jnp.exp(value), sys.geoms.solref.shape)
    return eqx.tree_at(lambda x: x.geoms.solref, sys, solref)


def _contact(sys: eqsim.System) -> dict[str, Any]:
    rows = tuple((k, 0) for k in range(sys.ngeom))
    return {
        "friction": identify.Positive(
            lambda s: s.geoms.friction, entries=rows, shared=True
        ),
        "softness": identify.Custom(
            _softness,
            (np.log(4000.0), np.log(300.0)),
            3.0,
            12.0,
            identify.NormalPrior(jnp.log(jnp.array([4000.0, 300.0])), jnp.ones(2)),
        ),
        "scale": identify.Custom(_scaled, 0.98, 0.9, 1.1),
    }


def _start(recording: Recording, row: int):
    """Return the recorded state, from which whole tosses are predicted."""
    return recording.channels["q"][row], recording.channels["qd"][row]


WHOLE = Windows(10.0, start=_start)
"""Whole tosses, which are shorter."""


def cube_violation(
    folder: pathlib.Path, seed: int, held_out: bool
) -> tuple[identify.Result, dict]:
    """Identify friction and length scale of a cube by the violation of the laws of
    contact, without simulation and without a search over whole tosses."""
    sys = eqsim.load_mjcf(CUBE)
    unknowns = {k: v for k, v in _contact(sys).items() if k != "softness"}
    fitted, others = _shares(folder, seed, held_out)
    result = identify.fit(
        sys,
        fitted,
        unknowns,
        windows=WHOLE,
        objective=identify.Violation(),
        progress=told,
    )
    extra: dict[str, Any] = {"fitted_tosses": len(fitted)}
    if others:
        extra["held_out"] = errors(result, result.sys, others)
        extra["held_out_given"] = errors(result, sys, others)
    return result, extra


def _shares(folder: pathlib.Path, seed: int, held_out: bool):
    """Return the tosses that are fitted, and those that are held out, in random order."""
    tosses = identify.load_recordings(folder / "tosses.npz", ctrl=None)
    order = np.random.default_rng(seed).permutation(len(tosses))
    tosses = [tosses[k] for k in order]
    half = len(tosses) // 2 if held_out else len(tosses)
    return tosses[:half], tosses[half:]


def cube_tosses(
    folder: pathlib.Path, seed: int, held_out: bool
) -> tuple[identify.Result, dict]:
    """Identify friction, contact softness and length scale of a cube."""
    sys, count = eqsim.load_mjcf(CUBE), 90
    fitted, others = _shares(folder, seed, held_out)
    result = identify.fit(
        sys,
        fitted[:count],
        _contact(sys),
        windows=Windows(16 / RATE, start_sd=(2e-3, 0.3), half=2),
        loss=identify.CauchyLoss(2.0, per_window=True),
        smoothing=(1e-3, 0.0),
        solver=identify.Solver(max_steps=12, rounds=1),
        noise={"q": [5e-4] * 3 + [5e-3] * 3},
        progress=told,
    )
    say(result)
    parameters = result.dictionary()["parameters"]
    extra = {"before_polish": parameters, "fitted_tosses": len(fitted)}
    best = polish(
        result,
        fitted[: 3 * count],
        WHOLE,
        steps=[_STEPS.get(name, 0.2) for name in result.names],
        evaluations=70,
        score=_score,
        progress=lambda x, value, count: say(f"polish {count:3d} {value:.4f} {x}"),
    )
    if others:
        extra["held_out"] = errors(result, best.sys, others)
        extra["held_out_before_polish"] = errors(result, result.sys, others)
        extra["held_out_given"] = errors(result, sys, others)
    return best, extra


_STEPS = {"friction": 0.1, "scale": 0.008, "softness[0]": 0.5, "softness[1]": 0.5}


def _score(found: dict[str, np.ndarray], mask: np.ndarray) -> float:
    """Return position errors in per cent of the width, and half the rotation error in
    degrees."""
    position, rotation = _metrics(found["q"], mask)
    # Large rotations are chaotic, and therefore not useful to choose between
    # parameters.
    return float(position.mean() + 0.5 * np.minimum(rotation, 45.0).mean())


def _metrics(error: np.ndarray, mask: np.ndarray):
    error = np.nan_to_num(error, nan=1e3)
    mean = lambda x: (x * mask).sum(axis=1) / mask.sum(axis=1)
    position = 100 * mean(np.linalg.norm(error[..., :3], axis=2)) / WIDTH
    return position, np.rad2deg(mean(np.linalg.norm(error[..., 3:6], axis=2)))


def errors(result: identify.Result, sys: eqsim.System, tosses) -> dict[str, float]:
    """Return errors of whole tosses: mean over tosses, in per cent of the width and
    degrees."""
    found, mask = result.prediction_errors(tosses, WHOLE, sys)
    position, rotation = _metrics(found["q"], mask)
    return {"position": float(position.mean()), "rotation": float(rotation.mean())}


# The time of one Jacobian.


def compare(folder: pathlib.Path, repeats: int = 5) -> dict:
    """Return CPU and wall seconds of one Jacobian of windows of 1 s of C.1.

    Both have the same windows, times, and twelve parameters; eqsim also differentiates
    with respect to the four initial values of each window.
    """
    runs = identify.load_recordings(
        folder / "identification_C1.npz", ctrl="tau_command", channels={"q": "q"}
    )
    result = identify.fit(
        eqsim.load_mjcf(DOUBLE),
        runs,
        unknowns_of_double(signals=False),
        windows=Windows(1.0),
        solver=identify.Solver(max_steps=1, rounds=1),
    )
    theta, starts = jnp.asarray(result.theta), jnp.asarray(result.starts)
    ours = _best(
        lambda: jax.block_until_ready(evaluate(result.problem, theta, starts)), repeats
    )
    peer = _best(_differences(result), repeats)
    out = {"windows": len(starts), "parameters": len(theta)}
    for name, pair in {"eqsim": ours, "finite differences of MuJoCo": peer}.items():
        out[name] = {"cpu_seconds": pair[0], "wall_seconds": pair[1]}
    out["ratio_of_cpu"] = ours[0] / peer[0]
    return out


def _best(call, repeats: int) -> tuple[float, float]:
    call()
    pairs = []
    for _ in range(repeats):
        cpu, wall = time.process_time(), time.perf_counter()
        call()
        pairs.append((time.process_time() - cpu, time.perf_counter() - wall))
    return min(pairs)


def _differences(result: identify.Result):
    """Compute one Jacobian like `mujoco.sysid`: one-sided differences, with a
    compilation of the model and a rollout of all windows for each parameter, on two
    threads. The time of its Python code between these calls is not included, so its
    actual cost is larger."""
    spec = mujoco.MjSpec.from_string(DOUBLE)
    batch = jax.tree.map(np.asarray, result.problem.batch)
    data = [mujoco.MjData(spec.compile()) for _ in range(2)]
    grid = np.arange(result.problem.steps) * 0.002
    zero = np.zeros((len(batch.q), 1))
    initial = np.concatenate([zero, batch.q, batch.qd], axis=1)
    rows = zip(batch.ctrl_time, batch.ctrl, strict=True)
    controls = [[np.interp(grid, t, c) for c in ctrl.T] for t, ctrl in rows]
    ctrl = np.array(controls).transpose(0, 2, 1)
    places = [
        *((joint, field) for joint in (0, 1) for field in _JOINT_FIELDS),
        *((body, field) for body in (1, 2) for field in _BODY_FIELDS),
    ]

    def positions(place=None):
        copy = spec.copy()
        if place is not None:
            _moved(copy, *place)
        states, _ = mujoco.rollout.rollout(copy.compile(), data, initial, ctrl)
        return states[:, :, 1:3].ravel()

    def jacobian():
        first = positions()
        return np.stack([(positions(place) - first) / 1e-6 for place in places])

    return jacobian


_JOINT_FIELDS = ("damping", "frictionloss", "armature")
_BODY_FIELDS = ("mass", "ipos", "inertia")


def _moved(spec: mujoco.MjSpec, index: int, field: str) -> None:
    """Change one parameter by a small amount."""
    part = spec.joints[index] if field in _JOINT_FIELDS else spec.bodies[index]
    value = np.array(getattr(part, field), float)
    if value.ndim:
        value[{"ipos": 2, "inertia": 1}.get(field, 0)] += 1e-6
        setattr(part, field, value)
    else:
        setattr(part, field, float(value) + 1e-6)


# Scores by MuJoCo C.


def score(folder: pathlib.Path, options) -> dict[str, Any]:
    """Score a written MJCF file by MuJoCo C, which reads nothing else."""
    model = mujoco.MjModel.from_xml_path(options.score)
    if "tosses" in options.set:
        return score_tosses(model, np.load(folder / (options.file or "tosses.npz")))
    runs = np.load(folder / (options.file or "identification_C1.npz"))
    return score_pendulum(model, runs, options.torque, options.length)


HALF = 7
"""Steps on either side of a window's start, for its velocity."""


def score_pendulum(model, runs, torque: str, length: float) -> dict:
    """Score windows: rms of each joint, rad, and the median window.

    A window starts at the measured angle, with the velocity of a cubic centered on it.
    """
    dt, squares = model.opt.timestep, []
    for first, last in zip(runs["offsets"], runs["offsets"][1:]):
        at = slice(first, last)
        time, q = runs["time"][at], runs["q"][at].reshape(last - first, -1)
        u = runs[torque][at].reshape(last - first, -1)
        grid = np.arange(time[0], time[-1], dt)
        columns = lambda x: np.stack([np.interp(grid, time, c) for c in x.T], axis=1)
        angles, ctrl, size = columns(q), columns(u), round(length / dt)
        for k in range(HALF, len(grid) - size, size):
            near = np.arange(-HALF, HALF + 1) * dt
            cubic = np.polyfit(near, angles[k - HALF : k + HALF + 1], 3)
            found = _simulated(model, angles[k], cubic[2], ctrl[k : k + size], 1)
            squares.append((found - angles[k : k + size + 1]) ** 2)
    window = [np.sqrt(x.mean()) for x in squares]
    rms = np.sqrt(np.concatenate(squares).mean(axis=0))
    return {
        "windows": len(window),
        "median": float(np.median(window)),
        "rms": rms.tolist(),
    }


def score_tosses(model, runs) -> dict:
    """Score whole tosses from row 0: per cent of the width, and degrees."""
    substeps = round(1 / (float(runs["rate"]) * model.opt.timestep))
    position, rotation = [], []
    for first, last in zip(runs["offsets"], runs["offsets"][1:]):
        q, qd = (runs[name][first:last].astype(float) for name in ("q", "qd"))
        ctrl = np.zeros((last - first - 1, model.nu))
        found = _simulated(model, q[0], qd[0], ctrl, substeps)
        gap = np.linalg.norm(found[:, :3] - q[:, :3], axis=1)
        dot = np.abs((found[:, 3:7] * q[:, 3:7]).sum(axis=1))
        norm = np.linalg.norm(q[:, 3:7], axis=1)
        position.append(100 * gap.mean() / WIDTH)
        rotation.append(np.rad2deg(2 * np.arccos(np.minimum(dot / norm, 1))).mean())
    return {
        "tosses": len(position),
        "position": float(np.mean(position)),
        "rotation": float(np.mean(rotation)),
    }


def _simulated(model, q, qd, ctrl, substeps: int) -> np.ndarray:
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, qd
    out = [data.qpos.copy()]
    for u in ctrl:
        data.ctrl[:] = u
        mujoco.mj_step(model, data, substeps)
        out.append(data.qpos.copy())
    return np.stack(out)


MOTORS = {
    "double_pendulum": (DOUBLE, _identify_motors.double_pendulum),
    "simple_pendulum": (SINGLE, _identify_motors.simple_pendulum),
}
"""Robots with recorded torques, and functions that read their recordings."""
SETS = {
    "double_pendulum": double_pendulum,
    "simple_pendulum": simple_pendulum,
    "cube_tosses": cube_tosses,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    recordings = os.environ.get("EQSIM_RECORDINGS", ".")
    add("set", choices=SETS, nargs="?", default="double_pendulum")
    add("--recordings", type=pathlib.Path, default=recordings, help="their folder")
    add("--out", type=pathlib.Path, default=pathlib.Path("out/identify"))
    add("--seed", type=int, default=0)
    add(
        "--held-out", action="store_true", help="fit half of the runs, score the others"
    )
    add("--objective", choices=("simulation", "violation"), default="simulation")
    add("--peer", action="store_true", help="time one Jacobian instead")
    add("--actuators", action="store_true", help="compare models of motors instead")
    add("--motors", action="store_true", help="compare torques of motors instead")
    add("--seeds", type=int, default=3, help="initial weights of each network")
    add("--score", help="MJCF file to score by MuJoCo C instead")
    add("--file", help="recordings to score, below the folder of the set")
    add("--torque", default="tau_command", help="of the scored recordings")
    add("--length", type=float, default=1.0, help="of scored windows, s")
    return parser.parse_args()


if __name__ == "__main__":
    main()
