"""Returns and advantages are the sums of the papers, step by step and episode by episode."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, strategies as st

from eqsim_zoo.blocks.returns import discounted_returns, gae, td_lambda, vtrace


TERMINATED, TRUNCATED, BOTH, ON = (1, 0), (0, 1), (1, 1), (0, 0)
ENDS = st.sampled_from([ON, ON, ON, TERMINATED, TRUNCATED, BOTH])
# Few lengths, as each is compiled.
LENGTHS = st.sampled_from([1, 2, 3, 7])
SHARES = st.sampled_from([0.0, 0.4, 0.97, 1.0])


@st.composite
def trajectories(draw, ends=ENDS):
    """Rewards, values before and after each step, ends, and ratios of probabilities."""
    n, seed = draw(LENGTHS), draw(st.integers(0, 2**32 - 1))
    reward, value, next_value, log_ratio = np.random.default_rng(seed).normal(
        size=(4, n)
    )
    flags = draw(st.lists(ends, min_size=n, max_size=n))
    terminated, truncated = np.array(flags, bool).T
    return reward, value, next_value, terminated, terminated | truncated, log_ratio


def ours(trajectory, discount, decay, clip_rho=1.0, clip_c=1.0):
    """All of them, by name."""
    arrays = [jnp.asarray(x) for x in trajectory]
    numbers = [jnp.asarray(x) for x in (discount, decay, clip_rho, clip_c)]
    return _ours(arrays, *numbers)


@jax.jit
def _ours(arrays, discount, decay, clip_rho, clip_c):
    reward, value, next_value, terminated, done, log_ratio = arrays
    ends = terminated, done
    target, advantage = vtrace(
        reward, value, next_value, *ends, log_ratio, discount, clip_rho, clip_c
    )
    return {
        "returns": discounted_returns(reward, next_value, *ends, discount),
        "td_lambda": td_lambda(reward, next_value, *ends, discount, decay),
        "gae": gae(reward, value, next_value, *ends, discount, decay),
        "vtrace": target,
        "vtrace_advantage": advantage,
    }


def last_of(done, t):
    """The last step of the episode of step `t`, as far as it is known."""
    return next((s for s in range(t, len(done)) if done[s]), len(done) - 1)


def n_step(trajectory, t, n, discount):
    """Rewards of `n` steps, and the value of what they led to unless it was an end."""
    reward, _, next_value, terminated, *_ = trajectory
    total = sum(discount**k * reward[t + k] for k in range(n))
    end = t + n - 1
    return total + (0.0 if terminated[end] else discount**n * next_value[end])


def error(trajectory, t, discount):
    """The error of the value before step `t`, seen one step later."""
    reward, value, next_value, terminated, *_ = trajectory
    return reward[t] + (1 - terminated[t]) * discount * next_value[t] - value[t]


@given(trajectories(), SHARES)
def test_discounted_returns(trajectory, discount):
    done = trajectory[4]
    expected = [
        n_step(trajectory, t, last_of(done, t) - t + 1, discount)
        for t in range(len(done))
    ]
    found = ours(trajectory, discount, 0.5)["returns"]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(trajectories(), SHARES, SHARES)
def test_td_lambda(trajectory, discount, decay):
    """The mixture of all n-step returns, whose weights fall by `decay`; the longest one
    has what is left of the weight (Sutton and Barto, equation 12.3)."""
    done, expected = trajectory[4], []
    for t in range(len(done)):
        most = last_of(done, t) - t + 1
        weights = [(1 - decay) * decay ** (n - 1) for n in range(1, most)]
        weights.append(decay ** (most - 1))
        assert math.isclose(sum(weights), 1.0)
        each = (n_step(trajectory, t, n, discount) for n in range(1, most + 1))
        expected.append(sum(w * g for w, g in zip(weights, each)))
    found = ours(trajectory, discount, decay)["td_lambda"]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(trajectories(), SHARES, SHARES)
def test_gae(trajectory, discount, decay):
    """The sum of later errors, each step of which weighs `discount * decay` less."""
    done = trajectory[4]
    expected = [
        sum(
            (discount * decay) ** (s - t) * error(trajectory, s, discount)
            for s in range(t, last_of(done, t) + 1)
        )
        for t in range(len(done))
    ]
    found = ours(trajectory, discount, decay)["gae"]
    np.testing.assert_allclose(found, expected, atol=1e-12)


CLIPS = st.sampled_from([0.3, 1.0, 1.5, math.inf])


@given(trajectories(), SHARES, CLIPS, CLIPS)
def test_vtrace(trajectory, discount, clip_rho, clip_c):
    """The sum of later errors with products of clipped ratios (Espeholt et al., equation
    1), and the advantage with the target of the next step (section 4.2)."""
    reward, value, next_value, terminated, done, log_ratio = trajectory
    ratio = np.exp(log_ratio)
    rho, c = np.minimum(clip_rho, ratio), np.minimum(clip_c, ratio)
    target, n = value.copy(), len(done)
    for t in range(n):
        for s in range(t, last_of(done, t) + 1):
            weight = discount ** (s - t) * math.prod(c[t:s])
            target[t] += weight * rho[s] * error(trajectory, s, discount)
    advantage = np.zeros(n)
    for t in range(n):
        known = t + 1 < n and not done[t]
        after = target[t + 1] if known else next_value[t]
        left = 0.0 if terminated[t] else discount
        advantage[t] = rho[t] * (reward[t] + left * after - value[t])
    found = ours(trajectory, discount, 0.5, clip_rho, clip_c)
    np.testing.assert_allclose(found["vtrace"], target, atol=1e-12)
    np.testing.assert_allclose(found["vtrace_advantage"], advantage, atol=1e-12)


def test_single_precision_stays():
    shape = lambda dtype: jax.ShapeDtypeStruct((5,), dtype)
    trajectory = [shape(jnp.float32)] * 3 + [shape(bool)] * 2 + [shape(jnp.float32)]
    numbers = [jax.ShapeDtypeStruct((), jnp.float32)] * 4
    found = jax.eval_shape(_ours, trajectory, *numbers)
    assert {x.dtype for x in found.values()} == {jnp.dtype(jnp.float32)}
