"""The task of following commands: laws of its rewards, observations and steps."""

import dataclasses
import functools as ft

import eqsim_locomotion as loco
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from small_robots import quadruped as robot, quadruped_file as file

import eqsim
from eqsim import terrain
from eqsim.envs import ObservationPart
from eqsim.io import with_height_field
from eqsim.kinematics import center_of_mass, integrate
from eqsim.testing import parametrize_with_checks
from eqsim.wrappers import deployment_of, reflection_of, TimeLimit
from eqsim_zoo import runs
from eqsim_zoo.export import MujocoRobot


@ft.cache
def noisy():
    """The task, with noise."""
    return loco.VelocityTracking(robot())


@ft.cache
def quiet():
    """The task without noise, of the same structure."""
    env = noisy()
    return eqx.tree_at(
        lambda e: e.noise, env, {name: jnp.zeros(()) for name in env.noise}
    )


# One program for all tests.
step = eqx.filter_jit(lambda env, state, action: env.step(state, action))
reset = eqx.filter_jit(lambda env, key, options=None: env.reset(key, options))


def motion(getkey, nu=8, nfeet=4) -> loco.Motion:
    """What is known of a step, at random."""
    draw = lambda *shape: jr.normal(getkey(), shape)
    flag = lambda *shape: jr.bernoulli(getkey(), 0.5, shape)
    return loco.Motion(
        command=draw(3),
        moving=jnp.asarray(True),
        velocity=draw(3),
        angular_velocity=draw(3),
        world_velocity=draw(3),
        gravity=draw(3),
        height=draw(),
        deviation=draw(nu),
        rates=draw(nu),
        acceleration=draw(nu),
        beyond=jnp.abs(draw(nu)),
        pose_weights=jnp.abs(draw(nu)),
        torque=draw(nu),
        torque_limit=jnp.abs(draw(nu)) + 1.0,
        action=draw(nu),
        last_action=draw(nu),
        contact=flag(nfeet),
        other_contact=flag(nfeet),
        landed=flag(nfeet),
        air_time=jnp.abs(draw(nfeet)),
        swing_peak=jnp.abs(draw(nfeet)),
        foot_height=draw(nfeet),
        foot_velocity=draw(nfeet, 3),
        foot_force=draw(nfeet, 3),
        swing_height=jnp.asarray(0.1),
        fallen=jnp.asarray(False),
    )


def test_terms_are_their_equations(getkey):
    now = motion(getkey)
    m = loco.Motion(*(np.asarray(x) for x in now))
    speed2 = (m.foot_velocity[:, :2] ** 2).sum(axis=1)
    off = m.command[:2] - m.velocity[:2]
    speed = np.linalg.norm(m.command[:2])
    expected = {
        "track_velocity": np.exp(-(off @ off) / 0.25),
        "track_yaw_rate": np.exp(-4.0 * (m.command[2] - m.angular_velocity[2]) ** 2),
        "vertical_velocity": m.world_velocity[2] ** 2,
        "tilt_rate": m.angular_velocity[0] ** 2 + m.angular_velocity[1] ** 2,
        "tilt": m.gravity[0] ** 2 + m.gravity[1] ** 2,
        "alive": 1.0,
        "fallen": 0.0,
        "pose": m.pose_weights @ m.deviation**2,
        "stand_still": 0.0,
        "joint_limits": m.beyond.sum(),
        "alternation": np.mean(m.contact ^ m.other_contact),
        "torques": np.sum(m.torque**2 / m.torque_limit**2),
        "energy": np.abs(m.rates * m.torque).sum(),
        "joint_acceleration": m.acceleration @ m.acceleration,
        "action_rate": ((m.action - m.last_action) ** 2).sum(),
        "air_time": (np.minimum(m.air_time, 0.5) - 0.1)[m.landed].sum(),
        "progress": min(m.command[:2] @ m.velocity[:2] / speed, speed),
        "slip": speed2[m.contact].sum(),
        "stumble": (
            np.hypot(*m.foot_force[:, :2].T) > np.abs(m.foot_force[:, 2])
        ).sum(),
        "clearance": (np.abs(m.foot_height - 0.1) * speed2**0.25).sum(),
        "swing_height": ((m.swing_peak / 0.1 - 1.0) ** 2)[m.landed].sum(),
        "hop": 0.0 if m.contact.any() else 1.0,
    }
    assert expected.keys() == loco.TERMS.keys()
    every = lambda now: {name: term(now) for name, term in loco.TERMS.items()}
    found = jax.jit(every)(now)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12)
    progress = lambda command, factor: loco.TERMS["progress"](
        now._replace(command=command, velocity=factor * command)
    )
    np.testing.assert_allclose(progress(now.command, 0.5), 0.5 * speed, rtol=1e-12)
    np.testing.assert_allclose(progress(now.command, 2.0), speed, rtol=1e-12)
    slope = jax.grad(progress)(jnp.zeros_like(now.command), 1.0)
    np.testing.assert_array_equal(slope, 0.0)
    still = now._replace(moving=jnp.asarray(False))
    assert float(loco.TERMS["air_time"](still)) == 0.0
    stood = loco.TERMS["stand_still"](still)
    np.testing.assert_allclose(stood, np.abs(m.deviation).sum(), rtol=1e-12)


