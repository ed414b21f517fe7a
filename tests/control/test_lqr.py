"""Linear-quadratic regulators, beside scipy and dense solutions."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg
from helpers import check_gradients, examples
from hypothesis import given, settings, strategies as st
from lq_problems import dense, positive, random_lq

import eqsim
from eqsim import control


lqr = jax.jit(control.lqr)


@pytest.mark.parametrize("nx, nu", ((1, 1), (4, 2), (6, 3)))
@pytest.mark.quick_cases("1-1", "4-2")
def test_agrees_with_scipy(nx, nu, getkey):
    """25 random pairs each, with cross terms; unstable and stable."""
    for _ in range(25):
        joint = positive(getkey(), nx + nu)
        Q, N, R = joint[:nx, :nx], joint[:nx, nx:], joint[nx:, nx:]
        A, B = jr.normal(getkey(), (nx, nx)), jr.normal(getkey(), (nx, nu))
        found = lqr(A, B, Q, R, N)
        want = scipy.linalg.solve_discrete_are(A, B, Q, R, s=N)
        scale = np.max(np.abs(want))
        np.testing.assert_allclose(found.value, want, atol=1e-9 * scale)
        A, B, R, N = map(np.asarray, (A, B, R, N))
        gain = -np.linalg.solve(R + B.T @ want @ B, B.T @ want @ A + N.T)
        np.testing.assert_allclose(found.gain, gain, atol=1e-8 * np.abs(gain).max())


def test_gradients(getkey):
    A, B = 1.1 * jnp.eye(2) + 0.2 * jr.normal(getkey(), (2, 2)), jnp.ones((2, 1))
    B = B.at[1].set(-0.4)
    gain = lambda A, B: control.lqr(A, B, jnp.eye(2), jnp.eye(1)).gain
    check_gradients(gain, A, B)


def test_unstabilizable_pairs():
    """The error names the mode; a mode inside the unit circle needs no control."""
    A, B = jnp.diag(jnp.array([1.2, 0.5])), jnp.array([[0.0], [1.0]])
    one = jnp.eye(2), jnp.eye(1)
    with pytest.raises(ValueError, match=r"not stabilizable.*eigenvalue 1\.2"):
        control.lqr(A, B, *one)
    found = control.lqr(A, B[::-1], *one)
    assert np.abs(np.linalg.eigvals(A + B[::-1] @ found.gain)).max() < 1.0


def test_bad_input():
    A, B, Q, R = jnp.eye(2), jnp.ones((2, 1)), jnp.eye(2), jnp.eye(1)
    single = jnp.ones((1, 1))
    for message, args in {
        "`A` must be finite": (A.at[0, 0].set(jnp.nan), B, Q, R),
        "`R` must be positive definite.*-1": (A, B, Q, -R),
        "Q": (A, B, jnp.eye(3), R),  # A `TypeError` where types are checked.
        # A mode on the unit circle that the cost does not see.
        "No stabilizing feedback": (single, single, 0.0 * single, single),
    }.items():
        with pytest.raises((ValueError, TypeError), match=message):
            control.lqr(*args)


# Each example compiles.
@settings(max_examples=examples(4))
@given(T=st.integers(1, 4), nx=st.integers(1, 4), nu=st.integers(1, 3))
def test_finite_horizon(T, nx, nu):
    """The optimum of the dense problem, sequential and parallel in time."""
    lq = random_lq(jr.key(100 * T + 10 * nx + nu), T, nx, nu)
    start = jnp.linspace(-1.0, 1.0, nx)
    H, g = dense(lq, start)
    best = -np.linalg.solve(H, g).reshape(T, nu)

    @ft.partial(jax.jit, static_argnums=2)
    def plan(lq, start, parallel):
        return control.rollout_lq(lq, control.solve_lq(lq, parallel=parallel), start)

    for parallel in (False, True):
        states, actions = plan(lq, start, parallel)
        np.testing.assert_allclose(actions, best, rtol=1e-8, atol=1e-8)
        assert states.shape == (T + 1, nx)


def test_finite_horizon_gradients(getkey):
    """Forward and reverse mode through the recursion."""
    lq = random_lq(getkey(), 3, 2, 1)

    def actions(A, q):
        changed = lq._replace(A=A, q=q)
        return control.rollout_lq(changed, control.solve_lq(changed), jnp.ones(2))[1]

    check_gradients(actions, lq.A, lq.q)


def test_finite_horizon_shapes(getkey):
    lq = random_lq(getkey(), 3, 2, 1)
    with pytest.raises(ValueError, match=r"`Q` must have shape \(T \+ 1, nx, nx \)"):
        control.solve_lq(lq._replace(Q=lq.Q[:-1]))


# Compiles a step and its Jacobian for 200 states.
@pytest.mark.slow
def test_tvlqr_tends_to_lqr():
    """At a fixed point and a long horizon, for a pendulum that stands on its head."""
    pole = eqsim.load_mjcf("""
<mujoco>
  <option timestep="0.02"/>
  <worldbody><body pos="0 0 1"><joint name="j" axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 .5" size=".02" contype="0" conaffinity="0"/>
  </body></worldbody>
  <actuator><motor joint="j"/></actuator>
</mujoco>""")
    pipeline = eqsim.Generalized()
    state = pipeline.init(pole)
    T, Q, R = 200, jnp.eye(2), jnp.eye(1)
    states = jax.tree.map(lambda x: jnp.tile(x, (T + 1, 1)), state)
    found = control.tvlqr((pipeline, pole), states, jnp.zeros((T, 1)), Q, R)
    A, B = control.linearize_step(pipeline, pole, state, jnp.zeros(1))
    assert np.abs(np.linalg.eigvals(A)).max() > 1.0
    want = control.lqr(A, B, Q, R)
    np.testing.assert_allclose(found.value[0], want.value, rtol=1e-5)
    np.testing.assert_allclose(found.gain[0], want.gain, rtol=1e-5)
    with pytest.raises(ValueError, match=r"`states` must hold T \+ 1 = 200"):
        control.tvlqr((pipeline, pole), states, jnp.zeros((199, 1)), Q, R)
