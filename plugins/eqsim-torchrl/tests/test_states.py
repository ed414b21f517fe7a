"""States that users keep, write to, copy and detach, and many steps in one program."""

import copy

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import RenameTransform, TransformedEnv
from torchrl_envs import acted, same, unrolled, wrap


def test_step_depends_on_the_tensordict_alone():
    env = wrap(state_in_tensordict=True)
    tensordict = acted(env)
    first = env.step(tensordict.clone())["next"]
    env.step(acted(env, first.clone(), seed=2))
    same(env.step(tensordict.clone())["next"]["observation"], first["observation"])


def transformed():
    """What is observed goes by another name."""
    env = wrap(state_in_tensordict=True)
    return TransformedEnv(env, RenameTransform(["observation"], ["obs"]))


@pytest.mark.parametrize("renamed", [False, True])
def test_set_state(renamed):
    env = transformed() if renamed else wrap(state_in_tensordict=True)
    name = "obs" if renamed else "observation"
    tensordict = env.step(acted(env))["next"]
    env.reset()
    again = env.reset(tensordict.clone(), set_state=True)
    same(again["state", "numbers"], tensordict["state", "numbers"])
    same(again[name], tensordict[name])
    assert torch.any(again[name] != 0.0)


def test_a_part_of_the_state_is_missing():
    env = wrap(state_in_tensordict=True)
    tensordict = acted(env)
    del tensordict["state", "obs"]
    with pytest.raises(KeyError, match="must have `obs`"):
        env.step(tensordict)


def test_state_is_copied_and_restored():
    env = wrap()
    acted(env)
    kept = copy.deepcopy(env.state)
    torch.manual_seed(0)
    first = env.rollout(4, auto_reset=False, tensordict=env.reset(state=kept))
    torch.manual_seed(0)
    again = env.rollout(4, auto_reset=False, tensordict=env.reset(state=kept))
    same(again["next", "observation"], first["next", "observation"])


def test_what_users_write_to_is_theirs():
    env = wrap()
    tensordict = acted(env)
    kept = copy.deepcopy(env.state)
    tensordict["observation"].zero_()
    same(env.state.obs, kept.obs)
    first = env.step(tensordict)["next"].clone()
    env.reset(state=kept)
    same(env.step(tensordict.clone())["next", "observation"], first["observation"])


def test_states_that_users_write_to_are_theirs():
    env = wrap(state_in_tensordict=True)
    tensordict = acted(env)
    kept, given = copy.deepcopy(env.state), copy.deepcopy(env.state)
    for name in ("numbers", "words", "obs"):
        tensordict["state", name].zero_()
    for found, expected in zip(env.state, kept):
        same(found, expected)
    env.reset(state=given)
    for x in given:
        x.zero_()
    for found, expected in zip(env.state, kept):
        same(found, expected)
    numbers = kept.numbers.clone().requires_grad_()
    env.reset(state=kept._replace(numbers=numbers))
    torch.testing.assert_close(
        torch.autograd.grad(env.state.numbers.sum(), numbers)[0],
        torch.ones_like(numbers),
    )


def test_what_was_before_a_reset_is_cut_off():
    env = wrap(requires_grad=True)
    action = torch.zeros(3, 1, requires_grad=True)
    after = env.step(env.reset().set("action", action))["next"]
    assert env.state.numbers.requires_grad
    mask = torch.tensor([True, False, False])[:, None]
    env.reset(after.set("_reset", mask))
    (by,) = torch.autograd.grad(env.state.numbers.sum(), action, retain_graph=True)
    assert by[0] == 0.0 and (by[1:] != 0.0).all()
    env.detach()
    assert not env.state.numbers.requires_grad


def truncated(policy, cut):
    """Gradients of a policy in two windows of three steps, one after the other."""
    env = wrap(requires_grad=True)
    tensordict, found = env.reset(), []
    for _ in range(2):
        total = torch.zeros((), dtype=torch.float64)
        for _ in range(3):
            action = policy(tensordict["observation"])
            after = env.step(tensordict.set("action", action))
            total = total + after["next", "reward"].sum()
            tensordict = after["next"].exclude("reward")
        policy.zero_grad()
        total.backward()
        found.append(policy.weight.grad.clone())
        tensordict = cut(env, tensordict)
    return found


def test_detached_tensordicts_truncate_backpropagation():
    """As users write it, with the gradients of an environment that is detached; without
    any of it the graph of the first window is needed again."""
    torch.manual_seed(0)
    policy = torch.nn.Linear(2, 1, dtype=torch.float64)

    def both(env, tensordict):
        env.detach()
        return tensordict.detach()

    expected = truncated(policy, both)
    found = truncated(policy, lambda env, tensordict: tensordict.detach())
    for one, other in zip(found, expected):
        same(one, other)
        assert one.abs().sum() > 0.0
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        truncated(policy, lambda env, tensordict: tensordict)


def test_actions_alone_do_not_cut_the_graph():
    """Nor does a step without derivatives in between."""
    env = wrap(requires_grad=True)
    env.reset()
    action = torch.zeros(3, 1, requires_grad=True)
    one = TensorDict({"action": action}, 3)
    env.step(one)
    last = env.step(TensorDict({"action": torch.zeros(3, 1)}, 3))
    (by,) = torch.autograd.grad(last["next", "observation"].sum(), action)
    assert (by != 0.0).all()


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