def test_terms_have_derivatives_at_rest(getkey):
    """At zero velocities, actions and deviations, where norms have kinks."""
    flags = ("contact", "other_contact", "landed", "moving", "fallen")
    start = motion(getkey)._asdict()
    zero = {k: x if k in flags else 0.0 * x for k, x in start.items()}
    for name in ("swing_height", "torque_limit"):
        zero[name] = start[name]

    def total(numbers):
        now = loco.Motion(**{**zero, **numbers})
        return sum(term(now) for term in loco.TERMS.values())

    numbers = {k: x for k, x in zero.items() if k not in flags}
    for x in jax.tree.leaves(jax.jit(jax.grad(total))(numbers)):
        assert np.all(np.isfinite(x))


@eqx.filter_jit
def mirrored(env, state):
    """The state in a mirror at the plane through x and z."""
    joints = env.mirror
    q, qd = state.robot.q, state.robot.qd
    q = q.at[1].mul(-1).at[jnp.array([4, 6])].mul(-1)
    qd = qd.at[jnp.array([1, 3, 5])].mul(-1)
    index, rates = jnp.asarray(env.names.q), jnp.asarray(env.names.qd)
    q = q.at[index].set(joints(q[index] - env.pose) + env.pose)
    qd = qd.at[rates].set(joints(qd[rates]))
    new = env.pipeline.init(env.sys, q, qd), joints(state.last_action)
    state = eqx.tree_at(lambda s: (s.robot, s.last_action), state, new)
    turned = state.command * jnp.array([1.0, -1.0, -1.0])
    return eqx.tree_at(lambda s: s.command, state, turned)


def test_the_reflection_of_a_step_is_a_step(getkey):
    """Observation and reward of the mirrored robot are those of the mirror image, although
    its knees turn in opposite directions."""
    env = quiet()
    action = 0.5 * jr.normal(getkey(), (8,))
    state, _ = reset(env, getkey())
    moved = jnp.asarray(state.robot.qd + 0.3 * jr.normal(getkey(), (env.sys.nv,)))
    state = eqx.tree_at(lambda s: s.robot.qd, state, moved)
    for _ in range(5):
        other, there = step(env, mirrored(env, state), env.reflection().action(action))
        state, here = step(env, state, action)
        assert sum(np.abs(x) for x in here.terms.values()) > 1e-3
        for name, x in here.terms.items():
            np.testing.assert_allclose(x, there.terms[name], rtol=1e-6, atol=1e-9)
        reflected = env.reflection().reflect_obs(here.obs)
        np.testing.assert_allclose(reflected, there.obs, atol=1e-7)
        np.testing.assert_allclose(
            mirrored(env, state).robot.qd, other.robot.qd, atol=1e-6
        )


def test_the_reflection_is_known_inside_transformations():
    env = quiet()
    inside = eqx.filter_jit(lambda env: reflection_of(TimeLimit(env, 5)))(env)
    assert inside == env.reflection()
    assert env.names.others == (1, 0, 3, 2)


