"""Kernels and XLA simulate the same robots, to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim.testing import random_configuration, random_system


BATCH = 5


def stepped(seed):
    """The next states of a random robot, by a program that is compiled for the call."""
    sys = random_system(seed, 1 + seed % 4, num_roots=1, with_fluid=seed % 3 == 0)
    pairs = [random_configuration(BATCH * seed + k, sys, 0.3) for k in range(BATCH)]
    q, qd = map(jnp.stack, zip(*pairs, strict=True))
    ctrl = jnp.asarray(np.random.default_rng(seed).normal(size=(BATCH, sys.nu)))
    act = jnp.zeros((BATCH, sys.na))
    step = lambda *x: eqsim.Generalized().step(sys, eqsim.State(*x[:3]), x[3])
    new = jax.jit(jax.vmap(step))(q, qd, act, ctrl)
    return np.concatenate([new.q, new.qd], axis=1)


GROUPS = [range(k, k + 10) for k in range(0, 200, 10)]


@pytest.mark.slow  # Each compiles everything twice; `test_step.py` has quick tests.
@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"from {seeds.start}")
def test_kernels_and_xla(seeds, monkeypatch):
    failed = {}
    for seed in seeds:
        monkeypatch.setenv("EQSIM_KERNELS", "on")
        kernels = stepped(seed)
        monkeypatch.setenv("EQSIM_KERNELS", "off")
        xla = stepped(seed)
        scale = np.maximum(1.0, np.abs(xla).max(axis=1, keepdims=True))
        error = np.max(np.abs(kernels - xla) / scale)
        if not error <= 1e-12:
            failed[seed] = error
    assert not failed, failed
