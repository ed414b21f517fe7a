"""Policies in MuJoCo C: observations and servos against closed forms."""

from typing import get_args

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from opengl import needs_opengl
from toys import Rail
from zoo.commands import run

import eqsim
import eqsim_zoo as zoo
from eqsim import AbstractAgent
from eqsim.envs import check_deployment, Deployment, ObservationPart, Reference
from eqsim.io import with_height_field
from eqsim.sensors import height_scan
from eqsim.terrain import Flat, Slope, Stairs
from eqsim.wrappers import ActionRepeat, deployment_of
from eqsim_zoo._cli._policy_commands import Terrain, terrain_kind
from eqsim_zoo.export import (
    export_policy,
    MujocoRobot,
    OnnxPolicy,
    replay,
    terrain_scene,
)


LEGS = ("front", "back")
LEG = """
<body name="{name}_leg" pos="{x} 0 0"><joint name="{name}" axis="0 1 0" armature="0.02"/>
<geom type="capsule" fromto="0 -0.2 0 0 -0.2 -0.3" size="0.03" mass="0.3"/>
<geom type="capsule" fromto="0 0.2 0 0 0.2 -0.3" size="0.03" mass="0.3"/></body>"""
MOTOR = '<motor joint="{name}" gear="3"/>'
POSITION = '<position name="{name}" joint="{name}" kp="40" kv="1" forcerange="-9 9"/>'


def scene(actuator=POSITION, free="<freejoint/>", step=0.005, height=0.33):
    """A trunk on two pairs of legs, stiff in the roll direction."""
    legs = "".join(LEG.format(name=name, x=x) for name, x in zip(LEGS, (0.3, -0.3)))
    actuators = "".join(actuator.format(name=name) for name in LEGS[::-1])
    return f"""<mujoco><option timestep="{step}"/><worldbody>
    <geom name="floor" type="plane" size="9 9 1"/><light pos="0 0 3"/>
    <body name="trunk" pos="0 0 {height}">{free}
    <geom type="box" size="0.35 0.15 0.05" mass="4"/>
    <site name="imu" pos="0.1 0.05 0.02" quat="0.8 0 0.6 0"/>{legs}</body></worldbody>
    <actuator>{actuators}</actuator></mujoco>"""


DEPLOYMENT = Deployment(
    root="trunk",
    joints=LEGS,
    default_pose=(0.1, -0.2),
    action_scale=(0.5, 0.25),
    stiffness=(30.0, 20.0),
    damping=(1.0, 0.5),
    torque_limit=(8.0, 6.0),
    period=0.02,
    observation=(
        ObservationPart("linear_velocity", 3, 2.0),
        ObservationPart("angular_velocity", 3, 0.25),
        ObservationPart("gravity", 3),
        ObservationPart("command", 3, 0.5),
        ObservationPart("joint_positions", 2),
        ObservationPart("joint_velocities", 2, 0.05),
        ObservationPart("last_action", 2),
    ),
)
SIZE = sum(part.size for part in DEPLOYMENT.observation)


class Task(Rail):
    """A task with the deployment of the robot; its physics is not used."""

    def observe(self, state, action):
        return jnp.zeros(SIZE, state.q.dtype) + state.q[0]

    def deployment(self):
        return DEPLOYMENT


class Affine(AbstractAgent):
    """An agent with the policy `b + W obs`; the state is `(W, b)`."""

    def init(self, key, env):
        return jnp.zeros((2, SIZE)), jnp.zeros(2)

    def act(self, state, obs, *, key=None):
        return state[0] @ obs + state[1]

    def update(self, learner, batch, /):
        return learner, {}


def policy(path, bias=(0.0, 0.0), weight=None):
    """Write a policy, and read it again."""
    weight = jnp.zeros((2, SIZE)) if weight is None else jnp.asarray(weight)
    about = export_policy(Affine(), (weight, jnp.asarray(bias)), Task(), path)
    assert about.deployment == DEPLOYMENT and not about.reason
    found = OnnxPolicy(path)
    assert found.metadata.deployment == DEPLOYMENT
    return found


@pytest.fixture
def files(tmp_path):
    """Write a scene, and return its path."""

    def write(text):
        path = tmp_path / "scene.xml"
        path.write_text(text)
        return path

    return write


