"""Derivatives by PyTorch, beside those by JAX and by finite differences."""

import contextlib
import functools as ft
import itertools
import subprocess
import sys

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


NAMES = "point_mass", "inverted_pendulum"
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
    """All; the quick ones are those of a mass on a rail, in joint coordinates, one run
    in each precision."""
    cases = itertools.product(
        PRECISIONS, NAMES, PIPELINES, LENGTHS, (stepped, unrolled)
    )
    for case in cases:
        quick = case[1:4] == ("point_mass", "generalized", 10)
        quick = quick and (case[0] == "single") == (case[4] is stepped)
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
        # Fifty steps enlarge the rounding of single precision, beyond a small derivative.
        largest = max(np.abs(x).max(initial=0.0) for x in jtu.tree_leaves(derivatives))
        scale = float(largest) if digits == "single" else 0.0
        close = ft.partial(_close, tolerance, scale)
        close([(by_actions, derivatives[0])])
        close([(by_mass, derivatives[2])])
        pairs = []
        for path, leaf in leaves:
            where, shape = wrapped.slices[jtu.keystr(path).lstrip(".")]
            pairs.append((by_numbers[:, where].reshape(BATCH, *shape), leaf))
        close(pairs)


def _close(tolerance, scale, pairs):
    """What is zero but for rounding is so beside the others of the same derivative, or
    beside that scale."""
    largest = max(float(np.abs(leaf).max(initial=0.0)) for _, leaf in pairs)
    assert largest > 0.0 and any(found.any() for found, _ in pairs)
    largest = max(largest, scale)
    for found, leaf in pairs:
        np.testing.assert_allclose(
            found.numpy(), leaf, rtol=tolerance, atol=tolerance * largest
        )


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

        def value(actions, numbers, parameter):
            # Which is changed in place.
            assert parameter is wrapped.model_parameters["mass"]
            return unrolled(wrapped, state._replace(numbers=numbers), actions)

        given = (
            actions_of(10, dtype).requires_grad_(),
            state.numbers.requires_grad_(),
            wrapped.model_parameters["mass"],
        )
        assert torch.autograd.gradcheck(
            value, given, eps=1e-6, rtol=1e-5, atol=1e-7, fast_mode=True
        )


def test_forward_is_reverse():
    with precision("double") as (dtype, _):
        _, wrapped, states = made("point_mass", "generalized", "double")
        state, actions = packed(wrapped, states), actions_of(10, dtype)
        value = lambda actions: unrolled(wrapped, state, actions)
        _, tangent = torch.func.jvp(value, (actions,), (torch.ones_like(actions),))
        torch.testing.assert_close(torch.func.grad(value)(actions).sum(), tangent)


def test_transition_under_vmap():
    with precision("double") as (dtype, _):
        _, wrapped, states = made("point_mass", "generalized", "double")
        state, actions = packed(wrapped, states), actions_of(10, dtype)
        step = lambda action: wrapped.transition(state, action)[0].obs
        several = torch.func.vmap(step, 1)(actions)
        for t in range(10):
            torch.testing.assert_close(several[t], step(actions[:, t]))


def test_transition_needs_no_option():
    env = EqsimWrapper(eqsim.make("point_mass"), batch_size=[BATCH])
    env.reset()
    state = env.state
    action = torch.zeros(BATCH, 1, dtype=env.action_spec.dtype)
    value = lambda action: env.transition(state, action)[0].obs.square().sum()
    found = torch.func.grad(value)(action)
    several = torch.func.vmap(torch.func.grad(value))(action.expand(2, BATCH, 1))
    torch.testing.assert_close(several[1], found)
    near = [value(action + 1e-5 * sign) for sign in (1, -1)]
    torch.testing.assert_close(found.sum(), (near[0] - near[1]) / 2e-5)


WHOLE = """
import eqsim, torch
from eqsim_torchrl import EqsimWrapper

env = EqsimWrapper(eqsim.make("point_mass"), batch_size=[3])
env.reset()
state, action = env.state, torch.zeros(3, 1, requires_grad=True)
value = lambda action: env.transition(state, action)[0].obs.square().sum()
torch.compile(value, fullgraph=True, backend="aot_eager")(action).backward()
torch.testing.assert_close(action.grad, torch.func.grad(value)(action.detach()))
assert action.grad.any()
"""


@pytest.mark.slow  # A process of its own; `test_compile_takes_it_whole` is the quick one.
def test_transition_is_compiled_whole():
    # By itself: the check of types, which tests run with, is more than PyTorch takes.
    done = subprocess.run([sys.executable, "-c", WHOLE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_parameters_of_which_robots_are_made():
    env = EqsimWrapper(
        eqsim.make("point_mass"),
        batch_size=[BATCH],
        requires_grad=True,
        parameters={"mass": mass},
        randomize=eqsim.randomize.masses(0.5, 2.0),
    )
    parameter = env.model_parameters["mass"]
    before = parameter.detach().clone()
    actions = torch.ones(BATCH, 3, 1, dtype=env.action_spec.dtype)

    def value(by):
        with torch.no_grad():
            parameter.copy_(before + by)
        env.set_seed(0)
        env.reset()
        return env.unroll(actions)[1].obs.sum()

    near = value(1e-5) - value(-1e-5)
    (found,) = torch.autograd.grad(value(0.0), parameter)
    torch.testing.assert_close(found.sum(), near.detach() / 2e-5)
    env.reset(state=env.state)
    env.detach()
    (found,) = torch.autograd.grad(env.unroll(actions)[1].obs.sum(), parameter)
    assert torch.all(found == 0.0)


@pytest.mark.slow
def test_a_thousand_steps_hold_little():
    # Programs are shared by environments of equal structure: no other test has this one.
    task = eqsim.make("point_mass", frame_skip=7)
    env = EqsimWrapper(task, batch_size=[BATCH], requires_grad=True)
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
    step = env._program.step
    assert env.traces == step.backward([True, False, True]).traces == 1
    assert len(step._derived) == 1


def test_no_graph_unless_asked_for():
    env = EqsimWrapper(eqsim.make("point_mass"), batch_size=[2])
    tensordict = env.reset()
    shape, dtype = env.action_spec.shape, env.action_spec.dtype
    tensordict["action"] = torch.zeros(shape, dtype=dtype, requires_grad=True)
    assert not env.step(tensordict)["next", "observation"].requires_grad
