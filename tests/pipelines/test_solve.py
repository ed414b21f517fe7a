"""One solve gives accelerations, forces and whether the solver has converged."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from trajectories import converged

from eqsim import Generalized, load_mjcf, Positional, Spring, State
from eqsim.constraint import ALL, Contact, Newton


BALL = """
<mujoco><option cone="{cone}" impratio="2"/>
<worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 .098"><freejoint/>
    <geom size=".1" condim="{condim}" friction=".7 .02 .01"/>
    <body pos="0 0 .2"><joint name="j" axis="0 1 0" frictionloss=".2"/>
      <geom type="capsule" size=".03 .1" friction=".7 .02 .01" condim="{condim}"/></body>
  </body>
</worldbody>
<actuator><motor joint="j" gear="3"/></actuator></mujoco>"""


def both(cone, condim):
    """A rolling and spinning ball with a driven arm: solved here and by MuJoCo."""
    text = BALL.format(cone=cone, condim=condim)
    sys, model = load_mjcf(text), converged(mujoco.MjModel.from_xml_string(text))
    data = mujoco.MjData(model)
    data.qvel[:], data.ctrl[:] = [0.4, 0.1, -0.1, 0.5, 2.0, 3.0, -1.0], 0.5
    mujoco.mj_forward(model, data)
    state = State(jnp.asarray(data.qpos), jnp.asarray(data.qvel), jnp.zeros(0))
    solved = eqx.filter_jit(Generalized().solve)(sys, state, jnp.asarray(data.ctrl))
    return solved, model, data


# Cones of 3 numbers are in all other tests with contacts; without friction, cones are equal.
@pytest.mark.parametrize("condim", (1, 3, 4, 6))
@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
@pytest.mark.quick_cases("pyramidal-1", "elliptic-6")
def test_is_that_of_mujoco(cone, condim):
    solved, model, data = both(cone, condim)
    assert solved.converged
    # MuJoCo ends where its cost no longer falls, which leaves 1e-9 of an acceleration.
    size = np.max(np.abs(data.qacc))
    close = lambda a, b: np.allclose(a, b, rtol=1e-8, atol=1e-8 * size)
    assert close(solved.qdd, data.qacc)
    assert close(solved.constraint_force, data.qfrc_constraint)
    assert close(solved.actuator_force, data.actuator_force)
    touching = np.flatnonzero(solved.contacts.dist < 0.0)
    assert len(touching) == data.ncon == 1
    contact, wrench = data.contact[0], np.zeros(6)
    mujoco.mj_contactForce(model, data, 0, wrench)
    frame = contact.frame.reshape(3, 3)
    assert close(solved.contacts.force[touching[0]], frame.T @ wrench[:3])
    assert close(solved.contacts.torque[touching[0]], frame.T @ wrench[3:])
    assert (np.max(np.abs(wrench[3:])) > 1e-3) == (condim > 3)


def test_says_that_it_has_not_converged():
    """Without enough steps, and for input that is not finite."""
    sys = load_mjcf(BALL.format(cone="elliptic", condim=3))
    start = Generalized().init(sys)
    ctrl = jnp.zeros(1)
    one = Generalized(solver=Newton(max_full_steps=1, max_searched_steps=0))
    fast = State(start.q, jnp.array([0.4, 0.1, -0.1, 0.5, 2.0, 3.0, -1.0]), start.act)
    assert not one.solve(sys, fast, ctrl).converged
    many = Generalized().solve
    speeds = jnp.stack([start.qd, start.qd.at[0].set(jnp.nan), start.qd + 1.0])
    run = lambda qd: many(sys, State(start.q, qd, start.act), ctrl).converged
    found = eqx.filter_jit(eqx.filter_vmap(run))(speeds)
    assert found.tolist() == [True, False, True]


def test_constraints_are_a_choice():
    """Without contacts the ball falls through the ground."""
    sys = load_mjcf(BALL.format(cone="pyramidal", condim=3))
    kinds = tuple(kind for kind in ALL if not isinstance(kind, Contact))
    state, ctrl = Generalized().init(sys), jnp.zeros(1)
    solved = Generalized(constraints=kinds).solve(sys, state, ctrl)
    assert np.isclose(solved.qdd[2], sys.gravity[2])
    assert not np.any(solved.contacts.force)
    assert Generalized().solve(sys, state, ctrl).qdd[2] > 0.0


@pytest.mark.parametrize("integrator", ("Euler", "RK4", "implicitfast"))
@pytest.mark.quick_cases("implicitfast")
def test_advance(integrator):
    """One call is a step and the solution at its start, in and out of contact."""
    text = BALL.format(cone="elliptic", condim=4)
    text = text.replace("<option ", f'<option integrator="{integrator}" ')
    sys, ctrl = load_mjcf(text), jnp.array([0.5])
    for height in (0.098, 0.3):
        q = sys.joints.ref.at[2].set(height)
        state = State(q, jnp.linspace(-0.5, 1.0, sys.nv), jnp.zeros(0))
        new, solved = eqx.filter_jit(Generalized().advance)(sys, state, ctrl)
        step, solve = eqx.filter_jit(both_calls)(Generalized(), sys, state, ctrl)
        assert (solved.contacts.force.any()) == (height < 0.1)
        for one, other in zip(*map(jax.tree.leaves, ((new, solved), (step, solve)))):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def both_calls(pipeline, sys, state, ctrl):
    return pipeline.step(sys, state, ctrl), pipeline.solve(sys, state, ctrl)


@pytest.mark.parametrize("pipeline", (Spring(), Positional()))
@pytest.mark.quick_cases("pipeline0")
def test_means_over_a_step(pipeline):
    sys = load_mjcf(BALL.format(cone="pyramidal", condim=3))
    state = State(sys.joints.ref, jnp.linspace(-0.5, 1.0, sys.nv), jnp.zeros(0))
    new, solved = eqx.filter_jit(pipeline.advance)(sys, state, jnp.array([0.5]))
    change = state.qd + sys.dt * solved.qdd
    np.testing.assert_allclose(change, new.qd, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(solved.actuator_force, [0.5], rtol=1e-12)
    assert solved.converged and solved.contacts.force[0, 2] > 0.0
    assert solved.constraint_force[2] > 0.0
