"""Parameters without influence on the motion: exactly those, by numbers."""

import dataclasses
import functools

import assets
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import examples
from hypothesis import given, settings, strategies as st

from eqsim import Generalized
from eqsim.io import load_mjcf
from eqsim.model import Cone, JointKind
from eqsim.pipelines import inactive_parameters
from eqsim.testing import random_configuration, random_system


# What a structure can switch off. Of other parameters, such as the pose of a link, some
# have no influence by symmetry, which is not the matter here.
GOVERNED = (
    "density", "viscosity", "wind", "impratio", "joints.range", "joints.limit_margin",
    "joints.limit_solref", "joints.limit_solimp", "joints.frictionloss",
    "joints.friction_solref", "joints.friction_solimp", "geoms.size", "geoms.friction",
    "geoms.solref", "geoms.solimp", "geoms.solmix", "geoms.margin", "pairs.friction",
    "pairs.solref", "pairs.solref_friction", "pairs.solimp", "pairs.margin", "actuators.ctrl_range",
    "actuators.force_range", "actuators.act_range", "actuators.time_constant",
    "actuators.gear", "actuators.gain", "actuators.bias", "joints.force_range",
    "tendons.range", "tendons.limit_margin", "tendons.limit_solref",
    "tendons.limit_solimp", "tendons.frictionloss", "tendons.friction_solimp",
    "tendons.armature", "tendons.spring_length", "equalities.anchors",
    "equalities.relative_quat", "equalities.torque_scale", "equalities.coefficients",
    "tendons.stiffness", "tendons.stiffness_poly", "tendons.damping",
    "tendons.damping_poly", "actuators.damping", "actuators.damping_poly",
    "actuators.armature",
)  # fmt: skip


@functools.lru_cache
def system(name):
    if name == "flags off":
        return random_system(
            3, 2, num_roots=1, with_limits=False, with_friction=False, with_fluid=False
        )
    if name == "flags on":
        return random_system(4, 3, num_roots=1, with_fluid=True)
    if name == "elliptic":
        joints = (JointKind.REVOLUTE, JointKind.FREE)
        return random_system(
            9, 2, joints, 1, cone=Cone.ELLIPTIC, condims=(3, 4, 6), with_actuators=False
        )
    if name == "fixed and free":
        kinds = (JointKind.FREE, JointKind.PRISMATIC)
        return random_system(11, 4, kinds, num_roots=2)
    if name == "laws":
        return random_system(5, 3, num_roots=1, with_laws=True, with_geoms=False)
    return load_mjcf({"tendons": TENDONS, "motors": MOTORS, "file": FILE}[name])