def test_a_robot_without_mirror_image_has_no_reflection():
    sys = noisy().sys
    axis = sys.joints.axis.at[sys.joint("FL_knee").index].set(
        jnp.array([0.6, 0.8, 0.0])
    )
    crooked = eqx.tree_at(lambda s: s.joints.axis, sys, axis)
    env = loco.VelocityTracking(robot(), crooked)
    with pytest.raises(ValueError, match="'FL_knee' and 'FR_knee' are no mirror"):
        env.reflection()


def test_terms_that_the_robot_cannot_have():
    """Torques without limits, and feet without another side, unless they have no weight."""
    sys = noisy().sys
    free = dataclasses.replace(sys.actuators, force_limited=(False,) * sys.nu)
    free = eqx.tree_at(lambda s: s.actuators, sys, free)
    with pytest.raises(
        ValueError, match="'torques' needs actuators with a torque limit"
    ):
        loco.VelocityTracking(robot(), free)
    alone = robot(feet=("FL", "RR"))
    with pytest.raises(
        ValueError, match="'alternation' needs feet .* unlike 'FL', 'RR'"
    ):
        loco.VelocityTracking(alone)
    loco.VelocityTracking(alone, free, weights={"progress": 1.0})


def test_commands_and_velocities_have_names(getkey):
    env = quiet()
    state, _ = reset(env, getkey())
    asked, does = zip(*env.tracking(state).values())
    np.testing.assert_array_equal(asked, state.command)
    np.testing.assert_array_equal(does, env.velocity(state.robot))


def test_the_velocity_of_a_thrown_robot():
    """Falling freely with a given heading, the robot observes the velocity in its axes."""
    env = quiet()
    half = 0.5 * 0.7
    q = env.start.at[2].set(5.0)
    q = q.at[3:7].set(jnp.array([np.cos(half), 0.0, 0.0, np.sin(half)]))
    qd = jnp.zeros(env.sys.nv).at[:3].set(jnp.array([1.0, 0.0, 0.0]))
    state, timestep = reset(env, jr.key(0), {"q": q, "qd": qd})
    _, after = step(env, state, jnp.zeros(8))
    local = np.array([np.cos(0.7), -np.sin(0.7), 0.0])
    np.testing.assert_allclose(timestep.obs[:3], local, atol=1e-9)
    fallen = local - np.array([0.0, 0.0, 9.81 * float(env.dt)])
    np.testing.assert_allclose(after.obs[:3], fallen, atol=0.02)
    assert not bool(after.terminated)


def test_air_time_and_contacts():
    """Dropped from a height, all feet are in the air until the robot lands."""
    env = quiet()
    q = env.start.at[2].add(0.05)
    state, _ = reset(env, jr.key(0), {"q": q, "qd": jnp.zeros(env.sys.nv)})
    contact, air = [], []
    for _ in range(10):
        air.append(np.asarray(state.air_time))
        state, _ = step(env, state, jnp.zeros(8))
        contact.append(np.asarray(state.contact))
    # Free fall over 5 cm takes 0.101 s, five control steps.
    assert not np.any(contact[:4]) and np.all(contact[6])
    np.testing.assert_allclose(air[4], 4 * 0.02, rtol=1e-5)


def test_a_robot_on_its_back_has_fallen():
    env = quiet()
    q = env.start.at[2].set(1.0).at[3:7].set(jnp.array([0.0, 1.0, 0.0, 0.0]))
    state, _ = reset(env, jr.key(0), {"q": q, "qd": jnp.zeros(env.sys.nv)})
    _, timestep = step(env, state, jnp.zeros(8))
    assert bool(timestep.terminated)
    cost = 0.02 * float(env.weights["fallen"])
    assert cost < 0.0 and float(timestep.terms["fallen"]) == pytest.approx(cost)


def test_commands(getkey):
    """In their range, zero with the given probabilities, and lasting as long as said."""
    commands = loco.Commands(
        low=(-1.0, -0.5, 0.0), high=(1.0, 0.5, 2.0), zero=(0.0, 0.2, 0.5), standing=0.25
    )
    draw = jax.jit(jax.vmap(lambda key: commands.draw(key, jnp.asarray(0.02))))
    value, steps = map(np.asarray, draw(jr.split(getkey(), 20_000)))
    still = np.all(value == 0.0, axis=1)
    assert abs(still.mean() - 0.25) < 0.02
    moving = value[~still]
    shares = (moving == 0.0).mean(axis=0)
    np.testing.assert_allclose(shares, [0.0, 0.2, 0.5], atol=0.02)
    low, high = np.array([-1.0, -0.5, 0.0]), np.array([1.0, 0.5, 2.0])
    assert np.all((moving >= low) & (moving <= high))
    middle = 0.5 * (low + high) * (1.0 - shares)
    np.testing.assert_allclose(moving.mean(axis=0), middle, atol=0.03)
    assert np.min(steps) >= 1 and abs(0.02 * np.mean(steps) - 5.0) < 0.15


