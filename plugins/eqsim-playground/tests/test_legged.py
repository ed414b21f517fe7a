"""Tasks of legged robots beside the published ones."""

import dataclasses

import _checks
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from _checks import initial, needs_models, reset, spread
from _published import Published, UNUSED
from eqsim_playground import (
    AbstractJoystick,
    BerkeleyHumanoidJoystick,
    Commands,
    G1Joystick,
    GaitClock,
    go1_footstand,
    go1_getup,
    go1_handstand,
    go1_joystick_flat,
    Go1Joystick,
    HumanoidShaping,
    HumanoidWeights,
    JoystickNoise,
    Kicks,
    Pushes,
    random_berkeley_humanoid,
    random_g1,
    random_go1,
    random_t1,
    RandomLegged,
    T1Joystick,
    UniformCommands,
)
from eqsim_playground._models import add_force_sensors, document

import eqsim
from eqsim.wrappers import deployment_of, reflection_of


pytestmark = needs_models
SILENT = JoystickNoise(*(0.0,) * 5)
HUMANOIDS = {
    "g1": G1Joystick,
    "t1": T1Joystick,
    "berkeley_humanoid": BerkeleyHumanoidJoystick,
}
TASKS = {
    **{(f"{robot}/joystick.py", "Joystick"): x for robot, x in HUMANOIDS.items()},
    ("go1/joystick.py", "Joystick"): Go1Joystick,
    ("go1/getup.py", "Getup"): go1_getup,
    ("go1/handstand.py", "Handstand"): go1_handstand,
    ("go1/handstand.py", "Footstand"): go1_footstand,
}


def close(ours, theirs, tolerance=1e-6, name=""):
    _checks.close(ours, theirs, tolerance, name)


def exact(make, **options):
    """The task without noise, with weights for all terms, see `UNUSED`."""
    env = make(noise=SILENT, privileged=True, **options)
    weights = vars(env.weights)
    # Playground's Berkeley Humanoid has no term `dof_acc`.
    counts = "dof_acc" in weights and make is not BerkeleyHumanoidJoystick
    given = {**(UNUSED if counts else {})}
    given |= {k: x for k, x in weights.items() if x is not None}
    counted = {k: 1.0 if x == 0.0 else x for k, x in given.items()}
    return eqx.tree_at(lambda e: e.weights, env, type(env.weights)(**counted))


def starts(env):
    """States from which robots stand, walk aside, rest, cross their legs, and fall."""
    rng = np.random.default_rng(0)
    home = np.array(env.sys.keyframe(env.about.keyframe).q)
    names = env.sys.joints.names
    commands = (0.8, 0.4, 0.5), (0.0, 0.0, 0.0), (0.5, -0.3, 0.0), (0.3, 0.0, 0.0)
    for command in commands:
        q, qd = home.copy(), np.zeros(env.sys.nv)
        if command[0] > 0.0 or isinstance(env, AbstractJoystick):
            q[7:] *= rng.uniform(0.5, 1.5, env.sys.nu)
        qd[:6] = rng.uniform(-0.5, 0.5, 6)
        if command[1] < 0.0:  # Feet and hands inwards.
            for name in names[1:]:
                if "hip_roll" in name.lower():
                    inward = 0.35 if "right" in name.lower() else -0.35
                    q[6 + names.index(name)] = inward
        if command == (0.3, 0.0, 0.0):
            q[2:7] = 0.9, 0.2, 0.97, 0.1, 0.0
            q[3:7] /= np.linalg.norm(q[3:7])
        yield q, qd, command


