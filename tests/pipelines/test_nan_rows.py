"""A row of a batch that is not finite leaves the others as they are, bit by bit.

`test_bad_robots.py` is the quick test, of `Generalized`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import eqsim


ROWS, BAD = 12, (3, 7)
GOOD = np.delete(np.arange(ROWS), BAD)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ("on", "off"))
@pytest.mark.parametrize("pipeline", ("generalized", "spring", "positional"))
def test_ant(pipeline, kernels, monkeypatch):
    monkeypatch.setenv("EQSIM_KERNELS", kernels)
    pipeline, sys = eqsim.PIPELINES.get(pipeline)(), eqsim.make("ant").sys
    heights = jnp.linspace(0.3, 0.9, ROWS)
    q = jnp.tile(pipeline.init(sys).q, (ROWS, 1)).at[:, 2].set(heights)
    q = q.at[:, 7:].add(0.3 * jr.normal(jr.key(0), (ROWS, sys.nq - 7)))
    qd = jr.normal(jr.key(1), (ROWS, sys.nv))
    ctrl = jr.uniform(jr.key(2), (ROWS, sys.nu), minval=-1.0)
    given = {"q": q, "qd": qd, "ctrl": ctrl}

    @jax.jit
    @jax.vmap
    def run(q, qd, ctrl):
        start = eqx.tree_at(lambda s: (s.q, s.qd), pipeline.init(sys), (q, qd))
        step = lambda state, _: (pipeline.step(sys, state, ctrl), None)
        return jax.lax.scan(step, start, None, length=10)[0]

    expected = run(**given)
    assert np.all(np.isfinite(expected.q))
    for name, x in given.items():
        spoilt = x.at[BAD[0], 0].set(jnp.nan).at[BAD[1], -1].set(jnp.inf)
        found = run(**given | {name: spoilt})
        for one, other in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
            np.testing.assert_array_equal(one[GOOD], other[GOOD])
        assert not np.all(np.isfinite(found.q[BAD[0]]))
