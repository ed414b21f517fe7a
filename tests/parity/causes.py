"""Causes of differences from MuJoCo: the remaining error if MuJoCo uses eqsim's contact
points and tendon paths, and the residual of each solution of the constraint problem."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np

import eqsim
from eqsim import dynamics, kinematics

from .contacts import replace_inexact
from .reference import (
    batch_of,
    Errors,
    errors,
    forward,
    Outcome,
    sensor_columns,
    solution,
)
from .states import States


UNEXPLAINED = "Not explained."


_SEEN = "shape that rays of rangefinders pass through"
"""The feature in the notes of a system."""


@dataclasses.dataclass(frozen=True)
class Deviation:
    """A state in which one quantity differs by more than the tolerance.

    - `quantity`: `qdd`, `step`, or the kind of a sensor.
    """

    robot: str
    state: int
    kind: str
    quantity: str
    error: float
    cause: str

    def __str__(self):
        return (
            f"{self.robot}, state {self.state} ({self.kind}), {self.quantity}: error "
            f"{self.error:.1e}. {self.cause}"
        )


def deviations(
    robot: str,
    sys: eqsim.System,
    model: mujoco.MjModel,
    states: States,
    value: Outcome,
    error: Errors,
    tolerance: float,
) -> list[Deviation]:
    """Return all deviations of a robot, with their causes.

    **Arguments:**

    - `value`: results of eqsim.
    - `error`: errors relative to MuJoCo.
    """
    kinds = dict(zip(sys.sensors.names, sys.sensors.kinds))
    named = {"qdd": error.qdd, "step": error.step} | error.sensors
    found = []
    for i in range(len(states)):
        wrong = {name: e[i] for name, e in named.items() if e[i] > tolerance}
        if not wrong:
            continue
        cause = _cause(sys, model, states, i, value, wrong, tolerance)
        for name, size in wrong.items():
            what = kinds[name].value if name in kinds else name
            if what == "rangefinder" and any(_SEEN in note for note in sys.notes):
                cause = "eqsim's rays pass through a shape listed in `System.notes`."
            line = Deviation(robot, i, states.kinds[i], what, float(size), cause)
            found.append(line)
    return found


def _cause(sys, model, states, i, value: Outcome, wrong, tolerance) -> str:
    """Return the cause of a deviation, in one sentence."""
    data = mujoco.MjData(model)
    forward(model, data, states, i)
    theirs = solution(model, data, data.qacc.copy())
    if "qdd" in wrong and theirs.residual > 0.1 * wrong["qdd"]:
        return f"MuJoCo's solver has not converged: residual {theirs.residual:.1e}."
    missing = _missing_inertia(sys, model, data, states.q[i])
    if missing > 0.0:
        return (
            "MuJoCo's inertia matrix lacks the coupling of branches by tendon armature: "
            f"entries up to {missing:.1e}."
        )
    given = at_our_geometry(sys, model, data, states, i)
    lifted = int(model.opt.integrator) in _IMPLICIT and _exceed_bounds(model, data)
    if given or lifted:
        left = _left(sys, model, data, i, value, wrong)
        if left <= tolerance:
            return _sentence(given, lifted, left)
    if "qdd" in wrong and np.all(np.isfinite(value.qdd[i])):
        forward(model, data, states, i)
        ours = solution(model, data, value.qdd[i])
        if ours.residual < 1e-3 * wrong["qdd"]:
            return (
                "Both solutions have small residuals: the problem is ill-conditioned."
            )
    return UNEXPLAINED


def _sentence(given: str, lifted: bool, left: float) -> str:
    parts = [f"finds {given} by iteration"] if given else []
    if lifted:
        parts.append("treats clamped servo torques as unclamped, by rounding")
    where = "with eqsim's" if given and not lifted else "without this"
    return f"MuJoCo {' and '.join(parts)}; {where}, the error is {left:.1e}."


def _missing_inertia(sys: eqsim.System, model, data, q: np.ndarray) -> float:
    """Return the largest entry of the inertia matrix that is zero only in MuJoCo."""
    if not any(sys.tendons.has_armature):
        return 0.0
    theirs = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, theirs)
    ours = np.asarray(_inertia(sys, jnp.asarray(q)))
    return float(np.max(np.abs(ours), where=theirs == 0.0, initial=0.0))


_inertia = eqx.filter_jit(dynamics.crba)


def at_our_geometry(sys, model, data, states: States, i: int) -> str:
    """Replace MuJoCo's iterated contact points and tendon paths by eqsim's, and recompute
    all dependent quantities. Return which of them differed."""
    changed = []
    if _set_tendons(sys, model, data, states, i):
        changed.append("tendon paths through shapes")
    mujoco.mj_makeM(model, data)
    mujoco.mj_factorM(model, data)
    mujoco.mj_collision(model, data)
    changed += replace_inexact(sys, model, data, states, i)
    mujoco.mj_makeConstraint(model, data)
    mujoco.mj_transmission(model, data)
    mujoco.mj_projectConstraint(model, data)
    mujoco.mj_sensorPos(model, data)
    mujoco.mj_fwdVelocity(model, data)
    mujoco.mj_sensorVel(model, data)
    mujoco.mj_fwdActuation(model, data)
    mujoco.mj_fwdAcceleration(model, data)
    mujoco.mj_fwdConstraint(model, data)
    # Sensors would otherwise use accelerations and forces of the first solution.
    mujoco.mj_rnePostConstraint(model, data)
    mujoco.mj_sensorAcc(model, data)
    return " and ".join(changed)


def _set_tendons(sys, model, data, states: States, i: int) -> bool:
    if not sys.ntendon or sys.ntendon != model.ntendon:
        return False
    q = batch_of(sys, states)[0].q[i]
    length, jac = _tendons(sys, q)
    before = data.ten_length.copy(), data.ten_J.copy()
    data.ten_length[:] = length
    for k in range(model.ntendon):
        start, count = _row_of(model, k)
        columns = model.ten_J_colind[start : start + count]
        data.ten_J[start : start + count] = np.asarray(jac)[k, columns]
    # Lengths are minimal, so their error is quadratic in that of the Jacobian.
    after = data.ten_length, data.ten_J
    gaps = [np.max(np.abs(a - b), initial=0.0) for a, b in zip(before, after)]
    return bool(gaps[0] > 1e-13 or gaps[1] > 1e-12)


def _row_of(model, tendon: int) -> tuple[int, int]:
    """Return start and number of entries of a row of the sparse tendon Jacobian."""
    return int(model.ten_J_rowadr[tendon]), int(model.ten_J_rownnz[tendon])


@eqx.filter_jit
def _tendons(sys, q):
    return kinematics.tendon_lengths(sys, q), kinematics.tendon_jacobian(sys, q)


def _exceed_bounds(model, data) -> bool:
    """Increase torques of orientation servos that are below their bound only by
    rounding; return true if there are any.

    MuJoCo scales a torque to its bound. If rounding makes its norm smaller than the
    bound, MuJoCo treats it as unlimited, which damps the step of an implicit
    integrator.
    """
    changed = False
    for k in np.flatnonzero(model.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_SO3)):
        start, most = int(model.actuator_outadr[k]), model.actuator_forcerange[k, 1]
        norm = np.linalg.norm(data.actuator_force[start : start + 3])
        if (
            model.actuator_forcelimited[k]
            and most > 0.0
            and abs(norm / most - 1) < 1e-14
        ):
            data.actuator_force[start : start + 3] *= 1.0 + 1e-14
            changed = True
    return changed


_IMPLICIT = (
    int(mujoco.mjtIntegrator.mjINT_IMPLICIT),
    int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST),
)
_STEPS: dict[Any, Any] = {
    int(mujoco.mjtIntegrator.mjINT_EULER): mujoco.mj_Euler,
    int(mujoco.mjtIntegrator.mjINT_IMPLICIT): mujoco.mj_implicit,
    int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST): mujoco.mj_implicit,
}


def _left(sys, model, data, i: int, value: Outcome, wrong) -> float:
    """Return the largest remaining error of those in `wrong`. Runge-Kutta steps also
    evaluate other states, so they are represented by their accelerations."""
    pairs = [(value.qdd[i], data.qacc.copy())]
    for name in wrong:
        if name in value.sensors:
            sensed = data.sensordata[sensor_columns(model, name)].copy()
            pairs.append((value.sensors[name][i], sensed))
    step = _STEPS.get(int(model.opt.integrator))
    if "step" in wrong and step is not None:
        step(model, data)
        after = np.concatenate([data.qpos, data.qvel, data.act])
        pairs.append((value.step[i], after))
    return max(float(errors(one[None], two[None])[0]) for one, two in pairs)
