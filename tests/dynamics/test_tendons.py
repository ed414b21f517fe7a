"""Sites and tendons against MuJoCo C, and their derivatives."""

import dataclasses
import functools as ft
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import tendons
from helpers import check_gradients, examples
from hypothesis import given, settings, strategies as st

import eqsim.testing
from eqsim import dynamics, Generalized, kinematics, Positional, Spring
from eqsim.io import load_mjcf
from eqsim.kinematics._wrapping import wrap
from eqsim.kinematics.link_motion import Pose
from eqsim.kinematics.tendon_paths import _direction
from eqsim.model import GeomKind, PathPoint, State, validate, WrapKind
from eqsim.spatial import Mat3, Vec3
from eqsim.testing import random_configuration, random_system


JOINT, SITE, GEOM = (
    PathPoint(kind, 0) for kind in (WrapKind.JOINT, WrapKind.SITE, WrapKind.GEOM)
)
PULLEY = PathPoint(WrapKind.PULLEY)


def compare(seed):
    sys, model = tendons.draw(seed)
    validate(sys)
    errors = tendons.errors(sys, model)
    assert all(error < 1e-9 for error in errors.values()), errors
    found = jax.jit(tendons.weights)(sys)
    chosen = np.array(sys.tendons.limited) | np.array(sys.tendons.has_friction)
    expected = {
        "tendon": model.tendon_invweight0 * chosen,
        "dof": model.dof_invweight0,
        "link": model.body_invweight0[1:, 0],
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.slow  # `test_robot_against_mujoco` is the quick one.
def test_random_systems(seed):
    compare(seed)


NONE = jnp.zeros(0)


def state(q, qd):
    return State(q, qd, NONE)


# All ways to pass a shape; a pulley; a tendon with armature; polynomials; dead bands.
ROBOT = """
<mujoco><option timestep=".004"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <site name="w" pos="0 0 1"/><site name="side" pos=".2 0 .6"/>
    <site name="in" pos=".02 0 .6"/><site name="in_rod" pos=".4 .01 .5"/>
    <geom name="ball" size=".1" pos="0 0 .6"/>
    <geom name="rod" type="cylinder" size=".08 .1" pos=".4 0 .5" euler="80 10 0"/>
    <body name="one" pos="0 0 .3"><joint name="ball" type="ball"/>
      <geom type="capsule" size=".1 .2" pos=".1 0 0"/><site name="x" pos="0 .1 .05"/>
      <body pos="0 0 -.3">
        <joint name="hinge" axis="0 1 0" springref=".3" ref=".1"/>
        <geom name="pin" type="cylinder" size=".05 .1" euler="90 0 0"/>
        <site name="y" pos=".1 0 -.1"/>
        <body pos="0 0 -.3"><joint name="slide" type="slide" axis="1 1 0"/>
          <geom size=".1"/><site name="z" pos=".1 .05 0"/></body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="fixed" stiffness="3 1 2" damping="1 2 3">
      <joint joint="hinge" coef="2"/><joint joint="slide" coef="-.5"/></fixed>
    <spatial name="straight" stiffness="10" damping=".5">
      <site site="w"/><site site="x"/></spatial>
    <spatial name="around" stiffness="10" springlength=".1 .3" damping=".3">
      <site site="w"/><geom geom="ball"/><site site="x"/><pulley divisor="2"/>
      <site site="x"/><geom geom="pin"/><site site="z"/><pulley divisor="3"/>
      <site site="y"/><geom geom="rod" sidesite="side"/><site site="w"/></spatial>
    <spatial name="side" stiffness="5">
      <site site="w"/><geom geom="ball" sidesite="side"/><site site="y"/></spatial>
    <spatial name="inside" stiffness="5" springlength="0">
      <site site="w"/><geom geom="ball" sidesite="in"/><site site="z"/></spatial>
    <spatial name="in rod" stiffness="5" springlength="0">
      <site site="w"/><geom geom="rod" sidesite="in_rod"/><site site="z"/></spatial>
  </tendon>
</mujoco>
"""


# Without the tendons that pass a shape only once, or not at all, and one shape less.
LONE = r'<spatial name="(straight|side|inside|in rod)".*?</spatial>'
FEWER = re.sub(LONE, "", ROBOT, flags=re.DOTALL).replace('<geom geom="pin"/>', "")


def with_armature(sys):
    """The same robot with armature of its tendons, around shapes too."""
    new = dict(has_armature=(True,) * sys.ntendon, armature=0.1 * np.ones(sys.ntendon))
    return dataclasses.replace(sys, tendons=dataclasses.replace(sys.tendons, **new))


def states(sys, count=3):
    every = [random_configuration(k, sys, 0.4 * k) for k in range(count)]
    return tuple(map(jnp.stack, zip(*every)))


def test_robot_against_mujoco():
    """Where tendons pass inside a shape, MuJoCo stops at a tolerance of 1e-6."""
    sys, model = load_mjcf(ROBOT), mujoco.MjModel.from_xml_string(ROBOT)
    errors = tendons.errors(sys, model, 6)
    limits = {"jacobian": 1e-5, "velocity": 1e-5, "passive": 1e-4, "bias": 1e-9}
    assert all(error < limits.get(name, 1e-9) for name, error in errors.items()), errors


def test_jacobian_is_the_derivative_of_the_length():
    sys = load_mjcf(ROBOT)

    def slopes(q):
        moved = lambda v: kinematics.integrate(sys, q, v)
        length = lambda v: kinematics.tendon_lengths(sys, moved(v))
        jac = kinematics.tendon_jacobian(sys, q)
        return jax.jacfwd(length)(jnp.zeros(sys.nv)), jac

    a, b = jax.jit(jax.vmap(slopes))(states(sys)[0])
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def passive(sys, q, qd):
    return (
        kinematics.site_poses(sys, q),
        kinematics.tendon_lengths(sys, q),
        kinematics.tendon_velocities(sys, q, qd),
        dynamics.passive_forces(sys, q, qd),
        dynamics.potential_energy(sys, q),
    )


@pytest.mark.slow
def test_gradients_of_inverse_weights():
    sys, _ = tendons.draw(1)
    largest = check_gradients(tendons.weights, sys, atol=1e-6)
    assert largest["[0].sites.pos"] and largest["[0].tendons.armature"]


def loss(pipeline, sys, q, qd):
    """Of one step and of everything else that tendons enter."""
    new = pipeline.step(sys, State(q, qd, jnp.zeros(0)), jnp.zeros(0))
    return sum(jnp.sum(x) for x in jax.tree.leaves((passive(sys, q, qd), new.qd)))


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", (Generalized(), Spring()))
def test_everything_is_a_kernel(pipeline):
    sys = load_mjcf(FEWER)
    q, qd = random_configuration(0, sys)
    slope = eqx.filter_grad(lambda *xs: loss(pipeline, *xs))
    eqsim.testing.check_kernels(slope, sys, q, qd)


@pytest.mark.parametrize("pipeline", (Spring(substeps=64), Positional(substeps=64)))
@pytest.mark.quick_cases("pipeline1")
def test_maximal_coordinates(pipeline):
    """A spring across two joints pulls alike in all pipelines; what they cannot simulate
    they refuse."""
    text = """<mujoco><option timestep=".002" gravity="0 0 0"/><worldbody>
      <site name="a" pos="0 .3 0"/><body pos="0 0 -.2"><joint axis="1 0 0"/>
      <geom size=".1" pos="0 0 -.2" mass="1"/><body pos="0 0 -.4"><joint axis="1 0 0"/>
      <geom size=".1" pos="0 0 -.2" mass="1"/><site name="b" pos="0 .05 -.2"/></body>
      </body></worldbody><tendon><spatial stiffness="90" springlength=".1" damping="2">
      <site site="a"/><site site="b"/></spatial></tendon></mujoco>"""
    sys = load_mjcf(text)
    state = State(jnp.array([0.1, 0.2]), jnp.array([0.5, -0.3]), jnp.zeros(0))
    exact, other = (
        p.step(sys, state, jnp.zeros(0)).qd for p in (Generalized(), pipeline)
    )
    assert jnp.allclose(other - state.qd, exact - state.qd, rtol=0.02)
    with pytest.raises(ValueError, match="has armature"):
        pipeline.init(with_armature(sys))


POINTS = st.tuples(*3 * [st.sampled_from((-2.0, -1.0, 0.0, 0.3, 1.0, 1.5))])


@given(
    kind=st.sampled_from((GeomKind.SPHERE, GeomKind.CYLINDER)),
    start=POINTS,
    end=POINTS,
    side=st.none() | POINTS,
)
@settings(max_examples=examples(100))
def test_degenerate_wraps_have_finite_derivatives(kind, start, end, side):
    """Points in a line with the center, on the surface, inside, coincident."""
    points = [jnp.asarray(x) for x in (start, end) + (() if side is None else (side,))]
    value, slope = _length_and_slope(kind)(points, jnp.asarray(1.0))
    assert jnp.isfinite(value) and all(jnp.all(jnp.isfinite(x)) for x in slope[0])
    assert jnp.isfinite(slope[1])


@ft.lru_cache
def _length_and_slope(kind):
    return jax.jit(jax.value_and_grad(lambda *xs: _length(kind, *xs), (0, 1)))


def _length(kind, points, radius):
    one = lambda x: Vec3(*(x[k][None] for k in range(3)))
    start, end, *side = map(one, points)
    eye = Mat3(*(jnp.asarray([float(k % 4 == 0)]) for k in range(9)))
    pose = Pose(eye, one(jnp.zeros(3)))
    found = wrap(kind, start, end, pose, radius[None], side[0] if side else None)
    gap = lambda a, b: _direction(a, b)[1]
    straight = gap(start, found.first) + gap(found.last, end)
    return jnp.sum(straight + found.arc)


def test_coincident_sites():
    """MuJoCo pulls along x; derivatives are finite."""
    text = """<mujoco><worldbody><site name="a"/><body><joint type="slide"/>
      <joint/><geom size=".1" pos="0 .1 0"/><site name="b"/></body></worldbody>
      <tendon><spatial stiffness="3" springlength="1"><site site="a"/><site site="b"/>
      </spatial></tendon></mujoco>"""
    sys, model = load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    q, qd = jnp.zeros(2), jnp.ones(2)
    expected = tendons.theirs(model, q, qd)["jacobian"]
    assert np.allclose(kinematics.tendon_jacobian(sys, q), expected)
    slope = jax.jacrev(lambda q: dynamics.passive_forces(sys, q, qd))(q)
    assert jnp.all(jnp.isfinite(slope))


WRAPS_NOTHING = """
<mujoco><option gravity="1 2 -9"/><worldbody>
  <body pos="0 0 1"><joint axis="0 1 .2"/><joint axis=".3 1 1"/>
    <geom size=".1" pos=".3 .1 0"/>
    <site name="a" pos=".21 .13 .07"/><site name="b" pos=".37 -.18 .29"/>
    <body pos=".9 .3 .4"><joint axis=".2 1 .1"/><joint type="slide" axis=".1 .7 .5"/>
      <geom name="peg" size=".1" pos=".1 0 .2"/></body></body></worldbody>
<tendon><spatial name="t" limited="true" range="0 .1"><site site="a"/><geom geom="peg"/>
  <site site="b"/></spatial></tendon>
<sensor><tendonlimitpos tendon="t"/><tendonlimitfrc tendon="t"/></sensor>
</mujoco>"""


def test_limit_of_a_tendon_within_one_link():
    """It wraps nothing: no joint changes its length, and the weight of its row is 1e15,
    which multiplies rounding errors of the Jacobian."""
    sys = load_mjcf(WRAPS_NOTHING)
    model = mujoco.MjModel.from_xml_string(WRAPS_NOTHING)
    batch, found = [], []
    for q, qd in zip(*states(sys, 6)):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = q, qd
        mujoco.mj_forward(model, data)
        assert data.nefc == 0 and data.ten_length[0] > 0.1
        batch.append(state(q, qd))
        found.append(data.qacc.copy())
    batch = jax.tree.map(lambda *xs: jnp.stack(xs), *batch)
    both = lambda x: (
        kinematics.tendon_jacobian(sys, x.q),
        Generalized().acceleration(sys, x, NONE),
        Generalized().sensors(sys, x, NONE),
    )
    jac, qdd, sensors = jax.jit(jax.vmap(both))(batch)
    assert not jnp.any(jac)
    np.testing.assert_allclose(qdd, np.array(found), rtol=1e-10, atol=1e-10)
    assert all(not jnp.any(value) for value in sensors.values())


def test_no_tendons_and_no_sites():
    sys = random_system(0)
    q, qd = random_configuration(0, sys)
    assert kinematics.tendon_lengths(sys, q).shape == (0,)
    assert kinematics.tendon_jacobian(sys, q).shape == (0, sys.nv)
    assert kinematics.tendon_velocities(sys, q, qd).shape == (0,)
    assert kinematics.site_poses(sys, q).pos.shape == (0, 3)


def test_site_jacobian():
    sys = load_mjcf(ROBOT)
    q, qd = random_configuration(3, sys)
    site = sys.sites.names.index("z")
    place = lambda t: kinematics.site_poses(
        sys, kinematics.integrate(sys, q, t * qd)
    ).pos[site]
    rate = jax.jvp(place, (jnp.zeros(()),), (jnp.ones(()),))[1]
    assert jnp.allclose(kinematics.site_jacobian(sys, q, site)[3:] @ qd, rate)
    with pytest.raises(ValueError, match="There is no site 9"):
        kinematics.site_jacobian(sys, q, 9)


WRONG = {
    "has stiffness .*, but Tendons.has_spring is False": {"has_spring": (False,) * 6},
    "has spring_length": {
        "spring_length": np.tile([2.0, 1.0], (6, 1)),
        "rests_at_reference": (False,) * 6,
    },
    "divisor -1.0": {"divisor": -np.ones(2)},
    "has armature": {"armature": np.ones(6)},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_numbers(message):
    sys = load_mjcf(ROBOT)
    new = dataclasses.replace(sys.tendons, **WRONG[message])
    with pytest.raises(ValueError, match=message):
        validate(dataclasses.replace(sys, tendons=new))


@pytest.mark.parametrize(
    "path, message",
    (
        ((), "is empty"),
        ((SITE, JOINT), "mixes joints"),
        ((SITE, GEOM), "without a site before and after"),
        ((SITE, SITE, PULLEY), "not followed by a site"),
        ((SITE, PULLEY, SITE, SITE), "without a neighbor"),
    ),
)
def test_wrong_paths(path, message):
    sys = load_mjcf(ROBOT)
    paths = (path, *sys.tendons.paths[1:])
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(sys.tendons, paths=paths)
