"""MuJoCo C with a converged solver, and the difference of eqsim from it.

`converge` prepares a model of MuJoCo. `ours` and `theirs` compute accelerations, one step
and sensors of both simulators in the same states; `compared` and `errors` compare them,
relative to `max(1, largest value of MuJoCo)`. `solution` tells how well accelerations solve
MuJoCo's problem, from which the cause of a difference follows (`causes.py`).
"""

import dataclasses
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import mujoco.rollout
import numpy as np

import eqsim
from eqsim.io.mjcf.mujoco_names import element_names

from .states import States


TOLERANCE = {"double": 1e-6, "single": 1e-3}
CHAOS = 1e-3
"""Error above which a trajectory counts as a different one."""


def converge(model: mujoco.MjModel) -> mujoco.MjModel:
    """Make MuJoCo solve each step as exactly as possible."""
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.iterations, model.opt.tolerance = 200, 0.0
    model.opt.ls_iterations, model.opt.ls_tolerance = 200, 1e-12
    # Convex shapes are compared by iteration, by default to 1e-6.
    if model.opt.noslip_iterations:
        model.opt.noslip_iterations, model.opt.noslip_tolerance = 3000, 0.0
    model.opt.ccd_iterations, model.opt.ccd_tolerance = 500, 1e-12
    return model


def forward(model, data, states: States, i: int) -> None:
    """Evaluate state `i` with MuJoCo into `data`."""
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = states.q[i], states.qd[i]
    data.act[:], data.ctrl[:] = states.act[i], states.ctrl[i]
    mujoco.mj_forward(model, data)


class Solution(NamedTuple):
    r"""Quality of accelerations as a solution of MuJoCo's problem at a state.

    `cost` is the minimized cost; `residual` is $M^{-1}$ times its gradient, relative to
    the largest acceleration (at least one): zero at the solution.
    """

    cost: float
    residual: float


def solution(model, data, qdd: np.ndarray) -> Solution:
    """Evaluate accelerations in the problem that `forward` stored in `data`."""
    cost, inertial = np.zeros((1, 1)), np.zeros(model.nv)
    force = np.zeros(model.nv)
    if data.nefc:
        x = np.zeros(data.nefc)
        mujoco.mj_mulJacVec(model, data, x, qdd)
        x = (x - data.efc_aref)[:, None]
        mujoco.mj_constraintUpdate(model, data, x, cost, 0)
        force = data.qfrc_constraint.copy()
    mujoco.mj_mulM(model, data, inertial, qdd)
    gap = inertial - data.qfrc_smooth
    gauss = 0.5 * gap @ (qdd - data.qacc_smooth)
    error = np.zeros((1, model.nv))
    mujoco.mj_solveM(model, data, error, (gap - force)[None])
    scale = max(1.0, np.max(np.abs(qdd)))
    return Solution(float(cost[0, 0] + gauss), float(np.max(np.abs(error)) / scale))


def batch_of(sys, states):
    dtype = sys.links.mass.dtype
    q, qd, act, ctrl = (jnp.asarray(x, dtype) for x in states[:4])
    return jax.vmap(eqsim.State)(q, qd, act), ctrl


class Outcome(NamedTuple):
    """Results of one simulator in a batch of states.

    - `qdd`: accelerations.
    - `step`: coordinates, velocities and activations after one step; NaN where MuJoCo
        failed.
    - `sensors`: one array per sensor, by name.
    """

    qdd: np.ndarray
    step: np.ndarray
    sensors: dict[str, np.ndarray]


class Rows(NamedTuple):
    """MuJoCo's constraint rows, contacts and residual in each state."""

    rows: np.ndarray
    contacts: np.ndarray
    residual: np.ndarray


def ours(
    sys: eqsim.System, states: States, options: dict[str, Any] | None = None
) -> Outcome:
    """Compute the results of eqsim.

    **Arguments:**

    - `options`: options of XLA's compiler.
    """
    (found,) = ours_of_each([sys], [states], options)
    return found


def ours_of_each(
    systems: list[eqsim.System],
    states: list[States],
    options: dict[str, Any] | None = None,
) -> list[Outcome]:
    """Compute the results of eqsim for robots of one structure, in one program. Each
    robot has its own states, the same number for all."""
    pairs = [batch_of(sys, own) for sys, own in zip(systems, states, strict=True)]
    batch, ctrl = jax.tree.map(lambda *xs: jnp.stack(xs), *pairs)
    one_robot = len(systems) == 1
    sys = systems[0] if one_robot else stacked(systems)
    dynamic, static = eqx.partition((sys, batch, ctrl), eqx.is_array)
    pipeline = eqsim.Generalized()

    def one(sys, state, ctrl):
        after, solved = pipeline.advance(sys, state, ctrl)
        return Outcome(
            solved.qdd,
            jnp.concatenate([after.q, after.qd, after.act]),
            pipeline.sensors(sys, state, ctrl, time=0.0),
        )

    def run(dynamic):
        sys, batch, ctrl = eqx.combine(dynamic, static)
        each = eqx.filter_vmap(one, in_axes=(None, 0, 0))
        every = eqx.filter_vmap(each, in_axes=(None if one_robot else 0, 0, 0))
        return every(sys, batch, ctrl)

    found = jax.jit(run, compiler_options=options)(dynamic)
    found = jax.tree.map(lambda x: np.asarray(x, np.float64), found)
    return [jax.tree.map(lambda x: x[k], found) for k in range(len(systems))]