def test_commands_change_when_they_are_due(getkey):
    short = loco.Commands(mean_time=0.1, zero=(0.0, 0.0, 0.0), standing=0.0)
    env = eqx.tree_at(lambda e: e.commands, noisy(), short)
    state, _ = reset(env, getkey())
    commands, left = [], []
    for _ in range(20):
        commands.append(np.asarray(state.command))
        left.append(int(state.command_steps))
        state, _ = step(env, state, jnp.zeros(8))
    changed = [not np.array_equal(a, b) for a, b in zip(commands, commands[1:])]
    assert changed == [steps == 1 for steps in left[:-1]] and any(changed)


def test_noise_of_observations(getkey):
    """It lies within its half widths, times scales, and uses all of them."""
    env = noisy()
    reset = eqx.filter_jit(eqx.filter_vmap(lambda key: env.reset(key, _START)[1].obs))
    _START = {"q": env.start, "qd": jnp.zeros(env.sys.nv)}
    obs = np.asarray(reset(jr.split(getkey(), 4000)))
    half = np.concatenate(
        [[0.1] * 3, [0.2 * 0.25] * 3, [0.05] * 3, [0.03] * 8, [1.5 * 0.05] * 8]
    )
    columns = [*range(9), *range(12, 28)]
    spread = obs[:, columns] - obs[:, columns].mean(axis=0)
    assert np.all(np.abs(spread).max(axis=0) < 1.05 * half)
    assert np.all(np.abs(spread).max(axis=0) > 0.95 * half)


@pytest.mark.parametrize("what", ("observation", "scales", "noise", "weights"))
def test_unknown_names(what):
    value = ("speed",) if what == "observation" else {"speed": 1.0}
    with pytest.raises(ValueError, match=f"`{what}` names 'speed'. Choose from"):
        loco.VelocityTracking(robot(), **{what: value})


def test_soft_limits():
    """About the middle of the range, and none for joints without limits."""
    env = noisy()
    low, high = (np.asarray(x) for x in env.joint_ranges(0.95))
    np.testing.assert_allclose(high, 0.95 * np.array([0.8, 1.5] * 4), rtol=1e-6)
    np.testing.assert_allclose(low, -high, rtol=1e-6)
    moved = env.sys.joints.range + jnp.array([[2.0, 2.0]])
    moved = eqx.tree_at(lambda e: e.sys.joints.range, env, moved)
    np.testing.assert_allclose(moved.joint_ranges(0.95)[1], 2.0 + high, rtol=1e-6)
    joints = env.sys.joints
    free = dataclasses.replace(joints, limited=(False,) * len(joints.limited))
    free = eqx.tree_at(lambda e: e.sys.joints, env, free)
    assert np.all(np.isinf(np.stack(free.joint_ranges(0.95))))


def test_a_control_step_has_time_steps():
    with pytest.raises(ValueError, match="`frame_skip`"):
        loco.VelocityTracking(robot(), frame_skip=0)


def test_presets():
    """Those of the zoo for legged robots are for environments that exist."""
    presets = {env for _, env, *_ in runs.presets() if "_velocity" in env}
    assert presets <= {*eqsim.ENVS.names()}
    assert {f"{name}_velocity" for name in loco.ROBOTS} <= presets
    for end in ("_velocity", "_velocity_rough"):
        names = {f"{name}{end}" for name in loco.ROBOTS}
        assert names == {n for n in eqsim.ENVS.names() if n.endswith(end)}


