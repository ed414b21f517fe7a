"""Environments of equal structure share compiled programs, and nothing else."""

import gc
import weakref

import equinox as eqx
import jax
import numpy as np
import pytest
import torch
from eqsim_torchrl import EqsimEnv, EqsimWrapper

import eqsim


COMPILED = []


@pytest.fixture(scope="module", autouse=True)
def listener():
    """Record each program that is compiled."""

    def listen(event, seconds, **_):
        if "backend_compile" in event:
            COMPILED.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)


def pendulum(gravity=-9.81):
    """A pendulum on another planet."""
    env = eqsim.make("inverted_pendulum")
    value = env.sys.gravity.at[2].set(gravity)
    return eqx.tree_at(lambda env: env.sys.gravity, env, value)


def observed(env, rows=2):
    """Take steps, and differentiate their rewards."""
    env.set_seed(3)
    now = env.reset()
    actions = torch.full((rows, 1), 0.5, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        now["action"] = actions
        now = env.step_mdp(env.step(now))
    now["observation"].sum().backward()
    return now["observation"].detach().numpy(), actions.grad.numpy()


def test_equal_structures_share_programs():
    make = lambda gravity, **options: EqsimWrapper(
        pendulum(gravity), batch_size=[2], requires_grad=True, **options
    )
    first = observed(make(-9.81))
    before = len(COMPILED)
    assert before > 0
    values = [observed(make(gravity)) for gravity in (-9.81, -3.0, -1.6)]
    assert len(COMPILED) == before
    # Each has its own arrays.
    for value, expected in zip(values[0], first, strict=True):
        np.testing.assert_array_equal(value, expected)
    for k in range(2):
        found = [x[k] for x in values]
        assert len(np.unique(found, axis=0)) == 3
    # Other numbers of rows and other wrappers have programs of their own.
    make(-9.81, episode_length=2).reset()
    assert len(COMPILED) > before


def test_values_that_are_equal_but_of_other_types():
    """`True == 1 == 1.0`, but programs differ."""
    from eqsim_torchrl._shared import functions_of, structure_of

    env = pendulum()
    odd = [eqx.tree_at(lambda env: env.sys.dt, env, x) for x in (1, True, 1.0)]
    assert len({structure_of(one, (), 2)[0] for one in odd}) == 3
    equal = [structure_of(pendulum(g), (), 2)[0] for g in (-9.81, -3.0)]
    assert functions_of(equal[0]) is functions_of(equal[1])


def test_precision_is_part_of_the_structure():
    """The same environment has other programs in other settings of JAX."""
    from eqsim_torchrl._shared import structure_of

    env = pendulum()
    double = structure_of(env, (), 2)[0]
    with jax.enable_x64(False):
        assert structure_of(env, (), 2)[0] != double
    assert structure_of(env, (), 2)[0] == double


def test_shared_programs_keep_no_environment():
    env = EqsimEnv("point_mass", batch_size=[2])
    env.reset()
    held = [weakref.ref(x) for x in (env, env._program, env._program.step)]
    held += [weakref.ref(env.eqsim_env.sys.dt)]
    del env
    gc.collect()
    assert [x() for x in held] == [None] * len(held)
