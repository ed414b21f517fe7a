"""Explain the motion of tossed cubes by MuJoCo C: starts, contact, inertia and tilt.

    python benchmarks/tosses.py --recordings DIR

Half of the tosses are fitted by the method of Nelder and Mead, the others predicted; two-fold
cross-validation in the first half chooses which parameters are fitted. The recorded
velocities are backward differences, half a sample late, so that starts are also estimated by
a ballistic fit to the first rows of each toss. The source turned each toss about the
vertical; here all are turned to travel along x, where a tilt of the table is the same for
all. Intervals are of a bootstrap over held-out tosses.
"""

import argparse
import json
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import mujoco
import mujoco.rollout
import numpy as np
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation


RATE, SUBSTEPS, WIDTH, GRAVITY = 148.0, 10, 0.1048, 9.6138
"""Rows per second, time steps per row, width of the cube (m), and gravity in the units of the
recordings, which are two per cent too short (m/s^2)."""
FLIGHT, CLEARANCE = 14, 4e-3
"""Rows of a ballistic fit, and the least height of the lowest corner, m."""


class Toss(NamedTuple):
    """Poses (quaternion scalar first), velocities, and the start by a ballistic fit."""

    q: np.ndarray
    qd: np.ndarray
    start: np.ndarray


GIVEN = {
    "friction": 0.18,
    "stiffness": 4000.0,
    "damping": 300.0,
    "scale": 0.98,
    "inertia": 1.0,
    "ground": 0.0,
    "along": 0.0,
    "across": 0.0,
}
"""Parameters as given: stiffness (1/s^2) and damping (1/s) of contacts, factors of lengths and
of inertia, height of the ground (m), and horizontal gravity, m/s^2."""
STEPS = {"friction": 0.08, "stiffness": 0.4, "damping": 0.4, "scale": 0.01}
STEPS |= {"inertia": 0.08, "ground": 1e-3, "along": 0.05, "across": 0.05}
"""First changes: of the logarithm of those that are positive as given, else of the value."""


def model(p: dict[str, float]) -> mujoco.MjModel:
    """Compile the cube on the table."""
    half, inertia = WIDTH / 2.0 * p["scale"], 8.1e-4 * p["scale"] ** 2 * p["inertia"]
    geom = (
        f'friction="{p["friction"]} 0 0" solimp="0.93 0.999 0.001 0.5 2" '
        f'solref="{-p["stiffness"]} {-p["damping"]}"'
    )
    return mujoco.MjModel.from_xml_string(f"""<mujoco>
<option timestep="{1.0 / (RATE * SUBSTEPS)!r}" cone="elliptic" integrator="Euler"
  gravity="{p["along"]} {p["across"]} {-GRAVITY}"/>
<worldbody>
  <geom type="plane" size="5 5 0.1" pos="0 0 {p["ground"]}" {geom}/>
  <body><freejoint/>
    <inertial mass="0.37" pos="0 0 0" diaginertia="{inertia} {inertia} {inertia}"/>
    <geom type="box" size="{half} {half} {half}" {geom}/></body>
</worldbody></mujoco>""")


def turned(q: np.ndarray, qd: np.ndarray) -> Toss:
    """Turn a toss about the vertical to travel along x, and estimate its start."""
    turn = Rotation.from_euler("z", -np.arctan2(qd[0, 1], qd[0, 0]))
    pose = turn * Rotation.from_quat(q[:, 3:], scalar_first=True)
    position, linear = turn.apply(q[:, :3]), turn.apply(qd[:, :3])
    q = np.hstack([position, pose.as_quat(scalar_first=True)])
    qd = np.hstack([linear, qd[:, 3:]])
    reach = 0.98 * WIDTH / 2.0 * np.abs(pose.as_matrix()[:, 2]).sum(1)
    low = np.flatnonzero(position[:, 2] - reach < CLEARANCE)
    count = min(FLIGHT, low[0] if len(low) else len(q))
    if count < 4:
        late = 0.5 * GRAVITY / RATE * np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
        return Toss(q, qd, np.concatenate([q[0], qd[0] - late]))
    time = np.arange(count) / RATE
    fall = 0.5 * GRAVITY * time**2
    straight = position[:count] + fall[:, None] * np.array([0.0, 0.0, 1.0])
    rotation = (pose[0].inv() * pose[:count]).as_rotvec()
    slopes, first = np.polyfit(time, np.hstack([straight, rotation]), 1)
    quat = (pose[0] * Rotation.from_rotvec(first[3:])).as_quat(scalar_first=True)
    return Toss(q, qd, np.concatenate([first[:3], quat, slopes]))


