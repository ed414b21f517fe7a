"""Kalman filters and their smoother: closed forms, rotations, masks, precision."""

import functools as ft
import pathlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from scipy.spatial.transform import Rotation

import eqsim
from eqsim import estimate
from eqsim.estimate import (
    ExtendedKalmanFilter,
    JointPositions,
    JointVelocities,
    MovingHorizon,
    SensorMeasurement,
    StochasticModel,
    UnscentedKalmanFilter,
)
from eqsim.estimate.estimators import check_rows
from eqsim.estimate.stochastic_model import (
    acceleration_factor,
    compress,
    correct,
    independent_rows,
    triangular,
)


FILTERS = (ExtendedKalmanFilter, UnscentedKalmanFilter)
ESTIMATORS = (*FILTERS, MovingHorizon)
PIPELINE = eqsim.Generalized()
SPRINGS = """
<mujoco><option gravity="0 0 0" timestep="0.02" integrator="Euler"/>
  <default><geom size="0.1" contype="0" conaffinity="0"/></default><worldbody>
  <body><joint name="a" type="slide" axis="1 0 0" stiffness="30" damping="0.4"/>
    <geom mass="1"/></body>
  <body pos="0 1 0"><joint name="b" type="slide" axis="1 0 0" stiffness="10"/>
    <geom mass="2"/></body></worldbody>
  <actuator><motor joint="a"/><motor joint="b" gear="2"/></actuator></mujoco>"""
SD = np.array([0.1, 0.2, 0.3, 0.4])
WALK = np.array([0.01, 0.02, 0.0, 0.3])
DISTURBANCE, NOISE = np.array([1.0, 2.0]), np.array([0.05, 0.07])


def springs(**options):
    """Robot, model and first state of two masses on springs."""
    sys = eqsim.load_mjcf(SPRINGS)
    model = StochasticModel(
        PIPELINE, JointPositions(), {"q": NOISE}, DISTURBANCE, WALK, **options
    )
    start = PIPELINE.init(sys, jnp.asarray([0.1, -0.2]), jnp.asarray([0.3, 0.1]))
    return sys, model, start


def data(T):
    rng = np.random.default_rng(0)
    valid = rng.random((T, 2)) > 0.3
    valid[4] = False
    return rng.normal(size=(T, 2)), rng.normal(size=(T, 2)), valid


def matrices(sys, start, substeps=1):
    """A, B and the covariance of the process noise."""
    A, B = eqsim.control.linearize_step(PIPELINE, sys, start, jnp.zeros(2))
    A, B = np.asarray(A), np.asarray(B)
    power = np.linalg.matrix_power
    B = sum(power(A, k) @ B for k in range(substeps))
    dt = 0.02 * substeps
    blocks = np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    Q = np.kron(blocks, np.diag(DISTURBANCE**2)) + dt * np.diag(WALK**2)
    return power(A, substeps), B, Q


def kalman(A, B, Q, x, P, ctrl, y, valid):
    """The textbook's recursion: means, covariances, logarithms of densities, and normalized
    squares of innovations."""
    out = []
    for u, value, known in zip(ctrl, y, valid, strict=True):
        x, P = A @ x + B @ u, A @ P @ A.T + Q
        H, R = np.eye(2, 4)[known], np.diag(NOISE[known] ** 2)
        S, e = H @ P @ H.T + R, value[known] - H @ x
        K = P @ H.T @ np.linalg.inv(S)
        x, P = x + K @ e, P - K @ S @ K.T
        log_det = np.linalg.slogdet(2 * np.pi * S)[1]
        nis = e @ np.linalg.solve(S, e)
        out.append((x, P, -0.5 * (nis + log_det), nis))
    return map(np.array, zip(*out, strict=True))


def flat(state):
    return np.concatenate([state.q, state.qd, state.act], -1)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("substeps", (1, 3))
@pytest.mark.quick_cases("1-ExtendedKalmanFilter", "1-MovingHorizon")
def test_linear_models(kind, substeps):
    """Means, covariances and likelihoods are those of a Kalman filter, with numbers that are
    missing, alone and all together. A NaN that is marked as missing has no influence."""
    sys, model, start = springs(substeps=substeps)
    ctrl, y, valid = data(12)
    A, B, Q = matrices(sys, start, substeps)
    expected = kalman(A, B, Q, flat(start), np.diag(SD**2), ctrl, y, valid)
    options = {"horizon": 4} if kind is MovingHorizon else {}
    estimator = kind(model, **options)
    measured = {"q": jnp.asarray(np.where(valid, y, np.nan))}
    memory = estimator.init(sys, start, SD)
    track = estimator.track(
        sys, memory, jnp.asarray(ctrl), measured, {"q": jnp.asarray(valid)}
    )
    mean, covariance, likelihood, nis = expected
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
    close(flat(track.estimates.state), mean)
    close(track.estimates.covariance, covariance)
    close(track.innovations.log_likelihood, likelihood)
    close(track.estimates.sd, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)))
    close(track.innovations.nis, nis)
    assert track.converged.shape == (12,) and np.all(track.converged)


