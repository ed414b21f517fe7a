"""MuJoCo C with a converged solver, and the difference of eqsim from it."""

import dataclasses
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import mujoco
import mujoco.rollout
import numpy as np
from _driven import Driven
from _states import States

import eqsim


TOLERANCE = {"double": 1e-6, "single": 1e-3}
CHAOS = 1e-3
"""Error above which a trajectory counts as a different one."""


def converge(model: mujoco.MjModel) -> mujoco.MjModel:
    """Make MuJoCo solve each step as exactly as possible."""
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.iterations, model.opt.tolerance = 200, 0.0
    model.opt.ls_iterations, model.opt.ls_tolerance = 200, 1e-12
    # Convex shapes are compared by iteration, by default to 1e-6.
    model.opt.ccd_iterations, model.opt.ccd_tolerance = 500, 1e-12
    return model


class Reference(NamedTuple):
    """Results of MuJoCo. `residual`: see `Solution`; `path`: `(count, steps, nq + nv)`,
    NaN after MuJoCo failed."""

    qdd: np.ndarray
    rows: np.ndarray
    contacts: np.ndarray
    residual: np.ndarray
    path: np.ndarray


def reference(model: mujoco.MjModel, states: States, steps: int) -> Reference:
    """Compute accelerations, and trajectories of `steps` steps (may be 0) with constant
    controls.

    **Arguments:**

    - `model`: a model that `converge` returned.
    """
    data, found = mujoco.MjData(model), []
    for i in range(len(states)):
        forward(model, data, states, i)
        qdd = data.qacc.copy()
        residual = solution(model, data, qdd).residual
        found.append((qdd, data.nefc, data.ncon, residual))
    return Reference(*map(np.array, zip(*found)), _path(model, states, steps))


def forward(model, data, states: States, i: int) -> None:
    """Evaluate state `i` with MuJoCo into `data`."""
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = states.q[i], states.qd[i]
    data.act[:], data.ctrl[:] = states.act[i], states.ctrl[i]
    mujoco.mj_forward(model, data)


def _path(model, states, steps):
    size = model.nq + model.nv
    if not steps:
        return np.zeros((len(states), 0, size))
    time = np.zeros((len(states), 1))
    start = np.concatenate([time, states.q, states.qd, states.act], axis=1)
    data = [mujoco.MjData(model) for _ in range(os.cpu_count() or 1)]
    control = np.repeat(states.ctrl[:, None], steps, axis=1)
    path, _ = mujoco.rollout.rollout(model, data, start, control, nstep=steps)
    # MuJoCo resets a robot that diverges, which resets its clock.
    due = model.opt.timestep * np.arange(1, steps + 1)
    valid = np.abs(path[..., 0] - due) < 0.5 * model.opt.timestep
    return np.where(valid[..., None], path[..., 1 : 1 + size], np.nan)


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


def accelerations(
    sys: eqsim.System, states: States, options: dict[str, Any] | None = None
) -> np.ndarray:
    """Compute accelerations with eqsim, in the precision of `sys`.

    **Arguments:**

    - `options`: options of XLA's compiler.
    """
    batch, ctrl = batch_of(sys, states)
    dynamic, static = eqx.partition((sys, batch, ctrl), eqx.is_array)

    def run(dynamic):
        sys, batch, ctrl = eqx.combine(dynamic, static)
        one = lambda state, ctrl: eqsim.Generalized().acceleration(sys, state, ctrl)
        return jax.vmap(one)(batch, ctrl)

    return np.asarray(jax.jit(run, compiler_options=options)(dynamic), np.float64)


def trajectories(sys: eqsim.System, states: States, steps: int) -> np.ndarray:
    """Compute trajectories with eqsim: `(count, steps, nq + nv)`."""
    batch, ctrl = batch_of(sys, states)
    env = Driven(sys, frame_skip=1, ctrl=ctrl)
    shared = jtu.tree_map(lambda _: None, env)
    axes = eqx.tree_at(lambda env: env.ctrl, shared, 0, is_leaf=lambda x: x is None)
    begin = eqx.filter_vmap(lambda env, x: env.begin(x), in_axes=(axes, 0))
    kept, (last, _) = eqsim.rollout(
        env,
        lambda obs, key: obs,
        jr.split(jr.key(0), len(states)),
        steps,
        start=begin(env, batch),
        env_axes=axes,
        collect=lambda state, *_: (state.q, state.qd),
        throw=False,
    )
    before = jnp.concatenate(kept, axis=-1)
    after = jnp.concatenate([last.q, last.qd], axis=-1)
    path = jnp.concatenate([before[:, 1:], after[:, None]], axis=1)
    return np.asarray(path, np.float64)


def batch_of(sys, states):
    dtype = sys.links.mass.dtype
    q, qd, act, ctrl = (jnp.asarray(x, dtype) for x in states[:4])
    return jax.vmap(eqsim.State)(q, qd, act), ctrl


def errors(value: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the largest difference along the last axis, relative to `max(1,
    max|target|)`.

    Infinite where `value` is not finite, NaN where `target` is not.
    """
    value = np.where(np.isfinite(value), value, np.inf)
    scale = np.maximum(1.0, np.max(np.abs(target), axis=-1))
    return np.max(np.abs(value - target), axis=-1) / scale


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


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """A state in which the accelerations differ by more than the tolerance."""

    model: str
    index: int
    kind: str
    error: float
    rows: int
    mujoco: Solution
    eqsim: Solution

    @property
    def cause(self) -> str:
        """The solver whose solution is worse, according to MuJoCo's cost."""
        if self.mujoco.residual > 0.1 * self.error:
            return "MuJoCo is not converged"
        if self.eqsim.residual < 1e-3 * self.error:
            return "both solve the problem: it is ill-conditioned"
        return "eqsim is not converged, or its constraints differ"

    def __str__(self):
        return (
            f"{self.model}, state {self.index} ({self.kind}, {self.rows} rows): error "
            f"{self.error:.1e}. MuJoCo: cost {self.mujoco.cost:.12g}, residual "
            f"{self.mujoco.residual:.1e}; eqsim: cost {self.eqsim.cost:.12g}, residual "
            f"{self.eqsim.residual:.1e}: {self.cause}"
        )


def disagreements(
    name: str,
    model: mujoco.MjModel,
    states: States,
    qdd: np.ndarray,
    error: np.ndarray,
    tolerance: float,
) -> list[Disagreement]:
    """Return the states whose error exceeds the tolerance, worst first, with causes.

    **Arguments:**

    - `qdd`: accelerations of eqsim.
    - `error`: their errors.
    """
    data, found = mujoco.MjData(model), []
    for i in np.argsort(-error):
        if not error[i] > tolerance:
            break
        forward(model, data, states, i)
        rows, theirs = data.nefc, solution(model, data, data.qacc.copy())
        ours = Solution(np.nan, np.nan)
        if np.all(np.isfinite(qdd[i])):
            ours = solution(model, data, qdd[i])
        kind, size = states.kinds[i], float(error[i])
        found.append(Disagreement(name, int(i), kind, size, rows, theirs, ours))
    return found
