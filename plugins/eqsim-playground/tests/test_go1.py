"""The joystick task beside MuJoCo C."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from _installed import needs_models
from _ranges import spread
from eqsim_playground import (
    Commands,
    GaitClock,
    go1_joystick_flat,
    Go1Joystick,
    JoystickNoise,
    Pushes,
    random_go1,
)

import eqsim


pytestmark = needs_models
COMMAND = jnp.asarray([0.8, -0.3, 0.5])


def quiet() -> JoystickNoise:
    return JoystickNoise(*(0.0,) * 5)


def exact(**options):
    return Go1Joystick(noise=quiet(), privileged=True, **options)


def commanded(state, command):
    """The state with a command that stays."""
    where = lambda s: (s.command, s.command_steps)
    return eqx.tree_at(where, state, (command, jnp.full((), 10_000, jnp.int32)))


def close(ours, theirs, tolerance=1e-8):
    np.testing.assert_allclose(ours, theirs, tolerance, tolerance)


@pytest.mark.parametrize(
    "command", [COMMAND, pytest.param(jnp.zeros(3), marks=pytest.mark.slow)]
)
def test_steps(command):
    """Observation, reward term by term and end of a gait with feet in the air and on the
    floor, of a robot that falls, and of actions beyond the joint limits."""
    from _go1_reference import Go1Reference

    env, theirs = exact(), Go1Reference(command)
    step = eqx.filter_jit(env.step)
    rng, landings, falls = np.random.default_rng(0), 0, 0
    for episode in range(3):
        q, qd = np.array(env.sys.keyframe("home").q), np.zeros(env.sys.nv)
        qd[:6] = rng.uniform(-0.5, 0.5, 6)
        if episode == 2:
            q[2:7] = 0.4, 0.3, 0.9, 0.1, 0.0
            q[3:7] /= np.linalg.norm(q[3:7])
        state, _ = env.reset(jr.key(0), {"q": jnp.asarray(q), "qd": jnp.asarray(qd)})
        state, theirs_obs = commanded(state, command), theirs.place(q, qd)
        for k in range(25):
            scale = 1.0 if episode < 2 else 3.0
            action = scale * np.sin(0.7 * k + np.arange(12)) * rng.uniform(0.5, 1.0)
            state, timestep = step(state, jnp.asarray(action))
            theirs_obs, terms, fallen = theirs.step(action)
            for part in ("state", "privileged_state"):
                close(timestep.obs[part], theirs_obs[part], 1e-6)
            assert set(timestep.terms) == {*terms, "clip"}
            for name, value in terms.items():
                close(timestep.terms[name], value, 1e-7)
            close(timestep.reward, max(sum(terms.values()), 0.0), 1e-7)
            assert bool(timestep.terminated) == fallen
            landings += terms["feet_height"] != 0.0
            falls += fallen
    assert falls and (landings > 3 or not np.any(command))


def test_observation_of_a_reset():
    from _go1_reference import Go1Reference

    env, theirs = exact(), Go1Reference(COMMAND)
    state, timestep = env.reset(jr.key(1))
    robot = state.robot
    theirs.command = np.asarray(state.command)
    expected = theirs.place(np.asarray(robot.q), np.asarray(robot.qd))
    for part, values in expected.items():
        close(timestep.obs[part], values)


def test_noise():
    """Uniform within the scales, and different in each step."""
    noisy, env = Go1Joystick(), Go1Joystick(noise=quiet())
    keys = jr.split(jr.key(0), 200)
    options = {"xla_backend_optimization_level": 0}
    start = lambda env: jax.jit(
        jax.vmap(lambda key: env.reset(key)[1].obs), compiler_options=options
    )(keys)
    off = np.asarray(start(noisy) - start(env))
    scales = np.repeat([0.1, 0.2, 0.05, 0.03, 1.5, 0.0], [3, 3, 3, 12, 12, 15])
    largest = np.max(np.abs(off), axis=0)
    assert np.all(largest <= scales + 1e-12) and np.all(largest >= 0.9 * scales)
    assert np.all(np.abs(np.mean(off, axis=0)) <= 0.2 * scales)


def test_first_states():
    """The ranges of place, heading and velocity."""
    env = Go1Joystick()
    q, qd = jax.vmap(env.initial)(jr.split(jr.key(0), 400))
    home = env.sys.keyframe("home").q
    assert np.all(np.abs(q[:, :2]) <= 0.5) and np.max(np.abs(q[:, :2])) > 0.48
    close(q[:, 2], home[2])
    close(q[:, 7:], jnp.broadcast_to(home[7:], (400, 12)))
    close(jnp.sum(q[:, 3:7] ** 2, axis=1), 1.0)
    heading = 2.0 * np.arctan2(q[:, 6], q[:, 3])
    assert np.max(np.abs(heading)) < 3.1401 and np.std(heading) > 1.6
    assert np.all(np.abs(qd[:, :6]) <= 0.5) and not np.any(qd[:, 6:])


def test_commands():
    """Amplitudes, shares of entries that are kept and zero, and times."""
    commands, keys = Commands(), jr.split(jr.key(0), 4000)
    first, amplitude = np.asarray(jax.vmap(commands.first)(keys)), [1.5, 0.8, 1.2]
    assert np.all(np.abs(first) <= amplitude)
    close(np.std(first, axis=0), np.asarray(amplitude) / np.sqrt(3.0), 0.05)
    old = np.asarray([0.1, 0.2, 0.3])
    new = np.asarray(jax.vmap(commands.new, (0, None))(keys, jnp.asarray(old)))
    close(np.mean(new == old, axis=0), 0.5, 0.05)
    changed = [column[column != x] for column, x in zip(new.T, old)]
    shares = [np.mean(column != 0.0) for column in changed]
    close(shares, commands.keep, 0.08)
    steps = jax.vmap(commands.steps, (0, None))(keys, jnp.asarray(0.02))
    close(np.mean(steps), 250.0, 0.05)
    assert steps.dtype == jnp.int32


def test_new_commands_in_a_rollout():
    """A command lasts for as many steps as the state says."""
    env = Go1Joystick(noise=quiet(), commands=Commands(mean_time=0.1))
    keep = lambda state, action, timestep: (
        state.command,
        state.command_steps,
        timestep.obs[-3:],
    )
    still = lambda obs, key: jnp.zeros(12)
    command, steps, seen = eqsim.rollout(env, still, jr.key(0), 60, collect=keep)[0]
    same = np.all(np.asarray(command[1:] == command[:-1]), axis=1)
    due = np.asarray(steps[:-1]) <= 1
    assert np.all(same | due) and np.sum(~same) > 5
    # What is seen is the command under which the step was rewarded.
    close(seen, command)


def test_pushes():
    """Times, directions and impulses of pushes, and that they move the robot."""
    pushes, dt, mass = Pushes(speed=(2.0, 2.0)), jnp.asarray(0.001), jnp.asarray(3.0)
    state = pushes.first(jr.key(1), dt)
    step = lambda state, key: pushes.force(key, state, mass, dt)
    _, force = jax.lax.scan(step, state, jr.split(jr.key(0), 12_000))
    force = np.asarray(force)
    size = np.linalg.norm(force, axis=1)
    edges = np.flatnonzero(np.diff((size > 1e-12).astype(int)) == 1)
    assert len(edges) >= 3
    period = int(state.wait) + int(round(float(state.duration) * 1000)) + 1
    assert set(np.diff(edges)) == {period}
    close(np.sum(size) * 0.001 / len(edges), mass * 2.0 / np.pi, 1e-3)
    directions = force[edges + 2] / size[edges + 2][:, None]
    close(directions[:, 2], 0.0)
    assert np.std(directions[:, 0]) > 0.1
    env = exact(pushes=Pushes(speed=(9.0, 9.0), wait=(0.02, 0.02)))
    still = exact()
    step = eqx.filter_jit(lambda env, state: env.step(state, jnp.zeros(12)))
    (first, _), (calm, _) = env.reset(jr.key(0)), still.reset(jr.key(0))
    for _ in range(4):
        first, timestep = step(env, first)
        calm, _ = step(still, calm)
    *_, x, y, z, pushing = timestep.obs["privileged_state"]
    assert bool(pushing) and z == 0.0 and np.hypot(x, y) > 10.0
    gained = (first.robot.qd - calm.robot.qd)[:2]
    assert float(gained[0] * x + gained[1] * y) > 0.0


@pytest.mark.slow
def test_randomization():
    """Each number within its range, the rest as it was."""
    sys, draw = Go1Joystick().sys, random_go1()
    robots = jax.vmap(lambda key: eqx.filter(draw(key, sys), eqx.is_array))(
        jr.split(jr.key(0), 300)
    )
    sys, robots = jax.tree.map(np.asarray, (sys, robots))
    names = sys.links.names
    trunk, floor = names.index("trunk"), sys.geoms.names.index("floor")

    spread(robots.geoms.friction[:, floor, 0], 0.4, 1.0)
    joints, links = robots.joints, robots.links
    spread(joints.frictionloss[:, 6:] / sys.joints.frictionloss[6:], 0.9, 1.1)
    spread(joints.armature[:, 6:] / sys.joints.armature[6:], 1.0, 1.05)
    spread(links.com[:, trunk] - sys.links.com[trunk], -0.05, 0.05)
    others = np.arange(len(names)) != trunk
    spread((links.mass / sys.links.mass)[:, others], 0.9, 1.1)
    added = links.mass[:, trunk] - sys.links.mass[trunk]
    assert np.all(np.abs(added) < 1.0 + 0.1 * sys.links.mass[trunk])
    spread(joints.ref[:, 7:] - sys.joints.ref[7:], -0.05, 0.05)
    close(links.inertia, np.broadcast_to(sys.links.inertia, links.inertia.shape), 0.0)
    env = eqsim.DomainRandomization(Go1Joystick(), draw)
    state, _ = env.reset(jr.key(0))
    new, timestep = env.step(state, jnp.zeros(12))
    assert np.all(np.isfinite(timestep.obs)) and float(timestep.reward) > 0.0
    assert env.robot(new).links.mass[trunk] == state.changed.links.mass[trunk]


def test_weights_are_fields():
    """Twice the weight, twice the term, within one compiled program."""
    env = exact()
    double = eqx.tree_at(lambda e: e.weights.pose, env, 2.0 * env.weights.pose)
    state, _ = env.reset(jr.key(0))
    step = eqx.filter_jit(lambda env, state: env.step(state, jnp.zeros(12))[1].terms)
    one, two = step(env, state), step(double, state)
    close(two["pose"], 2.0 * one["pose"])
    close(two["tracking_lin_vel"], one["tracking_lin_vel"])
    assert step._cached._cache_size() == 1


def test_refusals():
    with pytest.raises(TypeError, match="clock"):
        go1_joystick_flat(clock=GaitClock())
    assert Go1Joystick().clock is None
    with pytest.raises(ValueError, match="reads sensors, which `Spring` does not have"):
        Go1Joystick(pipeline=eqsim.Spring())
    with pytest.raises(
        ValueError, match="`frame_skip` must be an integer of at least 1, got 0"
    ):
        Go1Joystick(frame_skip=0)
    env = Go1Joystick()
    with pytest.raises(ValueError, match="robot of `Go1Joystick` is the same"):
        env.reset(jr.key(0), {"sys": env.sys})
    other = Go1Joystick(sys=eqsim.make("ant").sys)
    with pytest.raises(ValueError, match="home"):
        other.reset(jr.key(0))
