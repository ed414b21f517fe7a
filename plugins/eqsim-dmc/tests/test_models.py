"""Names, files, and what is said where something is missing."""

import importlib.metadata
import importlib.util

import eqsim_dmc
import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import pytest

import eqsim


INSTALLED = importlib.util.find_spec("dm_control") is not None
with_suite = pytest.mark.skipif(not INSTALLED, reason="needs dm_control")


def test_names():
    points = importlib.metadata.distribution("eqsim-dmc").entry_points
    names = {point.name for point in points if point.group == "eqsim.envs"}
    assert names <= set(eqsim.ENVS.names()) and len(names) == 44
    for name in names:
        assert eqsim.ENVS.get(name) is vars(eqsim_dmc)[name.removeprefix("dmc_")]


@pytest.mark.skipif(INSTALLED, reason="dm_control is installed")
def test_without_dm_control():
    with pytest.raises(ImportError, match=r'pip install "eqsim-dmc\[suite\]"'):
        eqsim.make("dmc_cartpole_swingup")


@with_suite
def test_same_structure_each_time():
    """Made twice, a task needs no second compilation."""
    env = eqsim.make("dmc_point_mass_easy")
    fn = eqx.filter_jit(lambda env, key: env.reset(key))
    fn(env, jr.key(0))
    fn(eqsim.make("dmc_point_mass_easy"), jr.key(1))
    assert fn._cached._cache_size() == 1


@with_suite
def test_other_robot():
    """A robot without what the task looks for."""
    rail = eqsim.make("point_mass").sys
    env = eqsim.make("dmc_walker_stand", sys=rail)
    with pytest.raises(ValueError, match="needs a link 'torso', but the robot has"):
        env.reset(jr.key(0))
    with pytest.raises(ValueError, match="needs a shape 'target'"):
        eqsim.make("dmc_reacher_easy", sys=rail)
    ball = eqsim.load_mjcf(
        '<mujoco><worldbody><body name="torso"><joint name="root" type="ball"/>'
        '<geom size="1"/></body></worldbody></mujoco>'
    )
    with pytest.raises(ValueError, match="hinges, slides .* 'root' is a ball joint"):
        eqsim.make("dmc_walker_stand", sys=ball).reset(jr.key(0))


@with_suite
def test_pipeline_without_sensors():
    env = eqsim.make("dmc_finger_spin", pipeline=eqsim.Spring())
    state = env.pipeline.init(env.sys)
    with pytest.raises(ValueError, match="force sensors, which `Spring` does not have"):
        env.observe(state, jnp.zeros(2))


@with_suite
def test_model_options():
    with pytest.raises(
        ValueError, match="`num_links` must be an integer of at least 3, got 2"
    ):
        eqsim_dmc.swimmer_model(2)
    with pytest.raises(ValueError, match="`num_boxes` must be from 1 to 4, got 5"):
        eqsim_dmc.stacker_model(5)
    with pytest.raises(ValueError, match="`prop` must be 'ball' or 'peg', got 'cup'"):
        eqsim_dmc.manipulator_model("cup")
    assert eqsim_dmc.swimmer_model(4).nv == 6


@with_suite
def test_motors_that_clip():
    sys = eqsim.make("dmc_point_mass_easy").sys
    with pytest.raises(
        ValueError, match="`ctrllimited` of the motor 't1' must be false"
    ):
        eqsim.make("dmc_point_mass_hard", sys=sys)


@with_suite
def test_missing_file():
    from eqsim_dmc._models import suite_file

    with pytest.raises(FileNotFoundError, match="has no file .*ladder.xml"):
        suite_file("ladder.xml")
