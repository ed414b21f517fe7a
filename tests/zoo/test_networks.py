"""Networks are their layers, one after the other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import check_gradients

from eqsim.envs import SignedPermutation
from eqsim_zoo.blocks.networks import (
    Critic,
    Ensemble,
    MLP,
    SymmetricNetwork,
    target_update,
)


SIZES = (3, 5, 4, 2)
apply = eqx.filter_jit(lambda net, x: net(x))


def shaken(net, key):
    """With numbers in the place of the zeros and ones that layers begin with."""
    leaves, treedef = jtu.tree_flatten(net)
    keys = jr.split(key, len(leaves))
    new = [x + 0.3 * jr.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys)]
    return jtu.tree_unflatten(treedef, new)


def layers(net, x, activation=jax.nn.relu):
    """Return the output of layers, norms (of Equinox) and activations in this order."""
    for k, layer in enumerate(net.layers[:-1]):
        x = x @ layer.weight + layer.bias
        x = activation(net.norms[k](x) if net.norms else x)
    return x @ net.layers[-1].weight + net.layers[-1].bias


@pytest.mark.parametrize(
    "options, activation",
    (
        ({}, jax.nn.relu),
        ({"layer_norm": True}, jax.nn.relu),
        ({"activation": jnp.tanh}, jnp.tanh),
    ),
    ids=("default", "norm", "tanh"),
)
def test_mlp(options, activation, getkey):
    net = MLP.create(getkey(), SIZES, dtype=jnp.float64, **options)
    net, x = shaken(net, getkey()), jr.normal(getkey(), (3,))
    np.testing.assert_allclose(net(x), layers(net, x, activation), rtol=1e-12)


@pytest.mark.parametrize("layer_norm", (False, True))
def test_layer_sizes(layer_norm):
    net = MLP.create(jr.key(0), SIZES, layer_norm=layer_norm)
    weights = [layer.weight.shape for layer in net.layers]
    assert weights == [(3, 5), (5, 4), (4, 2)]
    assert [layer.bias.shape for layer in net.layers] == [(5,), (4,), (2,)]
    assert [norm.weight.shape for norm in net.norms] == [(5,), (4,)] * layer_norm
    assert all(x.dtype == jnp.float32 for x in jtu.tree_leaves(net))


def test_no_hidden_layer_is_linear(getkey):
    net = MLP.create(getkey(), (3, 2), layer_norm=True, dtype=jnp.float64)
    x = jr.normal(getkey(), (3,))
    np.testing.assert_allclose(net(2.0 * x), 2.0 * net(x), rtol=1e-12)
    with pytest.raises(ValueError, match=r"The sizes .* got \(3,\)"):
        MLP.create(getkey(), (3,))


def test_first_weights():
    """Uniform, with the variance of one over the number of inputs; small in the last
    layer, where that is asked for. Biases are zero."""
    net = MLP.create(jr.key(3), (100, 150, 200), last_scale=0.01, dtype=jnp.float64)
    for layer, scale in zip(net.layers, (1.0, 0.01)):
        weight, inputs = np.asarray(layer.weight), layer.weight.shape[0]
        assert np.var(weight) == pytest.approx(scale / inputs, rel=0.03)
        assert np.mean(weight) == pytest.approx(0.0, abs=0.02 * np.std(weight))
        bound = np.sqrt(3.0 * scale / inputs)
        assert 0.99 * bound < np.max(np.abs(weight)) <= bound
        # Uniform: as many in each fifth.
        counts, _ = np.histogram(weight, 5, (-bound, bound))
        np.testing.assert_allclose(counts, weight.size / 5, rtol=0.05)
        np.testing.assert_array_equal(layer.bias, 0.0)
    first, second = (MLP.create(jr.key(k), SIZES) for k in range(2))
    differs = jtu.tree_map(lambda x, y: bool(jnp.any(x != y)), first, second)
    assert all(layer.weight for layer in differs.layers)


def test_gradients(getkey):
    net = MLP.create(getkey(), (2, 3, 1), jnp.tanh, layer_norm=True, dtype=jnp.float64)
    net = shaken(net, getkey())
    check_gradients(apply, net, jnp.array([0.3, -0.2]))


def test_ensemble_is_each_alone(getkey):
    keys, x = getkey(), jr.normal(getkey(), (3,))
    make = lambda key: MLP.create(key, SIZES, layer_norm=True, dtype=jnp.float64)
    found = apply(Ensemble.create(keys, 4, make), x)
    alone = [apply(make(key), x) for key in jr.split(keys, 4)]
    np.testing.assert_allclose(found, np.stack(alone), rtol=1e-12)
    assert len(np.unique(found[:, 0])) == 4


def test_critic_is_each_alone(getkey):
    """Of observation and action, in this order."""
    critic = Critic.create(getkey(), 3, 2, (5, 4), number=3, dtype=jnp.float64)
    obs, action = jr.normal(getkey(), (3,)), jr.normal(getkey(), (2,))
    together = jnp.concatenate([obs, action])
    values = eqx.filter_jit(lambda critic, *inputs: critic(*inputs))
    for k, value in enumerate(values(critic, obs, action)):
        member = jtu.tree_map(lambda x: x[k], critic.networks.members)
        assert [layer.weight.shape[1] for layer in member.layers] == [5, 4, 1]
        expected = float(apply(member, together)[0])
        assert value == pytest.approx(expected, rel=1e-12)


def test_target_update():
    rate = 0.3
    new = {"w": jnp.array([1.0, 2.0]), "count": jnp.array(7, jnp.int32), "name": None}
    old = {"w": jnp.array([5.0, -2.0]), "count": jnp.array(3, jnp.int32), "name": None}
    found = target_update(new, old, jnp.array(rate))
    expected = (1.0 - rate) * np.array([5.0, -2.0]) + rate * np.array([1.0, 2.0])
    np.testing.assert_allclose(found["w"], expected, rtol=1e-15)
    assert found["count"] == 3


SEEN, SHOWN = (
    SignedPermutation((1, 0, 2), (1, 1, -1)),
    SignedPermutation((1, 0), (-1, -1)),
)


@pytest.mark.parametrize("shown", (SHOWN, None), ids=("action", "value"))
def test_symmetric_network(shown, getkey):
    """It is the mean of a network that sees both sides, and its mirror image."""
    sizes = (3, 6, 4, 2)
    net = SymmetricNetwork.create(
        getkey(), sizes, SEEN, shown, jnp.tanh, dtype=jnp.float64
    )
    net, x = shaken(net, getkey()), jr.normal(getkey(), (3,))
    turn = (lambda y: y) if shown is None else shown
    np.testing.assert_allclose(apply(net, SEEN(x)), turn(apply(net, x)), rtol=1e-12)
    own, other = x, SEEN(x)
    for layer in net.layers[:-1]:
        pair = jnp.tanh(own @ layer.weight + layer.bias)
        mirrored = jnp.tanh(other @ layer.weight + layer.bias)
        own = jnp.concatenate([pair, mirrored])
        other = jnp.concatenate([mirrored, pair])
    last = net.layers[-1]
    expected = own @ last.weight, turn(other @ last.weight + last.bias)
    expected = 0.5 * (expected[0] + last.bias + expected[1])
    np.testing.assert_allclose(apply(net, x), expected, rtol=1e-12)
    check_gradients(lambda x: jnp.sum(jnp.sin(net(x))), x)


def test_symmetric_networks_have_pairs_of_units():
    with pytest.raises(ValueError, match="even number of units.*got 5"):
        SymmetricNetwork.create(jr.key(0), SIZES, SEEN)
    with pytest.raises(ValueError, match="input must have 4 entries, got 3"):
        SymmetricNetwork.create(jr.key(0), (4, 2, 2), SEEN)
    with pytest.raises(ValueError, match="output must have 3 entries, got 2"):
        SymmetricNetwork.create(jr.key(0), (3, 2, 3), SEEN, SHOWN)
