"""A step of a learner is a step of its optimizer, or none at all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import optax
import pytest
from helpers import tree_allclose

from eqsim_zoo.blocks import Learner, MLP, target_update


X = jnp.linspace(-1.0, 1.0, 16)[:, None]
# Not odd: gradients of biases would be zero but for rounding, which Adam magnifies.
Y = jnp.sin(3.0 * X) + 0.3


def network(key):
    return MLP.create(key, (1, 8, 1), jnp.tanh, dtype=jnp.float64)


def loss_fn(net):
    error = jax.vmap(net)(X) - Y
    return jnp.mean(error**2), {"error": jnp.max(jnp.abs(error))}


LOSS = eqx.filter_jit(loss_fn)
GRADIENT = eqx.filter_jit(eqx.filter_grad(lambda net: loss_fn(net)[0]))


@eqx.filter_jit
def step(learner, rate, most=None, loss_fn=loss_fn):
    return learner.apply_loss_fn(loss_fn, optax.adam(rate), max_grad_norm=most)


@eqx.filter_jit
def by_hand(net, opt_state, rate):
    """Return a step of optax on the arrays alone."""
    arrays, static = eqx.partition(net, eqx.is_inexact_array)
    loss = lambda arrays: loss_fn(eqx.combine(arrays, static))[0]
    value, grads = jax.value_and_grad(loss)(arrays)
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = optax.adam(rate).update(grads, opt_state, arrays)
    return eqx.combine(optax.apply_updates(arrays, updates), static), opt_state, value


def test_steps_are_those_of_optax(getkey):
    optimizer, net = optax.adam(1e-2), network(getkey())
    learner = Learner.create(net, optimizer)
    opt_state = optimizer.init(eqx.filter(net, eqx.is_inexact_array))
    assert tree_allclose(learner.opt_state, opt_state)
    for _ in range(3):
        learner, metrics = step(learner, jnp.array(1e-2))
        error = LOSS(net)[1]["error"]
        net, opt_state, value = by_hand(net, opt_state, jnp.array(1e-2))
        assert tree_allclose(learner.model, net, rtol=1e-9, atol=1e-9)
        assert tree_allclose(learner.opt_state, opt_state, rtol=1e-9, atol=1e-12)
        assert metrics["loss"] == pytest.approx(float(value), rel=1e-12)
        assert metrics["error"] == pytest.approx(float(error), rel=1e-12)


def test_a_scalar_loss(getkey):
    """A loss without metrics takes the same step, and reports what every step does; so
    does a step along its gradient."""
    learner = Learner.create(network(getkey()), optax.adam(1e-2))
    expected, metrics = step(learner, 1e-2)
    found, reported = step(learner, 1e-2, loss_fn=lambda net: loss_fn(net)[0])
    assert tree_allclose(found, expected, rtol=1e-12)
    assert set(reported) == {"loss", "grad_norm"}
    assert reported["loss"] == pytest.approx(float(metrics["loss"]), rel=1e-12)
    grads = GRADIENT(learner.model)
    apply = lambda learner, grads: learner.apply_gradients(grads, optax.adam(1e-2))
    found, norm = eqx.filter_jit(apply)(learner, grads)
    assert tree_allclose(found, expected, rtol=1e-9)
    assert norm == pytest.approx(float(metrics["grad_norm"]), rel=1e-9)


def test_a_learner_without_optimizer(getkey):
    """Its model follows another one, and is not trained."""
    online, target = (
        Learner.create(network(getkey()), optax.sgd(0.1)),
        network(getkey()),
    )
    learner = Learner.create(target)
    assert learner.opt_state is None
    follow = lambda x, y: target_update(y.model, x.model, jnp.array(0.25))
    new = eqx.filter_jit(follow)(learner, online)
    mix = lambda x, y: 0.75 * x + 0.25 * y
    weights = lambda net: [x for x in jtu.tree_leaves(net) if eqx.is_array(x)]
    for found, x, y in zip(*map(weights, (new, target, online.model))):
        np.testing.assert_allclose(found, mix(x, y), rtol=1e-12)
    with pytest.raises(ValueError, match="created without an optimizer"):
        learner.apply_loss_fn(loss_fn, optax.sgd(0.1))


@pytest.mark.parametrize("share", (0.1, 10.0))
def test_gradient_clip(share, getkey):
    """A long gradient has the length that is asked for, a short one stays; and what is
    reported is the length before."""
    optimizer, net = optax.sgd(1.0), network(getkey())
    grads = GRADIENT(net)
    length = np.sqrt(sum(np.sum(np.square(g)) for g in jtu.tree_leaves(grads)))
    learner = Learner.create(net, optimizer)
    new, metrics = learner.apply_loss_fn(
        loss_fn, optimizer, max_grad_norm=jnp.array(share * length)
    )
    assert metrics["grad_norm"] == pytest.approx(length)
    scale = min(share, 1.0)
    expected = jtu.tree_map(lambda x, g: x - scale * g, net, grads)
    assert tree_allclose(new.model, expected, rtol=1e-12)


def test_zero_gradient_is_clipped_to_zero():
    model = {"w": jnp.zeros(2)}
    learner = Learner.create(model, optax.sgd(1.0))
    loss_fn = lambda model: (0.0 * jnp.sum(model["w"]), {})
    new, metrics = learner.apply_loss_fn(
        loss_fn, optax.sgd(1.0), max_grad_norm=jnp.array(0.5)
    )
    assert tree_allclose(new.model, model) and metrics["grad_norm"] == 0.0


@pytest.mark.parametrize("value, clip", ((jnp.nan, None), (jnp.inf, 1.0)))
def test_nonfinite_loss_changes_nothing(value, clip):
    """Neither the model nor the moments of the optimizer, and the next step is as if
    nothing had been."""
    optimizer = optax.adam(0.1)
    most = None if clip is None else jnp.array(clip)
    apply = eqx.filter_jit(
        lambda learner, x: learner.apply_loss_fn(
            lambda net: (jnp.sum(net["w"] ** 2) + x, {}), optimizer, max_grad_norm=most
        )
    )
    learner = Learner.create({"w": jnp.array([1.0, 2.0])}, optimizer)
    learner, _ = apply(learner, jnp.array(0.0))
    after, metrics = apply(learner, jnp.array(value))
    assert not np.isfinite(metrics["loss"])
    assert tree_allclose(after, learner, rtol=0.0, atol=0.0)
    good, _ = apply(after, jnp.array(0.0))
    assert not tree_allclose(good.model, learner.model)


def test_nonfinite_gradient_changes_nothing():
    """Where the loss is finite all the same: the slope of a square root at 0."""
    optimizer = optax.adam(0.1)
    learner = Learner.create({"w": jnp.array([0.0, 1.0])}, optimizer)
    loss_fn = lambda net: (jnp.sum(jnp.sqrt(net["w"])), {})
    after, metrics = learner.apply_loss_fn(loss_fn, optimizer)
    assert np.isfinite(metrics["loss"]) and not np.isfinite(metrics["grad_norm"])
    assert tree_allclose(after, learner, rtol=0.0, atol=0.0)


def test_several_networks_and_constants(getkey):
    """One PyTree of networks is trained together; what is no real number, and what the
    loss closes over, stays as it is."""
    nets = {"a": network(getkey()), "b": (network(getkey()), jnp.array(3, jnp.int32))}
    target = network(getkey())

    def loss_fn(nets):
        out = jax.vmap(lambda x: nets["a"](x) * nets["b"][0](x) - target(x))(X)
        return jnp.mean(out**2), {}

    optimizer = optax.sgd(0.1)
    new, _ = Learner.create(nets, optimizer).apply_loss_fn(loss_fn, optimizer)
    assert new.model["b"][1] == 3 and new.model["b"][1].dtype == jnp.int32
    grads = eqx.filter_grad(lambda nets: loss_fn(nets)[0])(nets)
    for name in ("a", "b"):
        pick = (lambda t: t["a"]) if name == "a" else (lambda t: t["b"][0])
        expected = jtu.tree_map(lambda x, g: x - 0.1 * g, pick(nets), pick(grads))
        assert tree_allclose(pick(new.model), expected, rtol=1e-12)
        assert not tree_allclose(pick(new.model), pick(nets))
