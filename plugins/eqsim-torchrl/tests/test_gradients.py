"""Derivatives by PyTorch, beside those by JAX and by finite differences."""

import contextlib
import functools as ft
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import psutil
import pytest
import torch
from eqsim_torchrl import EnvState, EqsimWrapper

import eqsim


NAMES = "fast", "inverted_pendulum"
PIPELINES = "generalized", "spring", "positional"
LENGTHS = 1, 10, 50
BATCH = 3
PRECISIONS = {"single": (torch.float32, 1e-5), "double": (torch.float64, 1e-10)}


def mass(env):
    return env.sys.links.mass


@contextlib.contextmanager
def precision(name):
    with jax.enable_x64(name == "double"):
        yield PRECISIONS[name]


@ft.cache
def made(name, pipeline, precision):
    """An environment here and there, and states of it."""
    env = eqsim.make(name, pipeline=pipeline)
    wrapped = EqsimWrapper(
        env, batch_size=[BATCH], requires_grad=True, parameters={"mass": mass}
    )
    states, _ = jax.vmap(env.reset)(jr.split(jr.key(0), BATCH))
    return env, wrapped, states


def packed(wrapped, states):
    """States of eqsim, as tensors."""
    numbers, words = jax.vmap(wrapped._program.packing.pack)(states)
    as_tensor = lambda x: torch.tensor(np.asarray(x))
    shape = wrapped.observation_spec["observation"].shape
    obs = torch.zeros(shape, dtype=wrapped.action_spec.dtype)
    return EnvState(as_tensor(numbers), as_tensor(words), obs)


def actions_of(length, dtype):
    generator = torch.Generator().manual_seed(length)
    return torch.randn(BATCH, length, 1, dtype=dtype, generator=generator)


@eqx.filter_jit
def expected(env, states, actions):
    """Value, and derivatives by actions, states and masses, of `loss`."""
    dynamic, static = eqx.partition(states, eqx.is_inexact_array)

    def loss(actions, dynamic, masses):
        robot = eqx.tree_at(mass, env, masses)

        def one(state, actions):
            def step(state, action):
                state, timestep = robot.step(state, action)
                return state, jnp.sum(timestep.obs**2) + timestep.reward

            return jnp.sum(jax.lax.scan(step, state, actions)[1])

        return jnp.mean(jax.vmap(one)(eqx.combine(dynamic, static), actions))

    by = 0, 1, 2
    return jax.value_and_grad(loss, by)(actions, dynamic, mass(env))


def loss(tensordict):
    after = tensordict["next"]
    return (
        (after["observation"].square().sum(-1) + after["reward"][..., 0]).sum(1).mean()
    )


def stepped(wrapped, state, actions):
    """`loss` of steps by themselves."""
    wrapped.reset(state=state)
    total = 0.0
    for t in range(actions.shape[1]):
        tensordict = wrapped.reset(state=wrapped.state)
        tensordict["action"] = actions[:, t]
        after = wrapped.step(tensordict)["next"]
        total = total + after["observation"].square().sum(-1) + after["reward"][..., 0]
    return total.mean()


def unrolled(wrapped, state, actions):
    """`loss` of one program."""
    return loss(wrapped.unroll(actions, state=state)[0])


def combinations():
    """All; the quick ones are those of a mass on a rail, in joint coordinates."""
    cases = itertools.product(
        PRECISIONS, NAMES, PIPELINES, LENGTHS, (stepped, unrolled)
    )
    for case in cases:
        quick = case[1:4] == ("fast", "generalized", 10)
        yield pytest.param(*case, marks=[] if quick else pytest.mark.slow)


