"""Outcome of one MJCF file: loading, and its motion beside MuJoCo C.

`check_file` loads a file with MuJoCo and eqsim, and `compare_motion` compares a trajectory
under random controls; for a difference, `_reason` names the cause.
"""

import dataclasses
import pathlib
import textwrap
import time
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import eqsim
from eqsim.collision import contact_plan
from eqsim.io import load_mjcf, UnsupportedMJCF
from eqsim.io.mjcf._read_actuators import mujoco_activations

from .contacts import (
    compared,
    found_contacts,
    geom_numbers,
    with_normals_of_vertices,
)
from .reference import converge, errors, quick_compile, RESETS, solution
from .states import controls


CLOSE = 1e-6
"""Largest error that needs no reason."""


@dataclasses.dataclass(frozen=True)
class Motion:
    """Comparison of a trajectory under random controls with MuJoCo's.

    Errors are those of `(q, qd, act)`, relative to `max(1, largest value)`.

    **Arguments:**

    - `steps`: number of compared steps; fewer than requested if MuJoCo diverged.
    - `first`, `last`, `largest`: error after the first and the last step, and largest
        error of all steps.
    - `local`: largest error of single steps that start from MuJoCo's states.
    - `contacts`: largest number of contacts of MuJoCo in one step.
    - `candidates`: number of possible contact points of eqsim.
    - `compile_seconds`, `step_seconds`: time of the first call, and of one later step.
    - `reason`: reason if `largest` is above `CLOSE`; empty otherwise.
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
    MuJoCo's solver runs to convergence.
    """
    converge(model)
    advance = jax.jit(_advance, static_argnums=0, compiler_options=quick_compile())
    dynamic, static = eqx.partition(sys, eqx.is_array)

    places = mujoco_activations(sys.actuators)

    def step(state: np.ndarray, ctrl: np.ndarray, number: int):
        q, qd, known = _parts(model, state)
        # Servos that have started have a mark, for which MuJoCo reads the time.
        act = np.where(np.arange(sys.na) < sys.actuators.na, float(number > 0), 0.0)
        act[places] = known
        after, solved = advance(static, dynamic, q, qd, act, ctrl)
        return np.concatenate([*after[:2], np.asarray(after[2])[places]]), solved

    path = _mujoco_path(model, steps)
    count = len(path.states) - 1
    started = time.perf_counter()
    step(path.states[0], path.ctrl[0], 0)
    compiled = time.perf_counter()
    parted, local = _errors(step, path)
    spent = (time.perf_counter() - compiled) / max(2 * count, 1)
    motion = Motion(
        steps=count,
        first=float(parted[0]) if count else np.nan,
        last=float(parted[-1]) if count else np.nan,
        largest=float(np.max(parted, initial=0.0)),
        local=float(np.max(local, initial=0.0)),
        contacts=path.contacts,
        candidates=contact_plan(sys).size,
        compile_seconds=compiled - started,
        step_seconds=spent,
        reason="",
    )
    if not count:
        return dataclasses.replace(motion, reason="MuJoCo diverges in the first step")
    if motion.largest <= CLOSE:
        return motion
    reason = _reason(sys, model, steps, step)
    return dataclasses.replace(motion, reason=reason)


def _errors(step, path: _Path) -> tuple[np.ndarray, np.ndarray]:
    """Return errors along the trajectory, and of single steps from MuJoCo's states."""
    count = len(path.states) - 1
    now, along, single = path.states[0], [], []
    for k in range(count):
        now = step(now, path.ctrl[k], k)[0]
        along.append(now)
        single.append(step(path.states[k], path.ctrl[k], k)[0])
    if not count:
        return np.zeros(0), np.zeros(0)
    target = path.states[1:]
    return errors(np.array(along), target), errors(np.array(single), target)


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
        if any(data.warning[kind].number for kind in RESETS):
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
    after, solved = eqsim.Generalized(max_contacts=1000).advance(
        sys, state, jnp.asarray(ctrl)
    )
    return (after.q, after.qd, after.act), solved


def _reason(sys, model, steps: int, step) -> str:
    """Return the reason why trajectories differ, in one sentence."""
    rounded = with_normals_of_vertices(model)
    path = _mujoco_path(model, steps)
    parted, single = _errors(step, path)
    left, local = float(np.max(parted)), float(np.max(single))
    if left <= CLOSE:
        return (
            f"Normals of polygons in MuJoCo differ by {rounded:.0e} from those of its "
            f"single-precision vertices; with the latter, the error is {left:.0e}."
        )
    if local <= CLOSE:
        return (
            f"Single steps from the same state agree to {local:.0e}: the motion is "
            "unstable, so rounding errors grow."
        )
    k = int(np.argmax(single))
    solved = step(path.states[k], path.ctrl[k], k)[1]
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.act[:] = _parts(model, path.states[k])
    data.ctrl[:] = path.ctrl[k]
    mujoco.mj_forward(model, data)
    own = found_contacts(solved.contacts, geom_numbers(sys, model))
    found = compared(model, data, own)
    if found.count:
        return f"Step {k}: numbers of contacts differ: {', '.join(found.count)}."
    gap = max(found.distance, found.position)
    if gap > 1e-7:
        return f"Step {k}: contacts differ by {gap:.0e} m: {', '.join(found.kinds)}."
    qdd = np.asarray(solved.qdd)
    if not np.all(np.isfinite(qdd)):
        return f"Step {k}: accelerations of eqsim are not finite."
    if change := _change_by_sweeps(model, data):
        return (
            f"Step {k}: MuJoCo's noslip sweeps have not converged (velocities change by "
            f"{change:.0e} with ten times as many)."
        )
    theirs = solution(model, data, data.qacc.copy()).residual
    ours = solution(model, data, qdd).residual
    if theirs > 0.1 * local:
        return f"Step {k}: MuJoCo's solver has not converged (residual {theirs:.0e})."
    if ours < 1e-3 * local:
        return f"Step {k}: both residuals are small; the problem is ill-conditioned."
    converged = "" if bool(solved.converged) else " eqsim has not converged."
    return f"Step {k}: residual of eqsim {ours:.0e}, not explained.{converged}"


