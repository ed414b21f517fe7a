"""Copies by `pickle`, `cloudpickle` and `copy.deepcopy` behave as the original."""

import concurrent.futures
import inspect
import multiprocessing

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from copying import assert_copied, assert_same, COPIES
from toys import push, Rail, sled

import eqsim
from eqsim import randomize, wrappers
from eqsim.terrain import Flat, TerrainGrid
from eqsim.wrappers import (
    AutoReset,
    DomainRandomization,
    NoisyObservation,
    skills,
    TimeLimit,
)


each_copy = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


def _built_in(registry):
    """Names that eqsim registers itself, not an installed plugin."""
    modules = {name: registry.get(name).__module__ for name in registry.names()}
    return [name for name, module in modules.items() if module.startswith("eqsim.")]


@pytest.mark.parametrize("name", _built_in(eqsim.ENVS))
@pytest.mark.quick_cases("inverted_pendulum", "hopper_uni")
def test_environments(name):
    env = eqsim.make(name)
    assert_copied(env)


@pytest.mark.parametrize("name", _built_in(eqsim.PIPELINES))
def test_pipelines(name):
    env = eqsim.make("reacher", pipeline=name)
    assert_copied((env.pipeline, env))


@pytest.mark.parametrize("name", randomize.presets("ant"))
def test_randomization_presets(name):
    preset = randomize.presets("ant")[name]
    assert_copied(preset)


def _pooled(env):
    return AutoReset(wrappers.pool_resets(TimeLimit(env, 3), jr.key(7), 4))


def _skills(env):
    return wrappers.Skills(wrappers.TorsoPosition(env), wrappers.OneHotSkills(3))


def _known(sys, state):
    return jnp.concatenate([state.q, sys.links.mass])


WRAPPERS = {
    "ActionRepeat": lambda env: wrappers.ActionRepeat(env, 2),
    "AutoReset": lambda env: AutoReset(TimeLimit(env, 3)),
    "PooledResets": _pooled,
    "ClipAction": wrappers.ClipAction,
    "DelayAction": lambda env: wrappers.DelayAction(env, 2, 0),
    "DomainRandomization": lambda env: DomainRandomization(
        env, randomize.presets("hopper")["default"], observe_context=True
    ),
    "TimeLimit": lambda env: TimeLimit(env, 3),
    "NoisyObservation": lambda env: NoisyObservation(env, 0.1, 0.2),
    "NormalizeObservation": wrappers.NormalizeObservation,
    "PrivilegedObservation": lambda env: wrappers.PrivilegedObservation(env, _known),
    "Reach": lambda env: wrappers.Reach(wrappers.TorsoPosition(env)),
    "ScaleAction": wrappers.ScaleAction,
    "SelectObservation": lambda env: wrappers.SelectObservation(env, (1, 0)),
    "Skills": _skills,
    "StackObservation": lambda env: wrappers.StackObservation(env, 3),
    "TorsoPosition": wrappers.TorsoPosition,
    "nested": lambda env: wrappers.NormalizeObservation(
        AutoReset(TimeLimit(NoisyObservation(wrappers.DelayAction(env, 1), 0.1), 3))
    ),
}
FLAT = TerrainGrid((Flat(),), levels=2, points=5, cell=1.0)
# They need contacts, a terrain or an OpenGL context: only their structure is compared.
UNSTEPPED = {
    "FeetContact": skills.hopper_uni,
    "Pixels": lambda: wrappers.Pixels(Rail(), 8, 8),
    "TerrainCurriculum": lambda: wrappers.TerrainCurriculum(sled(FLAT), FLAT),
}


def test_every_wrapper_is_here():
    public = {
        name
        for name, value in vars(wrappers).items()
        if inspect.isclass(value)
        and issubclass(value, wrappers.AbstractWrapper)
        and not name.startswith("Abstract")
    }
    assert public <= {*WRAPPERS, *UNSTEPPED}


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.quick_cases("PooledResets", "Skills", "nested")
def test_wrappers(name, getkey):
    env, key = WRAPPERS[name](Rail()), getkey()

    def run(env):
        reset, step = eqx.filter_jit(env.reset), eqx.filter_jit(env.step)
        state, first = reset(key)
        state, second = step(state, 0.5 * jnp.ones(2))
        return state, first, second

    expected = run(env)
    for copied in COPIES.values():
        new = copied(env)
        assert_same(new, env)
        assert_same(run(new), expected)
        # States are copied, too, with their keys.
        assert_same(copied(expected), expected)


@pytest.mark.parametrize("name", UNSTEPPED)
def test_structure_of_wrappers(name):
    env = UNSTEPPED[name]()
    assert_copied(env)


def test_copies_of_real_environment(getkey):
    copied = COPIES["cloudpickle"]
    env = AutoReset(TimeLimit(eqsim.make("inverted_pendulum"), 3))
    policy = lambda obs, key: jr.uniform(key, (1,), obs.dtype, -1.0, 1.0)
    keys = jr.split(getkey(), 2)
    expected = eqsim.rollout(env, policy, keys, 5)
    assert_same(eqsim.rollout(copied(env), policy, keys, 5), expected)
    assert_same(copied(expected), expected)


@pytest.mark.parametrize("name", ("cloudpickle", "deepcopy"))
@pytest.mark.quick_cases("deepcopy")
def test_compiled_functions(name, getkey):
    """Their structure holds a sentinel of Equinox, which a copy must share."""
    key, env = getkey(), AutoReset(TimeLimit(NoisyObservation(Rail(), 0.1), 3))
    for fn in (
        env.reset,
        eqx.filter_jit(env.reset),
        eqx.filter_jit(eqx.Partial(env.reset)),
    ):
        assert_same(COPIES[name](fn)(key), fn(key))
    many = eqx.filter_jit(eqx.filter_vmap(env.reset))
    keys = jr.split(key, 3)
    assert_same(COPIES[name](many)(keys), many(keys))


@each_copy
def test_structures(copied):
    env = Rail()
    leaves, structure = jtu.tree_flatten(env)
    assert copied(structure) == structure
    again = jtu.tree_unflatten(copied(structure), leaves)
    again.reset(jr.key(0))


@each_copy
def test_results(copied):
    assert copied(eqsim.RESULTS.successful) == eqsim.RESULTS.successful
    assert copied(eqsim.RESULTS.nonfinite_state) != eqsim.RESULTS.successful


@pytest.mark.slow
def test_spawned_process(getkey, monkeypatch):
    """Arguments and result are pickled: the other process computes the same numbers."""
    monkeypatch.setenv("JAX_ENABLE_X64", str(jax.config.read("jax_enable_x64")))
    env = AutoReset(TimeLimit(NoisyObservation(Rail(), 0.1), 3))
    keys = jr.split(getkey(), 2)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        found = pool.submit(eqsim.rollout, env, push, keys, 5).result()
    expected = eqsim.rollout(env, push, keys, 5)
    assert jtu.tree_structure(found) == jtu.tree_structure(expected)
    for x, y in zip(jtu.tree_leaves(found), jtu.tree_leaves(expected), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jr.key_data(x), jr.key_data(y)
        np.testing.assert_allclose(x, y, rtol=1e-12)
