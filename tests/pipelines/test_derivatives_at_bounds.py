"""States and inputs at a bound: the derivative is that of the inside of the range."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsim import Generalized, load_mjcf, Positional, Spring


BALL = """
<mujoco><option timestep=".002"/><worldbody>{bodies}</worldbody>{more}</mujoco>"""
BODY = """<body><joint name="{name}" axis="0 1 0" damping="1" {joint}/>
  <geom size=".1" mass="1" contype="0" conaffinity="0"/></body>"""


def ball(more: str = "", joint: str = ""):
    return load_mjcf(BALL.format(bodies=BODY.format(name="j", joint=joint), more=more))


def after(sys, state, ctrl, count=5, pipeline=Generalized()):
    step = lambda now, _: (pipeline.step(sys, now, ctrl), None)
    return lax.scan(step, state, None, count)[0]


def check(function, at, inward):
    """Compare both modes with the one-sided difference, of second order, into the
    range. Each entry of the value depends on the entry of the argument."""
    at, inward = jnp.asarray(at), jnp.asarray(inward)
    size, one = 1e-4 * inward, jnp.ones_like(at)
    zero, first, second = (function(at + k * size) for k in range(3))
    expected = (4.0 * first - 3.0 * zero - second) / (2.0 * size)
    forward = jax.jvp(function, (at,), (one,))[1]
    np.testing.assert_allclose(forward, expected, rtol=2e-4, atol=1e-9)
    reverse = jax.grad(lambda x: jnp.sum(function(x)))(at)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-12)
    return forward


# Actuator, attributes of its joint, control at the bound, and the way into the range.
LIMITED = {
    "ctrlrange": ('<motor joint="{}" ctrlrange="-1 .5"/>', "", 0.5, -1.0),
    "lower": ('<motor joint="{}" ctrlrange="-.5 2"/>', "", -0.5, 1.0),
    "forcerange": ('<motor joint="{}" gear="2" forcerange="-.5 .5"/>', "", 0.5, -1.0),
    "actuatorfrcrange": (
        '<motor joint="{}"/>',
        'actuatorfrclimited="true" actuatorfrcrange="-.5 .5"',
        0.5,
        -1.0,
    ),
    "filter": (
        '<general joint="{}" dyntype="filter" dynprm=".1" actlimited="true" '
        'actrange="0 1" gainprm="10"/>',
        "",
        0.0,
        1.0,
    ),
    "integrator": (
        '<general joint="{}" dyntype="integrator" actlimited="true" actrange="0 1"/>',
        "",
        0.0,
        1.0,
    ),
    "muscle": ('<muscle joint="{}" lengthrange="-1 1"/>', "", 0.0, 1.0),
}


def test_actuators():
    """One joint per actuator, in one robot."""
    bodies = "".join(
        BODY.format(name=name, joint=joint) for name, (_, joint, *_) in LIMITED.items()
    )
    motors = "".join(text.format(name) for name, (text, *_) in LIMITED.items())
    sys = load_mjcf(BALL.format(bodies=bodies, more=f"<actuator>{motors}</actuator>"))
    start = Generalized().init(sys)
    speed = jax.jit(lambda ctrl: after(sys, start, ctrl).qd)
    at, inward = zip(*((at, inward) for *_, at, inward in LIMITED.values()))
    assert np.all(check(speed, at, inward) != 0.0)


def test_a_range_of_one_value():
    """What is fixed has no derivative."""
    sys = ball('<actuator><motor joint="j" forcerange="-.5 .5"/></actuator>')
    fixed = eqx.tree_at(lambda s: s.actuators.force_range, sys, jnp.full((1, 2), 0.5))
    start = Generalized().init(sys)
    speed = lambda ctrl: after(fixed, start, ctrl[None]).qd[0]
    assert jax.grad(speed)(jnp.asarray(0.5)) == 0.0


PARTING = """
<mujoco><option timestep=".002" cone="elliptic" noslip_iterations="3"/><worldbody>
  <geom type="plane" size="1 1 1"/><body><joint name="j" type="slide" axis="1 0 0"/>
    <joint type="slide" axis="0 0 1"/><geom size=".1" pos="0 0 .11" margin=".02"/></body>
