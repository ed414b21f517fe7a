"""Functions with code of their own, and the colliders that use it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax
from kernels.harness import Kernel

import eqsim
from eqsim._kernels import _programs
from eqsim._separate import separate
from eqsim.io import load_mjcf


def inner(state, rest, tables):
    """A function with a loop whose length differs between environments, and a table."""
    (x, y), k = state, rest

    def visit(n, total):
        return total * x + tables[k + n]

    total = lax.fori_loop(0, 3, visit, y)
    halved = lax.while_loop(
        lambda c: c[1] > 1.0,
        lambda c: (c[0] + 1, 0.5 * c[1]),
        (k, lax.stop_gradient(total)),
    )
    return [jnp.sin(total) * halved[0].astype(total.dtype), halved[1] > 0.7]


def outer(call):
    def fn(x, y, k, table):
        number = jax.ShapeDtypeStruct(x.shape, x.dtype)
        flag = jax.ShapeDtypeStruct(x.shape, np.dtype(bool))
        (value, large) = call((x * y, y), k, table, [number, flag])
        return (jnp.where(large, value, -value) * x,)

    return fn


INLINE = outer(lambda state, k, table, _: inner(state, k, table))
APART = outer(
    lambda state, k, table, out: separate(inner, "test", (state, k), table, out)
)


def arguments(dtype=np.float32):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 1.5, (2, 21)).astype(dtype)
    return x, y, rng.integers(0, 4, 21).astype(np.int32), np.arange(9.0, dtype=dtype)


def test_values():
    given = arguments()
    (got,) = Kernel(APART, shared=(3,))(*given)
    (expected,) = Kernel(INLINE, shared=(3,))(*given)
    assert np.array_equal(got, expected)


def test_values_by_xla():
    given = [*map(jnp.asarray, arguments())]
    (expected,) = jax.vmap(INLINE, (0, 0, 0, None))(*given)
    (got,) = jax.vmap(APART, (0, 0, 0, None))(*given)
    assert np.allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("which", ((0,), (1,), (0, 1), (0, 1, 3)))
@pytest.mark.parametrize("mode", ("pushed", "pulled"))
def test_derivatives(which, mode):
    given, more = arguments(), arguments()
    own = [more[k] for k in which] if mode == "pushed" else [more[0]]
    shared = (3, 4 + which.index(3)) if 3 in which and mode == "pushed" else (3,)
    got = Kernel(APART, shared, **{mode: which})(*given, *own)
    expected = Kernel(INLINE, shared, **{mode: which})(*given, *own)
    for one, two in zip(got, expected, strict=True):
        assert np.allclose(one, two, rtol=1e-5, atol=1e-6)


def test_second_derivatives():
    given = arguments()

    def hessian(fn):
        value = lambda x, y, *rest: jnp.sum(fn(x, y, *rest)[0])
        of_one = jax.hessian(value, (0, 1))
        return jax.vmap(of_one, (0, 0, 0, None))(*map(jnp.asarray, given))

    pairs = zip(*map(jax.tree.leaves, (hessian(APART), hessian(INLINE))), strict=True)
    assert all(np.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in pairs)


BALLS = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="{0}" size="0.1 0.12 0.14"/></body>
    <body pos="0.15 0 0.1"><freejoint/><geom type="{0}" size="0.12 0.1 0.1"/></body>
    {1}
  </worldbody>
</mujoco>
"""
THIRD = '<body pos="0 0.2 0.1"><freejoint/><geom type="{}" size="0.1 0.1 0.1"/></body>'


def robot(kind: str, third: bool = False):
    return load_mjcf(BALLS.format(kind, THIRD.format(kind) if third else ""))


def rollout(sys, key, count=8):
    pipeline = eqsim.Generalized()
    state, ctrl = pipeline.init(sys), jnp.zeros(0)
    step = lambda qd: pipeline.step(sys, eqx.tree_at(lambda s: s.qd, state, qd), ctrl)
    qd = 0.1 * jr.normal(key, (count, *state.qd.shape))
    loss = lambda qd: jnp.sum(step(qd).qd ** 2)
    return jax.jit(jax.vmap(jax.value_and_grad(loss)))(qd)


@pytest.fixture
def place(tmp_path, monkeypatch, nothing_compiled):
    """A store of its own."""
    monkeypatch.setenv("EQSIM_KERNELS_CACHE", str(tmp_path / "store"))
    monkeypatch.setattr(_programs, "_KNOWN", {})
    return tmp_path / "store"


def functions(place) -> list:
    return sorted(place.glob("eqsim_f*"))


@pytest.mark.slow  # Compiles two robots.
def test_robots_share_code(place, getkey):
    rollout(robot("box"), getkey())
    own = functions(place)
    assert own
    rollout(robot("box", third=True), getkey())
    assert functions(place) == own


@pytest.mark.slow  # Compiles a robot twice; `test_store.py` damages files.
def test_damaged_code_is_compiled_again(place, getkey, monkeypatch):
    key = getkey()
    first = rollout(robot("box"), key)
    for path in functions(place):
        path.write_bytes(b"no object at all")
    monkeypatch.setattr(_programs, "_KNOWN", {})
    jax.clear_caches()
    again = rollout(robot("box"), key)
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)
