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
DOUBLE, SINGLE = 1e-12, 1e-5
# Where single precision itself is farther from double precision than `SINGLE`.
ILL_CONDITIONED = 3.0


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


def deviations(seed, monkeypatch):
    """Compare kernels with XLA in both precisions.

    **Returns:** by state, relative to its largest number: the difference in double
    precision, in single precision, and what rounding explains in single precision: the
    difference of XLA's two precisions, or that in double precision in units of rounding.
    """
    (robot,) = robots([seed])
    found = {}
    for dtype in (np.float64, np.float32):
        for kernels in ("on", "off"):
            monkeypatch.setenv("EQSIM_KERNELS", kernels)
            found[dtype, kernels] = stepped(dtype, *robot)
    exact = found[np.float64, "off"]
    scale = np.maximum(1.0, np.abs(exact).max(axis=1, keepdims=True))
    apart = lambda x, y: np.abs((x - y) / scale).max(axis=1)
    double = apart(found[np.float64, "on"], exact)
    single = apart(found[np.float32, "on"], found[np.float32, "off"])
    coarser = np.finfo(np.float32).eps / np.finfo(np.float64).eps
    rounding = apart(found[np.float32, "off"], exact)
    return double, single, np.maximum(rounding, coarser * double)


GROUPS = [range(k, k + 10) for k in range(0, 200, 10)]


@pytest.mark.slow  # Each compiles everything anew; `test_step.py` has quick tests.
@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"from {seeds.start}")
def test_kernels_and_xla(seeds, monkeypatch):
    """200 robots in all."""
    failed = {}
    for seed in seeds:
        double, single, rounding = deviations(seed, monkeypatch)
        bound = np.maximum(SINGLE, ILL_CONDITIONED * rounding)
        if np.any(double > DOUBLE) or np.any(single > bound):
            failed[seed] = double, single, rounding
    assert not failed, failed