def batch_solution(A, B, Q, x, P, ctrl, y, valid):
    """All states from all measurements by least squares, and their covariance."""
    T, n = len(ctrl), len(x)
    whiten = lambda covariance: np.linalg.inv(np.linalg.cholesky(covariance))
    rows, right = [np.zeros((n, n * (T + 1)))], [whiten(P) @ x]
    rows[0][:, :n] = whiten(P)
    for t in range(T):
        row = np.zeros((n, n * (T + 1)))
        row[:, n * t : n * (t + 2)] = whiten(Q) @ np.hstack([-A, np.eye(n)])
        rows.append(row)
        right.append(whiten(Q) @ B @ ctrl[t])
        seen = np.zeros((2, n * (T + 1)))
        seen[:, n * (t + 1) : n * (t + 1) + 2] = np.diag(1 / NOISE)
        rows.append(seen[valid[t]])
        right.append((y[t] / NOISE)[valid[t]])
    J, r = np.vstack(rows), np.concatenate(right)
    covariance = np.linalg.inv(J.T @ J)
    blocks = [
        covariance[n * k : n * (k + 1), n * k : n * (k + 1)] for k in range(T + 1)
    ]
    return (covariance @ J.T @ r).reshape(T + 1, n), np.array(blocks)


def test_smoothers_are_least_squares():
    """Both smoothers, and most probable states: one problem of least squares."""
    sys, model, start = springs()
    ctrl, y, valid = data(10)
    system = matrices(sys, start)
    mean, covariance = batch_solution(
        *system, flat(start), np.diag(SD**2), ctrl, y, valid
    )
    data_ = jnp.asarray(ctrl), {"q": jnp.asarray(y)}, {"q": jnp.asarray(valid)}
    first = ExtendedKalmanFilter(model).init(sys, start, SD)
    for kind in FILTERS:
        found = kind(model).smooth(sys, first, *data_)
        np.testing.assert_allclose(flat(found.state), mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-8, atol=1e-11)
    horizon = MovingHorizon(model)
    for start in (first, horizon.init(sys, start, SD)):
        found = horizon.solve(sys, start, *data_)
        assert found.result == eqsim.RESULTS.successful
        np.testing.assert_allclose(flat(found.states), mean, rtol=1e-9, atol=1e-10)


CHAIN = SPRINGS.replace('<geom mass="1"/></body>', '<geom mass="1"/>', 1).replace(
    '<geom mass="2"/></body>', '<geom mass="2"/></body></body>'
)


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.quick_cases("ExtendedKalmanFilter")
def test_smoothers_of_singular_covariances(kind):
    """From a known state, with noise on one of two coupled masses: covariances are singular
    without rows of zeros. Smoothed states are those of the joint Gaussian of all states."""
    sys, T = eqsim.load_mjcf(CHAIN), 6
    start = PIPELINE.init(sys, jnp.asarray([0.1, -0.2]), jnp.asarray([0.3, 0.1]))
    model = StochasticModel(
        PIPELINE, JointPositions(), {"q": NOISE}, np.array([1.0, 0.0])
    )
    ctrl, y, _ = data(T)
    A, B = eqsim.control.linearize_step(PIPELINE, sys, start, jnp.zeros(2))
    A, B, G = np.asarray(A), np.asarray(B), np.asarray(model.process_factor(sys))
    assert min(A[3, 0], A[2, 1]) > 0.1
    # States are `mean + root @ w` with independent `w`.
    mean, root = [flat(start)], [np.zeros((4, 4 * T))]
    for t in range(T):
        mean.append(A @ mean[-1] + B @ ctrl[t])
        row = A @ root[-1]
        row[:, 4 * t : 4 * t + 4] += G
        root.append(row)
    mean, root = np.array(mean), np.array(root)
    H = root[1:, :2].reshape(2 * T, -1)
    S = H @ H.T + np.diag(np.tile(NOISE, T) ** 2)
    K = (root.reshape(-1, 4 * T) @ H.T) @ np.linalg.inv(S)
    expected = mean + (K @ np.ravel(y - mean[1:, :2])).reshape(T + 1, 4)
    left = root.reshape(-1, 4 * T)
    left = (left @ left.T - K @ H @ left.T).reshape(T + 1, 4, T + 1, 4)
    covariance = np.array([left[k, :, k] for k in range(T + 1)])
    first = kind(model).init(sys, start, 0.0)
    found = kind(model).smooth(sys, first, jnp.asarray(ctrl), {"q": jnp.asarray(y)})
    np.testing.assert_allclose(flat(found.state), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-7, atol=1e-10)


def test_moving_horizons_report_failures():
    """One iteration from a poor guess does not reach the tolerance."""
    sys, y = pendulum(), 2.0 * jnp.cos(jnp.arange(4.0))[:, None]
    model = StochasticModel(PIPELINE, JointPositions(), {"q": 0.05}, 3.0)
    horizon = MovingHorizon(model, 3, eqsim.control.ILQR(max_steps=1))
    memory = horizon.init(sys, PIPELINE.init(sys), 1.0)
    track = horizon.track(sys, memory, jnp.zeros((4, 1)), {"q": y})
    assert not np.any(track.converged)


# Factors of covariances.


@pytest.mark.parametrize("rank", (0, 1, 3))
def test_derivatives_of_compressed_factors(rank, getkey):
    """Of the first order for any rank, of the second order for full rank."""
    left, right = jr.normal(getkey(), (3, rank)), jr.normal(getkey(), (rank, 5))
    A = left @ right
    square = jax.jit(lambda A: compress(A) @ compress(A).T)
    np.testing.assert_allclose(square(A), A @ A.T, atol=1e-12)
    check_gradients(square, A, order=2 if rank == 3 else 1)


