import eqsim_torchrl
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import torch
from eqsim_torchrl import EqsimWrapper, from_torch
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.modules import Actor, MLP, NoisyLinear

import eqsim


def network(*layers, inputs=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), *layers, nn.Linear(8, 1, bias=False)).to(
        torch.float64
    )


LAYERS = {
    "tanh": [nn.Tanh()],
    "relu": [nn.ReLU()],
    "elu": [nn.ELU(0.7)],
    "gelu": [nn.GELU()],
    "gelu tanh": [nn.GELU("tanh")],
    "leaky": [nn.LeakyReLU(0.3)],
    "silu": [nn.SiLU()],
    "mish": [nn.Mish()],
    "sigmoid": [nn.Sigmoid()],
    "softplus": [nn.Softplus(2.0)],
    "softplus with a threshold": [nn.Softplus(2.0, 0.5)],
    "dropout of nothing": [nn.Dropout(0.0), nn.Tanh()],
    "dropout after training": [nn.Dropout(0.5).eval(), nn.Tanh()],
    "norm": [nn.LayerNorm(8), nn.Tanh()],
    "plain norm": [nn.LayerNorm(8, elementwise_affine=False)],
    "nested": [nn.Sequential(nn.Identity(), nn.Tanh()), nn.Linear(8, 8)],
}


@pytest.mark.parametrize("name", LAYERS)
def test_policies_are_those_of_torch(name):
    module = network(*LAYERS[name])
    obs = torch.randn(5, 4, dtype=torch.float64)
    found = jax.vmap(from_torch(module))(jnp.asarray(obs.numpy()))
    np.testing.assert_allclose(found, module(obs).detach().numpy(), atol=1e-12)


def test_mlp_of_torchrl_within_a_module():
    torch.manual_seed(0)
    mlp = MLP(in_features=4, out_features=2, num_cells=[8, 8], activation_class=nn.Tanh)
    whole = nn.Sequential(mlp, NormalParamExtractor()).to(torch.float64)
    module = TensorDictModule(whole, in_keys=["observation"], out_keys=["loc", "scale"])
    obs = torch.randn(4, dtype=torch.float64)
    found = from_torch(module)(jnp.asarray(obs.numpy()))
    np.testing.assert_allclose(found, whole(obs)[0].detach().numpy(), atol=1e-12)


def test_runs_in_a_rollout():
    env = eqsim.make("inverted_pendulum")
    policy = from_torch(network(nn.Tanh()))
    trajectory = eqsim.rollout(env, policy, jr.split(jr.key(0), 3), 4)
    assert trajectory.action.shape == (3, 4, 1)


def test_weights_are_copied():
    module = network(nn.Tanh())
    policy = from_torch(module)
    before = np.array(policy.weights[0])
    nn.init.zeros_(module[0].weight)
    np.testing.assert_array_equal(policy.weights[0], before)


@pytest.mark.parametrize("layer", [nn.Conv1d(1, 1, 1), nn.LSTM(4, 4), nn.Softmax(-1)])
def test_other_layers_are_refused(layer):
    with pytest.raises(TypeError, match=type(layer).__name__):
        from_torch(nn.Sequential(nn.Linear(4, 4), layer))


class Backwards(nn.Sequential):
    """A sequence, but in another order."""

    def forward(self, x):
        for layer in reversed(self):
            x = layer(x)
        return x


def hooked():
    layer = nn.Linear(4, 4)
    layer.register_forward_hook(lambda module, args, out: 2.0 * out)
    return layer


REFUSED = {
    "NoisyLinear": NoisyLinear(4, 4),
    "NoisyLinear in an MLP": MLP(4, 4, num_cells=[4], layer_class=NoisyLinear),
    "Backwards": Backwards(nn.Linear(4, 4), nn.Tanh()),
    "training": nn.Dropout(0.5),
    "hooks": hooked(),
    "integer": MLP(4, (2, 2), num_cells=[4]),
    "Flatten": nn.Flatten(0),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_looks_like_a_known_layer_is_refused(text):
    with pytest.raises(TypeError, match=text.split()[0]):
        from_torch(nn.Sequential(nn.Linear(4, 4), REFUSED[text]))


def test_actor_of_torchrl():
    module = network(nn.Tanh())
    obs = torch.randn(4, dtype=torch.float64)
    found = from_torch(Actor(module))(jnp.asarray(obs.numpy()))
    np.testing.assert_allclose(found, module(obs).detach().numpy(), atol=1e-12)


def test_closed_loop_is_steps_and_has_their_gradients():
    env = EqsimWrapper(eqsim.make("point_mass"), batch_size=[3], requires_grad=True)
    env.set_seed(0)
    env.reset()
    module, start = network(nn.Tanh(), inputs=2), env.state
    score = lambda after: after["observation"].square().sum() + after["reward"].sum()
    found, _ = env.unroll(module, 4)
    tensordict, total = env.reset(state=start), 0.0
    for t in range(4):
        tensordict["action"] = module(tensordict["observation"])
        torch.testing.assert_close(found["action"][:, t], tensordict["action"])
        tensordict = env.step(tensordict)["next"]
        total = total + score(tensordict)
    value = score(found["next"])
    torch.testing.assert_close(value, total)
    weights = list(module.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(value, weights), torch.autograd.grad(total, weights)
    )


def test_closed_loop_from_an_observation_without_the_state():
    env = EqsimWrapper(eqsim.make("point_mass"), batch_size=[3], requires_grad=True)
    env.reset()
    module, state = network(nn.Tanh(), inputs=2), env.state
    state.numbers.requires_grad_()
    with pytest.raises(ValueError, match="chooses the first action, does not"):
        env.unroll(module, 2, state=state)
    action = torch.zeros(3, 1, dtype=env.action_spec.dtype)
    after = env.transition(state, action)[0]
    last = env.unroll(module, 2, state=after)[1]
    (found,) = torch.autograd.grad(last.obs.sum(), state.numbers)
    (expected,) = torch.autograd.grad(
        _closed(env, module, state, action), state.numbers
    )
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        env.unroll(module, 2, state=state)


def _closed(env, module, state, action):
    """The same by steps."""
    for _ in range(3):
        state = env.transition(state, action)[0]
        action = module(state.obs)
    return state.obs.sum()


def test_public_names_are_documented():
    for name in ("EqsimEnv", "EqsimWrapper", "EnvState", "Operator", "TorchPolicy"):
        assert eqsim_torchrl.__dict__[name].__doc__
