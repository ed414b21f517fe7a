"""What is asked of sensors besides their values."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sensor_models as models
from helpers import tree_allclose

from eqsim import Generalized, load_mjcf
from eqsim.io import load, save, write_mjcf
from eqsim.model import SensorKind, SensorObject, validate
from eqsim.testing import random_system


WITHOUT = """
<mujoco><asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
  <worldbody><camera name="eye" resolution="2 2"/><site name="w"/>
    <geom name="wall" type="sdf" mesh="m" contype="0" conaffinity="0"/>
    <body name="a"><joint name="j"/><geom size=".1" contype="0" conaffinity="0"/>
      <site name="s"/></body></worldbody>
  <sensor>{}</sensor></mujoco>"""


@pytest.mark.parametrize(
    "sensor, reason",
    (
        ('<user name="x" dim="1"/>', "user"),
        ('<camprojection name="x" site="s" camera="eye"/>', "camprojection"),
        ('<framepos name="x" objtype="camera" objname="eye"/>', "camera"),
        ('<framepos name="x" objtype="geom" objname="wall"/>', "left out"),
        ('<jointpos name="x" joint="j" delay=".1" nsample="5"/>', "delay"),
        ('<force name="x" site="w"/>', "world"),
    ),
)
def test_unsupported_sensors_are_notes(sensor, reason):
    sys = load_mjcf(WITHOUT.format(f'{sensor}<jointpos name="y" joint="j"/>'))
    assert sys.sensors.names == ("y",)
    (note,) = [note for note in sys.notes if '"x"' in note]
    assert reason in note


def test_rays_pass_through_shapes_that_are_left_out():
    sys = load_mjcf(WITHOUT.format('<rangefinder name="r" site="s"/>'))
    assert any('"wall"' in note and "rangefinder" in note for note in sys.notes)


def test_only_clocks_need_the_time():
    sys, model = models.robot(tuple(models.global_rows()))
    state, ctrl, external, _ = models.measured(models.states(model, 1)[0])
    with pytest.raises(ValueError, match="time="):
        Generalized().sensors(sys, state, ctrl, external)
    without = load_mjcf(WITHOUT.format('<jointpos name="y" joint="j"/>'))
    pipeline = Generalized()
    assert pipeline.sensors(without, pipeline.init(without), jnp.zeros(0))["y"] == 0


def test_a_robot_without_sensors_measures_nothing():
    sys = load_mjcf(WITHOUT.format(""))
    pipeline = Generalized()
    assert pipeline.sensors(sys, pipeline.init(sys), jnp.zeros(0)) == {}


@pytest.mark.slow  # Speed, not values.
def test_the_solver_runs_only_for_sensors_that_need_it():
    pipeline = Generalized()

    def loops(group):
        sys, model = models.robot(tuple(group))
        args = models.measured(models.states(model, 1)[0])
        # Kernels hide loops.
        text = str(jax.make_jaxpr(lambda *a: direct(pipeline, sys, *a))(*args))
        return "while" in text

    assert loops(models.contact_rows()[:1])
    assert not loops(models.rows(("gyro", "rangefinder"), "site", ("imu",)))


def direct(pipeline, sys, state, ctrl, external, time):
    from eqsim.pipelines._generalized import _arguments, _sensors

    prepared, inputs = _arguments(pipeline, sys, state, ctrl, external)
    return _sensors.__wrapped__(4, prepared, inputs, time)


@pytest.mark.parametrize("seed", range(4))
def test_round_trip(seed, tmp_path):
    sys = random_system(seed, 2 + seed, with_sensors=True, with_tendons=True)
    validate(sys)
    # Rounding decides which numbers are exactly zero.
    sys, again = (x.without_pattern() for x in (sys, load_mjcf(write_mjcf(sys))))
    assert tree_allclose(sys, again, rtol=1e-12, atol=1e-12)
    save(tmp_path / "robot.eqs", sys)
    assert tree_allclose(sys, load(tmp_path / "robot.eqs"))
    assert f"{sys.nsensor} sensors" in str(sys)
    assert all(name in str(sys) for name in sys.sites.names)


def replaced(sys, **fields):
    return dataclasses.replace(sys, sensors=dataclasses.replace(sys.sensors, **fields))


@pytest.mark.parametrize(
    "fields, message",
    (
        (dict(names=("a", "a")), "Two sensors"),
        (dict(cutoff=np.array([-1.0, 0.0]), limited=(True, False)), "positive"),
        (dict(objects=((SensorObject.SITE, 9), (SensorObject.JOINT, 0))), "exist"),
        (dict(objects=((SensorObject.JOINT, 0),) * 2), "Accepted"),
        (dict(kinds=(SensorKind.GYRO, SensorKind.BALL_VELOCITY)), "ball joint"),
        (dict(ray_geoms=(7,)), "ray_geoms"),
        (dict(limited=(True,)), "one per sensor"),
    ),
)
def test_checks(fields, message):
    sensors = '<gyro name="a" site="s"/><jointpos name="b" joint="j"/>'
    sys = load_mjcf(WITHOUT.format(sensors))
    with pytest.raises(ValueError, match=message):
        validate(replaced(sys, **fields))


SMOOTH = {
    "kinematic": [
        *models.rows(("framepos", "framequat", "framelinvel"), "objname", ("tip",)),
        *models.rows(("gyro", "magnetometer", "rangefinder"), "site", ("imu", "tip")),
        *models.rows(("subtreecom", "subtreeangmom"), "body", ("base",)),
        *models.rows(("tendonpos", "tendonvel"), "tendon", ("cord",)),
        *models.rows(("actuatorpos", "actuatorfrc"), "actuator", ("pull", "servo")),
        '<distance geom1="floor" geom2="tin" cutoff="5"/>',
        '<fromto geom1="cap" geom2="bob" cutoff="5"/>',
        "<e_potential/><e_kinetic/>",
    ],
    "solved": [
        *models.rows(("accelerometer", "force", "torque"), "site", ("imu", "tip")),
        *models.rows(("touch",), "site", ("pad",)),
        *models.rows(("framelinacc", "frameangacc"), "objname", ("tip",)),
        *models.rows(("jointlimitfrc", "jointactuatorfrc"), "joint", ("turn",)),
        '<contact body1="plate" num="2" data="force torque dist pos normal linvel"/>',
        '<contact subtree1="base" reduce="netforce" data="force torque pos"/>',
    ],
}


@pytest.mark.parametrize("group", SMOOTH)
@pytest.mark.quick_cases("kinematic")
def test_gradients_are_finite_at_rest(group):
    """In the neutral pose, where norms and angles are zero."""
    chosen = tuple(
        row.replace("objname", 'objtype="site" objname') for row in SMOOTH[group]
    )
    sys, _ = models.robot(chosen)
    pipeline = Generalized()
    total = lambda sys, state: sum(
        jnp.sum(x) for x in pipeline.sensors(sys, state, jnp.zeros(sys.nu)).values()
    )
    grads = jax.jit(jax.grad(total, argnums=(0, 1)))(sys, pipeline.init(sys))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize("reduction", ("none", "mindist", "maxforce", "netforce"))
@pytest.mark.quick_cases("mindist")
def test_contact_sensors_have_the_precision_of_the_robot(reduction):
    """Also where it is not the default one."""
    sys = load_mjcf(
        f"""<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
        <body pos="0 0 .09"><freejoint/><geom name="ball" size=".1"/></body></worldbody>
        <sensor><contact name="c" geom1="ball" geom2="floor" reduce="{reduction}"
          data="found force"/></sensor></mujoco>"""
    )
    single = lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x
    sys, pipeline = jax.tree.map(single, sys), Generalized()
    values = pipeline.sensors(sys, pipeline.init(sys), jnp.zeros(0, jnp.float32))["c"]
    assert values.dtype == jnp.float32
    assert values[0] == 1.0 and jnp.max(jnp.abs(values[1:4])) > 1.0
