"""Specs, resets, steps and options of environments, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import torch
from eqsim_torchrl import EqsimEnv, EqsimWrapper
from tensordict import TensorDict
from torchrl.data import Bounded, Categorical, OneHot, Unbounded
from torchrl.envs.utils import check_env_specs
from torchrl_envs import acted, make, same, unrolled, wrap

import eqsim
from eqsim.wrappers import AbstractStateless, Lifetime


BATCHES = (), (5,), (5, 4)
NAMES = (
    "ant",
    "point_mass",
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
QUICK = ("point_mass",)
slow = lambda name: pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("batch_size", BATCHES, ids=str)
@pytest.mark.parametrize("name", [n if n in QUICK else slow(n) for n in NAMES])
def test_specs(name, batch_size):
    check_env_specs(wrap(name, batch_size), break_when_any_done="both")


def test_all_environments_are_listed():
    assert EqsimEnv.available_envs == list(eqsim.ENVS.names())
    assert set(NAMES) <= set(EqsimEnv.available_envs)
    assert (
        EqsimWrapper.available_envs == wrap().available_envs == list(eqsim.ENVS.names())
    )


OPTIONS = (
    {"state_in_tensordict": True},
    {"requires_grad": True},
    {"episode_length": 3},
    {"discrete_actions": [[-1.0], [1.0]]},
    {"discrete_actions": [[-1.0], [1.0]], "categorical_action_encoding": True},
    {"randomize": eqsim.randomize.masses(0.5, 2.0)},
)


@pytest.mark.parametrize(
    "options",
    # Others are quick in the tests below.
    [
        pytest.param(x, marks=[pytest.mark.slow] * (k not in (0, 3)))
        for k, x in enumerate(OPTIONS)
    ],
    ids=str,
)
def test_specs_with_options(options):
    check_env_specs(wrap(batch_size=(2, 2), **options), break_when_any_done="both")


def test_steps_are_those_of_eqsim():
    env, inner = wrap(episode_length=50), make("point_mass")
    reset, step = eqx.filter_jit(inner.reset), eqx.filter_jit(inner.step)
    rollout, compared = env.rollout(20, break_when_any_done=False), 0
    assert rollout.shape == (3, 20)
    for row in rollout:
        q, qd = np.split(row["observation"][0].numpy(), 2)
        start = {"q": jnp.asarray(q), "qd": jnp.asarray(qd)}
        state, timestep = reset(jr.key(0), start)
        for t in range(20):
            if timestep.done:
                break  # Here TorchRL has begun another episode.
            compared += 1
            state, timestep = step(state, jnp.asarray(row["action"][t]))
            after = row["next"][t]
            np.testing.assert_allclose(after["observation"], timestep.obs, atol=1e-12)
            np.testing.assert_allclose(float(after["reward"]), timestep.reward)
            assert bool(after["terminated"]) == bool(timestep.terminated)
    assert compared > 10


def test_seeds():
    one, other = wrap(), EqsimEnv("point_mass", batch_size=[3])
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
        env = EqsimWrapper(make("point_mass"), batch_size=[2])
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


@pytest.mark.parametrize("moves", [False, True])
def test_a_single_one_that_takes_no_step(moves):
    env = wrap(batch_size=())
    tensordict = acted(env)
    before = env.state
    env.step(tensordict.set("_step", torch.tensor(moves)))
    assert torch.equal(env.state.numbers, before.numbers) is not moves


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
    env = wrap("point_mass", episode_length=4)
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
    assert isinstance(wrap("point_mass").action_spec, Unbounded)


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


class Stillborn(AbstractStateless):
    """Some episodes are over where they begin."""

    env: eqsim.AbstractEnv

    @property
    def lifetime(self):
        return Lifetime.NONE

    @property
    def dt(self):
        return self.env.dt

    @property
    def action_range(self):
        return self.env.action_range

    def reset(self, key, options=None):
        state, timestep = self.env.reset(key, options)
        over = timestep.obs[0] > 0.0
        return state, eqx.tree_at(lambda t: t.terminated, timestep, over)

    def step(self, state, action):
        return self.env.step(state, action)


@pytest.mark.parametrize("allowed", [False, True])
def test_episodes_that_are_over_where_they_begin(allowed):
    env = EqsimWrapper(
        Stillborn(make("point_mass")), batch_size=[8], allow_done_after_reset=allowed
    )
    env.set_seed(0)
    tensordict = env.reset()
    over = tensordict["observation"][:, :1] > 0.0
    assert over.any() and not over.all()
    for name in ("done", "terminated"):
        same(tensordict[name], over & allowed)
    assert not tensordict["truncated"].any()
    # Rows that stay keep their flags; others have those of the new episode.
    mask = torch.arange(8)[:, None] < 4
    after = env.reset(tensordict.clone().set("_reset", mask))
    same(after["terminated"], (after["observation"][:, :1] > 0.0) & allowed)
    same(after["observation"][4:], tensordict["observation"][4:])
    assert not torch.equal(after["observation"][:4], tensordict["observation"][:4])


def test_to_another_device():
    env = EqsimWrapper(make("point_mass"), batch_size=[2], requires_grad=True)
    env.set_seed(0)
    env.reset()
    program, state = env._program, env.state
    assert env.to("cpu") is env and env._program is program
    for device in ("cuda:7", "meta"):
        with pytest.raises(ValueError, match="must be one that JAX sees"):
            env.to(device)
    assert env.device == torch.device("cpu") and env._program is program
    # For TorchRL that is another one.
    assert env.to("cpu:0") is env
    assert env.device == env.action_spec.device == torch.device("cpu:0")
    assert env._program is not program and env._pictures._program is env._program
    same(env.state.numbers, state.numbers)
    action = torch.zeros(2, 1, dtype=env.action_spec.dtype, requires_grad=True)
    env.unroll(action[:, None])[1].obs.sum().backward()
    assert action.grad is not None


@pytest.mark.parametrize(
    "randomize", ["default", eqsim.randomize.masses(0.5, 2.0)], ids=["name", "function"]
)
def test_a_robot_for_each_row(randomize):
    env = EqsimEnv("point_mass", batch_size=[4], randomize=randomize)
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


@pytest.mark.parametrize("pixels_only", [True, slow(False)])
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
        make("point_mass").sys,
        jnp.asarray(env.state.obs[0, :1].numpy()),
        width=24,
        height=16,
    )
    difference = pixels[0, -1].numpy().astype(int) - expected.astype(int)
    assert pixels.float().std() > 5.0 and np.abs(difference).mean() < 10.0


WRONG = (
    (lambda: wrap(episode_length=0), ValueError, "at least 1"),
    (lambda: wrap(frame_skip=0), ValueError, "at least 1"),
    (lambda: wrap(device="cuda:7"), ValueError, "must be one that JAX sees"),
    (lambda: EqsimWrapper("ant"), TypeError, "AbstractEnv"),
    (lambda: EqsimEnv("aunt"), ValueError, "Did you mean 'ant'"),
    (lambda: EqsimEnv("ant", cache_clear_frequency=9), TypeError, "no cache grows"),
    (lambda: EqsimEnv("ant", num_workers=2), TypeError, "larger `batch_size`"),
    (lambda: EqsimEnv("ant", camera_id=0), TypeError, "pass `camera`"),
    (lambda: EqsimEnv("ant", render_kwargs={}), TypeError, "`width` and `height`"),
    (lambda: wrap(randomize="none such"), ValueError, "no such preset"),
    (lambda: wrap(discrete_actions=1), ValueError, "at least 2"),
    (lambda: wrap("point_mass", discrete_actions=3), ValueError, "finite bounds"),
    (lambda: wrap(discrete_actions=[[1.0, 2.0]]), ValueError, "1 finite"),
    (lambda: wrap(categorical_action_encoding=True), ValueError, "discrete_actions"),
    (
        lambda: EqsimWrapper(eqsim.AutoReset(make("point_mass"))),
        ValueError,
        "starts episodes itself",
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
    (lambda: unrolled(torch.zeros(3, 5)), ValueError, "have shape"),
    (lambda: unrolled(torch.nn.Linear(2, 1)), ValueError, "length"),
    (lambda: unrolled(torch.nn.Linear(2, 1), 0), ValueError, "length"),
    (lambda: unrolled(torch.zeros(3, 0, 1)), ValueError, "at least one step"),
    (lambda: unrolled(torch.zeros(3, 2, 1), 2), ValueError, "left out"),
    (lambda: unrolled(torch.nn.LSTM(4, 1), 3), TypeError, "LSTM"),
    (
        lambda: unrolled(torch.nn.Linear(2, 1), 3, discrete_actions=[[0.5]]),
        ValueError,
        "sequence of actions",
    ),
    (lambda: wrap().reset(nothing=1), TypeError, "nothing"),
    (lambda: unrolled(torch.full((3, 2, 1), torch.inf)), ValueError, "finite"),
    (lambda: _moved(torch.full((3, 1), torch.nan)), ValueError, "finite"),
    (lambda: _moved_under_vmap(torch.full((2, 3, 1), torch.nan)), ValueError, "finite"),
    (lambda: _stepped(torch.tensor([0, 1, 2]), **INTEGERS), ValueError, "action < 2"),
    (lambda: _stepped(torch.tensor([0, -1, 1]), **INTEGERS), ValueError, "action < 2"),
    (
        lambda: unrolled(torch.tensor([[0], [2**32], [1]]), **INTEGERS),
        ValueError,
        "action < 2",
    ),
    (lambda: _moved(torch.tensor([0, 1, 2]), **INTEGERS), ValueError, "action < 2"),
    (
        lambda: wrap(from_pixels=True).unroll(torch.zeros(3, 2, 1)),
        ValueError,
        "pixels_only=False",
    ),
)
INTEGERS = {
    "discrete_actions": [[-1.0], [1.0]],
    "categorical_action_encoding": True,
}


def _stepped(action, **options):
    env = wrap(**options)
    return env.step(env.reset().set("action", action))


def _moved(action, **options):
    env = wrap(**options)
    env.reset()
    return env.transition(env.state, action)


def _moved_under_vmap(actions):
    return torch.func.vmap(lambda action: _moved(action)[1])(actions)


@pytest.mark.parametrize(
    ("call", "error", "text"), WRONG, ids=[str(k) for k in range(len(WRONG))]
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_state_of_another_batch():
    env, other = wrap(), wrap(batch_size=(2,))
    other.reset()
    with pytest.raises(ValueError, match=r"shape \(3, 2\).*got \(2, 2\)"):
        env.reset(state=other.state)


def test_state_is_missing_in_a_tensordict():
    env = wrap(state_in_tensordict=True)
    tensordict = acted(env).exclude("state")
    with pytest.raises(KeyError, match="must have a `state`"):
        env.step(tensordict)


def test_device_of_jax():
    env = wrap()
    devices = {x.device for x in jax.tree_util.tree_leaves(env._program.step.fixed)}
    assert devices == {jax.devices("cpu")[0]}


def test_curriculum_goes_on(curriculum):
    """After partial and full resets, until a seed is set."""
    for inside in (False, True):
        options = {"batch_size": (2,), "episode_length": 3}
        env = EqsimWrapper(curriculum, state_in_tensordict=inside, **options)
        env.set_seed(0)
        now = env.reset()
        seen = lambda x: x["observation"][:, 0].tolist()
        assert seen(now) == [0, 0]
        given = {"set_state": False} if inside else {}
        now = env.reset(now.set("_reset", torch.tensor([[True], [False]])), **given)
        assert seen(now) == [1, 0]
        assert seen(env.reset(now.exclude("_reset"), **given)) == [2, 1]
        assert seen(env.reset()) == [3, 2]
        env.set_seed(0)
        assert seen(env.reset()) == [0, 0]


def test_observations_of_several_parts(two_parts):
    with pytest.raises(ValueError, match="parts .'obs'., .'privileged'.. Leave out"):
        EqsimWrapper(two_parts)