def rotation(quat):
    out = np.zeros(9)
    mujoco.mju_quat2Mat(out, quat)
    return out.reshape(3, 3)


@pytest.mark.parametrize("imu", ("", "imu"))
def test_observations_are_closed_forms(imu, files):
    robot = MujocoRobot(files(scene()), DEPLOYMENT._replace(imu=imu))
    rng = np.random.default_rng(0)
    q, qd = rng.normal(size=9), rng.normal(size=8)
    q[3:7] /= np.linalg.norm(q[3:7])
    robot.data.qpos[:], robot.data.qvel[:] = q, qd
    robot.update()
    command, last = (0.5, -0.2, 0.3), rng.normal(size=2)
    found = robot.observe(command, last)
    # Velocities of a free joint: linear in the world, angular in the body.
    trunk, turn, place = rotation(q[3:7]), np.eye(3), np.zeros(3)
    if imu:
        turn, place = rotation([0.8, 0.0, 0.6, 0.0]), np.array([0.1, 0.05, 0.02])
    axes = trunk @ turn
    linear = qd[:3] + trunk @ np.cross(qd[3:6], place)
    expected = [
        2.0 * axes.T @ linear,
        0.25 * turn.T @ qd[3:6],
        -axes[2],
        0.5 * np.array(command),
        q[7:] - DEPLOYMENT.default_pose,
        0.05 * qd[6:],
        last,
    ]
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-6)
    noisy = robot.observe(command, last, lambda part: 1.0)
    scales = [part.scale for part in DEPLOYMENT.observation for _ in range(part.size)]
    np.testing.assert_allclose(noisy - found, scales, atol=1e-6)


def test_servos_of_tasks_with_limits(files):
    """Targets are limited, joints have the damping of the task, and the action before the
    last one is a part of its own."""
    parts = ObservationPart("previous_action", 2), ObservationPart("last_action", 2)
    told = DEPLOYMENT._replace(
        observation=parts, joint_damping=(0.3, 0.7), target_range=((-0.1, 0.2), (-9, 9))
    )
    robot = MujocoRobot(files(scene(MOTOR)), told)
    target = robot.target(np.array([4.0, -4.0]))
    np.testing.assert_allclose(target, [0.2, -1.2])
    robot.data.qvel[6:] = 0.5, -0.4
    q, qd = robot.data.qpos[7:].copy(), robot.joint_velocities().copy()
    robot.drive(target)
    robot.step()
    torque = np.array([30.0, 20.0]) * (target - q) - np.array([1.0, 0.5]) * qd
    np.testing.assert_allclose(
        robot.torques(), np.clip(torque, [-8.0, -6.0], [8.0, 6.0]), atol=1e-9
    )
    damping = robot.data.qfrc_damper[6:]
    np.testing.assert_allclose(damping, [-0.3 * 0.5, 0.7 * 0.4], atol=1e-9)
    one, two = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    seen = robot.observe((0, 0, 0), one, previous_action=two)
    np.testing.assert_allclose(seen, [3.0, 4.0, 1.0, 2.0])
    np.testing.assert_allclose(robot.observe((0, 0, 0), one), [0.0, 0.0, 1.0, 2.0])


def test_height_scans_are_those_of_eqsim():
    """On hills with a box, through the legs of the robot, whatever its tilt; and the height
    above the ground decides on falls."""
    rng = np.random.default_rng(2)
    spec = with_height_field(scene(), 9, 9, (4.0, 4.0))
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.2, 0.3, 0.7], pos=[0.6, 0.2, 0.0]
    )
    heights = rng.uniform(0.0, 0.4, (9, 9))
    (field,) = spec.hfields
    field.userdata = heights.ravel() / 0.4
    field.size = [2.0, 2.0, 0.4, 1.0]
    scan = tuple((x, y) for x in (-0.9, -0.3, 0.3, 0.5, 0.9) for y in (-0.4, 0.0, 0.3))
    told = DEPLOYMENT._replace(
        scan=scan, observation=(ObservationPart("height_scan", 15),)
    )
    robot = MujocoRobot(spec, told, start=(0.2, -0.3, 0.5))
    sys = eqsim.load_mjcf(spec)
    seen = eqx.filter_jit(height_scan)
    for _ in range(10):
        q = rng.normal(size=9)
        q[:3] *= 0.3
        q[3:7] = np.array([1.0, 0.0, 0.0, 0.0]) + 0.3 * rng.normal(size=4)
        q[3:7] /= np.linalg.norm(q[3:7])
        robot.data.qpos[:] = q
        robot.update()
        expected = seen(sys, jnp.asarray(q), "trunk", np.asarray(scan))
        found = robot.observe((0.0, 0.0, 0.0), np.zeros(2))
        np.testing.assert_allclose(found, np.clip(expected, -2.0, 2.0), atol=1e-5)
    robot.reset()
    np.testing.assert_allclose(robot.data.qpos[:2], (0.2, -0.3))
    assert robot.height() > 0.2 and not robot.fallen()
    robot.data.qpos[2] -= 0.6 * robot.height()
    robot.update()
    assert robot.fallen()


