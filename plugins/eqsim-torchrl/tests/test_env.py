import copy
import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import torch
from eqsim_torchrl import EqsimEnv, EqsimWrapper
from tensordict import TensorDict
from torchrl.data import Bounded, Categorical, OneHot, Unbounded
from torchrl.envs import SerialEnv
from torchrl.envs.utils import check_env_specs

import eqsim


BATCHES = (), (5,), (5, 4)
NAMES = (
    "ant",
    "fast",
    "half_cheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "swimmer",
    "walker2d",
)
QUICK = ("fast",)
make = ft.cache(eqsim.make)
slow = lambda name: pytest.param(name, marks=pytest.mark.slow)
same = ft.partial(torch.testing.assert_close, rtol=0.0, atol=0.0)


made = {}


def wrap(name="fast", batch_size=(3,), **options):
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


@pytest.mark.parametrize("batch_size", BATCHES, ids=str)
@pytest.mark.parametrize("name", [n if n in QUICK else slow(n) for n in NAMES])
def test_specs(name, batch_size):
    check_env_specs(wrap(name, batch_size), break_when_any_done="both")


def test_all_environments_are_listed():
    assert EqsimEnv.available_envs == list(eqsim.ENVS.names())
    assert set(NAMES) <= set(EqsimEnv.available_envs)


OPTIONS = (
    {"state_in_tensordict": True},
    {"requires_grad": True},
    {"episode_length": 3},
    {"discrete_actions": [[-1.0], [1.0]]},
    {"discrete_actions": [[-1.0], [1.0]], "categorical_action_encoding": True},
    {"randomize": eqsim.randomize.masses(0.5, 2.0)},
)


@pytest.mark.parametrize("options", OPTIONS, ids=[str(k) for k in range(len(OPTIONS))])
def test_specs_with_options(options):
    check_env_specs(wrap(batch_size=(2, 2), **options), break_when_any_done="both")


def test_steps_are_those_of_eqsim():
    env, inner = wrap(episode_length=50), make("fast")
    rollout, compared = env.rollout(20, break_when_any_done=False), 0
    assert rollout.shape == (3, 20)
    for row in rollout:
        q, qd = np.split(row["observation"][0].numpy(), 2)
        start = {"q": jnp.asarray(q), "qd": jnp.asarray(qd)}
        state, timestep = inner.reset(jr.key(0), start)
        for t in range(20):
            if timestep.done:
                break  # Here TorchRL has begun another episode.
            compared += 1
            state, timestep = inner.step(state, jnp.asarray(row["action"][t]))
            after = row["next"][t]
            np.testing.assert_allclose(after["observation"], timestep.obs, atol=1e-12)
            np.testing.assert_allclose(float(after["reward"]), timestep.reward)
            assert bool(after["terminated"]) == bool(timestep.terminated)
    assert compared > 10


def test_seeds():
    one, other = wrap(), EqsimEnv("fast", batch_size=[3])
    rollouts = []
    for env, seed in ((other, 0), (other, 1), (one, 0)):
        env.set_seed(seed)
        torch.manual_seed(0)
        rollouts.append(env.rollout(5, break_when_any_done=False)["observation"])
    same(rollouts[0], rollouts[2])
    assert not torch.equal(rollouts[0], rollouts[1])
    # Episodes differ, and so do rows.
    again = one.reset()["observation"]
    assert not torch.equal(again, rollouts[0][:, 0])
    assert len(torch.unique(again[:, 0])) == 3


def test_manual_seed_is_enough():
    starts = []
    for _ in range(2):
        torch.manual_seed(7)
        env = EqsimWrapper(make("fast"), batch_size=[2])
        starts.append(env.rollout(3)["observation"])
    same(*starts)


def test_large_seeds_differ():
    env, found = wrap(), set()
    for seed in (0, 1, 2**31, 2**32, 2**62, 2**63 - 1):
        env.set_seed(seed)
        found.add(float(env.reset()["observation"][0, 0]))
    assert len(found) == 6


@pytest.mark.parametrize("in_tensordict", [False, True])
def test_partial_reset_leaves_the_rest(in_tensordict):
    env = wrap(state_in_tensordict=in_tensordict, episode_length=9)
    tensordict = env.step(acted(env))["next"]
    before = env.state
    mask = torch.tensor([False, True, False])
    given = {"set_state": False} if in_tensordict else {}
    after = env.reset(tensordict.set("_reset", mask[:, None]), **given)
    stay = ~mask
    for old, new in zip(before, env.state):
        same(new[stay], old[stay])
    assert not torch.equal(env.state.numbers[mask], before.numbers[mask])
    same(after["observation"], env.state.obs)
    if in_tensordict:
        same(after["state", "numbers"], env.state.numbers)