@pytest.mark.parametrize("name", ("go1", "go2"))
def test_annealed_presets(name, monkeypatch):
    """The learning rate is zero at the end, and commands change every 2 s on average, also
    in the environment of the run, here of a small robot in place of the file."""
    monkeypatch.setitem(loco.ROBOTS, name, robot())
    for steps in (None, 3e6):
        run = runs.find_preset("ppo", f"{name}_velocity", steps=steps)
        assert run is not None and run.steps == (steps or 4_200_000)
        assert float(run.members.agent(0).anneal_steps) == run.steps
        assert run.options["commands"]["mean_time"] == 2.0
    assert float(run.environment().commands.mean_time) == 2.0


def test_robots_by_name():
    with pytest.raises(ValueError, match="`robot` names 'go3'.*go2"):
        loco.VelocityTracking("go3")


def test_deployment_describes_the_task():
    """The parts of the observation, and servos as the robot has them."""
    env = noisy()
    told = env.deployment()
    assert (
        sum(part.size for part in told.observation) == reset(env, jr.key(0))[1].obs.size
    )
    assert told.joints == tuple(env.names.joints) and told.root == "trunk"
    assert told.period == pytest.approx(0.02)
    np.testing.assert_allclose(told.stiffness, 40.0)
    np.testing.assert_allclose(told.damping, [1.0, 1.5] * 4)
    np.testing.assert_allclose(told.torque_limit, [20.0, 10.0] * 4)
    np.testing.assert_allclose(told.action_scale, [0.2, 0.4] * 4, rtol=1e-6)


def hills() -> terrain.TerrainGrid:
    """A small grid of terrain."""
    kinds = terrain.Slope(slope=(0.1, 0.3)), terrain.Stairs(step_height=0.06, up=False)
    return terrain.TerrainGrid(kinds, levels=2, points=24, cell=0.1, border=4)


@ft.cache
def rough():
    """The task on terrain, with a curriculum."""
    scan = np.array([[0.0, 0.0], [0.3, 0.1], [0.3, -0.1], [-0.3, 0.2], [-0.3, -0.2]])
    return loco.rough_velocity(robot(), terrain=hills(), scan=scan, noise={})


def test_on_terrain_heights_are_above_the_ground(getkey):
    """The first patch of the second column is a pit of stairs: the robot starts on its
    bottom, sees it, and has a height above it, wherever it looks."""
    env = rough()
    start, timestep = reset(env, getkey(), {"patch": jnp.array([1, 1])})
    task, q = env.env, start.inner.robot.q
    below = terrain.ground_height(task.sys, q[0], q[1])
    assert below < -0.05
    np.testing.assert_allclose(q[2] - below, task.start[2], atol=1e-6)
    turn = 2.0 * jnp.arctan2(q[6], q[3])
    for k, (x, y) in enumerate(np.asarray(task.scan)):
        there = q[:2] + jnp.stack(
            [
                x * jnp.cos(turn) - y * jnp.sin(turn),
                x * jnp.sin(turn) + y * jnp.cos(turn),
            ]
        )
        seen = terrain.ground_height(task.sys, *there) - q[2]
        np.testing.assert_allclose(timestep.obs[-5:][k], seen, atol=1e-6)
    state = start
    for _ in range(15):
        state, timestep = step(env, state, jnp.zeros(8))
    assert not bool(timestep.terminated) and np.all(state.inner.contact)
    assert np.all(state.inner.swing_peak < 0.05)
    told = deployment_of(env)
    assert told.observation[-1] == ObservationPart("height_scan", 5, 1.0)
    assert len(told.scan) == 5 and told.scan[1] == pytest.approx((0.3, 0.1))


def test_observations_in_mujoco_are_those_of_the_task(getkey):
    """On terrain, in any pose: the deployment has all that the observation needs."""
    task, grid = rough().env, hills()
    spec = with_height_field(
        file(), *grid.shape, grid.size, heights=grid.heights(jr.key(0))
    )
    there = MujocoRobot(spec, deployment_of(rough()))
    reset = eqx.filter_jit(task.reset)
    for _ in range(10):
        q = task.start + 0.3 * jr.normal(getkey(), task.start.shape)
        q = q.at[:2].set(jr.uniform(getkey(), (2,), minval=-2.0, maxval=2.0))
        q = q.at[3:7].divide(jnp.linalg.norm(q[3:7]))
        qd = jr.normal(getkey(), (task.sys.nv,))
        state, timestep = reset(getkey(), {"q": q, "qd": qd})
        there.data.qpos[:], there.data.qvel[:] = q, qd
        there.update()
        found = there.observe(state.command, np.zeros(8))
        np.testing.assert_allclose(found, timestep.obs, atol=1e-5)