def _change_by_sweeps(model: mujoco.MjModel, data: mujoco.MjData) -> float:
    """Return the change of velocities by ten times as many sweeps of the noslip solver; 0
    if it is off or small."""
    before, count = data.qacc.copy(), model.opt.noslip_iterations
    model.opt.noslip_iterations = 10 * count
    mujoco.mj_forward(model, data)
    change = model.opt.timestep * float(np.max(np.abs(data.qacc - before)))
    model.opt.noslip_iterations = count
    mujoco.mj_forward(model, data)
    return change if change > CLOSE else 0.0


LOADS, REFUSED, NOT_COMPILED = "loads", "refused", "MuJoCo cannot compile"
INTERNAL = "internal error"


@dataclasses.dataclass(frozen=True)
class File:
    """Outcome of a file.

    **Arguments:**

    - `source`, `path`: name of the source, and the path below its folder.
    - `outcome`: `LOADS`, `REFUSED`, `NOT_COMPILED` or `INTERNAL`.
    - `reasons`: refused features, or the message of the error.
    - `details`: elements that use each feature.
    - `ignore`: features to ignore so that a refused file loads, see `load_mjcf`.
    - `mujoco_seconds`: time of MuJoCo's compiler.
    - `seconds`: time that eqsim takes to read the compiled model.
    - `nv`: number of degrees of freedom.
    - `motion`: comparison of trajectories, or the reason why there is none.
    """

    source: str
    path: str
    outcome: str
    reasons: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    mujoco_seconds: float = 0.0
    seconds: float = 0.0
    nv: int = 0
    motion: Motion | str | None = None

    @property
    def key(self) -> str:
        return f"{self.source}/{self.path}"

    @staticmethod
    def read(data: dict[str, Any]) -> "File":
        """Create a file from JSON data."""
        motion = data.get("motion")
        if isinstance(motion, dict):
            motion = Motion(**motion)
        fields: dict[str, Any] = data | {"motion": motion}
        fields |= {name: tuple(data.get(name, ())) for name in _LISTS}
        return File(**fields)


def check_file(source: str, folder: pathlib.Path, name: str, steps: int) -> File:
    """Load one file with MuJoCo and eqsim, and compare a motion of `steps` steps."""
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mujoco.set_mju_user_warning(lambda text: None)
            model = mujoco.MjModel.from_xml_path(str(folder / name))
    except Exception as error:
        return File(source, name, NOT_COMPILED, (_first_line(error),))
    compiled = time.perf_counter()
    spent = {"mujoco_seconds": compiled - started, "nv": int(model.nv)}
    try:
        sys = load_mjcf(model)
    except UnsupportedMJCF as error:
        reasons = tuple(feature.name for feature, _ in error.problems)
        details = tuple("; ".join(elements) for _, elements in error.problems)
        ignore = _ignorable(model, error)
        return File(source, name, REFUSED, reasons, details, ignore, **spent)
    except ValueError as error:
        reason = _first_line(error).removeprefix("The MjModel was read, but ")
        return File(source, name, REFUSED, (reason,), **spent)
    except Exception as error:
        return File(source, name, INTERNAL, (_named(error),), **spent)
    spent["seconds"] = time.perf_counter() - compiled
    if not steps:
        return File(source, name, LOADS, **spent)
    if not model.nv:
        return File(source, name, LOADS, **spent, motion="nothing moves")
    try:
        motion = compare_motion(sys, model, steps)
    except Exception as error:
        motion = f"{INTERNAL}: {_named(error)}"
    return File(source, name, LOADS, **spent, motion=motion)


_LISTS = ("reasons", "details", "ignore")


def _ignorable(model: mujoco.MjModel, error: UnsupportedMJCF) -> tuple[str, ...]:
    """Return the features to ignore so that a file loads; nothing if that is not
    possible."""
    keys = [feature.key for feature, _ in error.problems]
    found = tuple(sorted({key for key in keys if key is not None}))
    if None in keys:
        return ()
    try:
        load_mjcf(model, ignore=found)
    except ValueError:
        return ()
    return found


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return textwrap.shorten((str(error).splitlines() or [""])[0], 100)
