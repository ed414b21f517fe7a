"""Two pendulums with geared motors: inertia, friction and torque gain."""

import pathlib
from collections.abc import Callable, Sequence

import numpy as np

import eqsim
from eqsim import identify
from eqsim.identify import LogNormalPrior, NormalPrior, Positive, Recording, Windows


DOUBLE = """<mujoco model="double_pendulum">
<option timestep="0.002" integrator="implicitfast"/>
<worldbody>
  <body name="upper">
    <joint name="shoulder" axis="0 -1 0" damping="0.005" frictionloss="0.25"
      armature="0.002"/>
    <inertial mass="0.52" pos="0 0 -0.2" diaginertia="0.011 0.011 0.011"/>
    <body name="lower" pos="0 0 -0.2">
      <joint name="elbow" axis="0 -1 0" damping="0.005" frictionloss="0.19"
        armature="0.002"/>
      <inertial mass="0.6256" pos="0 0 -0.2557" diaginertia="0.01 0.01 0.01"/>
    </body>
  </body>
</worldbody>
<actuator>
  <motor name="shoulder" joint="shoulder"/><motor name="elbow" joint="elbow"/>
</actuator>
</mujoco>"""
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
    return found


def double_pendulum(
    folder: pathlib.Path, seed: int, held_out: bool, say: Callable
) -> tuple[identify.Result, dict]:
    """Identify the robot C.1 from its excitation by torque."""
    runs = identify.load_recordings(
        folder / "identification_C1.npz", ctrl="tau_command", channels={"q": "q"}
    )
    sys = eqsim.load_mjcf(DOUBLE)
    told = lambda values, cost, step: say(f"{step:3d} {cost:12.6g}")
    fitted, others = identify.split(runs, 0.4, seed) if held_out else (runs, [])
    result = identify.fit(
        sys,
        fitted,
        unknowns_of_double(),
        windows=Windows(1.0),
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
    return result, extra


def simple_pendulum(
    folder: pathlib.Path, seed: int, held_out: bool, say: Callable
) -> tuple[identify.Result, dict]:
    """Identify the inertia of a pendulum from one tracked swing-up, with measured
    torque."""
    runs = identify.load_recordings(
        folder / "runs.npz", ctrl="tau_measured", channels={"q": "q"}
    )
    sys = eqsim.load_mjcf(SINGLE)
    told = lambda values, cost, step: say(f"{step:3d} {cost:12.6g} {values}")
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


def _rms(
    result: identify.Result, sys: eqsim.System, runs: Sequence[Recording], length: float
) -> dict:
    """Return errors of windows from measured initial states: rms by joint, and the
    median window."""
    found, mask = result.prediction_errors(runs, Windows(length), sys)
    square = found["q"] ** 2 * mask[..., None]
    window = np.sqrt(square.sum(axis=1).mean(axis=1) / mask.sum(axis=1))
    rms = np.sqrt(square.sum(axis=(0, 1)) / mask.sum())
    return {"rms": rms.tolist(), "median": float(np.median(window))}
