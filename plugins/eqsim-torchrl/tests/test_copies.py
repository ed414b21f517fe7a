"""Copies go on as the original does; environments of equal structure share programs."""

import copy
import gc
import multiprocessing
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from eqsim_torchrl import EqsimEnv, EqsimWrapper, from_torch, Operator
from torch import nn
from torchrl.envs import RewardSum, TransformedEnv

import eqsim


def gravity(env):
    return env.sys.gravity


def double(fixed, x):
    return (fixed * x,)


OPTIONS = {
    "plain": {},
    "episodes": {"randomize": "masses", "episode_length": 7},
    "gradient": {"requires_grad": True, "parameters": {"gravity": gravity}},
    "state": {"state_in_tensordict": True},
    "table": {"discrete_actions": [[-1.0], [0.0], [2.0]]},
}


def assert_same(found, expected):
    """Tensordicts, number by number."""
    assert set(found.keys(True, True)) == set(expected.keys(True, True))
    for name in expected.keys(True, True):
        x, y = found[name].detach(), expected[name].detach()
        torch.testing.assert_close(x, y, rtol=0.0, atol=0.0)


def started(**options):
    """An environment after one step, the tensordict that it led to, and an action."""
    env = EqsimEnv("point_mass", batch_size=[2], **options)
    env.set_seed(0)
    torch.manual_seed(1)
    action = env.action_spec.rand()
    after = env.step(env.reset().set("action", action))["next"]
    return env, after, action


def run(env, after, action):
    """A step, and the next reset."""
    stepped = env.step(after.clone().set("action", action))["next"]
    return stepped, env.reset()


@pytest.mark.parametrize("name", OPTIONS)
def test_environments(name, copies):
    env, after, action = started(**OPTIONS[name])
    news = [copied(env) for copied in copies]
    expected = run(env, after, action)
    for new in news:
        for found, other in zip(run(new, after, action), expected, strict=True):
            assert_same(found, other)


def test_copy_is_independent(copied):
    env, after, action = started()
    new = copied(env)
    before = env.state.numbers.clone()
    run(new, after, action)
    torch.testing.assert_close(env.state.numbers, before, rtol=0.0, atol=0.0)


def test_gradient(copied):
    env, after, action = started(**OPTIONS["gradient"])
    new = copied(env)
    assert not new.state.numbers.requires_grad
    env.detach()

    def slope(env):
        given = action.clone().requires_grad_()
        stepped = env.step(after.detach().clone().set("action", given))
        stepped["next", "reward"].sum().backward()
        return given.grad, env.model_parameters["gravity"].grad

    # The parameters of a copy are its own.
    for x, y in zip(slope(new), slope(env), strict=True):
        torch.testing.assert_close(x, y)


def test_deep_copies_share_programs():
    env, after, action = started()
    new, traces = copy.deepcopy(env), env.traces
    run(new, after, action)
    assert env.traces == new.traces == traces


def test_transformed(copied):
    env, after, action = started()
    outer = TransformedEnv(env, RewardSum())
    outer.reset()
    new = copied(outer)
    rollouts = [x.rollout(3, break_when_any_done=False) for x in (outer, new)]
    assert rollouts[0].shape == rollouts[1].shape
    assert_same(outer.reset(), new.reset())


def test_pixels(copied, opengl):
    env, after, action = started(from_pixels=True, width=8, height=8)
    new = copied(env)
    for found, other in zip(run(new, after, action), run(env, after, action)):
        assert_same(found, other)


def test_operator(copied):
    operator = Operator(double, torch.tensor(3.0).numpy())
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    operator(x)
    (out,) = copied(operator)(x)
    (slope,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(slope, torch.full_like(x, 3.0))


def test_policy(copied):
    policy = from_torch(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    obs = jnp.ones(3, policy.weights[0].dtype)
    assert jnp.array_equal(copied(policy)(obs), policy(obs))


@pytest.mark.slow
def test_spawned_process(monkeypatch):
    """What is compiled stays here, and is compiled there again."""
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    env, after, action = started()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(EqsimEnv.step, (env, after.set("action", action)))
    expected = env.step(after.set("action", action))
    for name in ("observation", "reward"):
        torch.testing.assert_close(found["next", name], expected["next", name])


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
    from eqsim_torchrl._program import functions_of, structure_of

    env = pendulum()
    odd = [eqx.tree_at(lambda env: env.sys.dt, env, x) for x in (1, True, 1.0)]
    assert len({structure_of(one, (), 2)[0] for one in odd}) == 3
    equal = [structure_of(pendulum(g), (), 2)[0] for g in (-9.81, -3.0)]
    assert functions_of(equal[0]) is functions_of(equal[1])


def test_precision_is_part_of_the_structure():
    """The same environment has other programs in other settings of JAX."""
    from eqsim_torchrl._program import structure_of

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
