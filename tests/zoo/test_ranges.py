"""Hyperparameters out of their range are refused, whoever has them."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import eqsim
import eqsim_zoo as zoo
from eqsim_zoo.blocks.hyperparameters import _RANGES


# Agents with hyperparameters, found by their interface.
AGENTS = sorted(
    (
        cls
        for cls in vars(zoo).values()
        if inspect.isclass(cls)
        and issubclass(cls, eqsim.AbstractAgent)
        and not cls.__name__.startswith("Abstract")
    ),
    key=lambda cls: cls.__name__,
)
# Agents without required fields.
DEFAULTS = {
    cls: cls()
    for cls in dict.fromkeys([*AGENTS, zoo.RewardMix])
    if all(
        p.default is not inspect.Parameter.empty
        for p in inspect.signature(cls).parameters.values()
    )
}
CASES = [
    (cls, name)
    for cls, agent in DEFAULTS.items()
    for name, value in vars(agent).items()
    if eqx.is_inexact_array(value)
]
ids = lambda x: x.__name__ if inspect.isclass(x) else str(x)


def test_agents_are_found():
    assert {zoo.PPO, zoo.SAC, zoo.METRA, zoo.IQL} <= set(DEFAULTS)


@pytest.mark.parametrize("cls, name", CASES, ids=ids)
def test_each_real_number_has_a_range(cls, name):
    assert name in _RANGES, "a new hyperparameter needs a range in `_RANGES`"
    nan = jnp.full_like(vars(DEFAULTS[cls])[name], jnp.nan)
    with pytest.raises(
        ValueError, match=f"`{cls.__name__}.{name}` must be .*got .*nan"
    ):
        cls(**{name: nan})


@pytest.mark.parametrize(
    "cls, name, value",
    (
        (zoo.PPO, "discount", 1.01),
        (zoo.PPO, "clip", 0.0),
        (zoo.PPO, "max_grad_norm", -1.0),
        (zoo.SAC, "initial_temperature", -1.0),
        (zoo.SAC, "target_rate", 0.0),
        (zoo.TD3, "exploration_noise", -0.1),
        (zoo.ES, "noise", 0.0),
        (zoo.ARS, "noise", 0.0),
        (zoo.APG, "checkpoint_every", -1),
        (zoo.IQL, "expectile", 1.0),
        (zoo.AWAC, "temperature", -1.0),
        (zoo.AWAC, "levels", 1),
        (zoo.METRA, "learning_rate", -1e-4),
        (zoo.RewardMix, "margin", -1.0),
    ),
    ids=ids,
)
def test_values_out_of_range_are_refused(cls, name, value):
    with pytest.raises(ValueError, match=f"{cls.__name__}.{name}"):
        cls(**{name: value})


def test_limits_of_ranges_are_accepted():
    zoo.PPO(discount=1.0, learning_rate=0.0, max_grad_norm=jnp.inf)
    zoo.RewardMix(target_return=-jnp.inf)
    zoo.APG(noise=0.0)


def test_swept_and_traced_values_pass():
    sweep = eqx.filter_vmap(lambda rate: zoo.PPO(learning_rate=rate))
    assert sweep(jnp.asarray([1e-4, 1e-3])).learning_rate.shape == (2,)
    jax.jit(lambda rate: zoo.PPO(learning_rate=rate).learning_rate)(-1.0)
