"""Copies of environments go on as the original does."""

import copy
import multiprocessing

import jax.numpy as jnp
import pytest
import torch
from eqsim_torchrl import EqsimEnv, from_torch, Operator
from torch import nn
from torchrl.envs import RewardSum, TransformedEnv


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