</worldbody><actuator><motor joint="j"/></actuator></mujoco>"""


def test_forces_of_friction_that_are_always_zero():
    """At rest and without load, a joint without friction moves as freely as elsewhere, and
    so does a sphere that leaves the ground, in a robot without slip."""
    rubbing = ball('<actuator><motor joint="j"/></actuator>', 'frictionloss=".1"')
    loss = lambda s: s.joints.frictionloss
    for sys, start in (
        (eqx.tree_at(loss, rubbing, jnp.zeros(1)), jnp.zeros(1)),
        (load_mjcf(PARTING), jnp.asarray([0.0, 1.0])),
    ):
        start = Generalized().init(sys, None, start)
        speed = lambda ctrl: after(sys, start, ctrl[None], 1).qd[0]
        assert check(speed, 0.0, 1.0) > 0.0


@pytest.mark.parametrize("lengths", ("-1 .3", ".3 1"))
@pytest.mark.quick_cases("-1 .3")
def test_a_tendon_becomes_taut(lengths):
    """At the ends of the dead band there is no force yet."""
    tendon = (
        f'<tendon><fixed springlength="{lengths}" stiffness="50">'
        '<joint joint="j" coef="1"/></fixed></tendon>'
    )
    sys, inward = ball(tendon), -1.0 if lengths.endswith(".3") else 1.0
    start = Generalized().init(sys)

    @jax.jit
    def speed(q):
        return after(sys, eqx.tree_at(lambda s: s.q, start, q[None]), jnp.zeros(0)).qd[
            0
        ]

    check(speed, 0.3, inward)


@pytest.mark.parametrize(
    "pipeline", (Positional(), Spring()), ids=lambda p: type(p).__name__
)
@pytest.mark.parametrize("at, inward", ((0.2, -1.0), (-0.3, 1.0)))
@pytest.mark.quick_cases("0.2--1.0-Positional", "-0.3-1.0-Spring")
def test_a_joint_at_its_limit(pipeline, at, inward):
    """Projections put joints exactly there."""
    sys = ball(joint='limited="true" range="-17.188733853924695 11.459155902616466"')

    @jax.jit
    def angle(q):
        start = pipeline.init(sys, q[None])
        return after(sys, start, jnp.zeros(0), 1, pipeline).q[0]

    check(angle, at, inward)


SPHERE_ON_BOX = """
<mujoco><option timestep=".002" cone="{cone}"/><worldbody>
  <geom type="box" size=".2 .2 .1"/>
  <body pos="0 0 .19"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
    <joint axis="0 1 0"/><geom size=".1" mass="1"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("edge, inward", ((0.2, -1.0), (-0.2, 1.0)))
@pytest.mark.slow  # `test_aligned_sides` is the quick one.
def test_a_sphere_over_the_edge_of_a_box(edge, inward):
    """It touches the face."""
    sys = load_mjcf(SPHERE_ON_BOX.format(cone="elliptic"))
    start = Generalized().init(sys)

    @jax.jit
    def speed(x):
        q = jnp.stack([x, 0.0 * x, 0.0 * x])
        state = eqx.tree_at(lambda s: s.q, start, q)
        return after(sys, state, jnp.zeros(0), 1).qd @ jnp.array([1.0, 0.3, 0.1])

    check(speed, edge, inward)


@pytest.mark.slow  # `constraint/test_rows.py` has the values.
def test_the_shortest_time_constant():
    """`solref` of two time steps, the usual one at 0.01 s, is in its range."""
    sys = load_mjcf(SPHERE_ON_BOX.format(cone="pyramidal"))
    sys = eqx.tree_at(lambda s: s.dt, sys, jnp.asarray(0.01))
    start = Generalized().init(sys)

    @jax.jit
    def speed(time):
        solref = sys.geoms.solref.at[:, 0].set(time)
        return after(
            eqx.tree_at(lambda s: s.geoms.solref, sys, solref), start, jnp.zeros(0), 1
        ).qd[1]

    assert check(speed, 0.02, 1.0) != 0.0


BOX = '<geom type="box" size=".1 .1 .1" mass="1"/>'
CUBE = '<geom type="mesh" mesh="cube" mass="1"/>'
CAPSULE = '<geom type="capsule" size=".05 .1" euler="0 90 0" mass="1"/>'
TURNED = '<geom type="box" size=".1 .1 .1" euler="0 0 {}" mass="1"/>'
ALIGNED = {
    "capsule on box": (BOX, CAPSULE, 0.148),
    "cube on box": (BOX, CUBE, 0.198),
    "box on cube": (CUBE, BOX, 0.198),
    "cubes": (CUBE, CUBE, 0.198),
    "boxes": (BOX, BOX, 0.198),
    "capsules": (CAPSULE, CAPSULE, 0.098),
    "boxes, half a turn": (BOX, TURNED.format(180), 0.198),
    "boxes, a quarter turn": (BOX, TURNED.format(90), 0.198),
}
STACK = """
<mujoco><option timestep=".005" cone="elliptic"/>
  <asset><mesh name="cube" scale=".1 .1 .1" vertex="-1 -1 -1  1 -1 -1  -1 1 -1  1 1 -1
    -1 -1 1  1 -1 1  -1 1 1  1 1 1"/></asset>
  <worldbody>{}<body><freejoint/>{}</body></worldbody>
</mujoco>"""


@pytest.mark.parametrize("name", ALIGNED)
@pytest.mark.quick_cases("boxes, half a turn")
def test_aligned_sides(name):
    """Equal shapes on top of each other: whichever way the upper one moves, some points
    move with it and some do not."""
    lower, upper, height = ALIGNED[name]
    sys = load_mjcf(STACK.format(lower, upper))
    start = Generalized().init(sys)

    @jax.jit
    def turned(x):
        q = jnp.array([0.0, 0.0, height, 1.0, 0.0, 0.0, 0.0]).at[0].add(x)
        state = eqx.tree_at(lambda s: s.q, start, q)
        return after(sys, state, jnp.zeros(0), 1).qd[4]

    zero, size = jnp.asarray(0.0), 1e-5
    forward = jax.jvp(turned, (zero,), (1.0,))[1]
    expected = (turned(size) - turned(-size)) / (2.0 * size)
    assert abs(expected) > 0.01
    np.testing.assert_allclose(forward, expected, rtol=1e-3)
    np.testing.assert_allclose(jax.grad(turned)(zero), forward, rtol=1e-9)