def test_planes_have_no_end(files):
    """A robot beyond the rectangle that is drawn has a height above the plane."""
    robot = MujocoRobot(files(scene()), DEPLOYMENT, start=(20.0, 0.0, 0.0))
    assert 0.2 < robot.height() < 0.4 and not robot.fallen()
    robot.data.qpos[2] -= 0.6 * robot.height()
    robot.update()
    assert robot.fallen()


@pytest.mark.parametrize(
    "kind",
    (Stairs(step_height=0.1), Stairs(step_height=0.1, up=False), Slope(up=False)),
)
def test_terrain_in_place_of_the_floor(kind, files):
    """Heights of grid points are those of eqsim above the plane, wherever it is, and the
    robot stands on the platform as it stood on the plane."""
    plane = 'size="9 9 1" pos="0 0 0.2" quat="8 0 0 6" friction="0.3 0.1 0.1"'
    text, told = scene(height=0.53).replace('size="9 9 1"', plane), DEPLOYMENT
    spec, floor = terrain_scene(files(text), kind, seed=3, length=6.0)
    assert floor == pytest.approx(0.2)
    heights = np.asarray(kind(jr.key(3), 1.0, (121, 121), 0.05))
    robot = MujocoRobot(spec, told, floor=floor)
    rows, columns = np.random.default_rng(0).integers(0, 121, (2, 50))
    at = 0.05 * np.stack([columns - 60, rows - 60], axis=1)
    at -= 1e-6 * np.sign(at)  # Rays at the sides miss.
    found = robot.ground(at @ rotation([0.8, 0.0, 0.0, 0.6])[:2, :2].T)
    assert np.ptp(heights) > 0.7
    np.testing.assert_allclose(found, 0.2 + heights[rows, columns], atol=1e-5)
    world = robot.model.geom_bodyid == 0
    np.testing.assert_allclose(robot.model.geom_friction[world, 0], 0.3)
    flat = MujocoRobot(files(text), told)
    gap = robot.data.qpos - flat.data.qpos
    np.testing.assert_allclose(gap[2], heights[60, 60], atol=1e-5)
    assert robot.height() == pytest.approx(flat.height(), abs=1e-5)


def test_replay_on_terrain(tmp_path, files):
    """Robots stand on the platform; without friction they slide down a slope, which `rise`
    tells; a policy that does not observe the ground needs leave."""
    found, text = policy(tmp_path / "p.onnx"), scene()
    go = lambda text, kind, seconds=1, **more: replay(
        found, files(text), terrain=kind, blind=True, seconds=seconds, **more
    )
    for up in (True, False):
        stood = go(text, Stairs(step_height=0.1, up=up))
        assert stood.falls == 0 and stood.distance < 0.02
        assert stood.rise == pytest.approx(0.0, abs=1e-9)
    ice = text.replace("<geom", '<geom friction="0 0 0"')
    slid = go(ice, Slope(slope=0.2), start=(1.2, 0.0, 0.0))
    assert slid.falls == 0 and 0.3 < slid.distance < 1.2
    assert slid.rise == pytest.approx(-0.2 * slid.distance, abs=1e-3)
    assert go(ice, Flat()).rise == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(ValueError, match="does not observe the ground .* only 'linear"):
        replay(found, files(text), terrain=Flat())
    with pytest.raises(ValueError, match="more than 4001 by 4001 points"):
        go(text, Flat(), command=(2.0, 0.0, 0.0), seconds=100)
    away = go(ice, Slope(slope=0.2), start=(4.0, 0.0, 0.0))
    assert away.falls == 0 and np.isfinite(away.rise)
    moves = tracked()
    found.metadata = found.metadata._replace(deployment=moves)
    with pytest.raises(ValueError, match="tracks a motion needs a floor"):
        go(text, Flat())
    walls = text.replace('type="plane" size="9 9 1"', 'type="box" size="9 9 1"')
    found.metadata = found.metadata._replace(deployment=DEPLOYMENT)
    with pytest.raises(ValueError, match="must have one plane; its planes are"):
        go(walls, Flat())


