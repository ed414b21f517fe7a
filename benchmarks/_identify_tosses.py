"""Tossed bodies: friction, softness and size from motion capture."""

import pathlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from _identify_polish import polish

import eqsim
from eqsim import identify
from eqsim.identify import Recording, Windows


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
ELBOW = f"""<mujoco model="elbow">{_HEAD}<worldbody>
  <geom name="table" type="plane" size="5 5 0.1" {_GEOM}/>
  <body name="first"><freejoint/>
    <inertial mass="0.37" pos="0 0 0" diaginertia="6.167e-4 6.167e-4 6.167e-4"/>
    <geom name="first" type="box" size="0.05 0.025 0.025" {_GEOM}/>
    <body name="second" pos="-0.035 0.06 0">
      <joint name="elbow" axis="0 1 0" frictionloss="0.01" damping="0.001"/>
      <inertial mass="0.37" pos="0.035 0 0" diaginertia="6.167e-4 6.167e-4 6.167e-4"/>
      <geom name="second" type="box" pos="0.035 0 0" size="0.05 0.025 0.025" {_GEOM}/>
    </body>
  </body></worldbody>
  <contact><exclude body1="first" body2="second"/></contact></mujoco>"""


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


def _load(folder: pathlib.Path) -> list[Recording]:
    found = identify.load_recordings(folder / "tosses.npz", ctrl=None)
    for recording in found:
        q = recording.channels["q"]
        q[:, 7:] = np.unwrap(q[:, 7:], axis=0)
    return found


def _start(recording: Recording, row: int):
    """Return the recorded state, from which whole tosses are predicted."""
    return recording.channels["q"][row], recording.channels["qd"][row]


WHOLE = Windows(10.0, start=_start)
"""Whole tosses, which are shorter."""


def cube_violation(
    folder: pathlib.Path, seed: int, held_out: bool, say: Callable
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
        progress=lambda values, cost, step: say(f"{step:3d} {cost:12.6g} {values}"),
    )
    extra: dict[str, Any] = {"fitted_tosses": len(fitted)}
    if others:
        extra["held_out"] = errors(result, result.sys, others)
        extra["held_out_given"] = errors(result, sys, others)
    return result, extra


def _shares(folder: pathlib.Path, seed: int, held_out: bool):
    """Return the tosses that are fitted, and those that are held out, in random order."""
    tosses = _load(folder)
    order = np.random.default_rng(seed).permutation(len(tosses))
    tosses = [tosses[k] for k in order]
    half = len(tosses) // 2 if held_out else len(tosses)
    return tosses[:half], tosses[half:]


def cube_tosses(
    folder: pathlib.Path, seed: int, held_out: bool, say: Callable
) -> tuple[identify.Result, dict]:
    """Identify friction, contact softness and length scale of a cube."""
    sys = eqsim.load_mjcf(CUBE)
    return _tosses(sys, _contact(sys), folder, seed, held_out, say)


def elbow_tosses(
    folder: pathlib.Path, seed: int, held_out: bool, say: Callable
) -> tuple[identify.Result, dict]:
    """Identify friction of the hinge and mass ratio of two links, in addition to
    contact."""
    sys = eqsim.load_mjcf(ELBOW)
    # Resting corners are on the table within 0.1 mm, so lengths are correct here.
    unknowns = {k: v for k, v in _contact(sys).items() if k != "scale"} | {
        "hinge_friction": identify.Positive(
            lambda s: s.joints.frictionloss, entries=(6,)
        ),
        "hinge_damping": identify.Positive(
            lambda s: s.joints.damping,
            entries=(6,),
            prior=identify.LogNormalPrior(None, 1.0),
        ),
        "mass_ratio": identify.Tied(
            lambda s: (s.links.mass, s.links.inertia),
            entries=(1,),
            prior=identify.LogNormalPrior(jnp.ones(()), 0.3),
        ),
    }
    return _tosses(sys, unknowns, folder, seed, held_out, say, count=24, steps=4)


def _tosses(sys, unknowns, folder, seed, held_out, say, count=90, steps=12):
    fitted, others = _shares(folder, seed, held_out)
    nq = sys.nv - 6
    noise = {"q": [5e-4] * 3 + [5e-3] * (3 + nq)}
    told = lambda values, cost, step: say(f"{step:3d} {cost:12.6g} {values}")
    shared = dict(noise=noise, progress=told)
    result = identify.fit(
        sys,
        fitted[:count],
        unknowns,
        windows=Windows(16 / RATE, start_sd=(2e-3, 0.3), half=2),
        loss=identify.CauchyLoss(2.0, per_window=True),
        smoothing=(1e-3, 0.0),
        solver=identify.Solver(max_steps=steps, rounds=1),
        **shared,
    )
    say(result)
    extra = {
        "before_polish": result.dictionary()["parameters"],
        "fitted_tosses": len(fitted),
    }
    told = lambda x, value, count: say(f"polish {count:3d} {value:.4f} {x}")
    sizes = [_STEPS.get(name, 0.2) for name in result.names]
    best = polish(
        result,
        fitted[: 3 * count],
        WHOLE,
        _score,
        steps=np.array(sizes),
        evaluations=70,
        progress=told,
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
    out = {"position": float(position.mean()), "rotation": float(rotation.mean())}
    if found["q"].shape[2] > 6:
        hinge = (np.abs(found["q"][..., 6]) * mask).sum(axis=1) / mask.sum(axis=1)
        out["hinge"] = float(np.rad2deg(hinge.mean()))
    return out
