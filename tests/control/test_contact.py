"""Plans through contact: a hand that has to find the puck it pushes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import eqsim
from eqsim.control import Anneal, CEM, ControlProblem, ILQR, ResidualCost


# The hand pushes along a line; the puck slides with viscous friction.
PUSHER = eqsim.load_mjcf("""
<mujoco>
  <option timestep="0.02" gravity="0 0 0"/>
  <worldbody>
    <body name="hand"><joint name="hand" type="slide" axis="1 0 0" damping="2"/>
      <geom type="sphere" size=".05" mass="1"/></body>
    <body name="puck" pos=".15 0 0"><joint type="slide" axis="1 0 0" damping="4"/>
      <geom type="sphere" size=".05" mass=".5"/></body>
  </worldbody>
  <actuator><motor joint="hand" gear="10" ctrlrange="-1 1"/></actuator>
</mujoco>""")
PIPELINE = eqsim.Generalized(smoothing=0.0)


class ToTarget(eqx.Module):
    """Distance of the puck from its target."""

    target: jax.Array

    def stage(self, sys, state, action):
        return 1e-2 * action

    def end(self, sys, state):
        away = state.q[1:] - self.target
        return jnp.concatenate([10.0 * away, 0.1 * state.qd])


def drawn(seed):
    """A start with a gap of 2 to 6 cm, and a target 5 to 15 cm away."""
    gap, way = jr.uniform(jr.key(seed), (2,))
    state = PIPELINE.init(PUSHER, jnp.stack([0.03 - 0.04 * gap, 0.0 * gap]))
    cost = ToTarget((0.05 + 0.1 * way)[None])
    problem = ControlProblem((PIPELINE, PUSHER), ResidualCost(cost.stage, cost.end), 40)
    return problem, state, cost.target


def misses(solve, seeds):
    """Distances of the puck from the target at the end, and at the start, m."""

    def one(seed):
        problem, state, target = drawn(seed)
        states = solve(problem, state, seed)
        return jnp.abs(states.q[-1, 1] - target[0]), jnp.abs(target[0])

    away, way = eqx.filter_jit(jax.vmap(one))(jnp.arange(seeds))
    return np.asarray(away), np.asarray(way)


def by_ilqr(contact):
    solver = ILQR(max_steps=60, contact=contact)
    return lambda problem, state, seed: solver.solve(problem, state).states


def by_sampling(problem, state, seed):
    planner = CEM(samples=64, iterations=15, std=0.7, color=2.0)
    actions, _ = planner.solve(problem, state, jr.key(seed))
    step = lambda x, u: (problem.dynamics.step(x, u),) * 2
    return jax.lax.scan(step, state, actions)[1]


# Each solves ten problems, one of them with four widths of contacts.
@pytest.mark.slow
@pytest.mark.parametrize("solver", ("annealed", "sampling", "exact"))
def test_reaches_a_puck_that_it_does_not_touch(solver):
    """From no action at all, in 10 of 10 problems. Without smoothing nothing says that the
    hand should move: the puck stays."""
    annealed, exact = by_ilqr(Anneal(2e-2, 0.0)), by_ilqr(None)
    solve = {"annealed": annealed, "sampling": by_sampling, "exact": exact}[solver]
    away, way = misses(solve, 10)
    if solver == "exact":
        np.testing.assert_allclose(away, way, atol=1e-6)
    else:
        assert away.max() < 0.01, away