def stacked(systems: list[eqsim.System]) -> eqsim.System:
    """Stack robots of one structure to a batch."""
    dynamic, static = zip(*(eqx.partition(sys, eqx.is_array) for sys in systems))
    return eqx.combine(jax.tree.map(lambda *xs: jnp.stack(xs), *dynamic), static[0])


RESETS = (
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
)


def theirs(
    sys: eqsim.System, model: mujoco.MjModel, states: States
) -> tuple[Outcome, Rows]:
    """Compute the results of MuJoCo.

    **Arguments:**

    - `sys`: the robot whose sensors are compared; it may have fewer than MuJoCo's
        model.
    - `model`: a model that `converge` returned.
    """
    data, found = mujoco.MjData(model), []
    for i in range(len(states)):
        forward(model, data, states, i)
        qdd, sensed = data.qacc.copy(), data.sensordata.copy()
        residual = solution(model, data, qdd).residual
        rows = data.nefc, data.ncon, residual
        mujoco.mj_step(model, data)
        after = np.concatenate([data.qpos, data.qvel, data.act])
        # MuJoCo resets a robot whose values exceed 1e10.
        reset = any(data.warning[kind].number for kind in RESETS)
        after = np.nan * after if reset else after
        found.append((qdd, after, sensed, *rows))
    qdd, after, sensed, *rows = map(np.array, zip(*found))
    parts = {name: sensed[:, sensor_columns(model, name)] for name in sys.sensors.names}
    return Outcome(qdd, after, parts), Rows(*rows)


def sensor_columns(model: mujoco.MjModel, name: str) -> slice:
    """Return the positions of the values of a sensor in `sensordata`; unnamed sensors
    have the name generated by the loader."""
    index = element_names(model, "sensor").index(name)
    start = int(model.sensor_adr[index])
    return slice(start, start + int(model.sensor_dim[index]))


class Errors(NamedTuple):
    """Relative errors in each state; `sensors` by name."""

    qdd: np.ndarray
    step: np.ndarray
    sensors: dict[str, np.ndarray]


def errors(value: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the largest difference along the last axis, relative to `max(1,
    max|target|)`.

    Infinite where `value` is not finite, NaN where `target` is not.
    """
    value = np.where(np.isfinite(value), value, np.inf)
    scale = np.maximum(1.0, np.max(np.abs(target), axis=-1))
    return np.max(np.abs(value - target), axis=-1) / scale


def compared(value: Outcome, target: Outcome) -> Errors:
    """Compute errors relative to `max(1, largest value)`, separately for each
    sensor."""
    pairs = ((name, value.sensors[name], x) for name, x in target.sensors.items())
    return Errors(
        errors(value.qdd, target.qdd),
        errors(value.step, target.step),
        {name: errors(one, two) for name, one, two in pairs if two.shape[1]},
    )


@dataclasses.dataclass(frozen=True)
class Summary:
    """Errors of many states."""

    max: float
    median: float
    within: float
    count: int

    @staticmethod
    def of(error: np.ndarray, tolerance: float) -> "Summary":
        error = error[~np.isnan(error)]
        if not error.size:
            return Summary(np.nan, np.nan, np.nan, 0)
        within = float(np.mean(error <= tolerance))
        return Summary(
            float(np.max(error)), float(np.median(error)), within, error.size
        )


def steps_until(error: np.ndarray, bound: float = CHAOS) -> np.ndarray:
    """Return, for each trajectory `(count, steps)`, the step at which the error exceeds
    `bound`.

    Infinite if it never does; trajectories in which MuJoCo failed before are left out.
    """
    over = error > bound
    first = np.where(np.any(over, axis=1), np.argmax(over, axis=1) + 1.0, np.inf)
    known = ~np.any(np.isnan(error), axis=1) | np.isfinite(first)
    return first[known]


def trajectories(sys: eqsim.System, states: States, steps: int) -> np.ndarray:
    """Compute trajectories with eqsim, with constant controls: `(count, steps, nq +
    nv)`."""
    batch, ctrl = batch_of(sys, states)
    pipeline = eqsim.Generalized()

    @eqx.filter_jit
    def run(sys, batch, ctrl):
        def one(state, ctrl):
            def step(state, _):
                new = pipeline.step(sys, state, ctrl)
                return new, jnp.concatenate([new.q, new.qd])

            return eqsim.scan(step, state, length=steps)[1]

        return jax.vmap(one)(batch, ctrl)

    return np.asarray(run(sys, batch, ctrl), np.float64)


def mujoco_trajectories(
    model: mujoco.MjModel, states: States, steps: int
) -> np.ndarray:
    """Compute the same with MuJoCo; NaN after MuJoCo failed."""
    size = model.nq + model.nv
    time = np.zeros((len(states), 1))
    start = np.concatenate([time, states.q, states.qd, states.act], axis=1)
    data = [mujoco.MjData(model) for _ in range(os.cpu_count() or 1)]
    control = np.repeat(states.ctrl[:, None], steps, axis=1)
    path, _ = mujoco.rollout.rollout(model, data, start, control, nstep=steps)
    # MuJoCo resets a robot that diverges, which resets its clock.
    due = model.opt.timestep * np.arange(1, steps + 1)
    valid = np.abs(path[..., 0] - due) < 0.5 * model.opt.timestep
    return np.where(valid[..., None], path[..., 1 : 1 + size], np.nan)


def quick_compile() -> dict[str, Any] | None:
    """Return compiler options for programs that run once: fewer optimizations."""
    if jax.default_backend() != "cpu":
        return None
    options: dict[str, Any] = {"xla_backend_optimization_level": 0}
    if jax.__version_info__ < (0, 11):  # refused by jaxlib 0.12
        options["xla_cpu_use_fusion_emitters"] = False
    return options