def test_stumbling_feet(getkey):
    """Forces on feet that slide accelerate the center of mass, with gravity; a foot against
    a wall stumbles."""
    task = quiet()
    state, _ = task.reset(getkey())
    for _ in range(40):
        state, _ = step(task, state, jnp.zeros(8))
    sys, robot = (
        task.sys,
        eqx.tree_at(
            lambda s: s.qd,
            state.robot,
            state.robot.qd.at[:2].add(jnp.array([0.6, -0.3])),
        ),
    )
    qdd = task.pipeline.acceleration(sys, robot, task.pose)
    contact, force = task._touching(
        task.pipeline.advance(sys, robot, task.pose)[1].contacts
    )
    along = lambda t: integrate(sys, robot.q, t * robot.qd + 0.5 * t * t * qdd)
    place = lambda t: center_of_mass(sys, along(t))
    speed = lambda t: jax.jvp(place, (t,), (jnp.ones(()),))[1]
    rate = jax.jvp(speed, (jnp.zeros(()),), (jnp.ones(()),))[1]
    expected = jnp.sum(sys.links.mass) * (rate - sys.gravity)
    assert np.all(contact) and np.all(np.abs(expected) > 5.0)
    np.testing.assert_allclose(jnp.sum(force, axis=0), expected, rtol=1e-6)
    now = motion(getkey)
    wall = jnp.array([[0.0, 0.0, 9.0], [5.0, 0.0, 4.0], [-3.0, 3.0, 4.0], [0.0] * 3])
    stumble = loco.TERMS["stumble"]
    assert float(stumble(now._replace(foot_force=wall))) == 2.0


def test_beyond_the_terrain_a_robot_has_fallen(getkey):
    env = rough().env
    q = env.start.at[0].set(4.0).at[2].set(-0.5)
    state, _ = reset(env, getkey(), {"q": q, "qd": jnp.zeros(env.sys.nv)})
    assert bool(step(env, state, jnp.zeros(8))[1].terminated)


def test_reflections_of_scans():
    """Points beside each other change places; a scan without symmetry has none."""
    env = rough().env
    index = env.reflection().obs.index
    size = len(index) - 5
    assert index[size:] == tuple(size + k for k in (0, 2, 1, 4, 3))
    crooked = loco.VelocityTracking(
        robot(), observation=("command", "height_scan"), scan=[[0.1, 0.2], [0.3, 0.1]]
    )
    with pytest.raises(ValueError, match="points of `scan` are not symmetric"):
        crooked.reflection()
    with pytest.raises(ValueError, match=r"`scan` has the shape \(3,\)"):
        loco.VelocityTracking(robot(), scan=[0.1, 0.2, 0.3])


def test_one_ground():
    with pytest.raises(ValueError, match="`sys` or `terrain`, not both"):
        loco.VelocityTracking(robot(), noisy().sys, terrain=hills())


def test_speed_of_a_robot(getkey):
    """Velocities that are commanded by default are in proportion to it."""
    usual, slow = (
        loco.VelocityTracking(robot()),
        loco.VelocityTracking(robot(speed=0.4)),
    )
    draw = lambda env: env.commands.draw(jr.key(3), env.dt)
    np.testing.assert_allclose(draw(slow)[0], 0.4 * draw(usual)[0], rtol=1e-6)
    assert draw(slow)[1] == draw(usual)[1]
    given = loco.VelocityTracking(robot(speed=0.4), commands=loco.Commands())
    np.testing.assert_array_equal(draw(given)[0], draw(usual)[0])


def test_commands_by_field():
    """Other fields are those by default, and velocities in proportion to the speed."""
    given = {"mean_time": 2.0, "high": (2.0, 0.5, 1.0)}
    env = loco.VelocityTracking(robot(speed=0.4), commands=given)
    commands = env.commands
    np.testing.assert_allclose(commands.high, (0.8, 0.2, 0.4), rtol=1e-6)
    np.testing.assert_allclose(commands.low, (-0.4, -0.2, -0.4), rtol=1e-6)
    assert float(commands.mean_time) == 2.0
    np.testing.assert_array_equal(commands.zero, loco.Commands().zero)


