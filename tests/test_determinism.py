"""Equal bits and equality to rounding, as `docs/reliability.md` promises them."""

import functools
import hashlib
import os
import pathlib
import subprocess
import sys

import equinox as eqx
import jax
import jax.random as jr
import pytest
from helpers import tree_allclose
from toys import Rail
from zoo.states import bits

import eqsim


TESTS = pathlib.Path(__file__).parent
ROWS, LENGTH = 6, 10


def steps(env):
    """Return a function of a key: states, observations and rewards of random steps, and
    the derivative of the return with respect to the masses."""

    def run(env, key):
        state, first = env.reset(key)

        def step(state, key):
            action = jr.uniform(key, (env.sys.nu,), minval=-1.0)
            state, timestep = env.step(state, action)
            return state, (state, timestep)

        _, (states, timesteps) = jax.lax.scan(step, state, jr.split(key, LENGTH))
        return timesteps.reward.sum(), (first, states, timesteps)

    def both(key):
        slope, told = eqx.filter_grad(run, has_aux=True)(env, key)
        return slope.sys.links.mass, told

    return both


@functools.cache
def programs(name):
    """Return the programs of one environment and of a batch, compiled at most once."""
    env = Rail(spring=5.0) if name == "rail" else eqsim.make(name)
    return jax.jit(steps(env)), jax.jit(jax.vmap(steps(env)))


KEYS = jr.split(jr.key(3), ROWS)
envs = pytest.mark.parametrize(
    "env", ("rail", pytest.param("hopper", marks=pytest.mark.slow))
)


def digest(env):
    """Return a checksum of all bits that the batched program computes."""
    return hashlib.sha256(repr(bits(programs(env)[1](KEYS))).encode()).hexdigest()


@envs
def test_same_program(env):
    """Equal inputs give equal bits, also after other inputs; other inputs do not."""
    program = programs(env)[1]
    first = bits(program(KEYS))
    assert bits(program(jr.split(jr.key(4), ROWS))) != first
    assert all(bits(program(KEYS)) == first for _ in range(5))


@envs
def test_same_program_compiled_again(env):
    """Another process that compiles the program itself gets equal bits."""
    code = f"import conftest, test_determinism as x; print(x.digest({env!r}))"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), *sys.path])),
        "PYTHONHASHSEED": "7",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "EQSIM_KERNELS_CACHE": "",
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, check=True
    )
    assert done.stdout.strip() == digest(env)


@envs
def test_batch_agrees_with_rows(env):
    """Rows one by one, and batches of other sizes, agree to rounding."""
    one, batch = programs(env)
    close = lambda a, b: tree_allclose(a, b, rtol=1e-9, atol=1e-9)
    whole, part = batch(KEYS), batch(KEYS[:2])
    for k in range(ROWS):
        single = one(KEYS[k])
        assert bits(one(KEYS[k])) == bits(single)
        assert close(single, jax.tree.map(lambda x: x[k], whole))
    assert close(part, jax.tree.map(lambda x: x[:2], whole))
