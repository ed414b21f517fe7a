"""`batch_last` behaves as the function that it wraps, under every transformation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import tree_allclose

from eqsim._batching import batch_last
from eqsim.testing import probes


def example(a, x):
    """`a` has shape (2, *batch), `x` has shape (3, *batch)."""
    y = jnp.sin(x) * a[0:1] + a[1:2] * x * x
    return {"sum": jnp.sum(y * y, axis=0), "y": y}


def scaled(power: int, x, scale):
    """With a static argument, and one that may be missing."""
    return x**power if scale is None else x**power * scale[None]


def looped(x):
    """A loop whose length depends on the numbers."""
    going = lambda y: jnp.any(y < 1.0)
    return jax.lax.while_loop(going, lambda y: jnp.where(y < 1.0, 2 * y, y), x)


wrapped = batch_last(example)
a, x = jnp.array([1.0, 2.0]), jnp.array([0.1, 0.2, 0.3])
A, X = jnp.arange(8.0).reshape(4, 2) / 3, jnp.arange(12.0).reshape(4, 3) / 7


def rollout(f, a, x):
    return jax.lax.scan(lambda c, _: (f(a, c)["y"], None), x, None, length=3)[0]


def many(f):
    return jax.vmap(f, (None, 0))


CASES = {
    "call": lambda f: f(a, x),
    "vmap x": lambda f: many(f)(a, X),
    "vmap a": lambda f: jax.vmap(f, (0, None))(A, x),
    "vmap both": lambda f: jax.vmap(f)(A, X),
    "vmap last axis": lambda f: jax.vmap(f, (None, 1))(a, X.T),
    "vmap twice": lambda f: jax.vmap(many(f), (0, None))(A, X),
    "jacfwd": lambda f: jax.jacfwd(f, (0, 1))(a, x),
    "jacrev": lambda f: jax.jacrev(f, (0, 1))(a, x),
    # Linear in several tangents, one of which is known.
    "grad jvp": lambda f: jax.grad(
        lambda t: jax.jvp(f, (a, x), (a, t))[1]["sum"] + jnp.sum(f(a, t)["y"])
    )(x),
    "vmap none": lambda f: many(f)(a, X[:0]),
    "vmap jacrev": lambda f: many(jax.jacrev(f, (0, 1)))(a, X),
    "grad vmap": lambda f: jax.grad(lambda a: many(f)(a, X)["sum"].sum())(a),
    "vmap grad": lambda f: many(jax.grad(lambda a, x: f(a, x)["sum"]))(a, X),
    "vmap hessian": lambda f: many(jax.hessian(lambda a, x: f(a, x)["sum"], (0, 1)))(
        a, X
    ),
    "hessian vmap": lambda f: jax.hessian(lambda a: many(f)(a, X)["sum"].sum())(a),
    "jacrev jacrev": lambda f: jax.jacrev(jax.jacrev(lambda a: f(a, x)["y"]))(a),
    "scan": lambda f: rollout(f, a, x),
    "vmap scan": lambda f: jax.vmap(lambda x: rollout(f, a, x))(X),
    "grad scan": lambda f: jax.grad(lambda x: rollout(f, a, x).sum())(x),
    "jacrev vmap scan": lambda f: jax.jacrev(
        lambda a: jax.vmap(lambda x: rollout(f, a, x))(X).sum(axis=0)
    )(a),
    "checkpoint": lambda f: jax.grad(
        jax.checkpoint(lambda a: many(f)(a, X)["sum"].sum())
    )(a),
    "linearize": lambda f: jax.linearize(many(f), a, X)[1](2 * a, 0 * X),
}


@pytest.fixture(params=("on", "off"))
def kernels(request, monkeypatch):
    """Compiled by the kernel compiler, and by XLA."""
    monkeypatch.setenv("EQSIM_KERNELS", request.param)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick_cases(
    "on-vmap both",
    "on-vmap last axis",
    "on-jacfwd",
    "on-grad vmap",
    "on-vmap hessian",
    "on-jacrev vmap scan",
    "on-linearize",
    "on-grad scan",
    "off-vmap twice",
    "off-hessian vmap",
)
def test_same_as_the_function(name):
    case = CASES[name]
    expected = jax.jit(lambda: case(example))()
    got = jax.jit(lambda: case(wrapped))()
    assert tree_allclose(got, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ("call", "grad vmap"))
def test_without_jit(name):
    assert tree_allclose(CASES[name](wrapped), CASES[name](example), rtol=1e-12)


@pytest.mark.parametrize("name", ("call", "vmap jacrev"))
def test_while_jit_is_disabled(name):
    """A call is one operation, which is compiled."""
    with jax.disable_jit():
        found = CASES[name](wrapped)
    assert tree_allclose(found, CASES[name](example), rtol=1e-12)


def test_what_is_not_batched_is_not_copied(monkeypatch):
    """Under XLA, an argument that the batch shares has a batch axis of size one."""
    monkeypatch.setenv("EQSIM_KERNELS", "off")
    seen = []

    def spy(a, x):
        seen.append((a.shape, x.shape))
        return x * a[0:1]

    jax.jit(jax.vmap(batch_last(spy), (None, 0)))(a, X)
    assert seen[-1] == ((2, 1), (3, 4))


def test_static_and_missing_arguments():
    f = batch_last(scaled)
    assert np.allclose(f(2, x, None), x**2)
    assert np.allclose(f(3, x, jnp.array(2.0)), 2 * x**3)
    out = jax.vmap(lambda s: f(3, x, s))(jnp.array([1.0, 2.0]))
    assert np.allclose(out, jnp.stack([x**3, 2 * x**3]))


@pytest.mark.usefixtures("kernels")
def test_loops_of_different_lengths():
    out = jax.vmap(batch_last(looped))(1.0 + X)
    assert np.allclose(out, 1.0 + X)
    out = jax.vmap(batch_last(looped))(0.3 + 0 * X)
    assert np.allclose(out, 1.2)


def test_numpy_arguments():
    assert tree_allclose(wrapped(np.asarray(a), np.asarray(x)), wrapped(a, x))


def test_nothing_is_traced_again():
    count = 0

    def counted(x):
        nonlocal count
        count += 1
        return 2 * x

    f = batch_last(counted)
    f(x)
    before = count
    for k in range(3):
        f(x + k)
    assert count == before


def parts(a, x):
    """Results that depend on one argument or on both."""
    return {"a": jnp.cos(a), "both": x[0:1] * a, "x": 0.0 * x + 2.0}


@pytest.mark.usefixtures("kernels")
def test_what_does_not_depend_on_the_batch_is_computed_once():
    """Under `vmap`, results of which no argument is batched have no batch axis."""
    axes = {"a": None, "both": 0, "x": 0}
    once = jax.vmap(batch_last(parts), (None, 0), axes)
    every = jax.vmap(parts, (None, 0), axes)
    assert tree_allclose(jax.jit(once)(a, X), every(a, X), rtol=1e-14)
    twice = jax.vmap(jax.vmap(batch_last(parts), (None, 0)), (0, None))
    expected = jax.vmap(jax.vmap(parts, (None, 0)), (0, None))
    assert tree_allclose(jax.jit(twice)(A, X), expected(A, X), rtol=1e-14)
    total = lambda f: lambda a: sum(jnp.sum(x**2) for x in f(a, X).values())
    gradient = jax.jit(jax.grad(total(jax.vmap(batch_last(parts), (None, 0)))))
    assert tree_allclose(
        gradient(a), jax.grad(total(jax.vmap(parts, (None, 0))))(a), rtol=1e-13
    )


def test_exported_programs_have_no_kernels():
    """They run in any process, also after the program with kernels has been compiled."""
    env = probes.point_mass()
    state, _ = env.reset(jax.random.key(0))
    where = lambda s: (s.q, s.qd)

    def step(q, qd, action):
        new = env.step(eqx.tree_at(where, state, (q, qd)), action)[0]
        return where(new)

    args = *where(state), jnp.array([0.3, -0.2])
    compiled = jax.jit(step)
    near = compiled(*args)
    exported = jax.export.export(compiled)(*args)
    assert "@eqsim_" not in exported.mlir_module()
    for a, b in zip(exported.call(*args), near, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert "@eqsim_" in compiled.lower(*args).as_text()
