"""Tasks of legged robots beside the published ones."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from _installed import needs_models
from _published import Published, UNUSED
from _ranges import spread
from eqsim_playground import (
    AbstractHumanoid,
    BerkeleyHumanoidJoystick,
    G1Joystick,
    go1_footstand,
    go1_getup,
    go1_handstand,
    Go1Joystick,
    HumanoidShaping,
    HumanoidWeights,
    JoystickNoise,
    Kicks,
    random_berkeley_humanoid,
    random_g1,
    random_t1,
    RandomLegged,
    T1Joystick,
    UniformCommands,
)
from eqsim_playground._models import add_force_sensors, document

import eqsim
from eqsim.wrappers import deployment_of, reflection_of


pytestmark = needs_models
HUMANOIDS = {
    "g1": G1Joystick,
    "t1": T1Joystick,
    "berkeley_humanoid": BerkeleyHumanoidJoystick,
}
TASKS = {
    **{(f"{robot}/joystick.py", "Joystick"): x for robot, x in HUMANOIDS.items()},
    ("go1/getup.py", "Getup"): go1_getup,
    ("go1/handstand.py", "Handstand"): go1_handstand,
    ("go1/handstand.py", "Footstand"): go1_footstand,
}


def exact(make, **options):
    """The task without noise, with weights for all terms, see `UNUSED`."""
    env = make(noise=JoystickNoise(*(0.0,) * 5), privileged=True, **options)
    weights = vars(env.weights)
    # Playground's Berkeley Humanoid has no term `dof_acc`.
    given = {**(UNUSED if make is not BerkeleyHumanoidJoystick else {})}
    given |= {k: x for k, x in weights.items() if x is not None}
    counted = {k: 1.0 if x == 0.0 else x for k, x in given.items()}
    return eqx.tree_at(lambda e: e.weights, env, type(env.weights)(**counted))


def close(ours, theirs, tolerance=1e-6, name=""):
    np.testing.assert_allclose(ours, theirs, tolerance, tolerance, err_msg=name)


def starts(env):
    """States from which robots stand, walk aside, rest, cross their legs, and fall."""
    rng = np.random.default_rng(0)
    home = np.array(env.sys.keyframe(env.about.keyframe).q)
    names = env.sys.joints.names
    commands = (0.8, 0.4, 0.5), (0.0, 0.0, 0.0), (0.5, -0.3, 0.0), (0.3, 0.0, 0.0)
    for command in commands:
        q, qd = home.copy(), np.zeros(env.sys.nv)
        if command[0] > 0.0 or isinstance(env, AbstractHumanoid):
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


SLOW = "berkeley_humanoid/joystick.py", "go1/getup.py"


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.slow] if x[0] in SLOW else []) for x in TASKS],
    ids="-".join,
)
def test_steps(name):
    """Observation, reward term by term, end and memory in 100 steps, beside the published
    functions."""
    humanoid = TASKS[name] in HUMANOIDS.values()
    env = exact(TASKS[name], **({"pushes": None} if humanoid else {}))
    theirs = Published(*name, env.about)
    step = eqx.filter_jit(env.step)
    rng, counts = np.random.default_rng(1), {}
    for q, qd, command in starts(env):
        robot = env.pipeline.init(env.sys, jnp.asarray(q), jnp.asarray(qd))
        state, obs = env.begin(jr.key(0), robot)
        phase = (np.zeros(2), np.zeros(()))
        if humanoid:
            state = eqx.tree_at(lambda s: s.command, state, jnp.asarray(command))
            phase = state.phase.angle, state.phase.rate
            # Commands are drawn separately.
            set_command = lambda x: x.at[9:12].set(state.command)
            obs = {part: set_command(x) for part, x in obs.items()}
        seen = theirs.begin(q, qd, command, phase)
        wave = rng.uniform(0.0, 7.0, env.sys.nu)
        for part, values in seen.items():
            close(obs[part], values, name=part)
        for k in range(25):
            action = 0.8 * np.sin(0.4 * k + wave)
            action = action if humanoid or k % 5 else np.zeros(env.sys.nu)
            ctrl = env.default_pose + env.action_scale * action
            state, timestep = step(state, jnp.asarray(action))
            new, ctrl = state.robot, ctrl if humanoid else state.ctrl
            judged = theirs.step(action, np.asarray(new.q), np.asarray(new.qd), ctrl)
            close(ctrl, judged.ctrl)
            for part, values in judged.obs.items():
                close(timestep.obs[part], values, name=part)
            assert set(timestep.terms) - {"clip"} == set(judged.terms)
            for term, value in judged.terms.items():
                close(timestep.terms[term], value, name=term)
                counts[term] = counts.get(term, 0) + bool(value != 0.0)
            close(timestep.reward, judged.reward)
            assert bool(timestep.terminated) == bool(judged.done)
            close(state.last_action, theirs.info["last_act"])
            if humanoid:
                info = theirs.info
                close(state.phase.angle, info["phase"])
                close(state.air_time, info["feet_air_time"])
                close(state.swing_peak, info["swing_peak"])
                assert np.all(state.last_contact == info["last_contact"])
    assert all(counts.values()), counts


def test_deployment_of_quadrupeds():
    found, env = deployment_of(Go1Joystick()), Go1Joystick()
    sizes = [part.size for part in found.observation]
    assert sum(sizes) == env.reset(jr.key(0))[1].obs.size
    assert found.joints == env.sys.joints.names[1:] and not found.rests


@pytest.mark.parametrize("name", HUMANOIDS)
def test_deployment(name):
    """The observation by its named parts, and the torques of the servos, from MuJoCo."""
    noise = JoystickNoise(*(0.0,) * 5)
    env = HUMANOIDS[name](noise=noise, pushes=None, privileged=True)
    found, rng = deployment_of(HumanoidShaping(env)), np.random.default_rng(0)
    model = mujoco.MjModel.from_xml_string(document(env.about.scene, add_force_sensors))
    data, nu = mujoco.MjData(model), env.sys.nu
    q, qd = np.array(env.start), rng.uniform(-1.0, 1.0, env.sys.nv)
    q[3:7] = 0.9, 0.2, -0.3, 0.24
    q[3:7] /= np.linalg.norm(q[3:7])
    q[7:] += rng.uniform(-0.1, 0.1, nu)
    robot = env.pipeline.init(env.sys, jnp.asarray(q), jnp.asarray(qd))
    state, obs = env.begin(jr.key(0), robot)
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
    q, qd = jax.vmap(env.initial)(jr.split(jr.key(0), 200))
    home = np.asarray(env.default_pose)
    factors = (np.asarray(q[:, 7:]) / np.where(home == 0.0, 1.0, home))[:, home != 0.0]
    assert factors.min() >= 0.5 - 1e-9 and factors.max() <= 1.5 + 1e-9
    assert factors.min() < 0.51 and factors.max() > 1.49
    assert np.all(np.abs(qd[:, :6]) <= 0.5) and not np.any(qd[:, 6:])
    phase = jax.vmap(env.clock.first, (0, None))(jr.split(jr.key(0), 200), env.dt)
    close(phase.angle, np.broadcast_to([0.0, np.pi], (200, 2)))
    frequency = np.asarray(phase.rate) / (2.0 * np.pi * 0.02)
    assert frequency.min() >= 1.25 and frequency.max() <= 1.75 + 1e-9
    assert frequency.min() < 1.27 and frequency.max() > 1.73


def test_commands():
    """Ranges, the share of commands to stand, and times."""
    commands = jax.tree.map(np.asarray, UniformCommands())
    drawn = np.asarray(jax.vmap(UniformCommands().first)(jr.split(jr.key(0), 4000)))
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


@pytest.mark.parametrize(
    "name",
    ["g1", *(pytest.param(x, marks=pytest.mark.slow) for x in [*HUMANOIDS][1:])],
)
def test_reflection(name):
    """The observation of a mirrored state is the mirrored observation."""
    noise = JoystickNoise(*(0.0,) * 5)
    env = HUMANOIDS[name](noise=noise, pushes=None, privileged=True)
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
    (state, obs), (_, other) = [
        env.begin(jr.key(0), init(*pair)) for pair in ((q, qd), (other_q, other_qd))
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
        (BerkeleyHumanoidJoystick, random_berkeley_humanoid),
    ],
)
def test_randomization(make, draw):
    """What changes is what the published code changes."""
    sys, about, random = make().sys, make.about, draw()
    new = jax.vmap(lambda key: eqx.filter(random(key, sys), eqx.is_array))(
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
    task = T1Joystick(noise=JoystickNoise(*(0.0,) * 5), pushes=None)
    env = HumanoidShaping(task, progress=1.5, gait=0.5, fall=-2.0, height=0.3)
    state, first = env.reset(jr.key(0))
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
    action = jnp.zeros(env.sys.nu)
    _, after = eqx.filter_eval_shape(env.step, state, action)
    assert "dof_acc" in timestep.terms and set(after.terms) == set(timestep.terms)
    message = "no reward terms collision, feet_distance. Set their weights to None"
    with pytest.raises(ValueError, match=message):
        env = make(feet_distance=-1.0, collision=-0.1)
        eqx.filter_eval_shape(env.step, state, action)
