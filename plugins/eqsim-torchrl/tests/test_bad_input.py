"""Errors name what is wrong."""

import jax
import pytest
import torch
from eqsim_torchrl import EqsimEnv, EqsimWrapper
from tensordict import TensorDict
from torchrl_envs import acted, make, unrolled, wrap

import eqsim


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