FILE = """
<mujoco><option><flag contact="enable"/></option><worldbody>
  <geom name="floor" type="plane" size="1 1 1" priority="1" condim="1"
    contype="3" conaffinity="3"/>
  <body name="stand" pos="1 0 0"><geom name="plate" type="capsule" size=".1 .1"
    contype="0"/></body>
  <body name="a" pos="0 0 .1"><freejoint/><geom name="ball" size=".1"
    surfacevel=".3 .2 .1 .2 .1 .4" adhesion="2" gap=".02"/></body>
  <body name="b" pos="0 .3 .1"><joint range="-1 1" frictionloss="1"/><joint type="slide"/>
    <geom name="rod" type="capsule" size=".1 .05"/>
    <geom name="ghost" type="box" size=".1 .2 .3" contype="0" conaffinity="0"/></body>
  <body name="c" pos=".3 0 .1"><joint/><geom name="can" type="cylinder" size=".1 .1"
    contype="2" conaffinity="2"/></body></worldbody>
  <contact><pair geom1="ball" geom2="rod" condim="3" adhesion="1" gap=".1"/></contact>
  <actuator><adhesion body="a" ctrlrange="0 1" gain="5"/></actuator>
</mujoco>
"""
TENDONS = """
<mujoco><worldbody>
  <site name="hook" pos="0 .1 .5"/><site name="mark" pos="1 1 1"/>
  <geom name="post" type="cylinder" size=".05 .1" pos="0 .1 .2" contype="0"
    conaffinity="0"/>
  <body name="a"><joint name="one" axis="1 0 0"/><geom size=".1" contype="0"/>
    <site name="tip" pos="0 0 -.2"/>
    <body name="b" pos="0 0 -.3"><joint name="two" axis="0 1 0"/>
      <geom size=".1" contype="0"/><site name="end" pos="0 .1 .1"/></body></body>
  <body name="c" pos="0 1 0"><joint name="three" axis="1 0 0"/>
    <geom size=".1" pos=".2 0 0" contype="0"/></body></worldbody>
  <tendon>
    <fixed name="sum" limited="true" range="-.5 .5" stiffness="3" springlength=".1 .2"
      frictionloss="1" armature=".1"><joint joint="one" coef="1"/>
      <joint joint="two" coef="-2"/></fixed>
    <spatial name="rope" stiffness="9"><site site="hook"/>
      <geom geom="post"/><site site="tip"/><pulley divisor="2"/><site site="hook"/>
      <site site="end"/></spatial></tendon>
  <equality><connect body1="b" anchor="0 0 .1"/><joint joint1="three"/>
    <joint joint1="three" joint2="one"/><weld body1="c" body2="a"/></equality>
  <actuator><motor tendon="rope"/><motor site="end" gear="1 2 3 4 5 6"/></actuator>
</mujoco>
"""
# DC motors and PID servos: all that they can have, and each thing missing once.
_MOTOR = 'motorconst=".5" resistance="2" cogging=".1 6 .3"'
_LUGRE = 'lugre="20 .1 .2 .4 .1"'
_WARM = 'thermal="2 5 1.5 .004 25 20"'
MOTORS = f"""
<mujoco><option actuatorgroupdisable="1"/><worldbody>
  <body><joint name="one" axis="1 0 0"/><geom size=".1" pos="0 .1 0" contype="0"/>
    <site name="tip"/><body pos="0 0 -.3"><joint name="two" axis="0 1 0"/>
    <geom size=".1" pos=".1 0 0" contype="0"/></body></body></worldbody>
  <tendon><fixed name="sum" damping="2"><joint joint="one" coef="1"/></fixed>
    <fixed name="loose" stiffness="2"><joint joint="two" coef="2"/></fixed></tendon>
  <actuator>
    <dcmotor joint="one" {_MOTOR} {_LUGRE} {_WARM} inductance=".01 0"
      input="pos vel ff voltage" controller="2 .5 .1 20 .1 4" saturation="1 2 20"/>
    <dcmotor joint="two" {_MOTOR} {_WARM} input="voltage"/>
    <dcmotor joint="one" {_MOTOR} {_LUGRE} input="vel" controller="0 0 .1"/>
    <dcmotor joint="two" motorconst=".5" resistance="2" inductance=".02 0"/>
    <dcmotor joint="one" {_MOTOR} {_LUGRE} {_WARM} input="pos" group="1"
      controller="2 .5 .1 20 .1 4"/>
    <pid joint="one" kp="3" kv=".2" ki="2" imax=".1" slewmax="2"/>
    <pid joint="two" kp="3" input="vel ff"/>
    <pid joint="one" kp="3" ki="2" group="1" slewmax="2"/>
    <general tendon="sum" damping=".1 .2 .3" armature=".1"/>
    <general site="tip"/>
  </actuator>
</mujoco>
"""
NAMES = (
    "motors",
    "flags off",
    "flags on",
    "elliptic",
    "fixed and free",
    "file",
    "laws",
    "tendons",
)


def paths(tree):
    leaves = jtu.tree_leaves_with_path(tree)
    return {jtu.keystr(path).lstrip("."): leaf for path, leaf in leaves}


# Wide constraints that begin early, and narrow ranges, so that most are active.
WIDE = {
    "margin": lambda rng, shape: rng.uniform(1.0, 3.0, shape),
    "frictionloss": lambda rng, shape: 10 ** rng.uniform(0, 4, shape),
    "gain": lambda rng, shape: 10 ** rng.uniform(-2, 1, shape),
    "friction": lambda rng, shape: rng.uniform(0.3, 1.5, shape),
    "solref": lambda rng, shape: rng.uniform([0.02, 0.7], [0.05, 1.3], shape),
    "limit_margin": lambda rng, shape: 10 ** rng.uniform(-2, 1, shape),
    "solimp": lambda rng, shape: rng.uniform(
        [0.5, 0.9, 3, 0.3, 1.5], [0.8, 0.95, 6, 0.7, 3], shape
    ),
    "ctrl_range": lambda rng, shape: rng.uniform([-1, 0], [0, 1], shape),
    "force_range": lambda rng, shape: (
        rng.uniform([-9, 0], [0, 9], shape) * 10 ** rng.uniform(-3, 3, (shape[0], 1))
    ),
    "max_voltage": lambda rng, shape: 10 ** rng.uniform(0, 5, shape),
    "max_current_rate": lambda rng, shape: 10 ** rng.uniform(0, 6, shape),
    "act_range": lambda rng, shape: rng.uniform([-1, 0], [0, 1], shape),
}


def other(rng, path, x):
    """Other numbers, of which none is zero."""
    name = path[-1].name
    name = "solimp" if name.endswith("solimp") else name
    name = "solref" if name.endswith("solref") else name
    if name in WIDE:
        return jnp.asarray(WIDE[name](rng, x.shape))
    return jnp.asarray(np.where(x == 0, 0.01, x) * rng.uniform(0.7, 1.3, x.shape))


