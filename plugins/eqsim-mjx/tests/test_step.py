"""Steps, contacts and forces of `Mjx` beside those of MuJoCo C, `mjx.step`, `Generalized`."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from eqsim_mjx import Mjx
from mujoco import mjx

import eqsim
from eqsim import Generalized, State, testing
from eqsim.io import write_mjcf
from eqsim.pipelines import contact_wrenches
from eqsim.testing import random_configuration, random_system


step = eqx.filter_jit(lambda pipeline, *args: pipeline.step(*args))


def exact(model):
    """MuJoCo with a solver that goes on until it has converged."""
    model.opt.tolerance, model.opt.iterations = 0.0, 200
    model.opt.ls_tolerance, model.opt.ls_iterations = 1e-12, 200
    return model


def draw(model, count, lower=0.0):
    """States of MuJoCo C around the reference, `lower` by so much where a coordinate is
    the height, with controls."""
    rng = np.random.default_rng(0)
    for k in range(count):
        data = mujoco.MjData(model)
        velocity = 0.5 * rng.normal(size=model.nv)
        mujoco.mj_integratePos(model, data.qpos, velocity, 0.5)
        data.qpos[model.jnt_qposadr[0] + 2 if model.jnt_type[0] == 0 else 1] -= (
            lower * k
        )
        data.qvel[:] = rng.normal(size=model.nv)
        data.ctrl[:] = rng.normal(size=model.nu)
        yield data


def numbers(data):
    return (jnp.asarray(np.array(x)) for x in (data.qpos, data.qvel, data.ctrl))


@pytest.mark.parametrize(
    "name, lower, count, tolerance",
    [
        pytest.param("inverted_pendulum", 0.0, 3, 1e-12, marks=pytest.mark.slow),
        ("hopper", 0.1, 4, 1e-10),
        # MJX turns a free link from stage to stage of Runge-Kutta as MuJoCo did up to
        # version 3: the order is the same, the error is another one.
        pytest.param("ant", 0.25, 4, 2e-3, marks=pytest.mark.slow),
    ],
)
def test_step_is_that_of_mujoco(models, name, lower, count, tolerance):
    path = models / f"{name}.xml"
    sys, pipeline = eqsim.load_mjcf(path), Mjx()
    model = exact(mujoco.MjModel.from_xml_path(str(path)))
    theirs, touched = mjx.put_model(model, impl="jax"), 0
    with (
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
    ):
        mjx_step = jax.jit(mjx.step)
        empty = mjx.make_data(theirs)
    for data in draw(model, count, lower):
        q, qd, ctrl = numbers(data)
        new = step(pipeline, sys, pipeline.init(sys, q, qd), ctrl)
        plain = empty.replace(qpos=q, qvel=qd, ctrl=ctrl)
        with (
            jax.numpy_rank_promotion("allow"),
            jax.numpy_dtype_promotion("standard"),
        ):
            plain = mjx_step(theirs, plain)
        ours = step(Generalized(), sys, State(q, qd, jnp.zeros(0)), ctrl)
        mujoco.mj_step(model, data)
        touched += data.ncon
        # MJX itself solves to 1e-8 of what it computes.
        assert np.allclose(new.q, plain.qpos, rtol=0, atol=1e-9)
        assert np.allclose(new.qd, plain.qvel, rtol=0, atol=1e-7)
        for q, qd in ((data.qpos, data.qvel), (ours.q, ours.qd)):
            assert np.allclose(new.q, q, rtol=0, atol=tolerance)
            assert np.allclose(new.qd, qd, rtol=0, atol=10 * tolerance)
    assert touched > 0 or name == "inverted_pendulum"


def robot(seed, **options):
    """All that a `System` can hold, but for what MJX lacks."""
    sys = random_system(seed, 4, **options)
    never = tuple(False for _ in sys.actuators.names)
    boxes = tuple(False for _ in sys.geoms.names)
    return dataclasses.replace(
        sys,
        actuators=dataclasses.replace(sys.actuators, act_early=never),
        geoms=dataclasses.replace(sys.geoms, fluid=boxes),
    )


@pytest.mark.parametrize(
    "seed, fluid",
    [
        (0, True),
        pytest.param(3, False, marks=pytest.mark.slow),
        pytest.param(5, True, marks=pytest.mark.slow),
    ],
)
def test_every_number_arrives(seed, fluid):
    """Of robots with all kinds of joints, limits, friction, shapes, pairs, actuators and
    a medium, a step is that of `Generalized`."""
    sys, pipeline, exact = robot(seed, with_fluid=fluid), Mjx(), Generalized()
    rng = np.random.default_rng(seed)
    for scale in (0.0, 0.3, 1.0):
        q, qd = random_configuration(seed, sys, scale)
        act = jnp.asarray(0.1 * rng.normal(size=sys.na))
        ctrl = jnp.asarray(rng.normal(size=sys.nu))
        external = jnp.asarray(rng.normal(size=(sys.nlink, 6)))
        start = eqx.tree_at(lambda s: s.act, pipeline.init(sys, q, qd), act)
        new = step(pipeline, sys, start, ctrl, external)
        ours = step(exact, sys, State(q, qd, act), ctrl, external)
        size = 1.0 + np.max(np.abs(ours.qd))
        assert np.allclose(new.q, ours.q, rtol=0, atol=1e-10 * size)
        assert np.allclose(new.qd, ours.qd, rtol=0, atol=1e-8 * size)
        assert np.allclose(new.act, ours.act, rtol=0, atol=1e-12)


def test_edited_robot_is_the_one_that_is_stepped(models):
    """No number is left over from the file, nor from the robot that came first."""
    sys, pipeline = eqsim.load_mjcf(models / "hopper.xml"), Mjx()
    where = lambda s: (s.links.mass, s.geoms.size, s.actuators.gear, s.dt)
    edited = eqx.tree_at(where, sys, tuple(1.3 * x for x in where(sys)))
    model = exact(mujoco.MjModel.from_xml_string(write_mjcf(edited)))
    for data in draw(model, 3, 0.1):
        q, qd, ctrl = numbers(data)
        step(pipeline, sys, pipeline.init(sys, q, qd), ctrl)
        new = step(pipeline, edited, pipeline.init(edited, q, qd), ctrl)
        mujoco.mj_step(model, data)
        assert np.allclose(new.q, data.qpos, rtol=0, atol=1e-10)
        assert np.allclose(new.qd, data.qvel, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_start_of_the_solver_changes_nothing(models):
    """States with and without what the solver begins with step alike."""
    sys, pipeline = eqsim.load_mjcf(models / "hopper.xml"), Mjx()
    q = sys.joints.ref.at[1].add(-0.05)
    state = pipeline.init(sys, q, jnp.ones(sys.nv))
    ctrl = jnp.full(sys.nu, 0.3)
    wild = eqx.tree_at(lambda s: s.aux, state, 1e3 * jnp.ones(sys.nv))
    bare = State(state.q, state.qd, state.act)
    expected = step(pipeline, sys, state, ctrl)
    for other in (wild, bare):
        new = step(pipeline, sys, other, ctrl)
        assert jnp.allclose(new.q, expected.q, rtol=0, atol=1e-12)
        assert jnp.allclose(new.qd, expected.qd, rtol=0, atol=1e-10)
    assert step(pipeline, sys, bare, ctrl).aux is None


def test_single_precision_stays_single():
    env = eqsim.make("point_mass", pipeline=Mjx())
    single = jax.tree.map(lambda x: x.astype(jnp.float32), env.sys)
    state = env.pipeline.init(single)
    new = env.pipeline.step(single, state, jnp.ones(1, jnp.float32))
    assert {x.dtype for x in jax.tree.leaves(new)} == {jnp.dtype("float32")}


@pytest.mark.slow
def test_single_precision_in_contact(models):
    """Without `jax_enable_x64`, where MJX computes in single precision."""
    pipeline, sys = Mjx(), eqsim.load_mjcf(models / "hopper.xml")
    q = sys.joints.ref.at[1].add(-0.05)
    args = sys, pipeline.init(sys, q, jnp.ones(sys.nv)), jnp.full(sys.nu, 0.3)
    exact = step(pipeline, *args)
    with jax.enable_x64(False):
        single = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), "float32"), args)
        new = step(pipeline, *single)
    assert {x.dtype for x in jax.tree.leaves(new)} == {jnp.dtype("float32")}
    assert np.allclose(new.q, exact.q, rtol=0, atol=1e-5)
    assert np.allclose(new.qd, exact.qd, rtol=0, atol=1e-3)


def test_rollout_of_a_fleet():
    """A batch of robots with different masses, within one compiled rollout; its step is
    known: see `eqsim.envs.PointMass`."""
    env = eqsim.make("point_mass", pipeline=Mjx(), reset_noise_scale=0.0)
    masses = jnp.array([1.0, 2.0, 4.0])
    fleet = eqx.filter_vmap(
        lambda m: eqx.tree_at(lambda e: e.sys.links.mass, env, m[None])
    )(masses)
    keys = jax.random.split(jax.random.key(0), 3)
    push = lambda obs, key: jnp.ones(1)
    trajectory = eqsim.rollout(fleet, push, keys, 5, env_axes=eqx.if_array(0))
    speed = 3.0 / masses * 0.1 * 5
    assert jnp.allclose(trajectory.last[0].qd[:, 0], speed, rtol=1e-12)


@pytest.mark.slow
def test_conformance():
    """All that every pipeline promises, without an exception."""
    found = testing.check_conformance(Mjx())
    assert not any("expected failure" in outcome for outcome in found.values())


# Shapes of the world come first in MuJoCo's order, whatever their place in the file.
TOUCHING = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <body pos="0 0 .29"><freejoint/>
      <geom name="box" type="box" size=".1 .2 .3" contype="2" conaffinity="2"/></body>
    <body pos=".5 0 .0999"><freejoint/>
      <geom name="smooth" size=".1" condim="1" priority="1" friction=".9"/></body>
    <geom name="ground" type="plane" size="1 1 1" contype="3" conaffinity="3"/>
    <body pos="0 1 .099"><freejoint/><geom name="rough" size=".1"/></body>
    <body pos="0 1 .27"><freejoint/>
      <geom name="rod" type="capsule" size=".08 .1" euler="0 90 10"/></body>
  </worldbody>
  <contact>
    <pair geom1="ground" geom2="rough" condim="3" friction=".3 .3 .005 .0001 .0001"/>
  </contact>
</mujoco>"""