SLOW = "g1/joystick.py", "berkeley_humanoid/joystick.py", "go1/getup.py"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=pytest.mark.slow)
        if x[0] in SLOW or x[1] == "Footstand"
        else x
        for x in TASKS
    ],
    ids="-".join,
)
def test_steps(name):
    """Observation, reward term by term, end and memory in 100 steps, beside the published
    functions."""
    humanoid = TASKS[name] in HUMANOIDS.values()
    joystick = humanoid or TASKS[name] is Go1Joystick
    env = exact(TASKS[name], **({"pushes": None} if humanoid else {}))
    place = 9 if humanoid else 45
    theirs = Published(*name, env.about)
    begin, step = eqx.filter_jit(env.begin), eqx.filter_jit(env.step)
    rng, counts = np.random.default_rng(1), {}
    for q, qd, command in starts(env):
        robot = env.pipeline.init(env.sys, jnp.asarray(q), jnp.asarray(qd))
        state, obs = begin(jr.key(0), robot)
        phase = (np.zeros(2), np.zeros(()))
        if joystick:
            given = jnp.asarray(command), jnp.full((), 10_000, jnp.int32)
            where = lambda s: (s.command, s.command_steps)
            state = eqx.tree_at(where, state, given)
            # Commands are drawn separately.
            set_command = lambda x: x.at[place : place + 3].set(state.command)
            obs = {part: set_command(x) for part, x in obs.items()}
        if humanoid:
            phase = state.phase.angle, state.phase.rate
        seen = theirs.begin(q, qd, command, phase)
        # A falling quadruped moves beyond its joint limits.
        size = 2.4 if q[2] > 0.8 and not humanoid else 0.8
        wave = rng.uniform(0.0, 7.0, env.sys.nu)
        for part, values in seen.items():
            close(obs[part], values, name=part)
        for k in range(25):
            action = size * np.sin(0.4 * k + wave)
            action = action if joystick or k % 5 else np.zeros(env.sys.nu)
            ctrl = env.default_pose + env.action_scale * action
            state, timestep = step(state, jnp.asarray(action))
            new, ctrl = state.robot, ctrl if joystick else state.ctrl
            judged = theirs.step(action, np.asarray(new.q), np.asarray(new.qd), ctrl)
            close(ctrl, judged.ctrl)
            for part, values in judged.obs.items():
                close(timestep.obs[part], values, name=part)
            assert set(timestep.terms) - {"clip"} == set(judged.terms)
            assert set(timestep.terms) == set(env.term_names)
            for term, value in judged.terms.items():
                close(timestep.terms[term], value, name=term)
                counts[term] = counts.get(term, 0) + bool(value != 0.0)
            close(timestep.reward, judged.reward)
            assert bool(timestep.terminated) == bool(judged.done)
            close(state.last_action, theirs.info["last_act"])
            info = theirs.info
            if humanoid:
                close(state.phase.angle, info["phase"])
            if joystick:
                close(state.air_time, info["feet_air_time"])
                close(state.swing_peak, info["swing_peak"])
                assert np.all(state.last_contact == info["last_contact"])
    assert all(counts.values()), counts


def test_deployment_of_quadrupeds():
    found, env = deployment_of(Go1Joystick()), Go1Joystick()
    sizes = [part.size for part in found.observation]
    assert sum(sizes) == reset(env, jr.key(0))[1].obs.size
    assert found.joints == env.sys.joints.names[1:] and not found.rests


# One of the family is quick, with all parts: a clipped reward, and feet that rest.
ONE = [x if x == "t1" else pytest.param(x, marks=pytest.mark.slow) for x in HUMANOIDS]