def influence(name, count=40):
    """The largest derivative of a step by each entry, over random states, controls and
    parameters of the same structure."""
    sys = system(name)
    pipeline, rng = Generalized(), np.random.default_rng(0)

    def moved(sys, q, qd, act, ctrl, direction):
        state = eqx.tree_at(lambda s: (s.qd, s.act), pipeline.init(sys, q), (qd, act))
        new = pipeline.step(sys, state, ctrl)
        out = jnp.concatenate([new.q, new.qd, new.act])
        return jnp.sum(jnp.tanh(out) * direction)

    gradient = eqx.filter_jit(eqx.filter_vmap(jax.grad(moved)))
    robots, states = [], []
    for k in range(count):
        robots.append(jtu.tree_map_with_path(functools.partial(other, rng), sys))
        q, qd = random_configuration(k, sys, 0.1 + 1.5 * (k % 4) / 4)
        qd = qd * 0.01 ** (k % 3)
        normal = lambda n: jnp.asarray(3 * rng.normal(size=n))
        size = sys.nq + sys.nv + sys.na
        states.append(
            (q, qd, normal(sys.na), 5 ** (1 + k % 3) * normal(sys.nu), normal(size))
        )
    stack = lambda trees: jax.tree.map(lambda *xs: jnp.stack(xs), *trees)
    found = gradient(stack(robots), *stack(states))
    return jax.tree.map(lambda x: np.max(np.abs(x), axis=0), found)


# These take longest to compile. But for elliptic cones, "file" and "flags off" have what
# they can switch off.
SLOW = ("flags on", "elliptic", "fixed and free", "motors", "laws")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in NAMES
    ],
)
@pytest.mark.quick_cases("flags off")
def test_inactive_parameters_have_no_influence(name):
    """And the others have; one test, so that derivatives are computed once."""
    mask, found = (
        paths(inactive_parameters(system(name)).mask),
        paths(influence(name)),
    )
    assert set(mask) == set(found)
    check_inactive(mask, found)
    check_active(system(name), mask, found)


def check_inactive(mask, found):
    for path, marks in mask.items():
        assert marks.shape == found[path].shape
        assert np.all(found[path][marks] == 0.0), path


def check_active(sys, mask, found):
    families = ("actuators.motors.", "actuators.pids.")
    for path in [x for x in mask if x in GOVERNED or x.startswith(families)]:
        dead = ~mask[path] & (found[path] == 0.0)
        if path == "joints.range":
            # Of a spherical joint, the larger number counts.
            kinds = sys.joints.kinds
            dead[[kind is JointKind.SPHERICAL for kind in kinds], 0] = False
        if path in ("joints.friction_solref", "pairs.solref_friction"):
            # In the format of time constants, friction reads only the first one.
            dead = dead.all(axis=-1)
        assert not np.any(dead), (path, np.argwhere(dead))


def test_a_flag_that_is_off_is_the_reason():
    sys = load_mjcf(assets.path("ant"))
    found = inactive_parameters(sys)
    assert found.reasons["density"] == "System.has_fluid is False (all of it)"
    assert "has_friction is False" in found.reasons["joints.frictionloss"]
    assert "links.mass" not in found.reasons and "joints.damping" not in found.reasons
    assert np.all(found.mask.joints.frictionloss)
    assert not np.any(found.mask.joints.damping)
    # The free joint of the torso is the only one without limit.
    assert found.mask.joints.range[:, 0].tolist() == [True] + [False] * 8


def test_mask_has_the_structure_of_the_robot():
    sys = random_system(0, 3, num_roots=1)
    mask = inactive_parameters(sys).mask
    assert jax.tree.structure(mask) == jax.tree.structure(sys)
    free = eqx.partition(sys, jax.tree.map(lambda m: not m.all(), mask))[0]
    assert free.links.mass is not None and free.density is None


@settings(max_examples=examples(2))
@given(seed=st.integers(0, 10_000), nlink=st.integers(1, 6))
def test_batches_and_tracing(seed, nlink):
    """Only the structure is read."""
    sys = random_system(seed, nlink, num_roots=1, with_fluid=seed % 2 == 0)
    one = inactive_parameters(sys)
    fleet = inactive_parameters(jax.tree.map(lambda x: jnp.stack([x, x]), sys))
    for a, b in zip(jax.tree.leaves(one.mask), jax.tree.leaves(fleet.mask)):
        assert np.array_equal(np.stack([a, a]), b)
    seen = []
    jax.eval_shape(lambda sys: seen.append(inactive_parameters(sys)) or sys.dt, sys)
    assert seen[0].reasons == one.reasons
    assert set(one.reasons) == set(fleet.reasons)


@pytest.mark.slow  # `test_a_flag_that_is_off_is_the_reason` is the quick half.
def test_switching_a_flag_on_makes_it_active():
    sys = random_system(3, 3, num_roots=1, with_friction=False, with_fluid=False)
    joints = dataclasses.replace(sys.joints, has_friction=(True,) * sys.nv)
    rubbing = eqx.tree_at(lambda s: s.joints, sys, joints)
    assert "joints.frictionloss" in inactive_parameters(sys).reasons
    assert "joints.frictionloss" not in inactive_parameters(rubbing).reasons