def test_derivatives_of_triangular_factors(getkey):
    """A row of zeros is no obstacle."""
    A = jr.normal(getkey(), (3, 5))
    factor = np.asarray(jax.jit(triangular)(A))
    np.testing.assert_allclose(factor, np.linalg.cholesky(A @ A.T), atol=1e-12)
    check_gradients(triangular, A, order=2)
    put = lambda rows: jnp.concatenate([rows[:1], 0.0 * rows[:1], rows[1:]])
    check_gradients(lambda rows: triangular(put(rows)), A)


def test_derivatives_at_dependent_rows_are_bounded(getkey):
    """Pivots of dependent rows are rounding errors, by which nothing is divided."""
    A = np.array(jr.normal(getkey(), (3, 5)))
    A[1] = 0.3 * A[0]
    factor, slope = jax.jit(lambda A: (triangular(A), jax.jacfwd(triangular)(A)))(A)
    assert np.abs(factor[1, 1]) < 1e-14 and np.max(np.abs(slope)) < 1e3


@pytest.mark.parametrize("time", (0.0, 0.3))
def test_white_noise_accelerations(time):
    disturbance = jnp.asarray([2.0, 0.0])
    factor = acceleration_factor(disturbance, jnp.asarray(time))
    blocks = np.array([[time**3 / 3, time**2 / 2], [time**2 / 2, time]])
    expected = np.kron(blocks, np.diag(disturbance**2))
    np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-15)
    if time:
        check_gradients(acceleration_factor, disturbance, jnp.asarray(time))
    assert np.all(np.isfinite(jax.jacfwd(acceleration_factor, 1)(disturbance, time)))


def test_corrections():
    """Joseph's form is that of the textbook, also with more deviations than states."""
    rng, noise = np.random.default_rng(0), np.array([0.1, 0.3])
    E, D = rng.normal(size=(3, 7)), rng.normal(size=(2, 7))
    found = jax.jit(correct)(*map(jnp.asarray, (E, D, noise)))
    S = D @ D.T + np.diag(noise**2)
    K = E @ D.T @ np.linalg.inv(S)
    np.testing.assert_allclose(found.root, np.linalg.cholesky(S), rtol=1e-10)
    np.testing.assert_allclose(found.gain, K, rtol=1e-9, atol=1e-12)
    expected = E @ E.T - K @ S @ K.T
    np.testing.assert_allclose(found.factor @ found.factor.T, expected, atol=1e-12)


def test_rows_that_follow_from_others():
    """Rank is found in order, for rows of any size."""
    e = np.eye(4)
    rows = [
        1e-9 * e[0],
        0 * e[0],
        3 * e[0],
        e[2] + e[0],
        1e6 * e[2] - 1e-3 * e[0],
        e[1],
    ]
    for dtype in (np.float32, np.float64):
        turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
        for A in (np.array(rows), np.array(rows) @ turn):
            found = jax.jit(independent_rows)(jnp.asarray(A, dtype))
            assert found.tolist() == [True, False, False, True, False, True]


# Derivatives.


PENDULUM = """
<mujoco><option timestep="0.02"><flag contact="disable"/></option><worldbody>
  <body><joint axis="0 1 0" damping="0.05"/>
    <inertial mass="0.5" pos="0 0 -0.3" diaginertia="0.01 0.01 0.01"/>
    <site name="imu" pos="0 0 -0.3"/></body></worldbody>
  <actuator><general joint="" dyntype="filter" dynprm="0.1" gainprm="0.4"/></actuator>
  <sensor><gyro name="gyro" site="imu"/><accelerometer name="acc" site="imu"/></sensor>
</mujoco>"""


def pendulum():
    text = PENDULUM.replace("joint axis", 'joint name="pivot" axis')
    return eqsim.load_mjcf(text.replace('joint=""', 'joint="pivot"'))


def _course(estimator, sys, start, sd, y):
    ctrl = jnp.ones((len(y), sys.nu), y.dtype)
    track = estimator.track(sys, estimator.init(sys, start, sd), ctrl, {"q": y})
    last = jax.tree.map(lambda x: x[-1], track.estimates)
    return track.log_likelihood, last.covariance, last.state.q, last.state.act


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.quick_cases("ExtendedKalmanFilter")
def test_derivatives(kind):
    """By noise, start and robot; without process noise and from a known state too, where the
    covariance is zero. The unscented filter needs a covariance."""
    sys, y = pendulum(), 0.1 * jnp.cos(jnp.arange(5.0))[:, None]
    start = PIPELINE.init(sys, jnp.asarray([0.4]), jnp.asarray([-0.5]))
    where = lambda s: (s.links.mass, s.joints.damping)

    def fn(noise, disturbance, walk, sd, mass, damping, y):
        robot = eqx.tree_at(where, sys, (mass, damping))
        model = StochasticModel(
            PIPELINE, JointPositions(), {"q": noise}, disturbance, walk
        )
        options = {"horizon": 3} if kind is MovingHorizon else {}
        return _course(kind(model, **options), robot, start, sd, y)

    fn = jax.jit(fn)
    for size in (0.01 if kind is UnscentedKalmanFilter else 0.0, 0.3):
        spread = jnp.full(1, size), jnp.full(3, size), jnp.full(3, size)
        numbers = jnp.full(1, 0.05), *spread, *where(sys), y
        largest = check_gradients(fn, *numbers, eps=1e-5, rtol=1e-4, atol=1e-6)
        assert min(largest[f"[{k}]"] for k in (0, 4, 5, 6)) > 0.0
        assert size == 0.0 or min(largest.values()) > 0.0


