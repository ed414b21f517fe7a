"""The motion of a robot beside MuJoCo C, and why the trajectories part."""

import collections
import dataclasses
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _agreement import quick_compile
from _reference import errors, solution
from _states import controls

import eqsim
from eqsim.io.mjcf._names import element_names


CLOSE = 1e-6
"""Errors below this need no reason."""


@dataclasses.dataclass(frozen=True)
class Motion:
    """How a trajectory under random controls compares with MuJoCo's.

    Errors are those of `(q, qd, act)`, relative to `max(1, largest number)`.

    **Arguments:**

    - `steps`: steps that were compared; fewer than asked for where MuJoCo diverged.
    - `first`, `last`, `largest`: error after the first and the last step, and the largest
        one of all steps.
    - `local`: largest error of single steps that start from MuJoCo's states.
    - `contacts`: most contacts of MuJoCo in one step.
    - `candidates`: contact points of eqsim that could touch.
    - `compile_seconds`, `step_seconds`: of the first call, and of one step.
    - `reason`: why `largest` is above `CLOSE`; empty otherwise.
    """

    steps: int
    first: float
    last: float
    largest: float
    local: float
    contacts: int
    candidates: int
    compile_seconds: float
    step_seconds: float
    reason: str


class _Path(NamedTuple):
    """MuJoCo's trajectory: `states[k]` leads to `states[k + 1]` under `ctrl[k]`."""

    states: np.ndarray
    ctrl: np.ndarray
    contacts: int


def compare_motion(sys: eqsim.System, model: mujoco.MjModel, steps: int) -> Motion:
    """Compare `steps` steps from the keyframe `home`, or the first one, or `qpos0`.

    Controls are drawn from their ranges in each step (from -1 to 1 without a range).
    MuJoCo's solver is run to convergence.
    """
    _converge(model)
    path = _mujoco_path(model, steps)
    advance = jax.jit(_advance, static_argnums=0, compiler_options=quick_compile())
    dynamic, static = eqx.partition(sys, eqx.is_array)

    def step(state: np.ndarray, ctrl: np.ndarray):
        after, solved = advance(static, dynamic, *_parts(model, state), ctrl)
        return np.concatenate(after), solved

    started = time.perf_counter()
    now, solved = step(path.states[0], path.ctrl[0])
    compile_seconds = time.perf_counter() - started
    count = len(path.states) - 1
    now, single, along = path.states[0], [], []
    started = time.perf_counter()
    for k in range(count):
        now = step(now, path.ctrl[k])[0]
        along.append(now)
    step_seconds = (time.perf_counter() - started) / max(count, 1)
    for k in range(count):
        single.append(step(path.states[k], path.ctrl[k])[0])
    parted = errors(np.array(along), path.states[1:])
    local = errors(np.array(single), path.states[1:])
    motion = Motion(
        steps=count,
        first=float(parted[0]) if count else np.nan,
        last=float(parted[-1]) if count else np.nan,
        largest=float(np.max(parted, initial=0.0)),
        local=float(np.max(local, initial=0.0)),
        contacts=path.contacts,
        candidates=len(solved.contacts.geoms),
        compile_seconds=compile_seconds,
        step_seconds=step_seconds,
        reason="",
    )
    if not count:
        return dataclasses.replace(motion, reason="MuJoCo diverges in the first step")
    if motion.largest <= CLOSE:
        return motion
    worst = int(np.argmax(local))
    solved = step(path.states[worst], path.ctrl[worst])[1]
    reason = _reason(sys, model, path, worst, solved, motion)
    return dataclasses.replace(motion, reason=reason)


def _converge(model: mujoco.MjModel) -> None:
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.iterations, model.opt.tolerance = 200, 0.0
    model.opt.ls_iterations, model.opt.ls_tolerance = 200, 1e-12
    model.opt.ccd_iterations, model.opt.ccd_tolerance = 500, 1e-12


_RESETS = (
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
)


