"""Derivatives of a fit: against MuJoCo C (I8), against reverse mode, against differences."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from recorded_arm import record, SMOOTH

import eqsim
from eqsim import identify
from eqsim.estimate.stochastic_model import measurement
from eqsim.identify._fit import prepare
from eqsim.identify._fit_problem import residuals
from eqsim.identify._solver import Arrow, eliminate, iterate_at


UNKNOWNS = {
    "mass": identify.Custom(
        lambda sys, v: dataclasses.replace(
            sys, links=dataclasses.replace(sys.links, mass=v)
        ),
        (0.6, 0.4),
    ),
    "damping": identify.Unbounded(lambda s: s.joints.damping),
    "gear": identify.Unbounded(lambda s: s.actuators.gear, entries=((0, 0), (1, 0))),
}


@pytest.fixture(scope="module")
def problem():
    model = mujoco.MjModel.from_xml_string(SMOOTH)
    recording = record(model, 3, 0.6, 1e-3)
    measure = measurement(identify.JointPositions())
    windows = identify.Windows(0.25, continuity=0.5)
    sys = eqsim.load_mjcf(SMOOTH)
    return prepare(sys, [recording], UNKNOWNS, windows, None, measure).problem


def _in_mujoco(problem, theta, starts):
    """The same residuals, through `mj_step`."""
    model = mujoco.MjModel.from_xml_string(SMOOTH)
    model.body_mass[1:] = theta[:2]
    model.dof_damping[:] = theta[2:4]
    model.actuator_gear[:, 0] = theta[4:]
    mujoco.mj_setConst(model, mujoco.MjData(model))
    batch, out = jax.tree.map(np.asarray, problem.batch), []
    grid = np.arange(problem.steps + 1) * model.opt.timestep
    for k in range(len(batch.q)):
        data = mujoco.MjData(model)
        step = starts[k] * batch.sd[k]
        data.qpos[:], data.qvel[:] = batch.q[k] + step[:2], batch.qd[k] + step[2:]
        path = [data.qpos.copy()]
        for at in grid[:-1]:
            columns = batch.ctrl[k].T
            data.ctrl[:] = [np.interp(at, batch.ctrl_time[k], c) for c in columns]
            mujoco.mj_step(model, data)
            path.append(data.qpos.copy())
        there = [np.interp(batch.time[k], grid, c) for c in np.array(path).T]
        error = batch.measured["q"][k] - np.array(there).T
        out.append(error * batch.mask[k][:, None])
    return np.array(out)


def test_jacobian_is_that_of_mujoco(problem):
    """Forward mode = fourth-order differences of MuJoCo C = reverse mode."""
    size = problem.batch.sd.shape
    theta = np.array(problem.origin)
    f = jax.jit(lambda theta, starts: residuals(problem, theta, starts)["q"])
    point = jnp.asarray(theta), jnp.zeros(size)
    values = _in_mujoco(problem, theta, np.zeros(size))
    np.testing.assert_allclose(f(*point), values, atol=1e-9)
    forward = jax.jit(jax.jacfwd(f, (0, 1)))(*point)
    step = 1e-3
    for k in range(len(theta)):
        parts = []
        for times in (-2, -1, 1, 2):
            moved = theta.copy()
            moved[k] += times * step
            parts.append(_in_mujoco(problem, moved, np.zeros(size)))
        slope = (parts[0] - 8 * parts[1] + 8 * parts[2] - parts[3]) / (12 * step)
        scale = np.abs(slope).max()
        np.testing.assert_allclose(forward[0][..., k], slope, atol=1e-6 * scale)
    weight = jax.random.normal(jax.random.key(0), values.shape)
    reverse = jax.jit(jax.grad(lambda *x: jnp.sum(weight * f(*x)), (0, 1)))(*point)
    for slopes, whole in zip(forward, reverse, strict=True):
        np.testing.assert_allclose(
            jnp.tensordot(weight, slopes, 3), whole, rtol=1e-7, atol=1e-9
        )


@pytest.mark.parametrize("loss", (identify.SquareLoss(), identify.HuberLoss(0.01)))
@pytest.mark.quick_cases("loss0")
def test_gradient_of_the_cost(problem, loss):
    """With jumps between windows, priors of starts, and a robust loss."""
    problem = dataclasses.replace(problem, loss=loss)
    rng = np.random.default_rng(0)
    theta = np.array(problem.origin) * 1.1
    starts = 0.3 * rng.normal(size=problem.batch.sd.shape)
    arrow = iterate_at(problem, theta, starts, 0).arrow
    along, moves = rng.normal(size=len(theta)), rng.normal(size=starts.shape)
    slope = arrow.theta_gradient @ along + (arrow.gradient * moves).sum()
    step = 1e-5
    ends = [
        iterate_at(problem, theta + t * along, starts + t * moves, 0).cost
        for t in (-step, step)
    ]
    assert slope == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5)


def test_elimination_solves_the_whole_system():
    """The arrow's solution is that of the dense matrix."""
    rng = np.random.default_rng(1)
    k, nx, p = 4, 3, 2
    factor = rng.normal(size=(40, p + k * nx))
    rows = np.repeat(np.arange(4), 10)
    for row in range(40):  # Each residual sees one window, or two that follow.
        seen = [rows[row], min(rows[row] + 1, k - 1)]
        for other in set(range(k)) - set(seen):
            factor[row, p + other * nx : p + (other + 1) * nx] = 0
    dense = factor.T @ factor + np.eye(p + k * nx)
    right = rng.normal(size=p + k * nx)
    at = lambda i: slice(p + i * nx, p + (i + 1) * nx)
    below = np.zeros((k, nx, nx))
    for i in range(k - 1):
        below[i] = dense[at(i + 1), at(i)]
    arrow = Arrow(
        dense[:p, :p],
        right[:p],
        np.stack([dense[at(i), :p] for i in range(k)]),
        np.stack([dense[at(i), at(i)] for i in range(k)]),
        below,
        right[p:].reshape(k, nx),
        np.zeros((k, p)),
        np.zeros((k, p, p)),
    )
    found = eliminate(arrow)
    theta = -np.linalg.solve(found.matrix, found.gradient)
    starts = -(found.offset + found.border @ theta)
    whole = -np.linalg.solve(dense, right)
    np.testing.assert_allclose(np.concatenate([theta, starts.ravel()]), whole)


LOSSES = (identify.HuberLoss(), identify.CauchyLoss(), identify.GemanMcClureLoss())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda x: type(x).__name__)
def test_weights_are_slopes(loss):
    squares = jnp.array([0.0, 0.3, 1.7, 5.0, 400.0])
    slopes = jax.vmap(jax.grad(lambda s: loss.value(s)))(squares)
    np.testing.assert_allclose(loss.weight(squares), slopes, rtol=1e-12)
