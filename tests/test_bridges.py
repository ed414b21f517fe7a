"""Parts that adapters to other libraries share."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from toys import Rail

import eqsim
from eqsim import AutoReset, DomainRandomization, TimeLimit
from eqsim.bridges import (
    check_no_auto_reset,
    CompiledEnv,
    is_key,
    randomized,
    typed_key,
)


def test_calls_are_those_of_the_environment():
    env = TimeLimit(Rail(), 3)
    state, timestep = env.reset(jr.key(0))
    compiled = CompiledEnv(env)
    assert tree_allclose(compiled(_reset, jr.key(0)), (state, timestep), rtol=1e-12)
    action = jax.numpy.array([0.5, -0.2])
    found = compiled(lambda env, state, u: env.step(state, u), state, action)
    assert tree_allclose(found, env.step(state, action), rtol=1e-12)


def test_environments_with_other_values_share_a_program():
    traced = []

    def mass(env):
        traced.append(None)
        return env.sys.links.mass

    env = Rail()
    heavy = eqx.tree_at(lambda e: e.sys.links.mass, env, 2.0 * env.sys.links.mass)
    light = CompiledEnv(env)(mass)
    assert tree_allclose(CompiledEnv(heavy)(mass), 2.0 * light)
    copied = pickle.loads(pickle.dumps(CompiledEnv(heavy)))
    assert tree_allclose(copied(mass), 2.0 * light)
    assert len(traced) == 1
    CompiledEnv(TimeLimit(env, 3))(mass)
    assert len(traced) == 2


def test_what_resets_itself_is_refused():
    check_no_auto_reset(TimeLimit(Rail(), 3), "Gym")
    with pytest.raises(
        ValueError, match="state of `AutoReset` is kept across episodes, but Gym"
    ):
        check_no_auto_reset(AutoReset(TimeLimit(Rail(), 3)), "Gym")
    with pytest.raises(TypeError, match="must be an environment of eqsim"):
        check_no_auto_reset("rail", "Gym")


def test_randomization_by_name():
    env = eqsim.make("hopper")
    assert randomized(env, None, "hopper") is env
    preset = eqsim.randomize.presets("hopper")["default"]
    for given in ("default", preset):
        made = randomized(env, given, "hopper")
        assert isinstance(made, DomainRandomization) and made.env is env
    with pytest.raises(ValueError, match="no such preset. Presets: .*default"):
        randomized(env, "hard to tell", "hopper")


def _reset(env, key):
    return env.reset(key)


def test_typed_keys():
    """Arrays of `jax.random.key`, traced or as shapes, are keys; what looks alike is not.
    A legacy key and its typed key draw the same numbers."""
    old, new = jr.PRNGKey(3), jr.key(3)
    shapes = jax.eval_shape(lambda key: (key, jr.key_data(key)), jr.split(new, 2))
    assert [is_key(x) for x in (new, jr.split(new), *shapes)] == [True] * 3 + [False]
    assert not any(map(is_key, (old, np.asarray(old), 3, None, "key", new.dtype)))
    draw = jax.jit(lambda key: (is_key(key), jr.normal(typed_key(key), (3,))))
    (typed, one), (legacy, two) = draw(new), draw(old)
    assert typed and not legacy and jnp.array_equal(one, two)
    assert typed_key(new) is new
