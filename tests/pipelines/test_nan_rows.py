"""A row of a batch that is not finite leaves the others as they are, bit by bit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import eqsim


ROWS, BAD = 12, (3, 7)
slow = pytest.mark.slow
CASES = (
    pytest.param("generalized", "on", id="generalized-kernels", marks=slow),
    pytest.param("generalized", "off", id="generalized-xla", marks=slow),
    pytest.param("spring", "on", id="spring-kernels", marks=slow),
    pytest.param("spring", "off", id="spring-xla", marks=slow),
    pytest.param("positional", "on", id="positional-kernels", marks=slow),
    pytest.param("positional", "off", id="positional-xla", marks=slow),
)


# `test_bad_robots.py` is the quick one.
@pytest.mark.parametrize("pipeline, kernels", CASES)
def test_ant(pipeline, kernels, monkeypatch):
    if kernels == "off":
        monkeypatch.setenv("EQSIM_KERNELS", "off")
    pipeline = {
        "generalized": eqsim.Generalized(),
        "spring": eqsim.Spring(),
        "positional": eqsim.Positional(),
    }[pipeline]
    sys = eqsim.make("ant").sys
    key = jr.key(0)
    heights = jnp.linspace(0.3, 0.9, ROWS)
    q = jnp.tile(pipeline.init(sys).q, (ROWS, 1)).at[:, 2].set(heights)
    q = q.at[:, 7:].add(0.3 * jr.normal(key, (ROWS, sys.nq - 7)))
    qd = jr.normal(jr.key(1), (ROWS, sys.nv))
    ctrl = jr.uniform(jr.key(2), (ROWS, sys.nu), minval=-1.0)
    start = eqx.filter_vmap(lambda q, qd: pipeline.init(sys, q, qd))(q, qd)

    @eqx.filter_jit
    def run(state, ctrl):
        step = eqx.filter_vmap(lambda state, ctrl: pipeline.step(sys, state, ctrl))
        return jax.lax.scan(lambda s, _: (step(s, ctrl), None), state, None, length=10)[
            0
        ]

    expected = run(start, ctrl)
    for spoilt in ("q", "qd", "ctrl"):
        where = (BAD[0], 0), (BAD[1], -1)
        spoil = lambda x, where=where: (
            x.at[where[0]].set(jnp.nan).at[where[1]].set(jnp.inf)
        )
        if spoilt == "ctrl":
            found = run(start, spoil(ctrl))
        else:
            found = run(
                eqx.tree_at(
                    lambda s: getattr(s, spoilt), start, spoil(getattr(start, spoilt))
                ),
                ctrl,
            )
        for one, other in zip(
            jax.tree.leaves(expected), jax.tree.leaves(found), strict=True
        ):
            good = np.delete(np.arange(ROWS), BAD)
            assert np.array_equal(np.asarray(one)[good], np.asarray(other)[good])
        assert not np.all(np.isfinite(found.q[BAD[0]]))
    assert np.all(np.isfinite(expected.q))
