"""`jit`, `vmap` and their nestings change no number."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import systems
from helpers import tree_allclose

from eqsim import dynamics, kinematics


SYS = systems.system("tiny")
X = systems.inputs("tiny")
MASSES = SYS.links.mass[None] * jnp.array([[1.0], [1.5], [2.0]])
MASSES = MASSES.at[:, 0].multiply(2.0)


def velocity(mass, q, qd):
    sys = eqx.tree_at(lambda s: s.links.mass, SYS, mass)
    return kinematics.com_velocity(sys, q, qd)


def loop(masses, q, qd):
    """One call at a time, without any transformation."""
    return np.asarray([[velocity(m, a, b) for a, b in zip(q, qd)] for m in masses])


def test_nested_batches():
    expected = loop(MASSES, X.q, X.qd)
    states = jax.vmap(velocity, (None, 0, 0))
    masses = jax.vmap(velocity, (0, None, None))
    assert tree_allclose(jax.jit(velocity)(MASSES[1], X.q[2], X.qd[2]), expected[1, 2])
    assert tree_allclose(states(MASSES[1], X.q, X.qd), expected[1])
    assert tree_allclose(masses(MASSES, X.q[2], X.qd[2]), expected[:, 2])
    both = jax.vmap(states, (0, None, None))(MASSES, X.q, X.qd)
    assert tree_allclose(both, expected)
    other = jax.vmap(masses, (None, 0, 0), out_axes=1)(MASSES, X.q, X.qd)
    assert tree_allclose(other, expected)
    pairs = jax.vmap(velocity)(MASSES, X.q[:3], X.qd[:3])
    assert tree_allclose(pairs, expected[np.arange(3), np.arange(3)])


def test_batch_of_systems():
    """Every number batched, by Equinox."""
    fleet = jax.tree.map(lambda x: jnp.stack([x, x]), SYS)
    fleet = eqx.tree_at(lambda s: s.links.mass, fleet, MASSES[1:])
    call = eqx.filter_vmap(kinematics.com_velocity, in_axes=(0, None, None))
    out = call(fleet, X.q[2], X.qd[2])
    assert tree_allclose(out, loop(MASSES[1:], X.q[2:3], X.qd[2:3])[:, 0])


def test_derivative_by_a_shared_system_sums_over_the_batch():
    """A mass that many states share: its cotangent is the sum of theirs."""
    total = lambda mass, q, qd: jnp.sum(velocity(mass, q, qd) ** 2)
    states = jax.vmap(total, (None, 0, 0))
    shared = jax.grad(lambda m: jnp.sum(states(m, X.q, X.qd)))(MASSES[0])
    each = jax.vmap(jax.grad(total), (None, 0, 0))(MASSES[0], X.q, X.qd)
    assert np.all(np.abs(shared) > 1e-6)
    assert tree_allclose(shared, jnp.sum(each, axis=0), rtol=1e-6)


def test_single_precision():
    """Nothing inside is double by accident; the same numbers, less exactly."""
    name = "stacked"
    single = lambda tree: jax.tree.map(lambda x: x.astype(jnp.float32), tree)
    sys, x = systems.system(name), systems.inputs(name)
    row = jax.tree.map(lambda leaf: leaf[2], x)
    low_sys, low = single(sys), single(row)
    qdd = dynamics.aba(low_sys, low.q, low.qd, low.tau, low.external)
    assert qdd.dtype == jnp.float32
    expected = systems.dynamic_report(sys, x)["aba"][2]
    assert np.allclose(qdd, expected, rtol=1e-3, atol=1e-3)