@pytest.mark.slow  # Compiles a Hessian.
def test_noise_is_found_by_its_likelihood():
    """The maximum of the likelihood over both noises is where they are true."""
    sys, model, start = springs()
    rng, state, q = np.random.default_rng(1), flat(start), []
    A, _, Q = matrices(sys, start)
    for _ in range(400):
        state = A @ state + rng.multivariate_normal(np.zeros(4), Q)
        q.append(state[:2] + NOISE * rng.normal(size=2))
    y, ctrl = jnp.asarray(np.array(q)), jnp.zeros((400, 2))

    def cost(factors):
        where = lambda m: (m.noise["q"], m.disturbance)
        scaled = jax.tree.map(lambda x, f: x * jnp.exp(f), where(model), tuple(factors))
        filter = ExtendedKalmanFilter(eqx.tree_at(where, model, scaled))
        memory = filter.init(sys, start, SD)
        return -filter.track(sys, memory, ctrl, {"q": y}).log_likelihood

    slope, H = jax.jit(jax.grad(cost)), jax.jit(jax.hessian(cost))
    found = jnp.zeros(2)
    for _ in range(4):
        found = found - jnp.linalg.solve(H(found), slope(found))
    assert jnp.max(jnp.abs(slope(found))) < 1e-3
    sd = jnp.sqrt(jnp.diagonal(jnp.linalg.inv(H(found))))
    assert jnp.all(jnp.abs(found) < 3 * sd) and jnp.all(sd < 0.1)


# Rotations.


BODY = """
<mujoco><option timestep="0.01" gravity="0 0 -2"/><worldbody><body name="box"><freejoint/>
  <inertial mass="1" pos="0 0 0" diaginertia="0.01 0.02 0.03"/></body></worldbody></mujoco>"""


def tumbling(seed, T, noise, disturbance):
    """A body that tumbles with random accelerations, and noisy poses."""
    sys, rng = eqsim.load_mjcf(BODY), np.random.default_rng(seed)
    model = StochasticModel(PIPELINE, JointPositions(), {"q": noise}, disturbance)
    factor = model.process_factor(sys)
    velocity = jnp.asarray([1.0, 0.0, 0.5, 2.0, -3.0, 1.0])
    start = PIPELINE.init(sys, None, velocity)

    def advance(state, draws):
        state = PIPELINE.step(sys, state, jnp.zeros(0))
        state = eqsim.control.retract(sys, state, factor @ draws[:12])
        step = noise * draws[12:]
        return state, (state, eqsim.kinematics.integrate(sys, state.q, step))

    draws = jnp.asarray(rng.normal(size=(T, 18)))
    _, (states, q) = eqx.filter_jit(jax.lax.scan)(advance, start, draws)
    guess = eqsim.control.retract(sys, start, 0.1 * jnp.asarray(rng.normal(size=12)))
    return sys, model, states, q, guess


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.quick_cases("ExtendedKalmanFilter")
def test_filters_of_rotations_are_consistent(kind):
    """Errors have the covariance of the estimate: their normalized squares are chi-square, and
    whitened innovations are independent. The sign of a measured quaternion does not matter."""
    sys, model, states, q, guess = tumbling(0, 300, 0.05, 1.0)
    filter = kind(model)
    ctrl, memory = jnp.zeros((300, 0)), filter.init(sys, guess, 0.1)
    track = filter.track(sys, memory, ctrl, {"q": q})
    away = jax.vmap(lambda a, b: eqsim.control.state_difference(sys, a, b))
    error = away(track.estimates.state, states)[..., None]
    nees = jnp.sum(error * jnp.linalg.solve(track.estimates.covariance, error), (1, 2))
    # Neighbors are correlated; one in ten is nearly independent.
    mean, sd = 12.0, np.sqrt(2 * 12 / 30)
    assert abs(nees[5::10].mean() - mean) < 3 * sd
    nis = track.innovations.nis
    assert abs(nis.mean() - 6.0) < 3 * np.sqrt(2 * 6 / 300)
    white = np.asarray(track.innovations.whitened)
    lag = (white[1:] * white[:-1]).mean(0)
    assert np.abs(lag).max() < 4 / np.sqrt(300)
    flipped = q.at[:, 3:].multiply(jnp.where(jnp.arange(300) % 2 == 0, 1, -1)[:, None])
    other = filter.track(sys, memory, ctrl, {"q": flipped})
    assert tree_allclose(other.estimates, track.estimates, rtol=1e-9, atol=1e-9)


def test_covariances_move_to_the_new_mean():
    """An uncertain direction of rotation stays where it is in the world: the right Jacobian
    of the exponential map."""
    sys = eqsim.load_mjcf(BODY)
    start = PIPELINE.init(sys)
    turn, factor = jnp.asarray([0.7, -0.4, 0.9]), jnp.eye(12)
    step = jnp.zeros(12).at[3:6].set(turn)
    found = estimate.estimators.moved(
        sys, estimate.Estimate(start, factor), step, factor
    )
    x, y, z = np.asarray(turn)
    cross, angle = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]), np.linalg.norm(turn)
    right = np.eye(3) - (1 - np.cos(angle)) / angle**2 * cross
    right += (angle - np.sin(angle)) / angle**3 * cross @ cross
    expected = np.eye(12)
    expected[3:6, 3:6] = right
    np.testing.assert_allclose(found.factor, expected, atol=1e-12)