@pytest.mark.parametrize("actuator", (MOTOR, POSITION))
def test_servos_have_the_gains_of_the_policy(actuator, files):
    """Whatever the actuators in the file, and in whatever order."""
    robot = MujocoRobot(files(scene(actuator)), DEPLOYMENT)
    target = np.array([0.9, -0.1])
    for _ in range(40):
        q, qd = robot.data.qpos[7:].copy(), robot.joint_velocities().copy()
        robot.drive(target)
        robot.step()
        torque = np.array([30.0, 20.0]) * (target - q) - np.array([1.0, 0.5]) * qd
        np.testing.assert_allclose(
            robot.torques(), np.clip(torque, [-8.0, -6.0], [8.0, 6.0]), atol=1e-9
        )


def test_servos_of_the_model(files):
    robot = MujocoRobot(files(scene()), DEPLOYMENT, "model")
    q, target = robot.data.qpos[7:].copy(), np.array([0.2, -0.1])
    robot.drive(target)
    robot.step()
    np.testing.assert_allclose(robot.torques(), 40.0 * (target - q), atol=1e-9)
    assert robot.torque_limit.tolist() == [8.0, 6.0]
    with pytest.raises(
        ValueError, match="'front', 'back' in .* are no position servos"
    ):
        MujocoRobot(files(scene(MOTOR)), DEPLOYMENT, "model")


def test_a_standing_robot(tmp_path, files):
    """It does not move, so errors are the command; targets reach the joints."""
    found = replay(
        policy(tmp_path / "p.onnx"), files(scene()), command=(0.5, 0.0, 0.3), seconds=2
    )
    assert found.seconds == pytest.approx(2.0) and found.falls == 0
    assert found.velocity_error == pytest.approx(0.5, abs=0.02)
    assert found.yaw_error == pytest.approx(0.3, abs=0.02)
    assert found.largest_velocity_error < 0.6 and found.saturation == 0.0
    assert 0.0 < found.power < 5.0 and found.distance < 0.02


def test_disturbances(tmp_path, files):
    """Pushes make it fall, noise moves it, and latency delays all motion."""
    hung = files(scene(free="", height=1.0))
    still = policy(tmp_path / "still.onnx")
    moved = policy(tmp_path / "moved.onnx", bias=(9.0, 9.0))
    go = lambda policy, model=hung, **options: replay(policy, model, **options)
    base = go(still, seconds=1)
    late = go(moved, seconds=1, latency=1.0)
    assert (late.saturation, late.power) == (base.saturation, base.power)
    assert go(moved, seconds=1).saturation > 0.3 + base.saturation
    assert np.isnan(base.velocity_error) and base.rise == 0.0
    weight = np.zeros((2, SIZE))
    weight[0, 14] = weight[1, 15] = 1.0
    shaky = policy(tmp_path / "shaky.onnx", weight=weight)
    noisy = go(shaky, seconds=1, noise=1.0, seed=1)
    assert noisy.power > 2.0 * go(shaky, seconds=1).power
    assert noisy.power == go(shaky, seconds=1, noise=1.0, seed=1).power
    stands = files(scene())
    alone, pushed = (go(still, stands, seconds=6, push=push) for push in (0.0, 30.0))
    assert alone.falls == 0
    assert pushed.falls or pushed.distance > alone.distance + 0.01
    assert go(still, stands, seconds=6, push=2000.0).falls > 0


