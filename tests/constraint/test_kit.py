"""The conformance kit on all kinds of constraints, on one of a third party, and on wrong
ones."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float

from eqsim import Generalized, load_mjcf, State
from eqsim.constraint import (
    AbstractConstraint,
    ALL,
    DofJacobian,
    OneSided,
    Rows,
    TwoSided,
)
from eqsim.testing import check_constraint, ConformanceError


ROBOT = """
<mujoco>
<worldbody><geom type="plane" size="1 1 1"/><site name="s0" pos="0 0 .5"/>
  <body name="a" pos="0 0 .09"><freejoint/><geom size=".1" condim="6"/>
    <site name="s1" pos=".05 0 .05"/>
    <body name="b" pos=".19 0 .02"><joint name="j1" axis="0 1 0" range="-60 3"
        frictionloss=".1"/>
      <geom size=".1" mass=".3" contype="0" conaffinity="0"/>
      <site name="s2" pos="0 .1 0"/>
      <body pos=".25 0 0"><joint type="ball" range="0 9"/>
        <geom size=".03" contype="0" conaffinity="0"/></body>
    </body></body>
  <body name="c" pos=".4 0 .3"><joint name="j2" axis="1 0 0"/><geom size=".05"/></body>
</worldbody>
<tendon>
  <fixed name="t1" limited="true" range="-1 .01" frictionloss=".2">
    <joint joint="j1" coef="1"/><joint joint="j2" coef=".3"/></fixed>
  <spatial name="t2"><site site="s0"/><site site="s2"/></spatial>
</tendon>
<equality>
  <connect body1="b" body2="c" anchor=".1 0 0"/><weld site1="s0" site2="s1"/>
  <joint joint1="j1" joint2="j2" polycoef=".1 .5 .2 0 0"/><tendon tendon1="t2"/>
</equality></mujoco>"""


def robot():
    sys = load_mjcf(ROBOT)
    start = Generalized().init(sys)
    q = start.q.at[jnp.array([7, 12])].set(jnp.array([0.06, 0.1]))
    q = q.at[8:12].set(jnp.array([0.98, 0.1, 0.1, 0.05]))
    qd = 0.3 * jnp.cos(1.7 * jnp.arange(1.0 * sys.nv))
    return sys, State(q, qd, start.act)


# Steps are differentiated in `test_equality.py` and in `pipelines/test_gradients.py`.
@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: type(kind).__name__)
def test_kinds(kind):
    found = check_constraint(kind, *robot())
    assert len(set(found.values())) == 1


HINGE = """
<mujoco><worldbody><body><joint axis="0 1 0" range="-60 3"/>
  <geom size=".1" mass=".3" pos=".2 0 0"/></body></worldbody></mujoco>"""


def hinge():
    """A pendulum beyond its limit."""
    sys = load_mjcf(HINGE)
    return sys, Generalized().init(sys, jnp.array([0.06]), jnp.array([-0.2]))


class Stop(AbstractConstraint):
    """A soft stop of one joint, with a stiffness and a damping of its own."""

    at: Float[Array, ""]
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    weight: Float[Array, ""]

    def constants(self, sys, weights) -> Any:
        return ()

    def rows(self, sys, constants, now):
        gap = self.at[None] - now.q
        offset = -self.damping[None] * now.qd + self.stiffness[None] * gap
        weight = jnp.where(gap < 0.0, self.weight[None], 0.0)
        jacobian = DofJacobian((0,), -1.0)
        return (Rows(jacobian, OneSided(weight), (offset,)),)


class _Repelling(TwoSided):
    """A cost that is not convex."""

    def force(self, piece, x):
        return (self.weight * x[0],)


def stop(**changes):
    values = dict(at=0.02, stiffness=200.0, damping=20.0, weight=0.1) | changes
    return Stop(*map(jnp.asarray, values.values()))


@pytest.mark.slow  # `test_kinds` is the quick one.
def test_third_party_conforms():
    check_constraint(stop(), *hinge())


def test_third_party():
    """Its parameters are differentiated, batched, and change the motion."""
    sys, state = hinge()

    def speed(*constraints):
        pipeline = Generalized(constraints=(*ALL, *constraints))
        return pipeline.step(sys, state, jnp.zeros(0)).qd[0]

    weights = jnp.array([0.0, 0.1, 1.0])
    stops = eqx.filter_vmap(lambda weight: stop(weight=weight))(weights)
    found = eqx.filter_jit(eqx.filter_vmap(speed))(stops)
    assert jnp.isclose(found[0], speed()) and found[0] > found[1] > found[2]
    slope = eqx.filter_grad(speed)(stop())
    assert slope.stiffness < 0.0 and slope.at > 0.0


class _Wrong(Stop):
    def rows(self, sys, constants, now):
        (row,) = Stop.rows(self, sys, constants, now)
        return (Rows(row.jacobian, _Repelling(row.cost.weight), row.offset),)


def test_wrong_cost_is_found():
    wrong = _Wrong(*map(jnp.asarray, (0.02, 200.0, 20.0, 0.1)))
    with pytest.raises(ConformanceError, match="convex"):
        check_constraint(wrong, *hinge())


def test_needs_a_constraint():
    with pytest.raises(TypeError, match="(?i)constraint"):
        check_constraint("limit", *hinge())
