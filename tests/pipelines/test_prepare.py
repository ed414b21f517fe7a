"""A robot that is prepared once gives what it gives when every call prepares it."""

import assets
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from eqsim import Generalized, load_mjcf, Positional, Spring
from eqsim.constraint import ALL, Newton
from eqsim.pipelines import Prepared, PreparedBodies
from eqsim.pipelines.forward_dynamics import derive, Settings


# A tendon, a limit and a contact: derived quantities of several kinds.
ROBOT = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="3 3 1"/>
    <body name="arm" pos="0 0 .3">
      <joint name="a" type="hinge" axis="0 1 0" range="-10 4" limited="true"/>
      <geom type="capsule" size=".05" fromto="0 0 0 .4 0 0" mass="1"/>
      <body name="tip" pos=".4 0 0">
        <joint name="b" type="hinge" axis="0 1 0" damping=".1"/>
        <geom type="sphere" size=".3" pos=".1 0 0" mass=".5"/>
        <site name="s"/>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="t" limited="true" range="-.1 .1">
    <joint joint="a" coef="1"/><joint joint="b" coef="-1"/></fixed></tendon>
  <actuator><motor joint="a"/></actuator>
  <sensor><jointpos joint="a"/><accelerometer site="s"/></sensor>
</mujoco>
"""
SYS = load_mjcf(ROBOT)
PIPELINE = Generalized(smoothing=0.001)
STATE = PIPELINE.init(SYS, jnp.array([0.1, -0.2]), jnp.array([0.3, -1.0]))
CTRL, ONE = jnp.array([0.5]), jnp.array(1.0)


def equal(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "name", ("step", "solve", "advance", "sensors", "contacts", "contact_wrenches")
)
@pytest.mark.quick_cases("advance")
def test_equal_results(name):
    prepared = PIPELINE.prepare(SYS)
    assert isinstance(prepared, Prepared) and prepared.sys is SYS
    method = eqx.filter_jit(getattr(PIPELINE, name))
    equal(method(prepared, STATE, CTRL), method(SYS, STATE, CTRL))


@pytest.mark.parametrize("pipeline", (Spring(), Positional()), ids=("spring", "xpbd"))
@pytest.mark.parametrize("name", ("step", "advance", "contact_wrenches"))
@pytest.mark.quick_cases("step-spring")
def test_equal_results_in_maximal_coordinates(name, pipeline):
    prepared = pipeline.prepare(SYS)
    assert isinstance(prepared, PreparedBodies) and prepared.sys is SYS
    method = eqx.filter_jit(getattr(pipeline, name))
    equal(method(prepared, STATE, CTRL), method(SYS, STATE, CTRL))


@eqx.filter_jit
def rolled(robot, scale):
    state, _ = jax.lax.scan(
        lambda state, _: (PIPELINE.step(robot, state, scale * CTRL), None),
        STATE,
        length=3,
    )
    return jnp.sum(state.q**2) + jnp.sum(state.qd)


def test_gradients_include_those_of_derived_quantities():
    """Softness of constraints depends on masses by inverse weights, which are derived."""
    one = eqx.filter_grad(lambda sys: rolled(PIPELINE.prepare(sys), ONE))(SYS)
    two = eqx.filter_grad(lambda sys: rolled(sys, ONE))(SYS)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert np.all(one.links.mass != 0.0)


def test_gradients_of_a_prepared_robot():
    """Without `prepare`, derived quantities are arguments of their own."""
    prepared = PIPELINE.prepare(SYS)
    found = eqx.filter_grad(rolled)(prepared, ONE)
    derived = jax.tree.leaves(found.constants.constraints)
    assert any(np.any(np.asarray(x) != 0.0) for x in derived)


@pytest.mark.slow  # `test_equal_results` is the quick one.
def test_batches():
    """Robots that are prepared as a batch."""
    scales = jnp.array([0.5, 1.0, 2.0])

    def heavier(scale):
        return eqx.tree_at(lambda s: s.links.mass, SYS, scale * SYS.links.mass)

    robots = eqx.filter_vmap(heavier)(scales)
    fleet = eqx.filter_vmap(PIPELINE.prepare)(robots)
    found = eqx.filter_vmap(rolled, in_axes=(eqx.if_array(0), None))(fleet, ONE)
    expected = [rolled(heavier(s), ONE) for s in scales]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_loop_with_a_prepared_robot_derives_nothing():
    count = lambda robot: str(jax.make_jaxpr(lambda: rolled(robot, ONE))()).count(
        "= batch_last["
    )
    assert count(PIPELINE.prepare(SYS)) == 1
    assert count(SYS) == 2


def primitives(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in jaxprs_in_params(eqn.params):
            yield from primitives(inner)


def test_no_lapack():
    """Its batched kernels wait for threads that the devices of a CPU share: a fleet on
    two of them would wait forever. The program of a derivative contains that of the value."""
    sys = jax.tree.map(lambda x: x[..., None], load_mjcf(assets.path("ant")))
    settings = Settings(ALL, Newton(), jnp.zeros(1))
    value = lambda sys: derive(sys, settings)
    derivative = lambda sys: jax.jvp(value, (sys,), (sys,))
    names = set(primitives(jax.make_jaxpr(derivative)(sys).jaxpr))
    assert not names & {"cholesky", "triangular_solve", "lu", "qr", "eigh", "svd"}
    assert "mul" in names