def test_memory_and_phases(files, tmp_path):
    parts = (ObservationPart("phase", 4), ObservationPart("joint_positions", 2))
    deployment = DEPLOYMENT._replace(observation=parts)
    with pytest.raises(ValueError, match="observes 4 numbers of gait phases"):
        MujocoRobot(files(scene()), deployment)
    robot = MujocoRobot(files(scene()), deployment, gait=2.0)
    robot.data.time = 0.1
    a = 2 * np.pi * 0.2
    expected = [np.cos(a), -np.cos(a), np.sin(a), -np.sin(a)]
    found = robot.observe((0, 0, 0), np.zeros(2))
    np.testing.assert_allclose(found[:4], expected, atol=1e-6)
    robot = MujocoRobot(files(scene()), deployment._replace(rests=True), gait=2.0)
    robot.data.time = 0.1
    still, moving = (robot.observe((x, 0, 0), np.zeros(2)) for x in (0.0, 0.1))
    np.testing.assert_allclose(still[:4], [-1.0, -1.0, 0.0, 0.0])
    np.testing.assert_allclose(moving[:4], expected, atol=1e-6)


def turned(angle):
    """A rotation about z, as a quaternion."""
    return np.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])


def motion(frames=6, residual=True, height=0.33):
    """A robot that moves forward, turns left and lifts its legs; the anchor is a leg."""
    k = np.arange(frames)[:, None]
    pos, quats = (
        np.array([[0.05, 0.0, 0.0]]) * k + [0.0, 0.0, height],
        [turned(0.1 * x) for x in range(frames)],
    )
    axes = np.stack([rotation(quat) for quat in quats])
    leg = pos + axes @ np.array([0.3, 0.0, 0.0])
    table = lambda x: tuple(map(tuple, x.tolist()))
    return Reference(
        anchor="front_leg",
        joint_positions=table(np.array([[0.1, -0.2]]) * k),
        joint_velocities=table(np.array([[5.0, -10.0]]) + 0.0 * k),
        anchor_poses=table(np.concatenate([leg, axes.reshape(-1, 9)], axis=1)),
        root_poses=table(np.concatenate([pos, quats], axis=1)),
        residual=residual,
    )


MOTION_PARTS = (
    ObservationPart("reference_positions", 2),
    ObservationPart("reference_velocities", 2),
    ObservationPart("anchor_position", 3),
    ObservationPart("anchor_orientation", 6),
    ObservationPart("last_action", 2),
)


def tracked(**changes):
    """A deployment with a motion."""
    return DEPLOYMENT._replace(observation=MOTION_PARTS, reference=motion(**changes))


class Tracker(Rail):
    """A task that tracks a motion; its physics is not used."""

    SIZE = sum(part.size for part in MOTION_PARTS)

    def observe(self, state, action):
        return jnp.zeros(self.SIZE, state.q.dtype) + state.q[0]

    def deployment(self):
        return tracked(frames=26)


@pytest.mark.parametrize("residual", (True, False))
def test_motions_are_closed_forms(residual, files):
    told = tracked(residual=residual)
    robot = MujocoRobot(files(scene()), told, start=(0.0, 1.0, 0.0))
    np.testing.assert_allclose(robot.data.qpos[:7], [0.0, 1.0, 0.33, *turned(0.0)])
    np.testing.assert_allclose(robot.data.qvel[:3], [0.05 / 0.02, 0.0, 0.0])
    np.testing.assert_allclose(robot.data.qvel[3:6], [0.0, 0.0, 0.1 / 0.02], atol=1e-12)
    np.testing.assert_allclose(robot.data.qvel[6:], [5.0, -10.0])
    robot.reset(3)
    assert robot.frame == 3
    np.testing.assert_allclose(robot.data.qpos[:7], [0.15, 1.0, 0.33, *turned(0.3)])
    np.testing.assert_allclose(robot.data.qpos[7:], [0.3, -0.6])
    np.testing.assert_allclose(robot.data.qvel[:3], [0.05 / 0.02, 0.0, 0.0])
    robot.frame = 2
    q = np.array([0.2, 0.9, 0.5, *turned(0.7), 0.0, 0.0])
    robot.data.qpos[:] = q
    robot.update()
    axes, next_axes = rotation(q[3:7]), rotation(turned(0.3))
    here = q[:3] + axes @ [0.3, 0.0, 0.0]
    there = np.array([0.15, 1.0, 0.33]) + next_axes @ [0.3, 0.0, 0.0]
    positions = np.array([0.3, -0.6])
    expected = [
        positions - DEPLOYMENT.default_pose,
        [5.0, -10.0],
        axes.T @ (there - here),
        (axes.T @ next_axes)[:, :2].ravel(),
        [0.5, 0.6],
    ]
    found = robot.observe((0.0, 0.0, 0.0), np.array([0.5, 0.6]))
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-6)
    about = np.array(DEPLOYMENT.default_pose)
    if residual:
        about = positions + np.array([5.0 / 30.0, -10.0 * 0.5 / 20.0])
    action = np.array([0.2, -0.4])
    np.testing.assert_allclose(robot.target(action), about + [0.1, -0.1], atol=1e-12)
    joints, anchor = robot.motion_errors()
    now = np.array([0.1, 1.0, 0.33]) + rotation(turned(0.2)) @ [0.3, 0.0, 0.0]
    assert joints == pytest.approx(0.3) and not robot.finished
    assert anchor == pytest.approx(np.linalg.norm(here - now), abs=1e-9)
    robot.frame = 9
    assert robot.finished
    rest = robot.observe((0.0, 0.0, 0.0), np.zeros(2))
    np.testing.assert_allclose(rest[2:4], 0.0)


