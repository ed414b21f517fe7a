"""Laws of the `TrainState` of jaxrl_m, for `Learner`."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import optax
import pytest
from helpers import tree_allclose

from eqsim_zoo.blocks.hyperparameters import static
from eqsim_zoo.blocks.networks import Learner, Linear, MLP


ADAM = optax.adam(1e-3)


class Autoencoder(eqx.Module):
    """A network with several functions."""

    encoder: Linear
    decoder: Linear

    def encode(self, x):
        return jnp.tanh(x @ self.encoder.weight + self.encoder.bias)

    def decode(self, z):
        return z @ self.decoder.weight + self.decoder.bias

    def __call__(self, x):
        return self.decode(self.encode(x))


def autoencoder(key):
    sizes, keys = ((3, 2), (2, 3)), jr.split(key)
    layers = [
        Linear(jr.normal(key, size), 0.1 * jnp.ones(size[1]))
        for key, size in zip(keys, sizes)
    ]
    return Autoencoder(*layers)


@pytest.fixture
def learner(getkey):
    return Learner.create(autoencoder(getkey()), ADAM)


@pytest.fixture
def data(getkey):
    return jr.normal(getkey(), (4, 3)), jr.normal(getkey(), (4, 3))


def outputs(model, data):
    return jax.vmap(model)(data[0])


def mean_square(data):
    """Loss as a function of the network."""
    return lambda model: jnp.mean((data[1] - outputs(model, data)) ** 2)


def test_create(learner, data):
    """A learner has the state of its optimizer before the first step, and calls of its
    model are those of the network."""
    arrays = eqx.filter(learner.model, eqx.is_inexact_array)
    assert tree_allclose(learner.opt_state, ADAM.init(arrays))
    x, net = np.asarray(data[0]), jtu.tree_map(np.asarray, learner.model)
    hidden = np.tanh(x @ net.encoder.weight + net.encoder.bias)
    expected = hidden @ net.decoder.weight + net.decoder.bias
    np.testing.assert_allclose(outputs(learner.model, data), expected, rtol=1e-12)


def test_methods(learner, data):
    """Other functions of the network are methods of `learner.model`."""
    x = data[0][0]
    z = learner.model.encode(x)
    assert z.shape == (2,)
    np.testing.assert_array_equal(learner.model.decode(z), learner.model(x))


def test_other_parameters(learner, data):
    """A network with other parameters is another network, and the learner stays."""
    before = outputs(learner.model, data)
    other = jtu.tree_map(lambda x: 2.0 * x, learner.model)
    assert not np.allclose(outputs(other, data), before)
    np.testing.assert_array_equal(outputs(learner.model, data), before)


def test_gradient_is_that_of_the_network(learner, data):
    """`jax.grad` by the parameters, beside central differences of one of them."""
    loss = mean_square(data)
    grads = jax.grad(loss)(learner.model)
    where = lambda net: net.decoder.bias
    moved = lambda h: loss(
        eqx.tree_at(where, learner.model, where(learner.model).at[1].add(h))
    )
    slope = (moved(1e-6) - moved(-1e-6)) / 2e-6
    assert slope == pytest.approx(float(where(grads)[1]), rel=1e-6)


@eqx.filter_jit
def three_steps(learner, data):
    """One step by optax, by a gradient, and by a loss."""
    loss = mean_square(data)
    grads = jax.grad(loss)(learner.model)
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = ADAM.update(grads, learner.opt_state, learner.model)
    by_hand = Learner(optax.apply_updates(learner.model, updates), opt_state)
    by_gradients, norm = learner.apply_gradients(grads, ADAM)
    by_loss, metrics = learner.apply_loss_fn(loss, ADAM)
    losses = loss(learner.model), loss(by_loss.model)
    return by_hand, by_gradients, by_loss, (norm, metrics["grad_norm"]), losses


def test_apply_gradients_and_apply_loss_fn(learner, data):
    """Both take the step of optax, and the optimizer counts it."""
    expected, by_gradients, by_loss, norms, losses = three_steps(learner, data)
    for new in (by_gradients, by_loss):
        assert tree_allclose(new, expected, rtol=1e-12)
        assert new.opt_state[0].count == learner.opt_state[0].count + 1
    assert norms[0] == pytest.approx(float(norms[1]), rel=1e-12)
    assert losses[1] < losses[0]


def test_auxiliary_outputs(learner, data):
    """A loss may return a dictionary with its value, without a flag."""
    loss = mean_square(data)
    with_info = lambda model: (loss(model), {"twice": 2.0 * loss(model)})
    step = eqx.filter_jit(lambda learner, loss: learner.apply_loss_fn(loss, ADAM))
    plain, _ = step(learner, loss)
    new, info = step(learner, with_info)
    assert tree_allclose(new, plain, rtol=1e-12)
    assert info["twice"] == pytest.approx(2.0 * float(loss(learner.model)), rel=1e-12)


class Agent(eqx.Module):
    """Two learners, and a constant that JAX does not see."""

    policy: Learner
    value: Learner
    discount: float = static(0.9)

    @eqx.filter_jit
    def update(self, batch):
        loss = lambda net: jnp.mean((self.discount * batch - jax.vmap(net)(batch)) ** 2)
        policy, of_policy = self.policy.apply_loss_fn(loss, ADAM)
        value, of_value = self.value.apply_loss_fn(loss, ADAM)
        info = {"policy_loss": of_policy["loss"], "value_loss": of_value["loss"]}
        return Agent(policy, value, self.discount), info

    @eqx.filter_jit
    def sample_actions(self, obs, key):
        return jax.vmap(self.policy.model)(obs) + jr.normal(key, obs.shape)


def test_agents_are_pytrees(getkey):
    """An agent is a pytree of learners: a jitted update returns the next one and its
    metrics, and a static field is no leaf."""
    net = lambda: MLP.create(getkey(), (2, 4, 2), jnp.tanh, dtype=jnp.float64)
    agent = Agent(Learner.create(net(), ADAM), Learner.create(net(), ADAM))
    assert all(eqx.is_array(x) or callable(x) for x in jtu.tree_leaves(agent))
    batch = jr.normal(getkey(), (8, 2))
    first, new = None, agent
    for _ in range(20):
        new, info = new.update(batch)
        first = info if first is None else first
    assert new.discount == 0.9
    assert jtu.tree_structure(new) == jtu.tree_structure(agent)
    for name, value in info.items():
        assert value < first[name]
    assert new.sample_actions(batch, getkey()).shape == batch.shape


SHARDED = """
import equinox as eqx, jax, jax.numpy as jnp, optax
from eqsim_zoo.blocks import Learner, device_mesh, replicate, shard_batch

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_enable_x64", True)
x = jnp.linspace(-1.0, 1.0, 8)
adam = optax.adam(0.1)
start = Learner.create({"w": jnp.array(2.0), "b": jnp.array(0.5)}, adam)

@eqx.filter_jit
def update(learner, x):
    loss = lambda net: jnp.mean((net["w"] * x + net["b"] - x**2) ** 2)
    return learner.apply_loss_fn(loss, adam)[0]

@eqx.filter_jit
def shared(learner, x):
    learner, x = replicate(learner), shard_batch(x)
    return update(learner, x), x

alone = update(start, x)
with jax.set_mesh(device_mesh()):
    together, batch = shared(start, x)
assert len(batch.sharding.device_set) == 4
assert {s.data.shape for s in batch.addressable_shards} == {(2,)}
for found, expected in zip(*map(jax.tree.leaves, (together, alone)), strict=True):
    assert found.sharding.is_fully_replicated
    assert jnp.allclose(jax.device_get(found), jax.device_get(expected), 1e-12, 1e-12)
"""


@pytest.mark.slow
def test_several_devices():
    """A step on a sharded batch is that on the whole batch: gradients are averaged over
    devices without the name of an axis."""
    command = [sys.executable, "-c", SHARDED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
