"""Laws of TorchRL's tests of `BraxEnv`."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import psutil
import pytest
import torch
from eqsim_torchrl import EqsimEnv, EqsimWrapper
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.envs import ParallelEnv, SerialEnv
from torchrl.envs.utils import check_env_specs
from torchrl_envs import acted, make, same, wrap


BATCHES = (), (5,), (5, 4)
each_batch = pytest.mark.parametrize("batch_size", BATCHES, ids=str)
with_and_without = pytest.mark.parametrize("requires_grad", (False, True))


@jax.jit
@jax.vmap
def begin(obs):
    """State of eqsim's environment at an observation."""
    return make("point_mass").reset(jr.key(0), {"q": obs[:1], "qd": obs[1:]})[0]


@jax.jit
@jax.vmap
def step(state, action):
    """Step of eqsim's environment."""
    return make("point_mass").step(state, action)


@pytest.mark.slow  # `test_env.py` has both constructors.
@with_and_without
def test_constructors(requires_grad):
    """An environment by name and one that wraps an object give the same rollout, whose
    tensors have a graph if the environment computes derivatives."""
    options = {"batch_size": [3], "requires_grad": requires_grad}
    named = EqsimEnv("point_mass", **options, state_in_tensordict=True)
    wrapped = EqsimWrapper(named.eqsim_env, **options, state_in_tensordict=True)
    rollouts = []
    for env in (named, wrapped):
        env.set_seed(0)
        torch.manual_seed(0)
        start = env.reset()
        if requires_grad:
            start["state", "numbers"].requires_grad_()
        rollout = env.rollout(10, tensordict=start, auto_reset=False)
        for name in ("observation", "reward"):
            assert rollout["next", name].requires_grad is requires_grad
        rollouts.append(rollout.detach())
    assert rollouts[0].shape == rollouts[1].shape
    for name in ("observation", "action", ("next", "observation"), ("next", "reward")):
        same(rollouts[0][name], rollouts[1][name])


@pytest.mark.slow  # `test_env.py::test_seeds` is the quick one.
def test_seeding():
    """Equal seeds give equal next seeds, resets and rollouts."""
    seeds, starts, rollouts = [], [], []
    for _ in range(2):
        env = EqsimEnv("point_mass")
        torch.manual_seed(0)
        seeds.append(env.set_seed(0))
        starts.append(env.reset()["observation"])
        rollouts.append(env.rollout(50)["next", "observation"])
    assert seeds[0] == seeds[1]
    same(*starts)
    same(*rollouts)


@pytest.mark.slow  # `test_consistency` has all shapes.
@each_batch
def test_batch_size(batch_size):
    env = wrap(batch_size=batch_size)
    assert env.reset().batch_size == batch_size
    rollout = env.rollout(50)
    assert rollout.batch_size[:-1] == batch_size
    assert rollout["next", "reward"].shape == (*rollout.batch_size, 1)


@with_and_without
@each_batch
def test_consistency(batch_size, requires_grad):
    """Observations of a rollout are those of eqsim's own `reset` and `step`."""
    env = wrap(batch_size=batch_size, requires_grad=requires_grad)
    torch.manual_seed(1)
    rollout = env.rollout(10).detach()
    flat = rollout.reshape(-1, rollout.shape[-1])
    state = begin(jnp.asarray(flat["observation"][:, 0].numpy()))
    for t in range(flat.shape[1]):
        actions = jnp.asarray(flat["action"][:, t].numpy())
        state, timestep = step(state, actions)
        found = flat["next", "observation"][:, t]
        np.testing.assert_allclose(found, timestep.obs, rtol=1e-12, atol=1e-12)
    assert flat.shape[1] > 1


@each_batch
def test_gradient(batch_size):
    """The derivative of the mean reward of a step by the action, in closed form: for
    $x' = x + h v + h^2 g u / m$ and the reward $-x'^2 - c u^2$."""
    env = wrap(batch_size=batch_size, requires_grad=True)
    tensordict = acted(env)
    action = tensordict["action"].clone().requires_grad_()
    after = env.step(tensordict.set("action", action))["next"]
    after["reward"].mean().backward()
    place = after["observation"][..., :1].detach()
    by_action = -2.0 * place * 0.1**2 * 3.0 / 2.0 - 2.0 * 0.1 * action.detach()
    torch.testing.assert_close(action.grad, by_action / max(1, np.prod(batch_size)))


@pytest.mark.slow  # `test_env.py::test_specs` is the quick one.
@each_batch
def test_serial(batch_size):
    env = SerialEnv(1, ft.partial(EqsimEnv, "point_mass", batch_size=batch_size))
    check_env_specs(env)
    assert env.rollout(3).shape == (1, *batch_size, 3)
    env.close()


@pytest.mark.slow
@each_batch
def test_parallel(batch_size):
    # Its processes have the precision that JAX has by itself.
    with jax.enable_x64(False):
        start = ft.partial(EqsimEnv, "point_mass", batch_size=batch_size)
        env = ParallelEnv(1, start, mp_start_method="spawn")
        try:
            check_env_specs(env)
            assert env.rollout(3).shape == (1, *batch_size, 3)
        finally:
            env.close()


def linear_policy(env):
    outputs = env.action_spec.shape[-1]
    inputs = env.observation_spec["observation"].shape[-1]
    layer = torch.nn.Linear(inputs, outputs, dtype=torch.float64)
    return TensorDictModule(layer, in_keys=["observation"], out_keys=["action"])


@pytest.mark.slow  # Takes 200 steps with derivatives.
def test_memory():
    """200 steps with derivatives, and a backward pass every 50, take less than 100 MB."""
    env = EqsimEnv("point_mass", batch_size=[10], requires_grad=True)
    env.set_seed(0)
    policy, process = linear_policy(env), psutil.Process()
    tensordict = env.reset()
    before = process.memory_info().rss
    for step in range(200):
        stepped, tensordict = env.step_and_maybe_reset(policy(tensordict))
        if step % 50 == 0:
            stepped["next", "observation"].sum().backward()
            tensordict = tensordict.detach().clone()
    assert policy.module.weight.grad.any()
    assert process.memory_info().rss - before < 100e6


def test_set_seed_and_reset():
    env = EqsimEnv("point_mass")
    assert env.set_seed(0) is not None
    assert isinstance(env.reset(), TensorDict)


def test_programs_are_compiled_once():
    """No cache needs to be cleared: later steps compile nothing."""
    env = EqsimEnv("point_mass", batch_size=[1], requires_grad=True)
    env.set_seed(0)
    tensordict = env.reset()
    traces = []
    for _ in range(10):
        tensordict["action"] = env.action_spec.rand()
        _, tensordict = env.step_and_maybe_reset(tensordict)
        traces.append(env.traces)
    assert traces == traces[:1] * 10


@pytest.mark.slow  # Compiles options of its own.
def test_options_outlast_a_seed():
    """`set_seed` changes neither the environment nor its options."""
    options = {"frame_skip": 2, "episode_length": 3, "env_options": {"frame_skip": 5}}
    env = EqsimEnv("point_mass", **options)
    before, inner = repr(env), env.eqsim_env
    assert env.set_seed(1) is not None
    assert isinstance(env.reset(), TensorDict)
    assert repr(env) == before and env.eqsim_env is inner
    assert (env.env_name, env.frame_skip) == ("point_mass", 2)
    still = lambda td: td.set("action", torch.zeros(1, dtype=torch.float64))
    assert env.rollout(10, still).shape == (3,)
