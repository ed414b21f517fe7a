"""Child processes of `menagerie.py`: their tasks, initial states, MuJoCo C and mjbatch.

Needs only NumPy and MuJoCo, so that the interpreter of another environment can run it.
"""

import importlib
import json
import math
import os
import subprocess
import sys as _sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, NamedTuple

import mujoco
import mujoco.rollout
import numpy as np


STEPS = 20
"""Number of physics steps of a call. Controls are constant for as long."""
SETTLE = 200
"""Number of steps from the first keyframe to the initial states."""
SCALE = 0.1
"""Size of the random controls, in units of half their range."""
DISTINCT = 1024
"""Number of different states; a larger batch repeats them, with other controls."""
SAMPLE = 0.2
"""Least duration of a timing, s; shorter calls are repeated."""


class Task(NamedTuple):
    """Task of one process.

    **Arguments:**

    - `file`: path of the MJCF file.
    - `states`: path of the initial states, see `write_states`.
    - `batch`: number of robots.
    - `repeats`: number of timings.
    """

    file: str
    states: str
    batch: int
    repeats: int = 1


class Start(NamedTuple):
    """Initial states and controls of a batch.

    `last` contains the coordinates after `STEPS` steps of MuJoCo C, at most `DISTINCT`.
    """

    q: np.ndarray
    qd: np.ndarray
    act: np.ndarray
    ctrl: np.ndarray
    last: np.ndarray


class Failed(Exception):
    """A child process failed or exceeded its time limit."""