@pytest.mark.parametrize("kind", (*FILTERS, ft.partial(MovingHorizon, horizon=3)))
@pytest.mark.quick_cases("ExtendedKalmanFilter")
def test_poses_of_links_are_coordinates(kind):
    """Position and orientation of a free body, as two channels, are its coordinates; with an
    orientation that is missing at times."""
    sys, model, _, q, guess = tumbling(1, 8, 0.05, 1.0)
    noise = {"pos": 0.05, "quat": 0.05}
    other = StochasticModel(PIPELINE, estimate.FreeBodyPose("box"), noise, 1.0)
    seen = jnp.asarray([1, 1, 0, 1, 1, 0, 0, 1], bool)
    wide = jnp.concatenate([jnp.ones((8, 3), bool), jnp.tile(seen[:, None], 3)], 1)
    gone = ~seen[:, None] & (jnp.arange(7) >= 3)[None]
    data = (
        (model, {"q": jnp.where(gone, jnp.nan, q)}, {"q": wide}),
        (
            other,
            {"pos": q[:, :3], "quat": q[:, 3:]},
            {"pos": jnp.ones(8, bool), "quat": seen},
        ),
    )
    one, two = (
        kind(m).track(sys, kind(m).init(sys, guess, 0.1), jnp.zeros((8, 0)), *given)
        for m, *given in data
    )
    assert tree_allclose(one.estimates, two.estimates, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(one.log_likelihood, two.log_likelihood, rtol=1e-9)


ARM = """
<mujoco><worldbody><body><joint axis="0 1 0"/><geom size="0.1" mass="1"/>
  <body name="hand"><joint axis="0 0 1"/><geom size="0.1" mass="1"/></body></body>
  </worldbody></mujoco>"""


def test_means_of_orientations_of_an_arm():
    """Coordinates are a vector space, orientations are not: their mean is found by iteration."""
    sys = eqsim.load_mjcf(ARM)
    measure, noise = estimate.FreeBodyPose("hand"), {"pos": 0.1, "quat": 0.1}
    model = StochasticModel(PIPELINE, measure, noise, 1.0)
    filter = UnscentedKalmanFilter(model, iterations=8)
    q, root = np.array([0.3, -0.5]), np.array([[0.5, 0.0], [0.4, 0.2]])
    factor = jnp.zeros((4, 4)).at[:2, :2].set(root)
    guess = estimate.Estimate(PIPELINE.init(sys, jnp.asarray(q)), factor)
    points = q + 2.0 * np.concatenate([root.T, -root.T, np.zeros((4, 2))])
    turns = Rotation.from_euler("YZ", points)
    means = [Rotation.from_euler("YZ", q)]
    for _ in range(200):
        step = (means[-1].inv() * turns).as_rotvec().mean(0)
        means.append(means[-1] * Rotation.from_rotvec(step))
    assert (means[1].inv() * means[-1]).magnitude() > 1e-3  # One is not enough.
    quat = jnp.asarray(means[-1].as_quat(scalar_first=True))
    measured = {"pos": jnp.zeros(3), "quat": quat}
    _, found = eqx.filter_jit(filter.update)(sys, guess, jnp.zeros(0), measured)
    np.testing.assert_allclose(found.error, np.zeros(6), atol=1e-10)


# Robots, sensors, precision.


CUBE = """
<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="5 5 1"/>
  <body pos="0 0 0.05"><freejoint/><geom type="box" size="0.05 0.05 0.05" mass="0.3"/></body>
  </worldbody></mujoco>"""


@pytest.mark.parametrize(
    "pipeline", (eqsim.Generalized(), eqsim.Spring(), eqsim.Positional())
)
@pytest.mark.slow
def test_covariances_in_contact(pipeline):
    """A prediction of the extended filter is the linear model of one step, $A P A' + Q$, for a
    cube that strikes the ground with an edge."""
    sys = eqsim.load_mjcf(CUBE)
    q = jnp.asarray([0.0, 0.0, 0.065, np.cos(0.3), np.sin(0.3), 0.0, 0.0])
    start = pipeline.init(sys, q, jnp.asarray([0.3, 0.0, -0.5, 0.0, 1.0, 2.0]))
    model = StochasticModel(pipeline, JointPositions(), {"q": 0.01}, 2.0)
    filter = ExtendedKalmanFilter(model)
    sd = jnp.linspace(0.01, 0.1, 12)
    ahead = eqx.filter_jit(filter.predict)(
        sys, filter.init(sys, start, sd), jnp.zeros(0)
    )
    A, _ = eqsim.control.linearize_step(pipeline, sys, start, jnp.zeros(0))
    Q = model.process_factor(sys) @ model.process_factor(sys).T
    expected = A @ jnp.diag(sd**2) @ A.T + Q
    np.testing.assert_allclose(ahead.covariance, expected, rtol=1e-9, atol=1e-12)
    assert tree_allclose(ahead.state, pipeline.step(sys, start, jnp.zeros(0)))


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.quick_cases("ExtendedKalmanFilter")
def test_memory_of_actuator_models(kind):
    """The memory of a delay is part of the state. Without noise of its own it is known, and
    neither filter nor smoother changes it."""
    sys, T = pendulum(), 12
    sys = sys.with_actuator_model(sys.actuators.names, eqsim.actuators.Delay(0.05, 3))
    assert sys.na > 2
    model = StochasticModel(PIPELINE, JointPositions(), {"q": 0.01}, 1.0)
    filter, start = kind(model), PIPELINE.init(sys)
    ctrl = jnp.sin(jnp.arange(float(T)))[:, None]
    step = lambda state, u: (PIPELINE.step(sys, state, u),) * 2
    _, states = eqx.filter_jit(jax.lax.scan)(step, start, ctrl)
    sd = jnp.zeros(2 + sys.na).at[:2].set(0.1)
    first, measured = filter.init(sys, start, sd), {"q": states.q + 0.01}
    track = filter.track(sys, first, ctrl, measured)
    np.testing.assert_allclose(track.estimates.state.act, states.act, atol=1e-12)
    assert np.all(np.abs(track.estimates.state.q - states.q)[2:] > 1e-3)
    smooth = filter.smooth(sys, first, ctrl, measured)
    np.testing.assert_allclose(smooth.state.act[1:], states.act, atol=1e-12)
    assert np.all(np.asarray(smooth.sd)[:, 2:] < 1e-12) and np.all(smooth.sd[:, :2] > 0)


def test_sensors_and_activations():
    """Gyro and accelerometer of a pendulum: its angle, velocity and the hidden state of its
    motor are found, with channels that are missing in turn."""
    sys, T = pendulum(), 150
    noise = {"gyro": 0.02, "acc": 0.05}
    measure = SensorMeasurement(("gyro", "acc"))
    walk = jnp.asarray([0.0, 0.0, 0.1])
    filter = ExtendedKalmanFilter(StochasticModel(PIPELINE, measure, noise, 0.1, walk))
    state = PIPELINE.init(sys, jnp.asarray([0.6]))
    state = eqx.tree_at(lambda s: s.act, state, jnp.asarray([0.8]))
    ctrl = jnp.sin(0.1 * jnp.arange(150.0))[:, None]

    def advance(state, u):
        state = PIPELINE.step(sys, state, u)
        return state, (state, measure.predict(sys, state, u))

    _, (states, clean) = eqx.filter_jit(jax.lax.scan)(advance, state, ctrl)
    rng = np.random.default_rng(0)
    add = lambda name, x: x + noise[name] * rng.normal(size=x.shape)
    measured = {name: add(name, x) for name, x in clean.items()}
    even = jnp.arange(T) % 2 == 0
    memory = filter.init(sys, PIPELINE.init(sys), jnp.asarray([0.6, 0.1, 0.8]))
    valid = {"gyro": even, "acc": ~even}
    track = filter.track(sys, memory, ctrl, measured, valid)
    error = np.abs(flat(track.estimates.state) - flat(states))
    assert np.all(error[0] > (0.1, 0.0, 0.3)) and np.all(error[50:].max(0) < 0.2)
    assert np.mean(error[50:] < 3 * track.estimates.sd[50:]) > 0.98


def test_chosen_sensors_of_a_robot_with_a_clock():
    """Other sensors are not evaluated; a name is a tuple of one; a clock is refused."""
    text = PENDULUM.replace("joint axis", 'joint name="pivot" axis')
    text = text.replace('joint=""', 'joint="pivot"')
    plain = eqsim.load_mjcf(text)
    sys = eqsim.load_mjcf(text.replace("</sensor>", '<clock name="t"/></sensor>'))
    state, ctrl = PIPELINE.init(sys, jnp.asarray([0.6])), jnp.ones(1)
    found = SensorMeasurement(("acc", "gyro")).predict(sys, state, ctrl)
    values = PIPELINE.sensors(plain, state, ctrl)
    assert list(found) == ["acc", "gyro"]
    assert tree_allclose(found, {k: values[k] for k in found})
    assert SensorMeasurement("gyro").names == ("gyro",)
    for names in (None, ("gyro", "t")):
        with pytest.raises(ValueError, match=r"'t' is a clock.*\('gyro', 'acc'\)"):
            SensorMeasurement(names).spaces(sys)
    unknown = SensorMeasurement(("gyro", "typo"))
    for method in (unknown.spaces, lambda sys: unknown.predict(sys, state, ctrl)):
        with pytest.raises(ValueError, match=r"no sensor 'typo'. Sensors: \['gyro',"):
            method(sys)


TOUCHING = """<mujoco><option timestep="0.002"/><worldbody>
  <geom type="plane" size="1 1 1"/>
  <body pos="0 0 0.1005"><freejoint/><geom size="0.1" mass="1"/><site name="s"/></body>
  </worldbody><sensor><accelerometer name="acc" site="s"/></sensor></mujoco>"""


def test_sensors_use_the_physics_of_the_model():
    """With a smoothing width, a contact pushes before it touches, also an accelerometer."""
    sys, smooth = eqsim.load_mjcf(TOUCHING), eqsim.Generalized(smoothing=2e-3)
    state, ctrl = PIPELINE.init(sys), jnp.zeros(0)
    own = SensorMeasurement("acc", PIPELINE)
    for measure, expected in ((SensorMeasurement("acc"), smooth), (own, PIPELINE)):
        model = StochasticModel(smooth, (measure,), {"acc": 1.0}, 0.0)
        found = model.predict(sys, state, ctrl)
        assert tree_allclose(found, expected.sensors(sys, state, ctrl))
    both = [x.sensors(sys, state, ctrl)["acc"] for x in (smooth, PIPELINE)]
    assert abs(both[0][2] - both[1][2]) > 0.1


def test_robots_of_a_batch():
    """A batch of robots, models and recordings: each as if alone."""
    sys, model, start = springs()
    ctrl, y, _ = map(jnp.asarray, data(6))
    heavy = eqx.tree_at(lambda s: s.links.mass, sys, 3.0 * sys.links.mass)
    loud = eqx.tree_at(lambda m: m.noise["q"], model, 2.0 * model.noise["q"])

    def course(sys, model, y):
        filter = ExtendedKalmanFilter(model)
        track = filter.track(sys, filter.init(sys, start, SD), ctrl, {"q": y})
        return track.estimates, track.innovations

    stack = lambda *x: jax.tree.map(lambda *x: jnp.stack(x), *x)
    join = lambda a, b: eqx.combine(
        stack(eqx.filter(a, eqx.is_array), eqx.filter(b, eqx.is_array)), a
    )
    batches = join(sys, heavy), join(model, loud), stack(y, 2 * y)
    many = eqx.filter_jit(eqx.filter_vmap(course))(*batches)
    alone = eqx.filter_jit(course)
    for k, case in enumerate(((sys, model, y), (heavy, loud, 2 * y))):
        found = jax.tree.map(lambda x: x[k], many)
        assert tree_allclose(found, alone(*case), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.quick_cases("ExtendedKalmanFilter")
def test_single_precision(kind):
    """Covariances stay positive over 1,000 steps with nearly exact measurements, where the
    subtraction of the textbook loses all digits."""
    sys = jax.tree.map(
        lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, pendulum()
    )
    model = StochasticModel(PIPELINE, JointPositions(), {"q": 1e-5}, 1.0)
    filter = kind(model)
    memory = filter.init(sys, PIPELINE.init(sys), jnp.asarray([1.0, 100.0, 0.0]))
    ctrl, y = jnp.zeros((1000, 1), jnp.float32), jnp.zeros((1000, 1), jnp.float32)
    track = filter.track(sys, memory, ctrl, {"q": y})
    assert track.estimates.factor.dtype == jnp.float32
    covariance = np.asarray(track.estimates.factor, np.float64)[:, :2]
    covariance = covariance @ covariance.swapaxes(1, 2)
    size = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    assert np.all(size > 0)
    correlation = covariance / size[:, :, None] / size[:, None, :]
    assert np.linalg.eigvalsh(correlation).min() > 1e-6
    # The same numbers in double precision.
    filter, sys = kind(model), pendulum()
    memory = filter.init(sys, PIPELINE.init(sys), jnp.asarray([1.0, 100.0, 0.0]))
    exact = filter.track(sys, memory, jnp.zeros((1000, 1)), {"q": jnp.zeros((1000, 1))})
    np.testing.assert_allclose(size[-1], exact.estimates.sd[-1, :2], rtol=1e-3)


DOUBLE = pathlib.Path(__file__).parents[2] / "docs/examples/double_pendulum_c1.xml"


@pytest.mark.parametrize("name", ("double pendulum", "cube"))
@pytest.mark.quick_cases("double pendulum")
def test_moving_horizons_in_single_precision(name):
    """They converge, to the estimates of double precision, although the residuals of the
    measurements have lost four digits."""
    if name == "cube":
        sys, model, _, y, start = tumbling(3, 20, 2e-3, 1.0)
        sd, ctrl = jnp.full(12, 0.1), jnp.zeros((20, 0))
    else:
        sys, T = eqsim.load_mjcf(DOUBLE), 60
        model = StochasticModel(PIPELINE, JointPositions(), {"q": 1e-3}, 3.0)
        ctrl = 0.5 * jnp.sin(jnp.arange(2.0 * T) / 20).reshape(T, 2)
        start = PIPELINE.init(sys, jnp.asarray([1.5, -0.8]))
        step = lambda state, u: (PIPELINE.step(sys, state, u),) * 2
        y = jax.jit(lambda u: jax.lax.scan(step, start, u)[1].q)(ctrl)
        y += 1e-3 * jr.normal(jr.key(0), y.shape)
        sd = jnp.asarray([1e-2, 1e-2, 1.0, 1.0])
    horizon = MovingHorizon(model, 5, eqsim.control.ILQR(max_steps=10))
    single = lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x
    found = []
    for cast in (lambda x: x, single):
        robot, first, spread, u, q = jax.tree.map(cast, (sys, start, sd, ctrl, y))
        memory = horizon.init(robot, first, spread)
        track = horizon.track(robot, memory, u, {"q": q})
        assert track.converged.all()
        found.append(jax.tree.map(np.asarray, track.estimates))
    exact, rounded = found
    assert rounded.state.q.dtype == np.float32
    double = jax.tree.map(lambda x: jnp.asarray(x, float), rounded.state)
    away = jax.vmap(ft.partial(eqsim.control.state_difference, sys))
    assert np.abs(away(exact.state, double) / exact.sd).max() < 0.02
    np.testing.assert_allclose(rounded.sd, exact.sd, rtol=0.02)


def test_one_program():
    """Other numbers, masks and robots do not trace a step again."""
    count = 0

    def measure(sys, state):
        nonlocal count
        count += 1
        return {"q": state.q}

    sys, model, start = springs()
    model = StochasticModel(PIPELINE, measure, {"q": NOISE}, DISTURBANCE)
    filter = ExtendedKalmanFilter(model)
    run = eqx.filter_jit(lambda f, *x: f.track(*x))
    ctrl, y, valid = map(jnp.asarray, data(5))
    found = []
    for scale in (1.0, 2.0):
        robot = eqx.tree_at(lambda s: s.links.mass, sys, scale * sys.links.mass)
        memory = filter.init(robot, start, scale * SD)
        before = count
        known = {"q": valid ^ (scale == 2.0)}
        run(filter, robot, memory, scale * ctrl, {"q": scale * y}, known)
        found.append(count - before)
    # `init` checks shapes; the second course is not traced.
    assert found[0] > 0 and found[1] == 0


def _track(measured=None, valid=None, ctrl=None):
    def call(sys, model, start):
        y = {"q": jnp.zeros((3, 2))} if measured is None else measured
        u = jnp.zeros((3, 2)) if ctrl is None else ctrl
        filter = ExtendedKalmanFilter(model)
        return filter.track(sys, filter.init(sys, start, 0.1), u, y, valid)

    return call


def _replaced(**fields):
    def call(sys, model, start):
        given = {k: v for k, v in vars(model).items()} | fields
        ExtendedKalmanFilter(StochasticModel(**given)).init(sys, start, 0.1)

    return call


def _channels(measure, *names):
    return _replaced(measure=measure, noise={name: 0.1 for name in names})


def _missing(method):
    """A value that is NaN in the second of three rows, and not marked."""

    def call(sys, model, start):
        y = jnp.zeros((3, 2)).at[1, 0].set(jnp.nan)
        kind = MovingHorizon if method == "solve" else ExtendedKalmanFilter
        estimator, valid = (
            kind(model),
            {"q": jnp.asarray([[True] * 2] * 2 + [[False] * 2])},
        )
        memory = estimator.init(sys, start, 0.1)
        ways = {
            "track": estimator.track,
            "smooth": ExtendedKalmanFilter(model).smooth,
            "solve": MovingHorizon(model).solve,
        }
        ways[method](sys, memory, jnp.zeros((3, 2)), {"q": y}, valid)

    return call


def _start(sd, state=None):
    return lambda sys, model, start: ExtendedKalmanFilter(model).init(
        sys, start if state is None else state, sd
    )


REFUSED = {
    r"`measured\['q'\]` must have shape \(axis 0,\)": _track({"q": jnp.zeros((3, 3))}),
    "`measured` must have the channels": _track({"qd": jnp.zeros((3, 2))}),
    "must be a dictionary from channels to values": lambda sys, model, start: (
        check_rows(sys, jnp.zeros((3, 2)), jnp.zeros((3, 2)), None)
    ),
    r"`measured\['q'\]` must have shape \(T, columns\) = \(3, columns\).* is \(3,\)": (
        _track({"q": jnp.zeros(3)})
    ),
    "same number of rows": _track({"q": jnp.zeros((4, 2))}),
    r"`valid\['q'\]` must be a boolean": _track(valid={"q": jnp.zeros((3, 3), bool)}),
    "got float64": _track(valid=jnp.ones(3)),
    r"`ctrl` must have shape \(T, nu\)": _track(ctrl=jnp.zeros((3, 1))),
    r"`measure` has the channels \['q'\] more than once": _channels(
        (JointPositions(), JointVelocities("q")), "q"
    ),
    r"orientations` names \['quat'\], but `fn` returns the channels \['q'\]": _channels(
        estimate.FunctionMeasurement(lambda sys, state: {"q": state.q}, ("quat",)), "q"
    ),
    r"`measured\['q'\]` is not finite in 1 of 3 rows, first in row 1": _missing(
        "track"
    ),
    r"not finite in 1 of 3 rows, first in row 1. Pass `valid=`": _missing("smooth"),
    "is not finite in 1 of 3 rows": _missing("solve"),
    r"`noise` must have the channels \['q'\]": _replaced(noise={"angle": 0.1}),
    r"`noise\['q'\]` must be one number": _replaced(noise={"q": jnp.ones(3)}),
    r"noise\['q'\]` must be positive": _replaced(noise={"q": 0.0}),
    "disturbance` must be at least 0": _replaced(disturbance=-1.0),
    "`StochasticModel.substeps` must be an integer": _replaced(substeps=0),
    "`sd` must be at least 0": _start(-0.1),
    r"`sd` must be one number, or have shape \(4,\)": _start(np.ones(2)),
    "must be at least 0. Use alpha=1": lambda sys, model, start: UnscentedKalmanFilter(
        model, alpha=1e-3, beta=2.0
    ).weights(4),
    "`MovingHorizon.horizon` must be an integer": lambda sys, model, start: (
        MovingHorizon(model, 0)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message](*springs())


def test_wrong_types():
    with pytest.raises(TypeError, match="must be a dictionary from channels"):
        StochasticModel(PIPELINE, JointVelocities(), 1e-3, 0.0)
    kind: Any = eqsim.Generalized
    with pytest.raises(
        TypeError, match=r"pipeline` must be a pipeline such as .*got <cl"
    ):
        StochasticModel(kind, JointVelocities(), {"qd": 1e-3}, 0.0)
    model = StochasticModel(PIPELINE, lambda sys, state: state.q, {"q": 1e-3}, 0.0)
    with pytest.raises(TypeError, match=r"must return a dictionary .*got \w+"):
        ExtendedKalmanFilter(model).init(*springs()[::2], 0.1)


@pytest.mark.parametrize(
    "options", ({}, {"beta": 2.0}, {"kappa": 1.0}, {"alpha": 0.8, "beta": 1.0})
)
def test_weights_of_the_unscented_filter(options):
    """Means of linear and covariances of quadratic functions."""
    weights, center, gamma = UnscentedKalmanFilter(springs()[1], **options).weights(4)
    assert weights.sum() == pytest.approx(1.0)
    assert 2 * weights[1] * gamma**2 == pytest.approx(1.0) and center >= 0.0