def test_rows_that_take_no_step():
    env = wrap()
    tensordict = acted(env)
    before = env.state
    tensordict["_step"] = torch.tensor([True, False, True])
    after = env.step(tensordict)["next"]
    same(env.state.numbers[1], before.numbers[1])
    same(after["observation"][1], before.obs[1])
    assert after["reward"][1] == 0.0 and not after["done"][1]
    assert not torch.equal(env.state.numbers[0], before.numbers[0])


def test_time_limit_truncates():
    env = wrap("fast", episode_length=4)
    after = env.rollout(10)["next"]
    assert after.shape == (3, 4)
    assert after["truncated"][:, -1].all() and not after["truncated"][:, :-1].any()
    assert not after["terminated"].any()
    same(after["done"], after["truncated"])


def test_end_of_the_task_terminates():
    env = wrap()
    rollout = env.rollout(200, lambda td: td.set("action", torch.full((3, 1), 9.0)))
    last = rollout["next"][:, -1]
    assert last["terminated"].any() and not last["truncated"].any()


def test_frame_skip_is_so_many_steps():
    env, skipping = wrap(), wrap(frame_skip=3)
    action = torch.full((3, 1), 0.1)
    one, other = env.reset(), skipping.reset()
    same(one["observation"], other["observation"])
    total = 0.0
    for _ in range(3):
        one = env.step(one.set("action", action))["next"]
        total = total + one["reward"]
    other = skipping.step(other.set("action", action))["next"]
    torch.testing.assert_close(other["observation"], one["observation"])
    torch.testing.assert_close(other["reward"], total)
    assert skipping.frame_skip == 3


def test_action_bounds_are_those_of_the_robot():
    spec = wrap("inverted_pendulum").action_spec
    assert isinstance(spec, Bounded) and spec.shape == (3, 1)
    low, high = np.asarray(make("inverted_pendulum").action_range)[0]
    assert (spec.space.low == low).all() and (spec.space.high == high).all()
    assert low == -3.0
    assert isinstance(wrap("fast").action_spec, Unbounded)


