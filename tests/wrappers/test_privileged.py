"""Observations that only a simulation has."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from toys import push, Rail

import eqsim
from eqsim import randomize
from eqsim.wrappers import (
    AutoReset,
    DomainRandomization,
    episode_robot,
    NoisyObservation,
    PrivilegedObservation,
    TimeLimit,
)


def truth(sys, state):
    return jnp.concatenate([state.q, state.qd, sys.links.mass])


MASSES = randomize.masses(0.5, 2.0)


def test_is_that_of_the_episode():
    """Of each state and of the robot that was drawn, without the noise of the rest."""
    noisy = NoisyObservation(DomainRandomization(Rail(), MASSES), 0.1)
    env = AutoReset(TimeLimit(PrivilegedObservation(noisy, truth), 4))
    act = lambda obs, key: push(obs["obs"], key)
    out = eqsim.rollout(env, act, jr.split(jr.key(0), 3), 6)
    sys = jax.vmap(jax.vmap(lambda state: episode_robot(env, state)))(out.state)
    physics = env.physics(out.state)
    plain = jnp.concatenate([physics.q, physics.qd], axis=-1)
    expected = jnp.concatenate([plain, sys.links.mass], axis=-1)
    np.testing.assert_array_equal(out.obs["privileged"], expected)
    off = np.abs(np.asarray(out.obs["obs"] - plain))
    assert np.all(off.max(axis=-1) > 0.0)
    # The time limit of 4 steps: the robot of the next episode is another.
    masses = np.asarray(sys.links.mass[..., 0])
    assert np.all(masses[:, 0] != masses[:, -1]) and len(set(masses[:, 0])) == 3


def test_joins_a_dictionary_and_refuses_a_second_one():
    both = PrivilegedObservation(PrivilegedObservation(Rail(), truth), truth)
    with pytest.raises(ValueError, match="already has a part `privileged`"):
        both.reset(jr.key(0))
    with pytest.raises(ValueError, match=r"Write `AutoReset\(PrivilegedObservation"):
        PrivilegedObservation(AutoReset(TimeLimit(Rail(), 3)), truth)