@pytest.mark.parametrize(
    "given, kind, text",
    (
        (5, TypeError, "`commands` must be a `Commands` or a dictionary.*, got 5"),
        ("slow", TypeError, "`commands` must be a `Commands` or .*, got 'slow'"),
        ({"time": 2.0}, ValueError, "`commands` names 'time'. Choose from low"),
        ({"mean_time": -2}, ValueError, "mean_time` must be positive, got -2"),
        ({"mean_time": 0}, ValueError, "mean_time` must be positive, got 0"),
        ({"standing": 1.5}, ValueError, "standing` must be between 0 and 1, got 1.5"),
        ({"zero": (0, -0.5, 0)}, ValueError, r"zero` must be .*, got \[0.0, -0.5, 0.0"),
        ({"high": (np.inf, 1, 1)}, ValueError, r"high` must be finite, got \[inf"),
        ({"low": (np.nan, 0, 0)}, ValueError, r"low` must be finite, got \[nan"),
    ),
)
def test_what_is_wrong_with_commands(given, kind, text):
    with pytest.raises(kind, match=text):
        loco.VelocityTracking(robot(), commands=given)


def test_commands_on_terrain_lead_away(getkey):
    """A robot that follows them is mostly farther away after 20 s than the share of the
    way below which its level falls."""
    env, share = rough().env, float(rough().criterion.share)
    period = float(env.dt)

    def walk(key):
        def step(carry, _):
            key, left, command, x, heading = carry
            key, drawn = jr.split(key)
            new, steps = env.commands.draw(drawn, env.dt)
            due = left <= 0
            command, left = jnp.where(due, new, command), jnp.where(due, steps, left)
            cos, sin = jnp.cos(heading), jnp.sin(heading)
            x = x + period * jnp.stack(
                [
                    command[0] * cos - command[1] * sin,
                    command[0] * sin + command[1] * cos,
                ]
            )
            carry = key, left - 1, command, x, heading + period * command[2]
            return carry, jnp.linalg.norm(command[:2])

        zero = jnp.zeros(())
        start = key, jnp.zeros((), jnp.int32), jnp.zeros(3), jnp.zeros(2), zero
        end, speed = jax.lax.scan(step, start, None, 1000)
        return jnp.linalg.norm(end[3]), period * jnp.sum(speed)

    away, walked = jax.jit(jax.vmap(walk))(jr.split(getkey(), 256))
    assert np.mean(np.asarray(away) > share * np.asarray(walked)) > 0.8
    assert float(env.weights["tilt"]) == -1.0


def test_weights_of_a_robot():
    """Those of its description replace the default ones, unless all are passed."""
    light = robot(weights={"fallen": -1.0})
    env = loco.VelocityTracking(light)
    assert float(env.weights["fallen"]) == -1.0
    assert env.weights["progress"] == noisy().weights["progress"]
    env = loco.VelocityTracking(light, weights={"alive": 1.0})
    assert env.weights.keys() == {"alive"}


class Quadruped(loco.VelocityTracking):
    """A task that is made without arguments."""

    def __init__(self):
        super().__init__(robot(), noise={})


@pytest.mark.slow
@parametrize_with_checks([Quadruped()])
def test_conformance(check):
    check.run()


def test_numbers_change_without_recompiling(getkey):
    """Those of the robot and those of the task."""
    env, count = noisy(), 0

    @eqx.filter_jit
    def run(env, key):
        nonlocal count
        count += 1
        state, _ = env.reset(key)
        return env.step(state, jnp.zeros(8))[1].terms["pose"]

    first = run(env, jr.key(0))
    heavier = eqx.tree_at(lambda e: e.sys.links.mass, env, 1.3 * env.sys.links.mass)
    double = eqx.tree_at(lambda e: e.weights["pose"], env, 2.0 * env.weights["pose"])
    assert run(heavier, jr.key(0)) != first
    np.testing.assert_allclose(run(double, jr.key(0)), 2.0 * first, rtol=1e-9)
    assert count == 1
