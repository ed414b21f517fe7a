"""What holds for every wrapper, alone and around others."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import check_gradients, examples, tree_allclose
from hypothesis import given, settings, strategies as st
from toys import Rail

from eqsim import randomize
from eqsim.wrappers import (
    ActionRepeat,
    AutoReset,
    ClipAction,
    DelayAction,
    DomainRandomization,
    nested_envs,
    NoisyObservation,
    NormalizeObservation,
    pool_resets,
    ResetMode,
    ScaleAction,
    SelectObservation,
    StackObservation,
    TimeLimit,
    TorsoPosition,
)


HEAVIER = randomize.masses(0.5, 2.0)


def pooled(env):
    return AutoReset(pool_resets(TimeLimit(env, 3), jr.key(7), 4))


ALL = (
    ScaleAction,
    lambda env: ActionRepeat(env, 2),
    lambda env: DomainRandomization(env, HEAVIER),
    TorsoPosition,
    lambda env: NoisyObservation(env, 0.1),
    lambda env: DelayAction(env, 1),
    lambda env: TimeLimit(env, 4),
    lambda env: StackObservation(env, 2),
    AutoReset,
    NormalizeObservation,
)
WRAPPERS = {
    "TimeLimit": lambda env: TimeLimit(env, 3),
    "AutoReset": lambda env: AutoReset(TimeLimit(env, 3)),
    "AutoReset next": lambda env: AutoReset(
        TimeLimit(env, 3), mode=ResetMode.NEXT_STEP
    ),
    "AutoReset pool": pooled,
    "ActionRepeat": lambda env: ActionRepeat(env, 3),
    "ClipAction": ClipAction,
    "ScaleAction": ScaleAction,
    "DelayAction": lambda env: DelayAction(env, 2),
    "DelayAction random": lambda env: DelayAction(env, 3, 0),
    "NormalizeObservation": NormalizeObservation,
    "StackObservation": lambda env: StackObservation(env, 3),
    "NoisyObservation": lambda env: NoisyObservation(env, 0.1, 0.2),
    "SelectObservation": lambda env: SelectObservation(env, (2, 0)),
    "DomainRandomization": lambda env: DomainRandomization(env, HEAVIER),
    "context": lambda env: DomainRandomization(env, HEAVIER, observe_context=True),
    "TorsoPosition": TorsoPosition,
    "all": lambda env: functools.reduce(lambda env, wrap: wrap(env), ALL, env),
}
everywhere = pytest.mark.parametrize("name", WRAPPERS)


def shapes(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


@everywhere
@settings(max_examples=examples(6))
@given(n=st.integers(2, 3), batch=st.sampled_from([(), (1,), (3,), (2, 3)]))
@pytest.mark.quick_cases("AutoReset pool", "DelayAction random", "all")
def test_structure(name, n, batch):
    """A step returns what a reset does, in every batch; nothing is compiled."""
    env = WRAPPERS[name](Rail(n))
    reset, step = env.reset, env.step
    for _ in batch:
        reset, step = eqx.filter_vmap(reset), eqx.filter_vmap(step)
    first = eqx.filter_eval_shape(reset, jr.split(jr.key(0), batch))
    second = eqx.filter_eval_shape(step, first[0], jnp.zeros((*batch, n)))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert shapes(first) == shapes(second)
    assert second[1].reward.shape == batch
    assert env.action_range.shape == (n, 2)
    assert env.physics(first[0]).q.shape == (*batch, n)


@everywhere
@pytest.mark.quick_cases(
    *("all", "AutoReset pool", "DelayAction random", "context"),
    *("SelectObservation", "ClipAction"),
)
def test_compiled_batched_and_looped(name):
    """jit, vmap and scan change nothing."""
    env, keys = WRAPPERS[name](Rail()), jr.split(jr.key(1), 2)
    actions = jr.uniform(jr.key(2), (7, 2, 2), minval=-1.0, maxval=2.0)

    def run(key, actions):
        state, first = env.reset(key)
        last, rest = jax.lax.scan(lambda s, a: env.step(s, a), state, actions)
        return first, rest, env.physics(last)

    step = eqx.filter_jit(env.step)
    together = eqx.filter_jit(eqx.filter_vmap(run, in_axes=(0, 1)))(keys, actions)
    for k, key in enumerate(keys):
        state, first = env.reset(key)
        reports = []
        for action in actions[:, k]:
            state, timestep = step(state, action)
            reports.append(timestep)
        rest = jax.tree.map(lambda *x: jnp.stack(x), *reports)
        alone = first, rest, env.physics(state)
        mine = jax.tree.map(lambda x: x[k], together)
        assert tree_allclose(mine, alone, rtol=1e-10, atol=1e-12)


@everywhere
@pytest.mark.quick_cases("all")
def test_gradient(name):
    """By actions and by the robot, through resets as well."""
    env, key = WRAPPERS[name](Rail()), jr.key(3)

    def loss(actions, mass):
        where = lambda env: env.sys.links.mass
        mine = eqx.tree_at(where, env, mass)
        state, _ = mine.reset(key)
        _, timestep = jax.lax.scan(lambda s, a: mine.step(s, a), state, actions)
        return timestep.obs, timestep.reward

    # Inside the range of the motors, so that no clipping is at its edge.
    actions = jr.uniform(jr.key(4), (6, 2), minval=-0.9, maxval=0.9)
    largest = check_gradients(loss, actions, env.sys.links.mass)
    assert all(x > 0 for x in largest.values())


@everywhere
def test_arguments(name):
    """A given start; actions and options that are refused, while nothing is compiled."""
    env, q = WRAPPERS[name](Rail()), jnp.array([0.3, -0.4])
    state, _ = env.reset(jr.key(0), {"q": q, "qd": 2.0 * q})
    physics = env.physics(state)
    assert np.array_equal(physics.q, q) and np.array_equal(physics.qd, 2.0 * q)
    reset = lambda **options: eqx.filter_eval_shape(env.reset, jr.key(0), options)
    step = lambda action: eqx.filter_eval_shape(lambda s: env.step(s, action), state)
    for message, call in {
        "'qt'.*Did you mean 'q'": lambda: reset(qt=q),
        r"`options.q`.*\(nq,\) = \(2,\).*\(3,\)": lambda: reset(q=jnp.zeros(3)),
        r"`action`.*\(nu,\) = \(2,\).*\(3,\)": lambda: step(jnp.zeros(3)),
        "`action` must be finite.*nan": lambda: step(jnp.array([0.0, jnp.nan])),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_order():
    """What belongs to an episode is inside of what resets."""
    task = Rail()
    looping = AutoReset(TimeLimit(task, 3))
    for wrap in (
        lambda env: TimeLimit(env, 3),
        lambda env: StackObservation(env, 2),
        lambda env: DelayAction(env, 1),
        lambda env: NoisyObservation(env, 0.1),
        lambda env: ActionRepeat(env, 2),
        lambda env: DomainRandomization(env, HEAVIER),
        TorsoPosition,
        AutoReset,
    ):
        with pytest.raises(ValueError, match=r"wraps `AutoReset`.*Write `AutoReset\("):
            wrap(looping)
    with pytest.raises(ValueError, match="wraps `NormalizeObservation`"):
        AutoReset(NormalizeObservation(task))
    for wrap in (ClipAction, ScaleAction, NormalizeObservation):
        wrap(looping)
    names = [type(env).__name__ for env in nested_envs(NormalizeObservation(looping))]
    assert names == ["NormalizeObservation", "AutoReset", "TimeLimit", "Rail"]
    with pytest.raises((TypeError, ValueError), match="TimeLimit|env"):
        TimeLimit("ant", 3)  # pyright: ignore
