"""Many environments, threads, processes and signals."""

import concurrent.futures
import gc
import multiprocessing
import pathlib
import subprocess
import sys
import threading

import gymnasium
import jax
import numpy as np
import pytest
from eqsim_gymnasium import EqsimEnv, EqsimVectorEnv


pytestmark = pytest.mark.slow
THREADS = 24


def run(seed, rows=1, steps=20):
    """Rewards and last observations of some steps, with resets."""
    env = EqsimVectorEnv("inverted_pendulum", rows, max_episode_steps=7)
    env.reset(seed=seed)
    actions = np.random.default_rng(seed).uniform(-3.0, 3.0, (steps, 1, 1))
    told = [env.step(np.broadcast_to(action, (rows, 1))) for action in actions]
    return np.stack([reward for _, reward, *_ in told]), told[-1][0]


@pytest.mark.parametrize("rows", (1, 64, 4096))
def test_rows(rows):
    """Row `k` under the seed `s` is a single environment under the seed `s + k`."""
    rewards, obs = run(0, rows)
    assert rewards.shape == (20, rows) and obs.shape == (rows, 4)
    assert np.all(np.isfinite(obs)) and len(np.unique(obs, axis=0)) == rows
    again, _ = run(0, rows)
    np.testing.assert_array_equal(again, rewards)
    env = EqsimVectorEnv("inverted_pendulum", rows)
    first, _ = env.reset(seed=5)
    for row in {0, rows // 2, rows - 1}:
        alone, _ = EqsimEnv("inverted_pendulum").reset(seed=5 + row)
        np.testing.assert_allclose(first[row], alone, rtol=1e-12)


def test_threads():
    """Threads that step concurrently, each its own environment, compute what each
    computes alone; all threads meet before each run."""
    alone = [run(seed) for seed in range(THREADS)]
    barrier = threading.Barrier(THREADS)

    def together(seed):
        barrier.wait(timeout=60)
        return run(seed)

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(together, range(THREADS), timeout=240))
    for (rewards, obs), (expected, last) in zip(found, alone, strict=True):
        np.testing.assert_array_equal(rewards, expected)
        np.testing.assert_array_equal(obs, last)


def make():
    return EqsimEnv("point_mass")


@pytest.mark.parametrize("context", ("spawn", "forkserver"))
def test_processes(context, monkeypatch):
    """Gymnasium's own vector environment, with a process for each environment."""
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    env = gymnasium.vector.AsyncVectorEnv([make] * 2, context=context)
    try:
        env.reset(seed=0)
        obs, *_ = env.step(np.ones((2, 1)))
        alone = EqsimVectorEnv("point_mass", 2)
        alone.reset(seed=0)
        np.testing.assert_allclose(obs, alone.step(np.ones((2, 1)))[0], rtol=1e-12)
    finally:
        env.close()


FORK = """
import multiprocessing
import numpy as np

def child(out):
    from eqsim_gymnasium import EqsimEnv
    env = EqsimEnv("point_mass")
    env.reset(seed=0)
    out.put(env.step(np.ones(1))[1])

context = multiprocessing.get_context("fork")
out = context.Queue()
children = [context.Process(target=child, args=(out,)) for _ in range(2)]
for one in children:
    one.start()
first, second = out.get(timeout=120), out.get(timeout=120)
assert first == second
for one in children:
    one.join(timeout=60)
    assert one.exitcode == 0
"""


def test_fork_before_use():
    """A process may fork before it uses JAX. Afterwards it must not: JAX has threads."""
    command = [sys.executable, "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_interrupts(interrupted):
    """SIGINT in a step leaves an environment that steps on and resets as before."""
    env, fresh = EqsimVectorEnv("point_mass", 16), EqsimVectorEnv("point_mass", 16)
    actions = np.ones((16, 1))
    env.reset(seed=0)
    env.step(actions)
    interrupted(lambda: env.step(actions))
    assert np.all(np.isfinite(env.step(actions)[0]))
    for one in (env, fresh):
        one.reset(seed=3)
    for _ in range(5):
        np.testing.assert_array_equal(env.step(actions)[0], fresh.step(actions)[0])


def resident():
    """Resident memory of this process, MB."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


@pytest.mark.skipif(not pathlib.Path("/proc").exists(), reason="reads /proc")
def test_garbage_collection():
    """Thousands of environments that are used and dropped leave nothing behind: neither
    memory, nor arrays, nor programs."""

    def use(number):
        for seed in range(number):
            env = EqsimEnv("point_mass")
            env.reset(seed=seed)
            env.step(np.ones(1))
        gc.collect()
        return len(jax.live_arrays()), resident()

    use(200)
    arrays, memory = use(500)
    later_arrays, later_memory = use(2000)
    assert later_arrays == arrays
    # A tenth of what 2,000 environments hold while they live would be more.
    assert later_memory - memory < 20.0, (memory, later_memory)


def test_spawned_copies_under_load():
    """Environments that are sent to processes step there as they do here."""
    env = EqsimVectorEnv("point_mass", 4)
    env.reset(seed=1)
    action = np.ones((4, 1))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        sent = [pool.apply_async(EqsimVectorEnv.step, (env, action)) for _ in range(6)]
        found = [one.get(timeout=240) for one in sent]
    expected = env.step(action)
    for one in found:
        np.testing.assert_allclose(one[0], expected[0], rtol=1e-5)