@pytest.mark.parametrize("name", ONE)
def test_deployment(name):
    """The observation by its named parts, and the torques of the servos, from MuJoCo."""
    env = HUMANOIDS[name](noise=SILENT, pushes=None, privileged=True)
    found, rng = deployment_of(HumanoidShaping(env)), np.random.default_rng(0)
    model = mujoco.MjModel.from_xml_string(document(env.about.scene, add_force_sensors))
    data, nu = mujoco.MjData(model), env.sys.nu
    q, qd = np.array(env.start), rng.uniform(-1.0, 1.0, env.sys.nv)
    q[3:7] = 0.9, 0.2, -0.3, 0.24
    q[3:7] /= np.linalg.norm(q[3:7])
    q[7:] += rng.uniform(-0.1, 0.1, nu)
    robot = env.pipeline.init(env.sys, jnp.asarray(q), jnp.asarray(qd))
    state, obs = eqx.filter_jit(env.begin)(jr.key(0), robot)
    data.qpos[:], data.qvel[:] = q, qd
    mujoco.mj_forward(model, data)
    imu, velocity = model.site(found.imu).id, np.zeros(6)
    site = mujoco.mjtObj.mjOBJ_SITE
    mujoco.mj_objectVelocity(model, data, site, imu, velocity, 1)
    angle = state.phase.angle
    assert "last_action" not in [part.name for part in found.observation]
    parts = {
        "linear_velocity": velocity[3:],
        "angular_velocity": velocity[:3],
        "gravity": -data.site_xmat[imu].reshape(3, 3)[2],
        "command": state.command,
        "joint_positions": q[7:] - np.asarray(found.default_pose),
        "joint_velocities": qd[6:],
        "previous_action": np.zeros(nu),
        "phase": np.concatenate([np.cos(angle), np.sin(angle)]),
    }
    named = [part.scale * np.asarray(parts[part.name]) for part in found.observation]
    assert [part.size for part in found.observation] == [x.size for x in named]
    close(obs["state"], np.concatenate(named), 1e-5)
    assert found.root == mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, 1)
    pose, scale = np.asarray(found.default_pose), np.asarray(found.action_scale)
    # Torques within and beyond the limits.
    for action in (rng.uniform(-0.1, 0.1, nu), 1e4 * rng.uniform(-1.0, 1.0, nu)):
        data.ctrl[:] = env.default_pose + env.action_scale * action
        mujoco.mj_forward(model, data)
        target = np.clip(pose + scale * action, *np.asarray(found.target_range).T)
        torque = np.asarray(found.stiffness) * (target - q[7:])
        torque -= np.asarray(found.damping) * qd[6:]
        limit = np.asarray(found.torque_limit)
        address = model.jnt_dofadr[[model.joint(x).id for x in found.joints]]
        close(np.clip(torque, -limit, limit), data.qfrc_actuator[address], 1e-5)
        damping = -np.asarray(found.joint_damping) * qd[6:]
        close(damping, data.qfrc_damper[address], 1e-5)
    # Observations have the action before the last one.
    place = np.cumsum([part.size for part in found.observation])
    names = [part.name for part in found.observation]
    end = place[names.index("previous_action")]
    advance = eqx.filter_jit(env.advance)
    for action in np.eye(nu)[:2]:
        before = state.last_action
        state, obs, *_ = advance(state, jnp.asarray(0.1 * action))
        close(obs["state"][end - nu : end], before)


def test_first_states():
    """Joint angles within their ranges, frequencies and opposite phases of the feet."""
    env = T1Joystick()
    q, qd = initial(env, jr.split(jr.key(0), 200))
    home = np.asarray(env.default_pose)
    factors = (np.asarray(q[:, 7:]) / np.where(home == 0.0, 1.0, home))[:, home != 0.0]
    assert factors.min() >= 0.5 - 1e-9 and factors.max() <= 1.5 + 1e-9
    assert factors.min() < 0.51 and factors.max() > 1.49
    assert np.all(np.abs(qd[:, :6]) <= 0.5) and not np.any(qd[:, 6:])
    phase = jax.jit(jax.vmap(env.clock.first, (0, None)))(
        jr.split(jr.key(0), 200), env.dt
    )
    close(phase.angle, np.broadcast_to([0.0, np.pi], (200, 2)))
    frequency = np.asarray(phase.rate) / (2.0 * np.pi * 0.02)
    assert frequency.min() >= 1.25 and frequency.max() <= 1.75 + 1e-9
    assert frequency.min() < 1.27 and frequency.max() > 1.73


