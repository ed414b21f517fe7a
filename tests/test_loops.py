import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxprs_in_params

import eqsim
from eqsim._loops import once


def loop(scan, gain, start, pushes):
    """A loop with a part that stays the same, and a result per pass."""

    def step(carry, push):
        fixed = jnp.sin(gain) ** 2
        carry = jnp.tanh(carry * fixed + push)
        return carry, {"carry": carry, "fixed": fixed, "one": jnp.ones(2)}

    return scan(step, start, pushes)


ARGS = jnp.array([0.3, 1.2]), jnp.array([0.1, -0.2]), jnp.linspace(0.0, 1.0, 5)


def assert_equal(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs)):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def push_all(scan):
    pushes = jnp.stack([ARGS[2]] * 2, axis=1)
    return lambda gain, start: loop(scan, gain, start, pushes)


first = lambda fn: lambda *args: jnp.sum(fn(*args)[0])
ROBOTS = jnp.stack([ARGS[0], 2 * ARGS[0], 3 * ARGS[0]])


@pytest.mark.parametrize(
    ("transformation", "gain"),
    {
        "eager": (lambda fn: fn, ARGS[0]),
        "jit": (jax.jit, ARGS[0]),
        "vmap": (lambda fn: jax.vmap(fn, in_axes=(0, None)), ROBOTS),
        "forward": (lambda fn: jax.jacfwd(fn, (0, 1)), ARGS[0]),
        "reverse": (lambda fn: jax.jacrev(fn, (0, 1)), ARGS[0]),
        "nested": (
            lambda fn: jax.jit(jax.vmap(jax.grad(first(fn)), in_axes=(0, None))),
            ROBOTS,
        ),
    }.values(),
)
def test_equals_lax_scan(transformation, gain):
    ours, theirs = (
        transformation(push_all(scan))(gain, ARGS[1]) for scan in (eqsim.scan, lax.scan)
    )
    assert_equal(ours, theirs)


def test_what_stays_the_same_is_outside():
    jaxpr = jax.make_jaxpr(push_all(eqsim.scan))(*ARGS[:2]).jaxpr
    names = [eqn.primitive.name for eqn in jaxpr.eqns]
    inside = jaxpr.eqns[names.index("scan")].params["jaxpr"].jaxpr
    within = [eqn.primitive.name for eqn in inside.eqns]
    assert "sin" in names and "sin" not in within and "tanh" in within


def test_length_alone():
    step = lambda carry, _: (carry + 1, None)
    assert eqsim.scan(step, jnp.array(0), length=4)[0] == 4


def test_robot_is_derived_once():
    """The constants of a robot do not depend on its state."""
    env = eqsim.make("inverted_pendulum")
    policy = lambda obs, key: jnp.zeros(1)
    run = lambda key: eqsim.rollout(env, policy, key, 3).last[0].q
    jaxpr = jax.make_jaxpr(run)(jax.random.key(0)).jaxpr
    assert count(jaxpr, "derive", inside="scan") == 0
    assert count(jaxpr, "_compute", inside="scan") == 1


def count(jaxpr, name, inside, within=False):
    """How many calls of a function there are inside a primitive."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "batch_last":
            total += within and eqn.params["call"].fn.__name__ == name
        for inner in jaxprs_in_params(eqn.params):
            total += count(inner, name, inside, within or eqn.primitive.name == inside)
    return total


def decide(keep):
    """A difference that is zero up to rounding decides about three results."""

    def decisions(x, y):
        rounding = keep(x * y - y * x[::-1])
        above = rounding > 0.0
        table = jnp.where(above, x, 2.0 * y)[:4, None] * y[None]
        return jnp.sum(jnp.where(above, x, y)), jnp.where(above, 1, 2), table

    return decisions


def test_once_in_compiled_programs():
    """XLA evaluates what decides in one place; without `once`, in several."""
    if jax.default_backend() != "cpu":
        pytest.skip("counts the operations of a program for CPUs")
    x, subtractions = jnp.arange(64.0), []
    for keep in (lambda value: value, once):
        program = jax.jit(decide(keep)).lower(x, x).compile().as_text()
        assert program is not None
        subtractions.append(len(re.findall(r" subtract\(", program)))
    assert subtractions[0] > 1 and subtractions[1] == 1


def test_once_on_gpus():
    """There, an optimization barrier is enough, and no loop waits for the device."""
    traced = jax.jit(once).trace(jnp.ones(3))
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "optimization_barrier" in program and "while" not in program


@pytest.mark.parametrize("first", (0.0, -0.5, jnp.nan))
def test_once_keeps_values(first):
    """Values, types and derivatives are those of the arguments, mapped or not."""
    flags = jnp.array([first > -0.1])
    tree = {"a": jnp.array([first, 2.0]), "b": jnp.array([[3, 0]]), "c": flags}
    for found in (once(tree), jax.jit(once)(tree)):
        assert eqsim.testing.tree_allclose(found, tree, rtol=0, atol=0)
    rows = jax.tree.map(lambda x: jnp.stack([x, x]), tree)
    assert eqsim.testing.tree_allclose(jax.jit(jax.vmap(once))(rows), rows)
    empty = jax.tree.map(lambda x: x[:0], rows)
    assert eqsim.testing.tree_allclose(jax.jit(jax.vmap(once))(empty), empty)
    squared = lambda x: jnp.sum(once((x, tree["b"]))[0] ** 2)
    x = jnp.array([0.3, -0.7])
    np.testing.assert_allclose(jax.jit(jax.grad(squared))(x), 2 * x)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(squared))(x), 2 * x)