@pytest.mark.parametrize("digits, name, pipeline, length, run", [*combinations()])
def test_gradients_are_those_of_jax(digits, name, pipeline, length, run):
    with precision(digits) as (dtype, tolerance):
        env, wrapped, states = made(name, pipeline, digits)
        actions = actions_of(length, dtype).requires_grad_()
        state = packed(wrapped, states)
        state.numbers.requires_grad_()
        parameter = wrapped.model_parameters["mass"]
        value = run(wrapped, state, actions)
        given = actions, state.numbers, parameter
        by_actions, by_numbers, by_mass = torch.autograd.grad(value, given)
        reference, derivatives = expected(env, states, jnp.asarray(actions.detach()))
        np.testing.assert_allclose(value.item(), reference, rtol=tolerance)
        leaves = jtu.tree_leaves_with_path(derivatives[1])
        assert len(leaves) == len(wrapped.slices)
        # What is zero but for rounding is so beside the others.
        largest = max(np.abs(x).max(initial=0.0) for x in jtu.tree_leaves(derivatives))
        close = ft.partial(
            np.testing.assert_allclose, rtol=tolerance, atol=tolerance * float(largest)
        )
        close(by_actions.numpy(), derivatives[0])
        close(by_mass.numpy(), derivatives[2])
        for path, leaf in leaves:
            where, shape = wrapped.slices[jtu.keystr(path).lstrip(".")]
            close(by_numbers[:, where].reshape(BATCH, *shape).numpy(), leaf)


@pytest.mark.parametrize(
    "name, pipeline",
    [
        pytest.param(*case, marks=[] if k == 0 else pytest.mark.slow)
        for k, case in enumerate(itertools.product(NAMES, PIPELINES))
    ],
)
def test_finite_differences(name, pipeline):
    with precision("double") as (dtype, _):
        _, wrapped, states = made(name, pipeline, "double")
        state = packed(wrapped, states)

        def value(actions, numbers):
            return unrolled(wrapped, state._replace(numbers=numbers), actions)

        given = actions_of(10, dtype).requires_grad_(), state.numbers.requires_grad_()
        assert torch.autograd.gradcheck(
            value, given, eps=1e-6, rtol=1e-5, atol=1e-7, fast_mode=True
        )


def test_forward_is_reverse():
    with precision("double") as (dtype, _):
        _, wrapped, states = made("fast", "generalized", "double")
        state, actions = packed(wrapped, states), actions_of(10, dtype)
        value = lambda actions: unrolled(wrapped, state, actions)
        _, tangent = torch.func.jvp(value, (actions,), (torch.ones_like(actions),))
        torch.testing.assert_close(torch.func.grad(value)(actions).sum(), tangent)


def test_transition_under_vmap():
    with precision("double") as (dtype, _):
        _, wrapped, states = made("fast", "generalized", "double")
        state, actions = packed(wrapped, states), actions_of(10, dtype)
        step = lambda action: wrapped.transition(state, action)[0].obs
        several = torch.func.vmap(step, 1)(actions)
        for t in range(10):
            torch.testing.assert_close(several[t], step(actions[:, t]))


def test_a_thousand_steps_hold_little():
    env = EqsimWrapper(eqsim.make("fast"), batch_size=[BATCH], requires_grad=True)
    process = psutil.Process()

    def run(steps):
        env.set_seed(0)
        action = torch.zeros(BATCH, 1, requires_grad=True)
        tensordict, total = env.reset(), 0.0
        for _ in range(steps):
            tensordict["action"] = action
            after = env.step(tensordict)["next"]
            total = total + after["observation"].square().mean()
            tensordict = after.select("observation")
        total.backward()

    run(10)
    before = process.memory_info().rss
    run(1000)
    assert process.memory_info().rss - before < 50e6
    assert env.traces == env._program.step.backward(3).traces == 1


def test_no_graph_unless_asked_for():
    env = EqsimWrapper(eqsim.make("fast"), batch_size=[2])
    tensordict = env.reset()
    shape, dtype = env.action_spec.shape, env.action_spec.dtype
    tensordict["action"] = torch.zeros(shape, dtype=dtype, requires_grad=True)
    assert not env.step(tensordict)["next", "observation"].requires_grad