def test_commands():
    """Ranges, the share of commands to stand, and times."""
    commands = jax.tree.map(np.asarray, UniformCommands())
    drawn = np.asarray(
        jax.jit(jax.vmap(UniformCommands().first))(jr.split(jr.key(0), 4000))
    )
    assert np.all((drawn >= commands.low) & (drawn <= commands.high))
    close(np.mean(np.all(drawn == 0.0, axis=1)), 0.1, 0.15)
    close(np.std(drawn, axis=0), np.array([1.0, 0.5, 1.0]) * np.sqrt(0.3), 0.05)
    assert int(UniformCommands().steps(jr.key(0), jnp.asarray(0.02))) == 501


def test_kicks():
    """Times, speeds and directions of kicks."""
    kicks, dt, mass = Kicks(wait=(0.1, 0.2)), jnp.asarray(0.02), jnp.asarray(30.0)
    robot = eqsim.State(jnp.zeros(7), jnp.arange(6.0), jnp.zeros(0), None)

    def step(state, key):
        state, moved, force = kicks.apply(key, state, robot, mass, dt)
        assert force is None
        return state, moved.qd - robot.qd

    first = kicks.first(jr.key(1), dt)
    _, change = jax.lax.scan(step, first, jr.split(jr.key(0), 4000))
    change = np.asarray(change)
    assert not np.any(change[:, 2:])
    times = np.flatnonzero(np.any(change != 0.0, axis=1))
    assert set(np.diff(times)) == {int(first.wait)} and times[0] == int(first.wait) - 1
    assert 5 <= int(first.wait) <= 10
    speed = np.linalg.norm(change[times], axis=1)
    assert 0.1 <= speed.min() < 0.2 and 1.9 < speed.max() <= 2.0
    close(np.mean(change[times, :2] / speed[:, None], axis=0), np.zeros(2), 0.1)


