"""Copies of environments go on as the original does."""

import importlib
import multiprocessing

import gymnasium
import numpy as np
import pytest
from eqsim_gymnasium import EqsimEnv, EqsimVectorEnv
from gymnasium.utils.env_checker import data_equivalence

import eqsim


# Starts anywhere between the ends of the rail: some episodes end at once.
OPTIONS = {"reset_noise_scale": 0.9, "randomize": "masses"}
MODES = (
    "NextStep",
    *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("SameStep", "Disabled")),
)


def _run(env, shape):
    """What some steps and a reset report."""
    actions = np.random.default_rng(0).uniform(-2.0, 2.0, (3, *shape, 1))
    steps = [env.step(action) for action in actions]
    return [*steps, env.reset(), env.step(actions[0]), env.reset(seed=4)]


def _assert_equal(expected, found):
    assert data_equivalence(expected, found, exact=True), (expected, found)


def test_single(copied):
    env = EqsimEnv("point_mass", **OPTIONS)
    copied(env).reset(seed=1)
    env.reset(seed=1)
    env.step(np.ones(1))
    new = copied(env)
    _assert_equal(_run(env, ()), _run(new, ()))


def test_made_by_gymnasium(copied):
    env = gymnasium.make("eqsim_gymnasium:eqsim/PointMass-v0", max_episode_steps=5)
    env.reset(seed=1)
    new = copied(env)
    _assert_equal(_run(env, ()), _run(new, ()))


@pytest.mark.parametrize("mode", MODES)
def test_vector(copied, mode):
    # "Disabled" refuses a step after the end of an episode: nothing may end there.
    limit = None if mode == "Disabled" else 2
    options = OPTIONS | {"reset_noise_scale": 0.01}
    env = EqsimVectorEnv(
        "point_mass", 3, max_episode_steps=limit, autoreset_mode=mode, **options
    )
    env.reset(seed=1)
    env.step(np.ones((3, 1)))
    new = copied(env)
    _assert_equal(_run(env, (3,)), _run(new, (3,)))


def test_stable_baselines3(copied):
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    sb3 = importlib.import_module("eqsim_gymnasium.sb3")
    env = sb3.SB3VecEnv(
        EqsimVectorEnv("point_mass", 3, autoreset_mode="SameStep", **OPTIONS)
    )
    env.reset()
    new, action = copied(env), np.ones((3, 1))
    _assert_equal(env.step(action)[:3], new.step(action)[:3])


_SLOW = (
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("walker2d_uni", "ant", "humanoid_omni")
)


@pytest.mark.parametrize("name", ("reacher", *_SLOW))
def test_program_is_shared(name, copies):
    """Equal structure and equal hash: what is compiled for one serves the copy."""
    program = EqsimEnv(name)._program
    for copied in copies:
        new = copied(program)
        assert new._static == program._static
        assert hash(new._static) == hash(program._static)
        assert eqsim.testing.tree_allclose(new.arrays, program.arrays)


@pytest.mark.slow
def test_spawned_process(monkeypatch):
    """Hashes of strings differ between processes."""
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    env = EqsimEnv("point_mass", **OPTIONS)
    env.reset(seed=1)
    action = np.ones(1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(EqsimEnv.step, (env, action))
    expected = env.step(action)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    assert found[2:4] == expected[2:4]
