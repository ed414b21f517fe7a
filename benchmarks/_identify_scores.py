"""Errors of predictions by MuJoCo C, which reads nothing but a written MJCF file.

python benchmarks/_identify_scores.py pendulum MODEL.xml RUNS.npz --torque tau_command
python benchmarks/_identify_scores.py tosses MODEL.xml TOSSES.npz
"""

import argparse
import json

import mujoco
import numpy as np


WIDTH, HALF = 0.1048, 7


def pendulum(model, runs, torque: str, length: float) -> dict:
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
            found = _simulate(model, angles[k], cubic[2], ctrl[k : k + size], 1)
            squares.append((found - angles[k : k + size + 1]) ** 2)
    window = [np.sqrt(x.mean()) for x in squares]
    rms = np.sqrt(np.concatenate(squares).mean(axis=0))
    return {
        "windows": len(window),
        "median": float(np.median(window)),
        "rms": rms.tolist(),
    }


def tosses(model, runs) -> dict:
    """Score whole tosses from row 0: per cent of the width, and degrees."""
    substeps = round(1 / (float(runs["rate"]) * model.opt.timestep))
    position, rotation = [], []
    for first, last in zip(runs["offsets"], runs["offsets"][1:]):
        q, qd = (runs[name][first:last].astype(float) for name in ("q", "qd"))
        ctrl = np.zeros((last - first - 1, model.nu))
        found = _simulate(model, q[0], qd[0], ctrl, substeps)
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


def _simulate(model, q, qd, ctrl, substeps: int) -> np.ndarray:
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, qd
    out = [data.qpos.copy()]
    for u in ctrl:
        data.ctrl[:] = u
        mujoco.mj_step(model, data, substeps)
        out.append(data.qpos.copy())
    return np.stack(out)


def main() -> None:
    """Print the scores of one model on one file of recordings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=("pendulum", "tosses"))
    parser.add_argument("model")
    parser.add_argument("recordings")
    parser.add_argument("--torque", default="tau_command")
    parser.add_argument("--length", type=float, default=1.0, help="of windows, s")
    options = parser.parse_args()
    model = mujoco.MjModel.from_xml_path(options.model)
    runs = np.load(options.recordings)
    if options.kind == "tosses":
        out = tosses(model, runs)
    else:
        out = pendulum(model, runs, options.torque, options.length)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