@pytest.mark.parametrize("name", ONE)
def test_reflection(name):
    """The observation of a mirrored state is the mirrored observation."""
    env = HUMANOIDS[name](noise=SILENT, pushes=None, privileged=True)
    mirror, rng = env.reflection(), np.random.default_rng(0)
    q = np.array(env.start)
    q[3:7] = 0.9, 0.2, -0.3, 0.24
    q[3:7] /= np.linalg.norm(q[3:7])
    q[7:] += rng.uniform(-0.1, 0.1, env.sys.nu)
    qd = rng.uniform(-1.0, 1.0, env.sys.nv)
    joints = lambda x: np.asarray(mirror.action(jnp.asarray(x)))
    other_q = np.concatenate([q[:7] * [1, -1, 1, 1, -1, 1, -1], joints(q[7:])])
    other_qd = np.concatenate([qd[:6] * [1, -1, 1, -1, 1, -1], joints(qd[6:])])
    init = lambda q, qd: env.pipeline.init(env.sys, jnp.asarray(q), jnp.asarray(qd))
    begin = eqx.filter_jit(env.begin)
    (state, obs), (_, other) = [
        begin(jr.key(0), init(*pair)) for pair in ((q, qd), (other_q, other_qd))
    ]
    # Command and phases are drawn alike, not mirrored.
    expected, size = mirror.reflect_obs(obs), obs["state"].size
    own = np.r_[9:12, size - 4 : size]
    meter = np.r_[size + 3 : size + 6]  # The masses are not quite symmetric.
    for part in obs:
        left_out = own if part == "state" else np.concatenate([own, meter])
        close(np.delete(expected[part], left_out), np.delete(other[part], left_out))
        close(expected[part][9:12], state.command * np.array([1.0, -1.0, -1.0]))
        close(expected[part][own[3:]], np.asarray(obs[part])[own[3:]][[1, 0, 3, 2]])
    close(*(x["privileged_state"][meter] for x in (expected, other)), tolerance=0.05)
    alone = HUMANOIDS[name](pushes=None).reflection()
    assert alone.obs == mirror.obs["state"]


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (G1Joystick, random_g1),
        (T1Joystick, random_t1),
        pytest.param(
            BerkeleyHumanoidJoystick, random_berkeley_humanoid, marks=pytest.mark.slow
        ),
    ],
)
def test_randomization(make, draw):
    """What changes is what the published code changes."""
    sys, about, random = make().sys, make.about, draw()
    new = jax.jit(jax.vmap(lambda key: eqx.filter(random(key, sys), eqx.is_array)))(
        jr.split(jr.key(0), 100)
    )
    old, new = jax.tree.map(np.asarray, (sys, new))
    links, joints = new.links, new.joints
    trunk = old.links.names.index(about.trunk)
    rest = np.arange(old.nlink) != trunk
    spread((links.mass / old.links.mass)[:, rest], *random.mass)
    # The sum of two independent uniform values.
    mass, change = old.links.mass[trunk], links.mass[:, trunk] - old.links.mass[trunk]
    ranges = [mass * (np.asarray(random.mass) - 1.0), np.asarray(random.trunk_mass)]
    low, high = np.sum(ranges, axis=0)
    assert np.all((change >= low - 1e-9) & (change <= high + 1e-9))
    deviation = np.sqrt(sum(np.ptp(x) ** 2 / 12.0 for x in ranges))
    np.testing.assert_allclose(np.std(change), deviation, 0.15)
    for name in ("frictionloss", "armature"):
        factor = vars(joints)[name][:, 6:] / vars(old.joints)[name][6:]
        spread(factor, *vars(random)[name])
    spread(joints.ref[:, 7:] - old.joints.ref[7:], *random.zero)
    close(links.com, np.broadcast_to(old.links.com, links.com.shape))
    factor = joints.damping[:, 6:] / old.joints.damping[6:]
    damped = np.isin(old.joints.names[1:], random.damped)
    close(factor[:, ~damped], np.ones_like(factor[:, ~damped]))
    if make is T1Joystick:
        assert damped.sum() == 4
        spread(factor[:, damped], 0.5, 2.0)
        stiffness = new.actuators.gain[:, :, 0] / old.actuators.gain[:, 0]
        spread(stiffness, 0.9, 1.1)
        close(new.actuators.gain[:, :, 0], -new.actuators.bias[:, :, 1])
    if make is G1Joystick:
        # The first two pairs are those of feet and floor.
        spread(new.pairs.friction[:, :2, :2], 0.4, 1.0)
        rest = new.pairs.friction[:, 2:]
        close(rest, np.broadcast_to(old.pairs.friction[2:], rest.shape))
    else:
        floor = old.geoms.names.index("floor")
        spread(new.geoms.friction[:, floor, 0], *random.floor_friction)


def test_refusals():
    with pytest.raises(ValueError, match="`clock` of a humanoid must be a `GaitClock`"):
        BerkeleyHumanoidJoystick(clock=None)
    with pytest.raises(ValueError, match="`damped` .* needs `damping`.* got None"):
        RandomLegged(damped=("FR_hip_joint",))
    with pytest.raises(ValueError, match="`damping` needs `damped`"):
        RandomLegged(damping=jnp.asarray([0.5, 2.0]))