def errors(
    p: dict[str, float], tosses: Sequence[Toss], recorded: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean position error (% of the width) and rotation error (degrees) of each toss.

    **Arguments:**

    - `recorded`: true to start from the recorded velocities.
    """
    cube = model(p)
    data, lengths = mujoco.MjData(cube), np.array([len(t.q) for t in tosses])
    position, rotation = np.zeros(len(tosses)), np.zeros(len(tosses))
    for group in np.array_split(np.argsort(lengths), 6):
        initial = np.zeros((len(group), 14))
        for row, k in enumerate(group):
            toss = tosses[k]
            first = np.concatenate([toss.q[0], toss.qd[0]])
            initial[row, 1:] = first if recorded else toss.start
        steps = (lengths[group].max() - 1) * SUBSTEPS
        out = mujoco.rollout.rollout(cube, [data], initial, nstep=steps)
        states = np.asarray(out[0])
        for row, k in enumerate(group):
            later = states[row, SUBSTEPS - 1 :: SUBSTEPS, 1:8]
            found = np.concatenate([initial[row : row + 1, 1:8], later])[: lengths[k]]
            q = tosses[k].q
            gap = np.linalg.norm(found[:, :3] - q[:, :3], axis=1)
            dot = np.abs((found[:, 3:] * q[:, 3:]).sum(1))
            dot /= np.linalg.norm(found[:, 3:], axis=1)
            angle = np.rad2deg(2.0 * np.arccos(np.minimum(dot, 1.0)))
            position[k], rotation[k] = 100.0 * gap.mean() / WIDTH, angle.mean()
    return position, rotation


def cost(p: dict[str, float], tosses: Sequence[Toss]) -> float:
    """Return the mean position error and half of the rotation error, at most 45 degrees:
    larger ones are chaotic."""
    position, rotation = errors(p, tosses)
    return position.mean() + 0.5 * np.minimum(rotation, 45.0).mean()


def searched(
    tosses: Sequence[Toss], names: Sequence[str], evaluations: int
) -> dict[str, float]:
    """Minimize the cost by some of the parameters; the others are as given."""
    positive = [k for k in names if GIVEN[k] > 0.0]

    def decode(x):
        pairs = zip(names, x, strict=True)
        return GIVEN | {k: float(np.exp(v) if k in positive else v) for k, v in pairs}

    start = np.array([np.log(GIVEN[k]) if k in positive else GIVEN[k] for k in names])
    moves = np.diag([STEPS[k] for k in names])
    simplex = start + np.vstack([np.zeros(len(names)), moves])
    options = {"initial_simplex": simplex, "maxfev": evaluations}
    function = lambda x: cost(decode(x), tosses)
    return decode(minimize(function, start, method="Nelder-Mead", options=options).x)


CHOICES = {
    "tilt": ("along", "across"),
    "tilt, friction, damping": ("along", "across", "friction", "damping"),
}
"""Sets of parameters, between which cross-validation chooses."""


def told(p: dict[str, float], tosses: Sequence[Toss], recorded: bool = False) -> dict:
    """Return mean errors, with 95 % intervals of a bootstrap over tosses."""
    rng, out = np.random.default_rng(0), {}
    names = "position", "rotation"
    for name, values in zip(names, errors(p, tosses, recorded), strict=True):
        draws = rng.choice(values, (10_000, len(values))).mean(1)
        interval = np.quantile(draws, (0.025, 0.975)).round(2).tolist()
        out[name] = {"mean": round(float(values.mean()), 2), "95 %": interval}
        out[name]["median"] = round(float(np.median(values)), 2)
    return out


def main() -> None:
    """Fit half of the tosses, and print errors on the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    recordings = os.environ.get("EQSIM_RECORDINGS", ".")
    parser.add_argument("--recordings", type=pathlib.Path, default=recordings)
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the split")
    options = parser.parse_args()
    data = np.load(options.recordings / "cube_tosses" / "tosses.npz")
    rows = zip(data["offsets"], data["offsets"][1:], strict=False)
    parts = [slice(first, last) for first, last in rows]
    tosses = [turned(*(data[k][at].astype(float) for k in ("q", "qd"))) for at in parts]
    order = np.random.default_rng(options.seed).permutation(len(tosses))
    half = len(order) // 2
    fitted, others = ([tosses[k] for k in at] for at in (order[:half], order[half:]))
    size, folds = options.evaluations, (fitted[::2], fitted[1::2])
    scores = {"as given": float(cost(GIVEN, fitted))}
    for name, names in CHOICES.items():
        pairs = (folds, folds[::-1])
        values = [cost(searched(one, names, size), two) for one, two in pairs]
        scores[name] = float(np.mean(values))
    best = min(scores, key=lambda k: scores[k])
    found = searched(fitted, CHOICES[best], size) if best in CHOICES else GIVEN
    table = {
        "cross-validated cost": scores,
        "parameters": found,
        "as given, recorded starts": told(GIVEN, others, True),
        "as given, ballistic starts": told(GIVEN, others),
        "fitted, ballistic starts": told(found, others),
        "fitted, recorded starts": told(found, others, True),
        "fitted tosses": told(found, fitted),
    }
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
