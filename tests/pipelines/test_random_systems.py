"""Kernels and XLA simulate the same robots, to rounding."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim.model import random_configuration, random_system


PIPELINE = eqsim.Generalized()
BATCH = 5
BOUNDS = {np.float64: 1e-12, np.float32: 1e-5}


def robots(seeds):
    """Random robots with their states and controls."""
    for seed in seeds:
        sys = random_system(
            seed, nlink=1 + seed % 4, num_roots=1, with_fluid=seed % 3 == 0
        )
        pairs = [random_configuration(BATCH * seed + k, sys, 0.3) for k in range(BATCH)]
        q, qd = (np.stack(x) for x in zip(*pairs, strict=True))
        yield sys, q, qd, np.random.default_rng(seed).normal(size=(BATCH, sys.nu))


def stepped(dtype, sys, q, qd, ctrl):
    """Next coordinates and velocities, by a program that is compiled now."""
    cast = lambda x: jnp.asarray(x, dtype) if eqx.is_inexact_array_like(x) else x
    sys, q, qd, ctrl = jax.tree.map(cast, (sys, q, qd, ctrl))
    act = jnp.zeros((BATCH, sys.na), dtype)

    def step(sys, *args):
        q, qd, act, ctrl = args
        state = PIPELINE.step(sys, eqsim.State(q, qd, act), ctrl)
        return jnp.concatenate([state.q, state.qd])

    many = jax.jit(jax.vmap(lambda *args: step(*args), (None, 0, 0, 0, 0)))
    return np.asarray(many(sys, q, qd, act, ctrl))


GROUPS = [range(k, k + 10) for k in range(0, 200, 10)]


@pytest.mark.slow  # Each compiles everything anew; `test_step.py` has quick tests.
@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"from {seeds.start}")
def test_kernels_and_xla(seeds, dtype, monkeypatch):
    """Relative to the largest number of a state. 200 robots in all."""
    worst = {}
    for seed, robot in zip(seeds, robots(seeds), strict=True):
        monkeypatch.setenv("EQSIM_KERNELS", "on")
        got = stepped(dtype, *robot)
        monkeypatch.setenv("EQSIM_KERNELS", "off")
        expected = stepped(dtype, *robot)
        scale = np.maximum(1.0, np.abs(expected).max(axis=1, keepdims=True))
        worst[seed] = float(np.abs((got - expected) / scale).max())
    assert all(error <= BOUNDS[dtype] for error in worst.values()), worst
