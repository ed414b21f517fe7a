"""Derivatives of optimal plans, beside finite differences of problems solved again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim import control
from eqsim.control import ControlProblem, ILQR, QuadraticCost
from eqsim.testing.comparisons import compare, Function


POLE = eqsim.load_mjcf("""
<mujoco>
  <option timestep="0.05"/>
  <worldbody><body><joint name="hinge" axis="0 1 0" damping=".1"/>
    <geom type="capsule" size=".05" fromto="0 0 0 0 0 .6" contype="0" conaffinity="0"/>
  </body></worldbody>
  <actuator><motor joint="hinge" gear="20"/></actuator>
</mujoco>""")
PIPELINE = eqsim.Generalized()
SOLVER = ILQR(max_steps=300, atol=1e-12, rtol=0.0)


def solved(start, weight, mass, limits):
    """Actions, coordinates and value of bringing a pole upright and to rest."""
    sys = eqx.tree_at(lambda s: s.links.mass, POLE, mass)
    state = PIPELINE.init(POLE, start[:1], start[1:])
    target = PIPELINE.init(POLE)
    cost = QuadraticCost(target, weight, 0.5, 20.0 * weight)
    plan = SOLVER.solve(ControlProblem((PIPELINE, sys), cost, 10, limits), state)
    return plan.actions, plan.states.q, plan.value


POINT = jnp.array([0.3, -0.2]), jnp.array([2.0, 0.1]), POLE.links.mass


@pytest.mark.parametrize("active", (False, True))
@pytest.mark.quick_cases("True")
def test_derivatives(active):
    """By start, cost, masses and limits, which are far away or at 60 % of the largest
    control. A control at a limit moves with the limit."""
    sides, limit = jnp.array([[-1.0, 1.0]]), 100.0
    solve = Function.of(solved, *POINT, limit * sides)
    actions = np.abs(np.asarray(solve.value(solve.leaves)[0]))
    if active:
        limit = 0.6 * float(np.max(actions))
        solve = solve.at(*POINT, limit * sides)
        actions = np.abs(np.asarray(solve.value(solve.leaves)[0]))
    at_limit = actions == limit
    assert np.any(at_limit) == active and not np.all(at_limit)
    largest = compare(solve, eps=1e-4)
    assert all(largest[f"[{k}]"] for k in range(3)) and (largest["[3]"] > 0) == active


def _plan(cost, constraints=(), effect=1.0):
    """The sum of the actions of three steps of one number, by the number that it is
    multiplied by."""
    dynamics = control.VectorDynamics(
        lambda sys, x, u: sys * x + effect * u, jnp.ones(()), 1, 1
    )

    def value(scale):
        moved = eqx.tree_at(lambda d: d.sys, dynamics, scale)
        problem = ControlProblem(moved, cost, 3, constraints=constraints)
        return jnp.sum(SOLVER.solve(problem, jnp.ones(1)).actions)

    return value


def test_singular_problems_are_refused():
    """A control without cost or effect has no derivative."""
    cost = control.ResidualCost(lambda sys, x, u: jnp.concatenate([x, u**2 * 1e-3]))
    with pytest.raises(Exception, match="Hessian of the controls is not positive"):
        derive = eqx.filter_jit(jax.grad(_plan(cost, effect=0.0)))
        jax.block_until_ready(derive(jnp.ones(())))


def test_constraints_are_refused():
    wall = control.Constraint(lambda sys, x, u: x - 5.0)
    cost = QuadraticCost(jnp.zeros(1), 1.0, 1.0)
    with pytest.raises(ValueError, match="`constraints` cannot be differentiated"):
        jax.grad(_plan(cost, (wall,)))(jnp.ones(()))
