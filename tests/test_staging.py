import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
from helpers import tree_allclose

from eqsim._staging import stage, staged


@stage
def rotate(angles: tuple[float, ...], v):
    """With something static and a tree."""
    return {"v": jnp.sin(v["v"]) * angles[0] + angles[1]}


def run(v):
    return rotate((2.0, 3.0), {"v": v})["v"]


def inside(fn):
    """`fn` with stages kept apart."""

    @ft.wraps(fn)
    def wrapper(*args):
        with staged():
            return fn(*args)

    return wrapper


v = jnp.array([0.1, 0.2])


def test_a_stage_is_the_function():
    assert rotate.__name__ == "rotate"
    assert np.allclose(run(v), 2 * np.sin(v) + 3)
    assert tree_allclose(jax.jit(inside(run))(v), run(v))


def test_stages_are_kept_apart_only_inside():
    text = lambda fn: jax.jit(fn).lower(v).as_text()
    assert "inlineable" in text(inside(run))
    assert "inlineable" not in text(run)


def test_derivatives():
    total = lambda v: jnp.sum(run(v) ** 2)
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
        apart = jax.jit(inside(derivative(total)))(v)
        assert tree_allclose(apart, derivative(total)(v))


def test_batches():
    batch = jnp.stack([v, 2 * v])
    assert tree_allclose(jax.jit(inside(jax.vmap(run)))(batch), jax.vmap(run)(batch))
