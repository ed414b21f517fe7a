"""Many environments, threads, signals and garbage collection."""

import concurrent.futures
import gc
import pathlib
import threading
import weakref

import jax
import numpy as np
import pytest
import torch
from eqsim_torchrl import EqsimEnv


pytestmark = pytest.mark.slow
THREADS = 24


def run(seed, rows=4, steps=10, **options):
    """Rewards of a rollout with resets."""
    env = EqsimEnv("inverted_pendulum", batch_size=[rows], episode_length=4, **options)
    env.set_seed(seed)
    actions = np.random.default_rng(seed).uniform(-3.0, 3.0, (steps, 1))
    now, rewards = env.reset(), []
    for action in actions:
        now["action"] = torch.tensor(action).expand(rows, 1)
        now = env.step(now)
        rewards.append(now["next", "reward"].numpy())
        now = env.step_mdp(now)
        now = env.maybe_reset(now)
    return np.stack(rewards), now["observation"].numpy()


@pytest.mark.parametrize("rows", (1, 64, 4096))
def test_rows(rows):
    """Rows differ, and the same seed gives the same rows again."""
    rewards, obs = run(0, rows)
    assert rewards.shape == (10, rows, 1) and obs.shape == (rows, 4)
    assert np.all(np.isfinite(obs)) and len(np.unique(obs, axis=0)) == rows
    again, _ = run(0, rows)
    np.testing.assert_array_equal(again, rewards)


@pytest.mark.parametrize("requires_grad", (False, True))
def test_threads(requires_grad):
    """Threads that step concurrently, each its own environment, compute what each
    computes alone."""

    def compute(seed):
        if not requires_grad:
            return run(seed)[0]
        env = EqsimEnv("point_mass", batch_size=[4], requires_grad=True)
        env.set_seed(seed)
        env.reset()
        actions = torch.full((4, 5, 1), 0.1 * seed, dtype=torch.float64)
        actions.requires_grad_()
        env.unroll(actions)[0]["next", "reward"].sum().backward()
        return actions.grad.numpy()

    alone = [compute(seed) for seed in range(THREADS)]
    barrier = threading.Barrier(THREADS)

    def together(seed):
        barrier.wait(timeout=60)
        return compute(seed)

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(together, range(THREADS), timeout=240))
    for value, expected in zip(found, alone, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_interrupts(interrupted):
    """SIGINT in a step leaves an environment that steps on and resets as before."""
    env, fresh = (EqsimEnv("point_mass", batch_size=[16]) for _ in range(2))
    env.set_seed(0)
    now = env.reset()
    now["action"] = torch.ones(16, 1, dtype=torch.float64)
    interrupted(lambda: env.step(now))
    told = []
    for one in (env, fresh):
        one.set_seed(3)
        now = one.reset()
        now["action"] = torch.ones(16, 1, dtype=torch.float64)
        told.append(one.step(now)["next", "observation"].numpy())
    np.testing.assert_array_equal(*told)


@pytest.mark.skipif(not pathlib.Path("/proc").exists(), reason="reads /proc")
def test_garbage_collection():
    """Environments that are used and dropped leave no object, no array and less than
    20 MB of memory behind; they share compiled programs."""

    def use(number):
        held = []
        for seed in range(number):
            env = EqsimEnv("point_mass", batch_size=[2])
            env.set_seed(seed)
            env.reset()
            held.append(weakref.ref(env._program))
        del env
        gc.collect()
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        left = sum(one() is not None for one in held)
        return len(jax.live_arrays()), left, pages * 4096 / 1e6

    arrays, _, before = use(20)
    *counts, after = use(1000)
    assert counts == [arrays, 0]
    assert after - before < 20.0, (before, after)
