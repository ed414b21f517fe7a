"""The environment beside its equations of motion."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from eqsim_example import BallBeam

import eqsim


def accelerations(place, tilt, speed, rate, torque):
    """Of place and tilt, by the equations in the docstring of `BallBeam`."""
    ball, beam, above, gravity = 0.2, 0.5, 0.06, 9.81
    radius, half = 0.02, 0.5
    # The beam: a cylinder and two half balls at its ends, of one density.
    middle, caps = 2.0 * half * radius**2, 4.0 / 3.0 * radius**3
    middle, caps = (beam * x / (middle + caps) for x in (middle, caps))
    inertia = middle * ((2 * half) ** 2 + 3 * radius**2) / 12
    # Each half ball about its flat side, and from there to the axis.
    inertia += caps * (0.4 * radius**2 + half**2 + 0.75 * half * radius)
    inertia += 0.4 * ball * 0.04**2 + ball * above**2
    matrix = [[inertia + ball * place**2, ball * above], [ball * above, ball]]
    weight = ball * gravity
    lever = place * np.cos(tilt) + above * np.sin(tilt)
    force = [
        torque - 0.05 * rate + weight * lever - 2 * ball * place * speed * rate,
        weight * np.sin(tilt) - 0.01 * speed + ball * place * rate**2,
    ]
    turn, move = np.linalg.solve(matrix, force)
    return move, turn


@pytest.mark.parametrize("state", [(0, 0, 0, 0, 1), (0.3, -0.2, 0.5, 1.0, -0.4)])
def test_motion_is_that_of_the_equations(state):
    place, tilt, speed, rate, action = (float(x) for x in state)
    env = BallBeam()
    q, qd = jnp.array([tilt, place]), jnp.array([rate, speed])
    start = env.pipeline.init(env.sys, q, qd)
    found = env.pipeline.acceleration(env.sys, start, jnp.array([action]))
    move, turn = accelerations(place, tilt, speed, rate, 1.5 * action)
    assert np.allclose(found, [turn, move], rtol=1e-9)


def test_report():
    """Observation, reward and end are what the docstring says."""
    env = BallBeam()
    q = jnp.array([0.1, 0.25])
    state, first = env.reset(jr.key(0), {"q": q, "qd": jnp.array([0.3, -0.2])})
    assert jnp.allclose(first.obs, jnp.array([0.25, 0.1, -0.2, 0.3]))
    new, timestep = env.step(state, jnp.array([0.5]))
    near = 1.0 - float(new.q[1] / 0.5) ** 2
    assert np.isclose(timestep.reward, near - 0.01 * 0.25)
    for place, end in ((0.499, False), (-0.501, True), (jnp.nan, True)):
        there = env.pipeline.init(env.sys, q.at[1].set(0.0))
        there = jax.tree.map(lambda x: x, there)
        moved = type(there)(q.at[1].set(place), there.qd, there.act)
        assert bool(env.terminated(moved)) is end


def test_found_by_name():
    env = eqsim.make("ball_beam", pipeline="richardson")
    assert type(env).__name__ == "BallBeam"
    assert type(env.pipeline).__name__ == "Richardson"
    assert eqsim.AGENTS.get("cross_entropy").__name__ == "CrossEntropy"