def test_replay_of_a_motion(tmp_path, files):
    """It begins again at its end, and where the robot is too far from it."""
    path, told = tmp_path / "p.onnx", tracked(frames=26)
    state = jnp.zeros((2, Tracker.SIZE)), jnp.zeros(2)
    about = export_policy(Affine(), state, Tracker(), path)
    assert about.deployment == told == OnnxPolicy(path).metadata.deployment
    found = replay(path, files(scene()), seconds=1)
    assert np.isnan(found.velocity_error) and found.largest_anchor_error > 0.2
    assert 0.01 < found.joint_error < found.largest_joint_error
    high = OnnxPolicy(path)
    high.metadata = about._replace(deployment=tracked(frames=26, height=2.0))
    assert replay(high, files(scene()), seconds=1).falls > 0


@pytest.mark.parametrize(
    "change, text",
    (
        (
            dict(joint_velocities=((0.0, 0.0),)),
            "`Deployment.reference.joint_velocities`",
        ),
        (dict(joint_positions=((0.0, 0.0),)), "at least two frames, got 1"),
        (dict(root_poses=6 * ((np.nan,) * 7,)), "6 rows of 7 finite numbers"),
        (dict(root_poses=6 * ((1.0,) * 7,)), "must have unit quaternions"),
        (dict(anchor_poses=6 * ((1.0,) * 12,)), "the rows of rotation matrices"),
    ),
)
def test_wrong_motions(change, text):
    told = tracked()
    check_deployment(told)
    wrong = told._replace(reference=told.reference._replace(**change))
    with pytest.raises(ValueError, match=text):
        check_deployment(wrong)


def test_motions_that_do_not_fit(files):
    lost = tracked()._replace(reference=motion()._replace(anchor="tail"))
    with pytest.raises(ValueError, match="no body 'tail'"):
        MujocoRobot(files(scene()), lost)
    with pytest.raises(ValueError, match="actions? is repeated 2 times"):
        deployment_of(ActionRepeat(Tracker(), 2))
    with pytest.raises(ValueError, match="has no free joint"):
        MujocoRobot(files(scene(free="")), tracked())
    with pytest.raises(ValueError, match="'reference_positions'.*needs a motion"):
        check_deployment(tracked()._replace(reference=None))


