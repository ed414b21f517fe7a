import assets
import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import jaxprs_in_params

from eqsim import load_mjcf
from eqsim.constraint import ALL, Newton
from eqsim.pipelines.forward_dynamics import derive, Settings


def primitives(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in jaxprs_in_params(eqn.params):
            yield from primitives(inner)


@pytest.mark.parametrize("mode", ("value", "derivative"))
def test_no_lapack(mode):
    """Its batched kernels wait for threads that the devices of a CPU share: a fleet on
    two of them would wait forever."""
    sys = jax.tree.map(lambda x: x[..., None], load_mjcf(assets.path("ant")))
    settings = Settings(ALL, Newton(), jnp.zeros(1))
    value = lambda sys: derive(sys, settings)
    fn = value if mode == "value" else lambda s: jax.jvp(value, (s,), (s,))
    names = set(primitives(jax.make_jaxpr(fn)(sys).jaxpr))
    assert not names & {"cholesky", "triangular_solve", "lu", "qr", "eigh", "svd"}
    assert "mul" in names