def test_shaping():
    """The reward of the task, and terms that have the stated values."""
    task = T1Joystick(noise=SILENT, pushes=None)
    env = HumanoidShaping(task, progress=1.5, gait=0.5, fall=-2.0, height=0.3)
    state, first = reset(env, jr.key(0))
    state = eqx.tree_at(
        lambda s: (s.command, s.robot.qd),
        state,
        (jnp.asarray([0.6, -0.8, 0.3]), state.robot.qd.at[:3].set(0.0)),
    )
    action = jnp.zeros(env.sys.nu)

    @eqx.filter_jit
    def both(env, state):
        return env.env.step(state, action), env.step(state, action)

    (new, plain), (_, shaped) = both(env, state)
    added = {k: shaped.terms[k] for k in ("progress", "gait", "fall")}
    assert set(first.terms) == set(shaped.terms) == {*plain.terms, *added}
    close(sum(shaped.terms.values()), shaped.reward)
    close(shaped.reward - plain.reward, sum(added.values()), 1e-5)
    velocity = np.asarray(new.robot.qd[:3]) @ rotation(new.robot.q[3:7])
    close(added["progress"], 1.5 * 0.02 * velocity[:2] @ [0.6, -0.8], 1e-5)
    stance = np.abs(new.phase.angle) > 0.5 * np.pi
    close(added["gait"], 0.5 * 0.02 * np.mean(stance == new.last_contact))
    assert added["fall"] == 0.0 and not shaped.terminated
    for changed in ({"height": 0.9}, {"upright": 1.0}):
        _, (_, fallen) = both(dataclasses.replace(env, **changed), state)
        assert fallen.terminated and fallen.terms["fall"] == -2.0
    # The clock still asks the first foot to lift.
    still = eqx.tree_at(lambda s: s.command, state, jnp.zeros(3))
    (new, _), (_, shaped) = both(env, still)
    assert np.abs(still.phase.angle[0]) < 0.5 * np.pi
    close(shaped.terms["gait"], 0.5 * 0.02 * np.mean(new.last_contact))
    assert reflection_of(env) == task.reflection()
    with pytest.raises(TypeError, match="must wrap a humanoid.*got `TimeLimit`"):
        HumanoidShaping(eqsim.TimeLimit(task, 10))


def rotation(quat):
    """The rotation matrix of a unit quaternion."""
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quat, float))
    return matrix.reshape(3, 3)


def test_weights_and_terms():
    """A task has the terms of its weights from the first reset on, or refuses a weight."""
    make = lambda **given: BerkeleyHumanoidJoystick(weights=HumanoidWeights(**given))
    env = make(dof_acc=-1e-7)
    state, timestep = eqx.filter_eval_shape(env.reset, jr.key(0))
    # `test_steps` has those of steps.
    assert "dof_acc" in timestep.terms and set(timestep.terms) == {*env.term_names}
    message = "no reward terms collision, feet_distance. Set their weights to None"
    with pytest.raises(ValueError, match=message):
        env = make(feet_distance=-1.0, collision=-0.1)
        eqx.filter_eval_shape(env.step, state, jnp.zeros(env.sys.nu))


def test_noise_of_a_quadruped():
    """Uniform within the scales, and different in each step."""
    noisy, env = Go1Joystick(), Go1Joystick(noise=SILENT)
    observe = lambda env: jax.vmap(lambda key: env.reset(key)[1].obs)(keys)
    keys, start = jr.split(jr.key(0), 200), eqx.filter_jit(observe)
    off = np.asarray(start(noisy) - start(env))
    scales = np.repeat([0.1, 0.2, 0.05, 0.03, 1.5, 0.0], [3, 3, 3, 12, 12, 15])
    largest = np.max(np.abs(off), axis=0)
    assert np.all(largest <= scales + 1e-12) and np.all(largest >= 0.9 * scales)
    assert np.all(np.abs(np.mean(off, axis=0)) <= 0.2 * scales)


def test_first_states_of_a_quadruped():
    """The ranges of place, heading and velocity."""
    env = Go1Joystick()
    q, qd = initial(env, jr.split(jr.key(0), 400))
    home = env.sys.keyframe("home").q
    assert np.all(np.abs(q[:, :2]) <= 0.5) and np.max(np.abs(q[:, :2])) > 0.48
    close(q[:, 2], home[2])
    close(q[:, 7:], jnp.broadcast_to(home[7:], (400, 12)))
    close(jnp.sum(q[:, 3:7] ** 2, axis=1), 1.0)
    heading = 2.0 * np.arctan2(q[:, 6], q[:, 3])
    assert np.max(np.abs(heading)) < 3.1401 and np.std(heading) > 1.6
    assert np.all(np.abs(qd[:, :6]) <= 0.5) and not np.any(qd[:, 6:])


