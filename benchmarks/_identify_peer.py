"""The cost of one Jacobian, beside mujoco.sysid."""

import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from _identify_pendulums import DOUBLE, unknowns_of_double

import eqsim
from eqsim import identify
from eqsim.identify import Windows
from eqsim.identify._evaluate import evaluate


def compare(folder: pathlib.Path, repeats: int = 5) -> dict:
    """Return CPU and wall seconds of one Jacobian of windows of 1 s of C.1.

    Both have the same windows, times, and twelve parameters; eqsim also differentiates by
    the four numbers of each start.
    """
    runs = identify.load(
        folder / "identification_C1.npz", ctrl="tau_command", channels={"q": "q"}
    )
    result = identify.fit(
        eqsim.load_mjcf(DOUBLE),
        runs,
        unknowns_of_double(signals=False),
        windows=Windows(1.0),
        solver=identify.Solver(max_steps=1),
        rounds=1,
    )
    theta, starts = jnp.asarray(result.theta), jnp.asarray(result.starts)
    ours = _best(
        lambda: jax.block_until_ready(evaluate(result.problem, theta, starts)), repeats
    )
    peer = _best(_sysid(result), repeats)
    out = {"windows": len(starts), "parameters": len(theta)}
    for name, pair in {"eqsim": ours, "mujoco.sysid": peer}.items():
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


def _sysid(result: identify.Result):
    """One Jacobian by one-sided differences of `mujoco.sysid` residuals."""
    import mujoco
    from mujoco.sysid._src import parameter as sysid

    spec = mujoco.MjSpec.from_string(DOUBLE)
    batch = result.problem.batch
    states, steps = [], result.problem.steps
    for k in range(batch.q.shape[0]):
        states.append((np.asarray(batch.q[k]), np.asarray(batch.qd[k])))
    parameters = sysid.ParameterDict()
    bodies, joints = [b.name for b in spec.bodies[1:]], [j.name for j in spec.joints]
    for name in joints:
        for field in ("damping", "frictionloss", "armature"):
            change = _joint(name, field)
            value = float(np.ravel(getattr(spec.joint(name), field))[0])
            parameters.add(
                sysid.Parameter(f"{name}_{field}", value, 1e-6, 1.0, modifier=change)
            )
    for name in bodies:
        body = spec.body(name)
        for field, at in (("mass", None), ("ipos", 2), ("inertia", 1)):
            value = getattr(body, field)
            value = float(value if at is None else value[at])
            add = sysid.Parameter(
                f"{name}_{field}", value, -2.0, 2.0, modifier=_body(name, field, at)
            )
            parameters.add(add)
    sequences = []
    grid = np.arange(steps + 1) * 0.002
    for k, (q, qd) in enumerate(states):
        ctrl = np.stack(
            [
                np.interp(grid, np.asarray(batch.ctrl_time[k]), np.asarray(c))
                for c in np.asarray(batch.ctrl[k]).T
            ],
            axis=1,
        )
        sequences.append((q, qd, ctrl))
    model = spec.compile()
    data = [mujoco.MjData(model) for _ in range(2)]

    def residual(vector: np.ndarray) -> np.ndarray:
        # What `mujoco.sysid` does for each column: compile, then roll out all windows.
        parameters.update_from_vector(vector)
        copy = spec.copy()
        for parameter in parameters.values():
            parameter.modifier(copy, parameter)
        changed = copy.compile()
        initial = np.stack([np.concatenate([[0.0], q, qd]) for q, qd, _ in sequences])
        controls = np.stack([ctrl[:-1] for _, _, ctrl in sequences])
        from mujoco import rollout

        states, _ = rollout.rollout(changed, data, initial, controls)
        return states[:, :, 1:3].ravel()

    start = parameters.as_vector()

    def jacobian():
        first = residual(start)
        columns = []
        for k in range(len(start)):
            moved = start.copy()
            moved[k] += 1e-6
            columns.append((residual(moved) - first) / 1e-6)
        return np.stack(columns)

    return jacobian


def _joint(name: str, field: str):
    def modify(spec, parameter):
        old = np.ravel(getattr(spec.joint(name), field))
        value = parameter.value[0] if np.ndim(parameter.value) else parameter.value
        setattr(spec.joint(name), field, [value, *old[1:]] if len(old) > 1 else value)

    return modify


def _body(name: str, field: str, at: int | None):
    def modify(spec, parameter):
        value = parameter.value[0] if np.ndim(parameter.value) else parameter.value
        body = spec.body(name)
        if at is None:
            setattr(body, field, value)
        else:
            new = np.array(getattr(body, field))
            new[at] = value
            setattr(body, field, new)

    return modify
