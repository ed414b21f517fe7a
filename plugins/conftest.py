"""Settings and fixtures that the tests of several plugins share."""

import copy
import pickle
import re
import signal
import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import eqsim
from eqsim import AbstractEnv, ResetOptions
from eqsim.envs import reset_options
from eqsim.wrappers import AbstractCarryOver, Lifetime


# What a shape or a type promotes to silently is a mistake more often than not.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Read from and written to the folder in JAX_COMPILATION_CACHE_DIR, if there is one.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture
def getkey(request):
    """Random keys that depend on the name of the test, and on nothing else."""
    key = jr.key(zlib.crc32(request.node.name.encode()))

    def next_key():
        nonlocal key
        key, out = jr.split(key)
        return out

    return next_key


def _by_cloudpickle(x):
    # Few plugins need it for their tests.
    import cloudpickle

    return pickle.loads(cloudpickle.dumps(x))


COPIES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "cloudpickle": _by_cloudpickle,
    "deepcopy": copy.deepcopy,
}


@pytest.fixture(params=COPIES.values(), ids=COPIES)
def copied(request):
    """A function that copies an object, by each way to do so."""
    return request.param


@pytest.fixture
def copies():
    """All functions of `copied`."""
    return [*COPIES.values()]


@pytest.fixture
def interrupted():
    """A function that calls `step` over and over, with 200 interrupts at any place."""

    def interrupt(*_):
        raise KeyboardInterrupt

    def run(step):
        caught, steps = 0, 0
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            while caught < 200:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + caught % 29))
                    while True:
                        step()
                        steps += 1
                except KeyboardInterrupt:
                    caught += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert steps > 0

    return run


@pytest.fixture(scope="session")
def opengl():
    """Leaves a test out where there is nothing to draw with."""
    sys = eqsim.make("point_mass").sys
    try:
        eqsim.render.images(sys, jnp.zeros(1), width=8, height=8)
    except eqsim.render.NoOpenGL as error:
        pytest.skip(str(error))


@pytest.fixture
def readme(request):
    """The Python examples of the README of the plugin."""
    page = request.path.parents[1] / "README.md"
    found = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert found
    return found


class Numbered(eqx.Module):
    inner: Any
    number: Any


class Curriculum(AbstractCarryOver):
    """Observes the number of the episode: the option `start`, by default 0."""

    env: AbstractEnv

    lifetime = Lifetime.EPISODE

    def reset(self, key, options=None):
        given = reset_options(options)
        number = jnp.asarray(0 if given.start is None else given.start, jnp.int32)
        return self._told(*self.env.reset(key, ResetOptions(q=given.q)), number)

    def step(self, state, action):
        return self._told(*self.env.step(state.inner, action), state.number)

    def _told(self, inner, timestep, number):
        obs = number[None].astype(timestep.obs.dtype)
        return Numbered(inner, number), eqx.tree_at(lambda t: t.obs, timestep, obs)

    def next_options(self, key, state):
        return ResetOptions(start=state.number + 1)

    def progress(self, state):
        return {}


def _velocity(sys, state):
    return state.qd


@pytest.fixture(scope="session")
def two_parts():
    """An environment whose observation is a dictionary of two vectors."""
    return eqsim.wrappers.PrivilegedObservation(eqsim.make("point_mass"), _velocity)


@pytest.fixture(scope="session")
def curriculum():
    """An environment whose observation is the number of episodes before."""
    return Curriculum(eqsim.make("point_mass"))
