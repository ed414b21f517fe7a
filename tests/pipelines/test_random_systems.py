"""Kernels and XLA simulate the same robots, to rounding."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim.testing import random_configuration, random_system


PIPELINE = eqsim.Generalized()
BATCH = 5
DOUBLE, SINGLE = 1e-12, 1e-5
# Two programs, each as far from double precision as rounding explains.
ILL_CONDITIONED = 2.0
PERTURBED = 8


def robots(seeds):
    """Random robots with their states and controls."""
    for seed in seeds:
        sys = random_system(
            seed, nlink=1 + seed % 4, num_roots=1, with_fluid=seed % 3 == 0
        )
        pairs = [random_configuration(BATCH * seed + k, sys, 0.3) for k in range(BATCH)]
        q, qd = (np.stack(x) for x in zip(*pairs, strict=True))
        yield sys, q, qd, np.random.default_rng(seed).normal(size=(BATCH, sys.nu))


def program(dtype):
    """A function to the next coordinates and velocities, that is compiled anew."""

    def step(sys, *args):
        q, qd, act, ctrl = args
        state = PIPELINE.step(sys, eqsim.State(q, qd, act), ctrl)
        return jnp.concatenate([state.q, state.qd])

    many = jax.jit(jax.vmap(lambda *args: step(*args), (None, 0, 0, 0, 0)))
    cast = lambda x: jnp.asarray(x, dtype) if eqx.is_inexact_array_like(x) else x

    def stepped(sys, q, qd, ctrl):
        act = np.zeros((BATCH, sys.na))
        return np.asarray(many(*jax.tree.map(cast, (sys, q, qd, act, ctrl))))

    return stepped


def rounded(robot, seed):
    """The same robot and states, with numbers a unit of rounding of single precision
    away, up or down."""
    rng = np.random.default_rng(seed)
    unit = np.finfo(np.float32).eps

    def move(x):
        if not eqx.is_inexact_array_like(x):
            return x
        x = np.asarray(x)
        return x * (1 + unit * rng.choice([-1.0, 1.0], size=x.shape))

    return jax.tree.map(move, robot)


def deviations(seed, monkeypatch):
    """Compare kernels with XLA in both precisions.

    **Returns:** by state, relative to its largest number: the difference in double
    precision, in single precision, and what rounding explains in single precision: the
    difference of XLA's two precisions there and at inputs that are a unit of rounding
    away, or that of kernels and XLA in double precision in units of rounding.
    """
    (robot,) = robots([seed])
    inputs = [robot, *(rounded(robot, k) for k in range(PERTURBED))]
    found, xla = {}, {}
    for dtype in (np.float64, np.float32):
        monkeypatch.setenv("EQSIM_KERNELS", "on")
        found[dtype] = program(dtype)(*robot)
        monkeypatch.setenv("EQSIM_KERNELS", "off")
        step = program(dtype)
        xla[dtype] = np.stack([step(*given) for given in inputs])
    scale = np.maximum(1.0, np.abs(xla[np.float64][0]).max(axis=1, keepdims=True))
    apart = lambda x, y: np.abs((x - y) / scale).max(axis=-1)
    double = apart(found[np.float64], xla[np.float64][0])
    single = apart(found[np.float32], xla[np.float32][0])
    coarser = np.finfo(np.float32).eps / np.finfo(np.float64).eps
    rounding = apart(xla[np.float32], xla[np.float64]).max(axis=0)
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
