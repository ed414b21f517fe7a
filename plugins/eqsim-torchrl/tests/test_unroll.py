"""Many steps in one program."""

import pytest
import torch
from torchrl_envs import same, unrolled, wrap


def test_unroll_is_steps():
    env = wrap(episode_length=5)
    env.reset()
    actions = 0.1 * torch.randn(3, 5, 1, generator=torch.Generator().manual_seed(0))
    start = env.state
    found, last = env.unroll(actions)
    same(env.state.numbers, start.numbers)
    tensordict = env.reset(state=start)
    for t in range(5):
        tensordict["action"] = actions[:, t]
        tensordict = env.step(tensordict)
        now = found[:, t]
        torch.testing.assert_close(now["observation"], tensordict["observation"])
        for name in ("observation", "reward", "terminated", "truncated", "done"):
            torch.testing.assert_close(now["next", name], tensordict["next", name])
        tensordict = tensordict["next"]
    torch.testing.assert_close(last.numbers, env.state.numbers)
    torch.testing.assert_close(last.obs, env.state.obs)
    assert found["next", "truncated"][:, -1].all()


@pytest.mark.parametrize("categorical", [None, False, True])
def test_unroll_has_what_a_rollout_has(categorical):
    options = {} if categorical is None else {"discrete_actions": [[-1.0], [1.0]]}
    if categorical:
        options["categorical_action_encoding"] = True
    env = wrap(**options)
    torch.manual_seed(0)
    start = env.reset()
    state = env.state
    rollout = env.rollout(3, auto_reset=False, tensordict=start)
    found, _ = env.unroll(rollout["action"], state=state)
    assert set(found.keys(True, True)) == set(rollout.keys(True, True))
    for key in rollout.keys(True, True):
        assert found[key].dtype == rollout[key].dtype, key
        torch.testing.assert_close(found[key], rollout[key])


def test_flags_before_each_step():
    found, _ = unrolled(torch.zeros(3, 4, 1), episode_length=2)
    truncated = found["next", "truncated"][..., 0]
    assert truncated[:, 1:].all() and not truncated[:, 0].any()
    for name in ("done", "truncated", "terminated"):
        assert not found[name][:, 0].any()
        same(found[name][:, 1:], found["next", name][:, :-1])


def test_numbers_between_one_hot_rows_have_derivatives():
    env = wrap(discrete_actions=[[-1.0], [1.0]], requires_grad=True)
    env.reset()
    actions = torch.full((3, 2, 2), 0.5, requires_grad=True)
    found, _ = env.unroll(actions)
    found["next", "observation"].sum().backward()
    assert actions.grad.any() and found["action"].is_floating_point()


def test_shapes_of_any_rank():
    env = wrap(batch_size=(2, 3))
    env.reset()
    found, last = env.unroll(torch.zeros(2, 3, 4, 1))
    assert found.shape == (2, 3, 4) and last.numbers.shape[:2] == (2, 3)
    single = wrap(batch_size=())
    single.reset()
    assert single.unroll(torch.zeros(4, 1))[0].shape == (4,)


def test_other_precision_and_layout_of_actions():
    env = wrap(requires_grad=True)
    dtype = env.action_spec.dtype
    other = torch.float32 if dtype == torch.float64 else torch.float64
    start = env.reset()
    state = env.state
    wide = torch.linspace(-1, 1, 6, dtype=other).reshape(2, 3).T.requires_grad_()
    action = wide[:, 1:]
    assert not wide.is_contiguous()
    first = env.step(start.set("action", action))["next", "observation"]
    first.sum().backward()
    assert wide.grad is not None and wide.grad.dtype == other
    assert torch.all(wide.grad[:, 1] != 0.0)
    tensordict = env.reset(state=state).set(
        "action", action.detach().to(dtype).contiguous()
    )
    same(env.step(tensordict)["next", "observation"], first)
