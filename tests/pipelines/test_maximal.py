"""Laws of the pipelines in maximal coordinates."""

import dataclasses

import assets
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsim
from eqsim import Generalized, load_mjcf, Positional, Spring, State
from eqsim.dynamics import kinetic_energy, momentum


each = pytest.mark.parametrize(
    "pipeline", (Spring(), Positional()), ids=lambda pipeline: type(pipeline).__name__
)
each_kind = pytest.mark.parametrize(
    "kind", (Spring, Positional), ids=lambda kind: kind.__name__
)

# A pendulum, a double pendulum and a cart with a pole, far from each other.
SWINGING = """
<mujoco>
  <option timestep="0.01"/>
  <default><geom type="capsule" size=".05" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><joint axis="0 1 0"/><geom fromto="0 0 0 .5 0 -.2"/></body>
    <body pos="0 5 0"><joint axis="0 1 0"/><geom fromto="0 0 0 .5 0 0"/>
      <body pos=".5 0 0"><joint axis="0 1 0"/><geom fromto="0 0 0 .5 0 0"/></body>
    </body>
    <body pos="0 10 0"><joint type="slide" axis="1 0 0"/><geom fromto="-.2 0 0 .2 0 0"/>
      <body><joint axis="0 1 0"/><geom fromto="0 0 0 0 0 .6"/></body>
    </body>
  </worldbody>
</mujoco>"""
TREES = {"pendulum": [0], "double pendulum": [1, 2], "cart-pole": [3, 4]}

# Links that float, on a ball joint and on two hinges at different places in one link.
FLOATING = """
<mujoco>
  <option timestep="0.005" gravity="0 0 0"/>
  <default><geom type="box" size=".1 .2 .05" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body><freejoint/><geom/>
      <body pos=".3 0 0"><joint type="ball"/><geom pos=".2 0 0"/>
        <body pos=".4 0 0"><joint axis="0 1 0"/><joint axis="0 0 1" pos=".02 .1 0"/>
          <geom pos=".1 .2 0"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>"""

# A ball that cannot turn, on a plane: it slides, stops, and bounces.
PUCK = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="1 1 1" friction=".5"/>
    <body pos="0 0 .1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
      <geom type="sphere" size=".1" friction=".3"/></body>
  </worldbody>
</mujoco>"""


# A ball that rolls on a plane.
ROLLING = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody><geom type="plane" size="1 1 1"/>
    <body pos="0 0 .1"><freejoint/><geom type="sphere" size=".1"/></body>
  </worldbody>
</mujoco>"""


@eqx.filter_jit
def simulate(pipeline, sys, state, length):
    """The states of a simulation without control."""
    ctrl = jnp.zeros(sys.nu)

    def step(state, _):
        new = pipeline.step(sys, state, ctrl)
        return new, new

    return eqsim.scan(step, state, length=length)[1]


@pytest.fixture(scope="module")
def swinging():
    """The system, a start, and where it is after a second."""
    sys = load_mjcf(SWINGING)
    q, qd = jnp.array([0.3, 0.3, 0.5, 0.1, 0.4]), jnp.array([0.0, 0, 1, 0, 0])
    start = State(q, qd, q[:0])

    def exact(parts):
        """In so many parts of 10,000 steps each, which are one program."""
        fine, last = dataclasses.replace(sys, dt=jnp.array(1e-4 / parts)), start
        for _ in range(parts):
            path = simulate(Generalized(), fine, last, 10000)
            last = jax.tree.map(lambda x: x[-1], path)
        return last.q

    # Euler's error is of first order: two step sizes remove it.
    return sys, start, 2 * exact(2) - exact(1)


@pytest.mark.slow  # `test_joints.py` compares with closed forms.
@each_kind
def test_more_substeps_converge_to_joint_coordinates(swinging, kind):
    sys, start, target = swinging
    error = {}
    for substeps in (16, 64):
        last = simulate(kind(substeps=substeps), sys, start, 100).q[-1]
        error[substeps] = np.abs(last - target)
    for name, q in TREES.items():
        few, many = (np.max(error[n][q]) for n in (16, 64))
        assert many < 0.03 and np.log2(few / many) / 2 > 0.8, name


@each
@pytest.mark.quick_cases("Positional")
def test_momentum(pipeline):
    """It is kept where nothing acts from outside, but for what going back to coordinates
    costs; energy is not won."""
    sys = load_mjcf(FLOATING)
    qd = jnp.asarray(np.random.default_rng(0).normal(size=sys.nv))
    q = sys.joints.ref.at[7:11].set(jnp.array([0.8, 0.6, 0.0, 0.0]))
    start = pipeline.init(sys, q, qd)
    path = simulate(pipeline, sys, start, 200)
    measure = lambda s: (momentum(sys, s.q, s.qd), kinetic_energy(sys, s.q, s.qd))
    whole = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), start, path)
    total, energy = map(np.asarray, jax.jit(jax.vmap(measure))(whole))
    first, last = total[0], total[1:]
    gone = np.linalg.norm(np.reshape(last - first[None], (200, 2, 3)), axis=2)
    angular, linear = np.max(gone, axis=0) / np.linalg.norm(first.reshape(2, 3), axis=1)
    assert linear < 1e-4 and angular < 1e-2
    ratio = energy[1:] / energy[0]
    assert np.all(ratio < 1.02) and ratio[-1] > 0.7