def child(
    command: list[str],
    what: str,
    task: Task,
    environment: Mapping[str, str],
    limit: float,
) -> dict[str, Any]:
    """Run a measurement in a child process.

    **Arguments:**

    - `command`: interpreter and a script that calls `serve`.
    - `what`: name of the measurement.
    - `environment`: additional environment variables.
    - `limit`: time limit, s.

    **Raises:** `Failed`.
    """
    try:
        done = subprocess.run(
            [*command, "--child", what, json.dumps(task._asdict())],
            capture_output=True,
            text=True,
            timeout=limit,
            env=os.environ | environment,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not finished in {limit:g} s") from None
    if done.returncode:
        raise Failed(f"exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def serve(measurements: Mapping[str, Callable[[Task], dict[str, Any]]]) -> bool:
    """Run the measurement that the command line asks for, and print its results as JSON.

    **Returns:** true if the command line is `--child NAME TASK`.
    """
    if _sys.argv[1:2] != ["--child"]:
        return False
    name, text = _sys.argv[2:]
    print(json.dumps(measurements[name](Task(**json.loads(text)))))
    return True


def write_states(task: Task) -> dict[str, Any]:
    """Draw and write the states of a batch; return facts about the robot."""
    model = mujoco.MjModel.from_xml_path(task.file)
    start = draw(model, task.batch)
    np.savez(task.states, **start._asdict())
    return {"nv": model.nv, "contacts": mean_contacts(model, start)}


def draw(model: mujoco.MjModel, batch: int) -> Start:
    """Draw states after `SETTLE` steps of MuJoCo C under small random controls.

    The simulation starts at the first keyframe, or at the reference pose if the file has
    no keyframe. Controls are uniform around those of the keyframe (or around 0), within
    their range, and change every `STEPS` steps.
    """
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    limited = model.actuator_ctrllimited[:, None].astype(bool)
    low, high = np.where(limited, model.actuator_ctrlrange, [-np.inf, np.inf]).T
    half = np.where(np.isfinite(high), 0.5 * (high - low), 1.0)

    def controls(*shape):
        noise = rng.uniform(-1.0, 1.0, (*shape, model.nu))
        return np.clip(data.ctrl + SCALE * half * noise, low, high)

    count = min(batch, DISTINCT)
    first = np.tile(full_physics(data.qpos, data.qvel, data.act), (count, 1))
    drive = np.repeat(controls(count, SETTLE // STEPS), STEPS, axis=1)
    path = _simulate(model, first, drive)
    ends = np.cumsum([1, model.nq, model.nv])
    _, q, qd, act = np.split(path[:, -1], ends, axis=1)
    ctrl = controls(batch)
    path = _simulate(model, path[:, -1], np.repeat(ctrl[:count, None], STEPS, axis=1))
    last = path[:, -1, 1 : 1 + model.nq]
    q, qd, act = (np.resize(x, (batch, x.shape[1])) for x in (q, qd, act))
    return Start(q, qd, act, ctrl, last)


def _simulate(model: mujoco.MjModel, first: np.ndarray, ctrl: np.ndarray) -> np.ndarray:
    workers = [mujoco.MjData(model) for _ in range(cores())]
    return np.asarray(mujoco.rollout.rollout(model, workers, first, ctrl)[0])


def full_physics(q: np.ndarray, qd: np.ndarray, act: np.ndarray) -> np.ndarray:
    """Return states at time 0 in the order of `mjSTATE_FULLPHYSICS`."""
    return np.concatenate([np.zeros((*q.shape[:-1], 1)), q, qd, act], axis=-1)


def mean_contacts(model: mujoco.MjModel, start: Start) -> float:
    """Return the mean number of contacts of MuJoCo in the different states."""
    data, found = mujoco.MjData(model), []
    for state in full_physics(start.q, start.qd, start.act)[:DISTINCT]:
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        mujoco.mj_fwdPosition(model, data)
        found.append(data.ncon)
    return float(np.mean(found))


def read_states(task: Task) -> Start:
    """Read the states of a batch of at most the written size."""
    with np.load(task.states) as file:
        return Start(**{name: file[name][: task.batch] for name in Start._fields})


def mujoco_throughput(task: Task) -> dict[str, Any]:
    """Time `mujoco.rollout` with one thread per core and preallocated output."""
    model, start = mujoco.MjModel.from_xml_path(task.file), read_states(task)
    threads = min(cores(), task.batch)
    workers = [mujoco.MjData(model) for _ in range(threads)]
    begin = full_physics(start.q, start.qd, start.act)
    held = np.repeat(start.ctrl[:, None], STEPS, axis=1)
    out = np.empty((task.batch, STEPS, begin.shape[1]))
    # Without threads, one robot is simulated by the calling thread.
    with mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0) as pool:
        call = lambda: pool.rollout(model, workers, begin, held, state=out)
        taken = best_seconds({"step": call}, task.repeats)["step"]
    q = out[:, -1, 1 : 1 + model.nq]
    return throughput(task, taken) | {"error": difference(q, start)}


def mjbatch_throughput(task: Task) -> dict[str, Any]:
    """Time `mjbatch.Batch.step` with one thread per core; the states are set in each
    call."""
    mjbatch = importlib.import_module("mjbatch")
    model, start = mujoco.MjModel.from_xml_path(task.file), read_states(task)
    batch = mjbatch.Batch(model, task.batch, num_threads=min(cores(), task.batch))
    fields = {"qpos": start.q, "qvel": start.qd, "act": start.act, "ctrl": start.ctrl}
    for name, values in fields.items():
        if values.size:
            batch.bind(name)[:] = values
    state = batch.bind("state")
    first = state.copy()

    def call():
        state[:] = first
        batch.step(nstep=STEPS)

    taken = best_seconds({"step": call}, task.repeats)["step"]
    version = f"{metadata.version('mjbatch')} (with MuJoCo {mujoco.__version__})"
    error = difference(batch.bind("qpos"), start)
    return throughput(task, taken) | {"error": error, "version": version}


def throughput(task: Task, seconds: float) -> dict[str, Any]:
    """Return steps per second of a call of `STEPS` steps."""
    return {"seconds": seconds, "steps_per_second": task.batch * STEPS / seconds}


def difference(q: np.ndarray, start: Start) -> float:
    """Return the median over the robots of the largest difference from the coordinates
    of MuJoCo C after `STEPS` steps."""
    count = min(len(q), len(start.last))
    found = np.abs(np.asarray(q[:count], np.float64) - start.last[:count])
    return float(np.median(np.max(found, axis=1)))


def best_seconds(
    calls: Mapping[str, Callable[[], Any]], repeats: int
) -> dict[str, float]:
    """Time calls alternately; return the best seconds per call of each.

    Each is called twice before: to compile, and to find how many calls take `SAMPLE`
    seconds.
    """
    counts, best = {}, dict.fromkeys(calls, math.inf)
    for name, call in calls.items():
        call()
        counts[name] = math.ceil(SAMPLE / _seconds(call, 1))
    for _ in range(repeats):
        for name, call in calls.items():
            best[name] = min(best[name], _seconds(call, counts[name]))
    return best


def _seconds(call: Callable[[], Any], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def cores() -> int:
    """Return the number of cores that this process may use."""
    if _sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


MEASUREMENTS = {
    "states": write_states,
    "mujoco": mujoco_throughput,
    "mjbatch": mjbatch_throughput,
}


if __name__ == "__main__":
    serve(MEASUREMENTS)
