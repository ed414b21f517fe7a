"""Cost of one Jacobian, compared with finite differences as in mujoco.sysid."""

import pathlib
import time

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _identify_pendulums import DOUBLE, unknowns_of_double
from mujoco import rollout

import eqsim
from eqsim import identify
from eqsim.identify import Windows
from eqsim.identify._fit_problem import evaluate


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
        states, _ = rollout.rollout(copy.compile(), data, initial, ctrl)
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
