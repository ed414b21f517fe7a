"""Environments that are compiled once and shared by tests."""

import functools as ft

import torch
from eqsim_torchrl import EqsimWrapper

import eqsim


make = ft.cache(eqsim.make)
same = ft.partial(torch.testing.assert_close, rtol=0.0, atol=0.0)
made = {}


def wrap(name="point_mass", batch_size=(3,), **options):
    """An environment, which is compiled once and shared by tests."""
    key = name, batch_size, repr(options)
    if key not in made:
        made[key] = EqsimWrapper(make(name), batch_size=batch_size, **options)
    env = made[key]
    env._state = None
    env.set_seed(0)
    return env


def acted(env, tensordict=None, seed=1):
    """A tensordict with random actions."""
    tensordict = env.reset() if tensordict is None else tensordict
    torch.manual_seed(seed)
    return tensordict.update(env.full_action_spec.rand())


def unrolled(*args, **options):
    """The result of `unroll` from the first state."""
    env = wrap(**options)
    env.reset()
    return env.unroll(*args)