def _mujoco_path(model: mujoco.MjModel, steps: int) -> _Path:
    rng = np.random.default_rng(0)
    data = mujoco.MjData(model)
    key = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, "home")
    if model.nkey:
        key = max(key, 0)
        data.qpos[:], data.qvel[:] = model.key_qpos[key], model.key_qvel[key]
        data.act[:] = model.key_act[key]
    mujoco.mj_normalizeQuat(model, data.qpos)
    ctrl = np.array([controls(model, rng, 1.0) for _ in range(steps)])
    states, contacts = [_state(data)], 0
    for k in range(steps):
        data.ctrl[:] = ctrl[k]
        mujoco.mj_step(model, data)
        contacts = max(contacts, data.ncon)
        if any(data.warning[kind].number for kind in _RESETS):
            break
        states.append(_state(data))
    return _Path(np.array(states), ctrl, contacts)


def _state(data: mujoco.MjData) -> np.ndarray:
    return np.concatenate([data.qpos, data.qvel, data.act])


def _parts(model: mujoco.MjModel, state: np.ndarray) -> list[np.ndarray]:
    return np.split(state, [model.nq, model.nq + model.nv])


def _advance(static, dynamic, q, qd, act, ctrl) -> tuple[tuple, Any]:
    sys = eqx.combine(dynamic, static)
    state = eqsim.State(*map(jnp.asarray, (q, qd, act)))
    after, solved = eqsim.Generalized().advance(sys, state, jnp.asarray(ctrl))
    return (after.q, after.qd, after.act), solved


def _reason(sys, model, path: _Path, k: int, solved, motion: Motion) -> str:
    """One sentence about the step that differs most."""
    if motion.local <= CLOSE:
        return (
            f"Each step agrees to {motion.local:.0e} from the same state: the motion is "
            "unstable, and rounding grows."
        )
    data = mujoco.MjData(model)
    parts = _parts(model, path.states[k])
    data.qpos[:], data.qvel[:], data.act[:] = parts
    data.ctrl[:] = path.ctrl[k]
    mujoco.mj_forward(model, data)
    differing = _differing_contacts(sys, model, data, solved.contacts)
    if differing:
        return f"Step {k}: {differing}"
    theirs = solution(model, data, data.qacc.copy()).residual
    ours = solution(model, data, np.asarray(solved.qdd)).residual
    if not np.all(np.isfinite(np.asarray(solved.qdd))):
        return f"Step {k}: accelerations of eqsim are not finite."
    if theirs > 0.1 * motion.local:
        return f"Step {k}: MuJoCo is not converged (residual {theirs:.0e})."
    if ours < 1e-3 * motion.local:
        return f"Step {k}: both solve the constraint problem, which is ill-conditioned."
    converged = "" if bool(solved.converged) else " eqsim is not converged."
    return f"Step {k}: residual of eqsim {ours:.0e}, not explained.{converged}"


def _differing_contacts(sys, model, data, contacts) -> str:
    """The first pair of shapes whose contacts differ by more than 1e-6."""
    theirs, ours = collections.defaultdict(list), collections.defaultdict(list)
    for contact in data.contact:
        pair = tuple(sorted(int(g) for g in contact.geom))
        theirs[pair].append(float(contact.dist))
    kept = _kept(sys, model)
    for (a, b), dist in zip(contacts.geoms, np.asarray(contacts.dist)):
        pair = tuple(sorted((kept[a], kept[b])))
        if dist < _margin(model, *pair):
            ours[pair].append(float(dist))
    for pair in sorted({*theirs, *ours}):
        one, two = sorted(theirs[pair]), sorted(ours[pair])
        kinds = " with ".join(
            mujoco.mjtGeom(model.geom_type[g]).name.removeprefix("mjGEOM_").lower()
            for g in pair
        )
        if len(one) != len(two):
            return f"{kinds}: {len(one)} points in MuJoCo, {len(two)} in eqsim."
        gap = max(abs(x - y) for x, y in zip(one, two))
        if gap > 1e-7:
            return f"{kinds}: depths differ by {gap:.0e} m."
    return ""


def _kept(sys, model) -> list[int]:
    """Indices in MuJoCo of the shapes of a system."""
    names = element_names(model, "geom")
    return [names.index(name) for name in sys.geoms.names]


def _margin(model, one: int, two: int) -> float:
    for k in range(model.npair):
        if {int(model.pair_geom1[k]), int(model.pair_geom2[k])} == {one, two}:
            return float(model.pair_margin[k])
    return float(max(model.geom_margin[one], model.geom_margin[two]))
