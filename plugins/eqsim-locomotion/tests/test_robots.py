"""Descriptions of robots, and what is loaded by them."""

import itertools

import eqsim_locomotion as loco
import equinox as eqx
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from eqsim_locomotion._velocity import _depth
from scipy.spatial.transform import Rotation
from small_robots import quadruped as robot, quadruped_file as file, SIDES

import eqsim


JOINTS = tuple(f"{side}_{part}" for side in SIDES for part in ("abduction", "knee"))


def test_servos_replace_motors_and_servos():
    """The torques are those of the described law, within the limits of the file, wherever
    the file has them."""
    spec = mujoco.MjSpec.from_file(file())
    loco.add_servos(spec, robot())
    model = spec.compile()
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for scale in (0.1, 3.0):
        data.qpos[7:] = scale * rng.normal(size=8)
        data.qvel[6:] = scale * rng.normal(size=8)
        data.ctrl[:] = scale * rng.normal(size=8)
        mujoco.mj_forward(model, data)
        damping = np.where(["knee" in name for name in JOINTS], 1.5, 1.0)
        limit = np.where(["knee" in name for name in JOINTS], 10.0, 20.0)
        torque = 40.0 * (data.ctrl - data.qpos[7:]) - damping * data.qvel[6:]
        expected = np.clip(torque, -limit, limit)
        np.testing.assert_allclose(data.actuator_force, expected, rtol=1e-12)


def test_gains_of_the_file_are_kept():
    spec = mujoco.MjSpec.from_file(file())
    loco.add_servos(spec, robot(stiffness=None, damping=None)._replace())
    model = spec.compile()
    np.testing.assert_allclose(model.actuator_gainprm[::2, 0], 30.0)
    np.testing.assert_allclose(model.actuator_biasprm[::2, 2], -1.0)


def test_time_step_and_limits_of_the_description():
    sys = loco.load_robot(robot(dt=0.004, torque_limit={"knee": 5.0, "": 7.0}))
    assert float(sys.dt) == pytest.approx(0.004)
    np.testing.assert_allclose(sys.actuators.force_range[:, 1], [7.0, 5.0] * 4)


@pytest.mark.parametrize(
    "changes, names",
    (
        ({"root": "pelvis"}, ("pelvis", "trunk", "FL_hip")),
        ({"feet": ("FL", "left_foot")}, ("left_foot", "FL_sole", "FL_shank")),
        ({"feet": ()}, ("`Robot.feet`", "quadruped")),
        ({"feet": ("floor_site",)}, ("floor_site", "FL_sole")),
        ({"feet": ("floor",)}, ("'floor'", "PLANE", "site at the sole")),
        ({"root": "FL_hip"}, ("`Robot.root`", "FL_hip", "trunk")),
        ({"damping": {"knee": 1.0}}, ("`damping`", "FL_abduction", "'knee'")),
        ({"action_scale": {"hip": 1.0}}, ("`action_scale`", "FL_knee")),
        ({"pose": {"knee": 0.1}}, ("`pose`", "RR_abduction")),
    ),
)
def test_wrong_descriptions(changes, names):
    with pytest.raises(ValueError) as error:
        loco.VelocityTracking(robot(**changes))
    assert all(name in str(error.value) for name in names), error.value


def test_a_file_that_is_not_there(monkeypatch):
    monkeypatch.delenv("EQSIM_MENAGERIE", raising=False)
    with pytest.raises(FileNotFoundError, match="EQSIM_MENAGERIE.*is not set"):
        loco.load_robot(robot(file="no_such_robot/scene.xml"))


def test_an_actuator_without_a_limit():
    """A file that bounds no torque does not describe a robot that one can own."""
    spec = mujoco.MjSpec.from_string("""
<mujoco><worldbody><body><joint name="j"/><geom size="0.1"/></body></worldbody>
<actuator><position joint="j" kp="3"/></actuator></mujoco>""")
    with pytest.raises(ValueError, match="no torque limit for the joints j"):
        loco.add_servos(spec, robot())


def test_feet_by_links_and_sites():
    """The foot of a link is its farthest shape; soles of all three kinds are at one
    height."""
    envs = [
        loco.VelocityTracking(robot(feet=tuple(f"{side}{end}" for side in SIDES)))
        for end in ("", "_shank", "_sole")
    ]
    heights = []
    for env in envs:
        state = env.pipeline.init(env.sys, env.start)
        places, _ = eqx.filter_jit(lambda env, state: env._feet(state))(env, state)
        heights.append(np.asarray(places[:, 2]))
    np.testing.assert_allclose(heights, 0.0, atol=1e-6)


def test_soles_of_tilted_shapes():
    """The lowest corner of a box, and the lowest point of the ends of a capsule."""
    shape = '<geom type="{}" size="{}" quat=".8 .1 -.5 .3"/>'
    shapes = ("box", ".3 .2 .1"), ("capsule", ".1 .3"), ("sphere", ".2")
    bodies = "".join(f"<body>{shape.format(*each)}</body>" for each in shapes)
    sys = eqsim.load_mjcf(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    rotation = Rotation.from_quat([0.4, -0.3, 0.2, 0.8])
    own = Rotation.from_quat(np.asarray(sys.geoms.quat)[:, [1, 2, 3, 0]])
    rot = jnp.asarray(rotation.as_matrix(), sys.dt.dtype)
    box, capsule, sphere = (_depth(sys.geoms, k, rot) for k in range(3))
    corners = np.array(list(itertools.product((-0.3, 0.3), (-0.2, 0.2), (-0.1, 0.1))))
    lowest = (rotation * own[0]).apply(corners)[:, 2].min()
    np.testing.assert_allclose(box, -lowest, rtol=1e-5)
    ends = (rotation * own[1]).apply([[0.0, 0.0, -0.3], [0.0, 0.0, 0.3]])[:, 2]
    np.testing.assert_allclose(capsule, 0.1 - ends.min(), rtol=1e-5)
    np.testing.assert_allclose(sphere, 0.2, rtol=1e-6)