def test_policies_that_do_not_fit(files, tmp_path):
    names = {"root": "pelvis", "joints": ("front", "knee"), "imu": "head"}
    with pytest.raises(ValueError) as caught:
        MujocoRobot(files(scene()), DEPLOYMENT._replace(**names))
    for text in (
        "no body 'pelvis' (there are: world, trunk, front_leg, back_leg)",
        "no site 'head' (there are: imu)",
        "no joint 'knee' (there are: front, back)",
    ):
        assert text in str(caught.value)
    lost = '<motor name="one" joint="front"/>'
    with pytest.raises(
        ValueError, match="one actuator .* but 'front' has 2, 'back' has"
    ):
        MujocoRobot(files(scene(lost.replace("one", "{name}"))), DEPLOYMENT)
    with pytest.raises(ValueError, match=r"0.02 s, must be a multiple .* 0.003 s"):
        MujocoRobot(files(scene(step=0.003)), DEPLOYMENT)
    with pytest.raises(ValueError, match="MuJoCo cannot load"):
        MujocoRobot(files("<mujoco"), DEPLOYMENT)
    with pytest.raises(FileNotFoundError, match="There is no model file"):
        MujocoRobot(tmp_path / "none.xml", DEPLOYMENT)
    found = policy(tmp_path / "p.onnx")
    for options, text in (
        ({"latency": -1.0}, "`latency` must be finite and at least 0, got -1.0"),
        ({"seconds": 0.0}, "`seconds` must be positive, got 0.0"),
        ({"command": (1.0, 2.0)}, "`command` must be three finite numbers"),
    ):
        with pytest.raises(ValueError, match=text):
            replay(found, files(scene()), **options)


@needs_opengl
@pytest.mark.slow
def test_video(tmp_path, files):
    from PIL import Image

    video = tmp_path / "walk.gif"
    replay(policy(tmp_path / "p.onnx"), files(scene()), seconds=1, video=video)
    with Image.open(video) as image:
        assert image.n_frames == 25 and image.size == (480, 360)
        assert np.std(np.asarray(image.convert("L"))) > 5.0


def test_commands(names, capsys, tmp_path, files):
    env, agent = Rail(), zoo.PPO(num_envs=4, unroll_length=5, num_minibatches=2)
    plan = dict(steps=20, episode_length=10, turns=1, evaluations=0, pool_size=4)
    zoo.train(zoo.Run(agent, env, **plan), out=tmp_path / "run")
    status, out, err = run(capsys, "export run --env rail --out p.onnx")
    assert status == 0, err
    assert "wrote p.onnx: PPO on rail" in out and "`Rail` does not say how" in out
    status, _, err = run(capsys, f"replay p.onnx {files(scene())}")
    assert status == 2 and "(PPO on rail) cannot be replayed: `Rail` does not" in err
    status, _, err = run(capsys, "export run --env rail --out p.onnx --member 1")
    assert status == 2 and "`--member` must be at least 0 and below 1, got 1" in err
    status, _, err = run(capsys, "export run --env rail --out p.txt")
    assert status == 2 and "ends with '.onnx', got 'p.txt'" in err
    policy(tmp_path / "q.onnx")
    line = "--command 0.5 0 0.3 --seconds 1.5 --servo model --noise 0.1"
    status, out, err = run(capsys, f"replay q.onnx {files(scene())} {line}")
    assert status == 0, err
    assert "velocity error (m/s) 0.49" in out and "1.5 s: 0 falls" in out
    line = f"replay q.onnx {files(scene())} --seconds 0.5 --command 0 0 0"
    status, out, err = run(capsys, f"{line} --terrain stairs --height -0.2 --blind")
    assert status == 0, err
    assert " and 0.00 m above it (0 steps), torques" in out
    for options, text in (
        ("--terrain stairs", "Pass `blind` (`--blind`)"),
        ("--terrain moon", "moon"),
        ("--terrain rough --height -0.1 --blind", "got -0.1 for 'rough'"),
        ("--terrain slope --height 0 --blind", "got 0 for 'slope'"),
        ("--height 0.1", "need `--terrain`"),
    ):
        status, _, err = run(capsys, f"{line} {options}")
        assert status == 2 and text in err


@pytest.mark.parametrize("name", get_args(Terrain))
def test_terrain_by_name(name):
    """The way leads up from the platform, or down if the height is negative."""
    draw = lambda height: np.asarray(
        terrain_kind(name, height)(jr.key(0), 1.0, (81, 81), 0.05)
    )
    heights = draw(0.2)
    middle = heights[40, 40]
    steps = np.unique(np.round(np.diff(np.sort(heights.ravel())), 6))
    if name in ("stairs", "slope"):
        assert heights.min() == middle < -0.2 and draw(-0.2)[40, 40] > 0.2
        assert name == "slope" or steps.tolist() == pytest.approx([0.0, 0.2])
    else:
        assert middle == 0.0 and 0.1 < heights.max() <= 0.2