def test_forces_are_those_of_generalized():
    sys, rng = eqsim.load_mjcf(TOUCHING), np.random.default_rng(0)
    qd, ctrl = jnp.asarray(0.3 * rng.normal(size=sys.nv)), jnp.zeros(0)
    found = {}
    for pipeline in (Mjx(), Generalized()):
        state = pipeline.init(sys, sys.joints.ref, qd)
        solve = eqx.filter_jit(lambda pipeline, *of: pipeline.solve(*of))
        solved = solve(pipeline, sys, state, ctrl)
        contacts, force = solved.contacts, solved.constraint_force
        wrench = contact_wrenches(sys, state.q, contacts)
        deepest = {}
        ends = [tuple(pair) for pair in contacts.geoms.tolist()]
        for pair, dist in zip(ends, contacts.dist, strict=True):
            deepest[pair] = min(float(dist), deepest.get(pair, np.inf))
        found[type(pipeline)] = force, wrench, deepest
        assert jnp.all(contacts.force[~contacts.exists] == 0.0)
        assert int(contacts.count) == int(jnp.sum(contacts.dist < 0.0))
        sliding = jnp.linalg.norm(contacts.force[:, :2], axis=1)
        smooth = sys.geoms.names.index("smooth")
        slides = np.array([smooth not in pair for pair in ends])
        assert jnp.all(sliding[~slides] == 0.0) and jnp.any(sliding[slides] > 1.0)
    (force, wrench, deepest), expected = found[Mjx], found[Generalized]
    # The box and the smooth ball. With the others, MJX's nearest point on the axis of a
    # capsule is off by a share of 1e-6.
    assert jnp.max(jnp.abs(expected[0][:12])) > 1.0
    assert jnp.allclose(force[:12], expected[0][:12], rtol=0, atol=1e-8)
    assert jnp.allclose(force, expected[0], rtol=1e-4, atol=1e-2)
    assert jnp.allclose(wrench[:2], expected[1][:2], rtol=0, atol=1e-8)
    assert jnp.allclose(wrench, expected[1], rtol=1e-4, atol=1e-2)
    assert deepest.keys() == expected[2].keys()
    for pair, dist in expected[2].items():
        assert np.isclose(deepest[pair], dist, rtol=0, atol=1e-7), pair


def test_nothing_that_could_touch():
    env = eqsim.make("point_mass", pipeline=Mjx())
    state = env.pipeline.init(env.sys)
    found = env.pipeline.contacts(env.sys, state, jnp.ones(1))
    assert found.geoms.shape == (0, 2) and found.force.shape == (0, 3)
    force = env.pipeline.constraint_forces(env.sys, state, jnp.ones(1))
    assert jnp.all(force == 0.0)