def test_commands_of_a_quadruped():
    """Amplitudes, shares of entries that are kept and zero, and times."""
    commands, keys = Commands(), jr.split(jr.key(0), 4000)
    first, amplitude = (
        np.asarray(jax.jit(jax.vmap(commands.first))(keys)),
        [1.5, 0.8, 1.2],
    )
    assert np.all(np.abs(first) <= amplitude)
    close(np.std(first, axis=0), np.asarray(amplitude) / np.sqrt(3.0), 0.05)
    old = np.asarray([0.1, 0.2, 0.3])
    new = np.asarray(jax.jit(jax.vmap(commands.new, (0, None)))(keys, jnp.asarray(old)))
    close(np.mean(new == old, axis=0), 0.5, 0.05)
    changed = [column[column != x] for column, x in zip(new.T, old)]
    shares = [np.mean(column != 0.0) for column in changed]
    close(shares, commands.keep, 0.08)
    steps = jax.jit(jax.vmap(commands.steps, (0, None)))(keys, jnp.asarray(0.02))
    close(np.mean(steps), 250.0, 0.05)
    assert steps.dtype == jnp.int32


def test_new_commands_in_a_rollout():
    """A command lasts for as many steps as the state says."""
    env = Go1Joystick(noise=SILENT, commands=Commands(mean_time=0.1))
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
    env = Go1Joystick(
        noise=SILENT,
        privileged=True,
        pushes=Pushes(speed=(9.0, 9.0), wait=(0.02, 0.02)),
    )
    still = Go1Joystick(noise=SILENT, privileged=True)
    step = eqx.filter_jit(lambda env, state: env.step(state, jnp.zeros(12)))
    (first, _), (calm, _) = reset(env, jr.key(0)), reset(still, jr.key(0))
    for _ in range(4):
        first, timestep = step(env, first)
        calm, _ = step(still, calm)
    *_, x, y, z, pushing = timestep.obs["privileged_state"]
    assert bool(pushing) and z == 0.0 and np.hypot(x, y) > 10.0
    gained = (first.robot.qd - calm.robot.qd)[:2]
    assert float(gained[0] * x + gained[1] * y) > 0.0


@pytest.mark.slow
def test_randomization_of_a_quadruped():
    """Each number within its range, the rest as it was."""
    sys, draw = Go1Joystick().sys, random_go1()
    robots = jax.jit(jax.vmap(lambda key: eqx.filter(draw(key, sys), eqx.is_array)))(
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
    state, _ = reset(env, jr.key(0))
    new, timestep = env.step(state, jnp.zeros(12))
    assert np.all(np.isfinite(timestep.obs)) and float(timestep.reward) > 0.0
    assert env.robot(new).links.mass[trunk] == state.changed.links.mass[trunk]


def test_weights_are_fields():
    """Twice the weight, twice the term, within one compiled program."""
    env = Go1Joystick(noise=SILENT, privileged=True)
    double = eqx.tree_at(lambda e: e.weights.pose, env, 2.0 * env.weights.pose)
    state, _ = reset(env, jr.key(0))
    step = eqx.filter_jit(lambda env, state: env.step(state, jnp.zeros(12))[1].terms)
    one, two = step(env, state), step(double, state)
    close(two["pose"], 2.0 * one["pose"])
    close(two["tracking_lin_vel"], one["tracking_lin_vel"])
    assert step._cached._cache_size() == 1


def test_refusals_of_a_quadruped():
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
        reset(env, jr.key(0), {"sys": env.sys})
    other = Go1Joystick(sys=eqsim.make("ant").sys)
    with pytest.raises(ValueError, match="home"):
        other.reset(jr.key(0))