@each_kind
@pytest.mark.quick_cases("Positional")
def test_puck(kind):
    """Coulomb friction slows it down by mu g, until it sticks."""
    sys, pipeline = load_mjcf(PUCK), kind()
    start = pipeline.init(sys, jnp.zeros(2), jnp.array([1.0, 0.0]))
    path = simulate(pipeline, sys, start, 100)
    time = 0.005 * np.arange(1, 101)
    moving = time < 0.19
    expected = 1.0 - 0.5 * 9.81 * time
    np.testing.assert_allclose(path.qd[moving, 0], expected[moving], atol=0.02)
    assert np.all(np.abs(path.qd[time > 0.22, 0]) < 1e-3)
    assert np.all(np.abs(path.q[:, 1]) < 1e-3)


DRY = """
<mujoco><default><geom size=".1" contype="0" conaffinity="0"/></default><worldbody>
  <body><joint axis="0 1 0" frictionloss="1"/><geom pos=".2 0 0"/></body>
  <body pos="0 1 0"><joint axis="0 1 0"/><geom pos=".2 0 0"/></body>
</worldbody></mujoco>"""


@each
@pytest.mark.quick_cases("Spring")
def test_dry_friction_that_is_switched_off(pipeline):
    """`has_friction` of a joint decides, not that of another one."""
    sys = load_mjcf(DRY)
    start = pipeline.init(sys)

    def speeds(loss):
        robot = eqx.tree_at(lambda s: s.joints.frictionloss, sys, loss)
        return pipeline.step(robot, start, jnp.zeros(0)).qd

    loss = jnp.ones(2)
    slope = np.asarray(jax.jacfwd(speeds)(loss))
    assert slope[0, 0] < 0.0 and np.count_nonzero(slope) == 1
    np.testing.assert_array_equal(speeds(loss), speeds(loss.at[1].set(0.0)))


@pytest.mark.parametrize("restitution", (0.0, 0.6))
@each_kind
@pytest.mark.quick_cases("Spring-0.0", "Positional-0.6")
def test_bounce(kind, restitution):
    """It leaves the ground with a share of the speed at which it came."""
    sys, pipeline = load_mjcf(PUCK), kind(restitution=restitution)
    start = pipeline.init(sys, jnp.array([0.0, 0.2]), jnp.zeros(2))
    path = simulate(pipeline, sys, start, 100)
    speed = np.asarray(path.qd[:, 1])
    came, at = -np.min(speed), np.argmin(speed)
    assert came == pytest.approx(np.sqrt(2 * 9.81 * 0.2), rel=0.03)
    left = np.max(speed[at:])
    assert left == pytest.approx(restitution * came, rel=0.05, abs=1e-3)
    assert np.min(path.q[:, 1]) > -0.005


@each
@pytest.mark.quick_cases("Spring")
def test_rolling(pipeline):
    """It goes on as it rolls, and does not sink in, however far it turns in a step."""
    sys = load_mjcf(ROLLING)
    qd = jnp.array([3.0, 0, 0, 0, 30.0, 0])
    path = simulate(pipeline, sys, pipeline.init(sys, qd=qd), 100)
    np.testing.assert_allclose(path.qd[:, 0], 3.0, rtol=1e-3)
    np.testing.assert_allclose(path.q[:, 2], 0.1, atol=1e-3)


@pytest.mark.slow
@each
@pytest.mark.parametrize("name", assets.FILES)
def test_every_file_is_stable(name, pipeline):
    """Under random controls, in single precision, with the numbers as they are."""
    with jax.enable_x64(False):
        sys = eqsim.load_mjcf(assets.path(name))
        start = pipeline.init(sys)
        keys = jax.random.split(jax.random.key(0), 1000)

        @jax.jit
        def run(sys, start):
            def step(state, key):
                ctrl = jax.random.uniform(key, (sys.nu,), minval=-1.0)
                held = lambda state, _: (pipeline.step(sys, state, ctrl), None)
                new = eqsim.scan(held, state, length=5)[0]
                return new, new.qd

            return jax.lax.scan(step, start, keys)

        last, speed = run(sys, start)
    assert np.all(np.isfinite(last.q)) and np.max(np.abs(speed)) < 300


def test_refusals():
    sys = load_mjcf(SWINGING)
    light = eqx.tree_at(lambda s: s.links.mass, sys, sys.links.mass.at[1].set(0.0))
    light = eqx.tree_at(
        lambda s: (s.links.inertia, s.joints.armature),
        light,
        (light.links.inertia.at[1].set(0.0), 1.0 + light.joints.armature),
    )
    free = load_mjcf(FLOATING)
    free = eqx.tree_at(lambda s: s.joints.armature, free, 1.0 + free.joints.armature)
    broken = eqx.tree_at(lambda s: s.joints.damping, sys, sys.joints.damping * np.nan)
    for message, call in (
        ("no mass or no inertia.*`Generalized`", lambda: Spring().init(light)),
        ("Free joint.*armature.*`Generalized`", lambda: Positional().init(free)),
        ("damping is NaN", lambda: Generalized().init(broken)),
        ("damping is NaN", lambda: Spring().init(broken)),
        ("damping is NaN", lambda: Positional().init(broken)),
        (r"Spring\.stiffness.*not negative", lambda: Spring(stiffness=-1.0).init(sys)),
        (r"Spring\.erp.*at most 1", lambda: Spring(erp=1.5).init(sys)),
        ("substeps.*0", lambda: Positional(substeps=0)),
    ):
        with pytest.raises(ValueError, match=message):
            call()