def test_discrete_actions():
    table = [[-1.0], [0.0], [2.0]]
    plain = wrap()
    integer = wrap(discrete_actions=table, categorical_action_encoding=True)
    one_hot = wrap(discrete_actions=table)
    assert isinstance(integer.action_spec, Categorical) and integer.action_spec.n == 3
    assert isinstance(one_hot.action_spec, OneHot)
    number = torch.tensor([2, 0, 1])
    given = torch.tensor(table, dtype=plain.action_spec.dtype)[number]
    hot = torch.nn.functional.one_hot(number, 3)
    found = [
        env.step(env.reset().set("action", action))["next", "observation"]
        for env, action in ((plain, given), (integer, number), (one_hot, hot))
    ]
    same(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_number_of_discrete_actions_makes_a_grid():
    env = wrap("reacher", discrete_actions=3)
    assert env.action_spec.shape == (3, 9)
    expected = np.linspace(-1.0, 1.0, 3)
    grid = np.array([[x, y] for x in expected for y in expected])
    np.testing.assert_allclose(env._program.step.fixed[1], grid)


def test_step_depends_on_the_tensordict_alone():
    env = wrap(state_in_tensordict=True)
    tensordict = acted(env)
    first = env.step(tensordict.clone())["next"]
    env.step(acted(env, first.clone(), seed=2))
    same(env.step(tensordict.clone())["next"]["observation"], first["observation"])


def test_set_state():
    env = wrap(state_in_tensordict=True)
    tensordict = env.step(acted(env))["next"]
    env.reset()
    again = env.reset(tensordict.clone(), set_state=True)
    same(again["state", "numbers"], tensordict["state", "numbers"])


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


@pytest.mark.parametrize(
    "randomize", ["default", eqsim.randomize.masses(0.5, 2.0)], ids=["name", "function"]
)
def test_a_robot_for_each_row(randomize):
    env = EqsimEnv("fast", batch_size=[4], randomize=randomize)
    env.set_seed(0)
    tensordict = env.reset()
    same_start = env.state.numbers.clone()
    place = env.slices["inner.q"][0], env.slices["inner.qd"][0]
    for where in place:
        same_start[:, where] = 0.1
    env.reset(state=env.state._replace(numbers=same_start))
    tensordict["action"] = torch.ones(4, 1)
    after = env.step(tensordict)["next", "observation"]
    assert len(torch.unique(after[:, -1])) == 4


@pytest.mark.parametrize("pixels_only", [True, False])
def test_pixels(pixels_only, opengl):
    options = {
        "from_pixels": True,
        "pixels_only": pixels_only,
        "width": 24,
        "height": 16,
    }
    env = wrap(batch_size=(2,), **options)
    check_env_specs(env, break_when_any_done="both")
    pixels = env.rollout(2)["pixels"]
    assert pixels.shape == (2, 2, 16, 24, 3) and pixels.dtype == torch.uint8
    assert ("observation" in env.observation_spec.keys()) is not pixels_only
    expected = eqsim.render.images(
        make("fast").sys,
        jnp.asarray(env.state.obs[0, :1].numpy()),
        width=24,
        height=16,
    )
    difference = pixels[0, -1].numpy().astype(int) - expected.astype(int)
    assert pixels.float().std() > 5.0 and np.abs(difference).mean() < 10.0


def test_serial():
    env = SerialEnv(2, ft.partial(wrap, batch_size=()))
    check_env_specs(env)
    env.close()


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


WRONG = (
    (lambda: wrap(episode_length=0), ValueError, "at least one step"),
    (lambda: wrap(frame_skip=0), ValueError, "at least 1"),
    (lambda: wrap(device="cuda:7"), ValueError, "JAX does not see"),
    (lambda: EqsimWrapper("ant"), TypeError, "AbstractEnv"),
    (lambda: EqsimEnv("aunt"), ValueError, "Did you mean 'ant'"),
    (lambda: wrap(randomize="none such"), ValueError, "no such preset"),
    (lambda: wrap(discrete_actions=1), ValueError, "at least 2"),
    (lambda: wrap("fast", discrete_actions=3), ValueError, "finite bounds"),
    (lambda: wrap(discrete_actions=[[1.0, 2.0]]), ValueError, "1 finite"),
    (lambda: wrap(categorical_action_encoding=True), ValueError, "discrete_actions"),
    (
        lambda: EqsimWrapper(eqsim.AutoReset(make("fast"))),
        ValueError,
        "resets environments",
    ),
    (lambda: wrap(parameters={"x": lambda e: e.sys.nq}), TypeError, "parameters"),
    (lambda: wrap().set_seed(-1), ValueError, "seed"),
    (lambda: wrap().state, RuntimeError, "reset"),
    (
        lambda: wrap().step(TensorDict({"action": torch.zeros(3, 1)}, 3)),
        RuntimeError,
        "reset",
    ),
    (lambda: _stepped(torch.zeros(3, 2)), ValueError, "have shape"),
    (lambda: _stepped(torch.zeros(3, 1, dtype=torch.int32)), TypeError, "floating"),
    (lambda: _stepped(torch.full((3, 1), torch.nan)), ValueError, "finite"),
    (lambda: _unrolled(torch.zeros(3, 5)), ValueError, "have shape"),
    (lambda: _unrolled(torch.nn.Linear(2, 1)), ValueError, "length"),
    (lambda: _unrolled(torch.nn.Linear(2, 1), 0), ValueError, "length"),
    (lambda: _unrolled(torch.zeros(3, 0, 1)), ValueError, "no steps"),
    (lambda: _unrolled(torch.zeros(3, 2, 1), 2), ValueError, "leave it out"),
    (lambda: _unrolled(torch.nn.LSTM(4, 1), 3), TypeError, "LSTM"),
    (
        lambda: _unrolled(torch.nn.Linear(2, 1), 3, discrete_actions=[[0.5]]),
        ValueError,
        "row",
    ),
    (lambda: wrap().reset(nothing=1), TypeError, "nothing"),
)


def _stepped(action):
    env = wrap()
    return env.step(env.reset().set("action", action))


def _unrolled(*args, **options):
    env = wrap(**options)
    env.reset()
    return env.unroll(*args)


@pytest.mark.parametrize(
    ("call", "error", "text"), WRONG, ids=[str(k) for k in range(len(WRONG))]
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_state_of_another_batch():
    env, other = wrap(), wrap(batch_size=(2,))
    other.reset()
    with pytest.raises(ValueError, match=r"\(2, 2\), but \(3, 2\)"):
        env.reset(state=other.state)


def test_state_is_missing_in_a_tensordict():
    env = wrap(state_in_tensordict=True)
    tensordict = acted(env).exclude("state")
    with pytest.raises(KeyError, match="no `state`"):
        env.step(tensordict)


def test_device_of_jax():
    env = wrap()
    devices = {x.device for x in jax.tree_util.tree_leaves(env._program.step.fixed)}
    assert devices == {jax.devices("cpu")[0]}
