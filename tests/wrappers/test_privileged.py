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
    NoisyObservation,
    PrivilegedObservation,
    robot,
    TimeLimit,
)


def truth(sys, state):
    return jnp.concatenate([state.q, state.qd, sys.links.mass])


MASSES = randomize.masses(0.5, 2.0)


def test_is_that_of_the_episode():
    """Of the state after each step and of the robot that was drawn, without the noise of
    the rest."""
    noisy = NoisyObservation(DomainRandomization(Rail(), MASSES), 0.1)
    env = AutoReset(TimeLimit(PrivilegedObservation(noisy, truth), 4))
    out = eqsim.rollout(
        env, lambda obs, key: push(obs["obs"], key), jr.split(jr.key(0), 3), 6
    )
    last = out.timestep.final_obs["privileged"]
    sys = jax.vmap(jax.vmap(lambda state: robot(env, state)))(out.state)
    physics = env.physics(out.state)
    going_on = ~np.asarray(out.timestep.done)
    assert going_on.any() and not going_on.all()
    expected = jnp.concatenate([physics.q, physics.qd, sys.links.mass], axis=-1)
    np.testing.assert_array_equal(last[going_on], expected[going_on])
    plain = jnp.concatenate([physics.q, physics.qd], axis=-1)
    off = out.timestep.final_obs["obs"][..., : plain.shape[-1]] - plain
    assert np.all(np.abs(np.asarray(off)[going_on]).max(axis=-1) > 0.0)
    masses = np.asarray(last[..., plain.shape[-1] :])
    assert len(np.unique(masses[:, 0], axis=0)) == 3


def test_joins_a_dictionary_and_refuses_a_second_one():
    both = PrivilegedObservation(PrivilegedObservation(Rail(), truth), truth)
    with pytest.raises(ValueError, match="already has a part `privileged`"):
        both.reset(jr.key(0))
    with pytest.raises(ValueError, match=r"Write `AutoReset\(PrivilegedObservation"):
        PrivilegedObservation(AutoReset(TimeLimit(Rail(), 3)), truth)
