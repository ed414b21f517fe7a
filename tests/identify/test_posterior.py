"""Draws from the posterior as random robots, and programs that are compiled once."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from recorded_rails import DAMPING, slide, SYS, TRUTH
from toys import push, Rail, Rails

import eqsim
from eqsim import identify
from eqsim.identify._problem import evaluate
from eqsim.wrappers import AutoReset, DomainRandomization, TimeLimit


WINDOWS = identify.Windows(2.0)


def _fit(sys=SYS, seeds=(0, 1), steps=(60, 40), noise=2e-2, **options):
    runs = [slide(seed, count, noise) for seed, count in zip(seeds, steps, strict=True)]
    return identify.fit(
        sys, runs, DAMPING, windows=WINDOWS, pipeline=Rails(), **options
    )


@pytest.fixture(scope="module")
def result():
    return _fit()


def test_randomizes_at_every_reset(result):
    """Robots of episodes are spread as the posterior; only the fitted numbers are carried."""
    env = AutoReset(TimeLimit(DomainRandomization(Rail(), result.posterior), 2))
    out = eqsim.rollout(env, push, jr.split(jr.key(0), 200), 8)
    changed = out.state.inner.inner.changed
    names = [
        jax.tree_util.keystr(path)
        for path, _ in jax.tree_util.tree_leaves_with_path(changed)
    ]
    assert names == [".joints.damping"]
    damping = np.asarray(changed.joints.damping)[:, ::2].reshape(-1, 2)
    assert len(np.unique(damping[:, 0])) == len(damping) == 800
    free = np.log(damping)
    np.testing.assert_allclose(
        np.cov(free.T), result.covariance.used, atol=0.15 * result.covariance.used.max()
    )
    np.testing.assert_allclose(np.exp(free.mean(axis=0)), result.values, rtol=0.02)


def test_episodes_are_those_of_the_drawn_robot(result):
    """Step by step as the environment with that robot from the beginning."""
    env = DomainRandomization(Rail(), result.posterior)
    state, _ = env.reset(jr.key(1))
    drawn = result.posterior(jr.key(2), SYS)
    assert not np.allclose(env.robot(state).joints.damping, drawn.joints.damping)
    plain = eqx.tree_at(lambda e: e.sys, Rail(), env.robot(state))
    inner = plain.begin(state.inner)
    for action in jr.uniform(jr.key(2), (5, 2)):
        state, timestep = env.step(state, action)
        inner = plain.step(inner[0], action)
        assert tree_allclose((state.inner, timestep), inner, rtol=1e-12, atol=1e-14)


def test_draws_stay_within_bounds(result):
    """However uncertain a positive number is, no draw is negative or infinite."""
    posterior = result.posterior
    wide = dataclasses.replace(posterior, factor=100 * jnp.eye(2))
    draw = lambda key: wide(key, SYS).joints.damping
    damping = np.asarray(jax.vmap(draw)(jr.split(jr.key(1), 500)))
    low, high = (np.exp(np.asarray(x)) for x in (posterior.lower, posterior.upper))
    assert (damping >= low * (1 - 1e-12)).all() and (
        damping <= high * (1 + 1e-12)
    ).all()
    assert (damping == damping.min(axis=0)).sum() > 100


def test_other_numbers_compile_nothing(result):
    """Other robots, recordings, noise, priors and settings of the solver are numbers; only
    other sizes are compiled."""
    before = evaluate._cached._cache_size()
    heavy = dataclasses.replace(
        SYS, links=dataclasses.replace(SYS.links, mass=1.1 * SYS.links.mass)
    )
    _fit(heavy)
    _fit(seeds=(5, 6), noise=1e-3)
    _fit(steps=(59, 38))  # Windows of as many samples or fewer.
    _fit(solver=identify.Solver(max_steps=3, damping=1.0))
    _fit(noise=1e-2, validate=[slide(9, 40)])
    assert evaluate._cached._cache_size() == before
    # Eight windows are another size.
    _fit(steps=(120, 40))
    assert evaluate._cached._cache_size() == before + 1


def test_robust_widths_compile_nothing(result):
    fit = lambda width: _fit(loss=identify.HuberLoss(width))
    fit(1.0)
    before = evaluate._cached._cache_size()
    fit(2.0)
    assert evaluate._cached._cache_size() == before


def test_truth_is_likely(result):
    low, high = result.interval(0.999)
    assert (low < TRUTH).all() and (TRUTH < high).all()
