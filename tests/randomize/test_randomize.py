"""Random changes of a robot, batches of robots, and presets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, strategies as st
from jax import lax
from toys import rails

import eqsim
from eqsim import randomize
from eqsim.envs import PointMass
from eqsim.model import validate
from eqsim.viewer._physics import default_sliders


SYS = rails(3)
MASS = lambda sys: sys.links.mass
GEAR = lambda sys: sys.actuators.gear
BOTH = lambda sys: (sys.links.mass, sys.joints.damping)
KEYS = jr.split(jr.key(0), 500)


def draws(randomizer, where):
    return np.asarray(jax.vmap(lambda key: where(randomizer(key, SYS)))(KEYS))


@given(low=st.floats(-5, 5), span=st.floats(0, 5))
def test_uniform(low, span):
    x = draws(randomize.uniform(MASS, low, low + span), MASS)
    slack = 1e-9 * (abs(low) + span) + 1e-300
    assert np.all(x >= low - slack) and np.all(x <= low + span + slack)
    np.testing.assert_allclose(x.mean(0), low + span / 2, atol=0.1 * span + 1e-9)
    if span > 1e-3:
        assert not np.allclose(x[:, 0], x[:, 1], atol=1e-6)


def test_scale_and_bounds_per_entry():
    low, high = np.array([0.5, 1.0, 2.0]), np.array([0.5, 3.0, 4.0])
    x = draws(randomize.uniform_factor(MASS, low, high), MASS) / np.asarray(
        SYS.links.mass
    )
    np.testing.assert_allclose(x[:, 0], 0.5)
    assert np.all(x >= low - 1e-9) and np.all(x <= high + 1e-9)
    shared = draws(randomize.uniform_factor(MASS, 0.5, 2.0, shared=True), MASS)
    factor = shared / np.asarray(SYS.links.mass)
    np.testing.assert_allclose(factor, factor[:, :1].repeat(3, 1))


def test_gaussian():
    x = draws(randomize.gaussian(GEAR, 0.2), GEAR) - np.asarray(SYS.actuators.gear)
    assert x.std() == pytest.approx(0.2, rel=0.05) and abs(x.mean()) < 0.02


def test_choice():
    x = draws(randomize.choice(MASS, [1.0, 2.0, 7.0]), MASS)
    values, counts = np.unique(x[:, 0], return_counts=True)
    assert list(values) == [1.0, 2.0, 7.0] and min(counts) > 120
    assert np.all(x == x[:, :1])
    rows = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    x = draws(randomize.choice(MASS, rows), MASS)
    assert {tuple(row) for row in x} == {(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)}


def test_masses():
    """A link of another density: inertia goes with mass."""
    new = jax.vmap(lambda key: randomize.masses(0.5, 2.0)(key, SYS))(KEYS)
    factor = np.asarray(new.links.mass / SYS.links.mass[None])
    ratio = np.asarray(new.links.inertia / SYS.links.inertia[None])
    np.testing.assert_allclose(ratio, factor[..., None].repeat(3, -1), rtol=1e-12)
    assert factor.min() > 0.5 and factor.max() < 2.0 and factor.std() > 0.3


def test_several_at_once_and_one_after_the_other():
    change = randomize.chain(
        randomize.uniform_factor(BOTH, 0.9, 1.1),
        randomize.uniform(GEAR, 2.0, 3.0),
        lambda key, sys: eqx.tree_at(MASS, sys, 2.0 * sys.links.mass),
    )
    new = change(jr.key(3), SYS)
    mass = np.asarray(new.links.mass / SYS.links.mass)
    assert np.all(mass > 1.8) and np.all(mass < 2.2) and np.all(mass != 2.0)
    damping = np.asarray(new.joints.damping / SYS.joints.damping)
    assert not np.allclose(damping, mass / 2.0, rtol=1e-6)
    assert np.all(np.asarray(new.actuators.gear) >= 2.0)
    # Reproducible, and different for another key.
    again, other = change(jr.key(3), SYS), change(jr.key(4), SYS)
    assert np.array_equal(again.links.mass, new.links.mass)
    assert not np.allclose(other.links.mass, new.links.mass, rtol=1e-6)
    # What is not meant is the very same array.
    assert new.links.com is SYS.links.com


def test_values():
    """Bounds are leaves: they can be batched, and change without a recompile."""
    made = eqx.filter_jit(lambda change, key: change(key, SYS).links.mass)
    for low in (0.5, 0.7):
        made(randomize.uniform_factor(MASS, low, 1.0), jr.key(0))
    assert made._cached._cache_size() == 1
    slope = eqx.filter_grad(lambda change: jnp.sum(change(jr.key(0), SYS).links.mass))
    change = randomize.uniform_factor(MASS, 0.5, 1.0)
    total = slope(change).low + slope(change).high
    np.testing.assert_allclose(total, jnp.sum(SYS.links.mass), rtol=1e-6)


WRONG = {
    "low = 2.0 and high = 1.0 for `sys.links.mass`": randomize.uniform(MASS, 2.0, 1.0),
    "low = .*`sys.links.mass`": randomize.masses(2.0, 1.0),
    r"`high` for `sys.links.mass`.*\(2,\).*\(3,\)": randomize.uniform(
        MASS, 0.0, jnp.ones(2)
    ),
    "`scale` for `sys.actuators.gear`": randomize.gaussian(GEAR, jnp.ones((3, 3))),
    "`where` must return arrays of the robot": randomize.uniform(
        lambda sys: 2.0 * sys.links.mass, 0.0, 1.0
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_bounds(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message](jr.key(0), SYS)


ENV = PointMass(sys=rails(1))
DRAW = randomize.chain(
    randomize.masses(0.5, 2.0),
    randomize.uniform_factor(lambda sys: sys.joints.damping, 0.5, 2.0),
)
FIVE = jr.split(jr.key(0), 5)
POLICY = lambda obs, key: jr.uniform(key, (ENV.sys.nu,), minval=-1.0)


def test_each_robot_is_drawn_with_its_key():
    robots, _ = randomize.batched_env(ENV, DRAW, FIVE)
    each = [DRAW(key, ENV.sys) for key in FIVE]
    expected = np.stack([sys.links.mass for sys in each])
    np.testing.assert_array_equal(robots.sys.links.mass, expected)


def test_shared_parameters_have_no_batch_axis():
    robots, axes = randomize.batched_env(ENV, DRAW, FIVE)
    drawn = {"links.mass", "links.inertia", "joints.damping"}
    leaves = jax.tree_util.tree_leaves_with_path(ENV.sys)
    pairs = zip(leaves, jax.tree_util.tree_leaves(robots.sys), strict=True)
    batched = {jax.tree_util.keystr(p)[1:] for (p, x), y in pairs if x.shape != y.shape}
    assert batched == drawn
    found = jax.tree_util.tree_leaves_with_path(axes)
    assert {jax.tree_util.keystr(p)[5:] for p, axis in found if axis == 0} == drawn


def test_rollout_equals_rollouts_of_each_robot():
    robots, axes = randomize.batched_env(ENV, DRAW, FIVE)
    seen = eqsim.rollout(robots, POLICY, FIVE, 10, env_axes=axes)
    one = eqx.tree_at(lambda env: env.sys, ENV, DRAW(FIVE[3], ENV.sys))
    alone = eqsim.rollout(one, POLICY, FIVE[3], 10)
    np.testing.assert_allclose(seen.obs[3], alone.obs, rtol=1e-10, atol=1e-12)


def test_gradients_pass_through_the_draw():
    def mass(low):
        robots, _ = randomize.batched_env(ENV, randomize.masses(low, 2.0), FIVE)
        return jnp.sum(robots.sys.links.mass)

    low, h = jnp.array(0.5), 1e-4
    central = (mass(low + h) - mass(low - h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(mass)(low), central, rtol=1e-6)


def test_batches_are_refused():
    with pytest.raises(ValueError, match="returns the robot unchanged"):
        randomize.batched_env(ENV, lambda key, sys: sys, FIVE)
    with pytest.raises(ValueError, match="a different structure"):
        randomize.batched_env(ENV, lambda key, sys: rails(2), FIVE)


CLASSIC = [name for name in eqsim.ENVS.names() if not name.endswith(("_uni", "_omni"))]


@pytest.mark.parametrize("name", [*CLASSIC, "my_own"])
@pytest.mark.quick_cases("ant", "inverted_pendulum", "reacher")
def test_presets(name):
    """Every draw of every preset is a robot whose numbers make sense."""
    sys = eqsim.make("ant" if name == "my_own" else name).sys
    found = randomize.presets(name)
    assert {"default", "hard", "masses", "motors"} <= set(found)
    for change in found.values():
        for seed in range(3):
            new = validate(change(jr.key(seed), sys))
            leaves = zip(jax.tree.leaves(new), jax.tree.leaves(sys), strict=True)
            assert any(not np.array_equal(a, b) for a, b in leaves)


ACTUATORS = {
    "motor": '<motor joint="j" gear="2"/>',
    "position": '<position joint="j" kp="5" kv="2" gear="2"/>',
    "limited": '<position joint="j" kp="50" kv="2" forcerange="-.5 .5"/>',
    "pid": '<pid joint="j" kp="5" ki="2" kv="2"/>',
    "muscle": '<muscle joint="j" lengthrange="-1 1" force="3"/>',
    "orientation": '<orientation joint="j" kp="2" kv="1"/>',
    "plugin": '<plugin joint="j" plugin="mujoco.pid" actdim="1"><config key="kp" value="5"/>'
    '<config key="ki" value="2"/><config key="kd" value="1"/></plugin>',
}


@pytest.mark.parametrize("kind", ACTUATORS)
@pytest.mark.quick_cases("position", "limited", "orientation")
def test_strength_of_actuators(kind):
    """All forces of an actuator are scaled by one factor, and nothing else changes."""
    ball = 'type="ball"' if kind == "orientation" else 'axis="0 1 0"'
    sys = eqsim.load_mjcf(f"""
<mujoco><extension><plugin plugin="mujoco.pid"/></extension>
<option gravity="0 0 0"/><worldbody><body><joint name="j" {ball}/>
  <geom size=".1" pos=".1 0 0"/></body></worldbody>
  <actuator>{ACTUATORS[kind]}</actuator></mujoco>""")
    change = randomize.presets("of_another_package")["motors"]
    assert isinstance(change, type(randomize.motors(0.6, 1.4)))
    new = change(jr.key(0), sys)
    where = {"muscle": lambda x: x.muscles.force, "pid": lambda x: x.pids.integral_gain}
    where["plugin"] = lambda x: x.discrete_pids.proportional
    ratio = jax.tree.map(jnp.divide, new.actuators, sys.actuators)
    factor = float(jnp.ravel(where.get(kind, lambda x: x.gain)(ratio))[0])
    assert 0.6 <= factor <= 1.4 and abs(factor - 1.0) > 1e-3
    pipeline = eqsim.Generalized()

    def force(sys):
        start = pipeline.init(sys, qd=jnp.full((sys.nv,), 0.1))
        act = jnp.full((sys.na,), 0.2)
        start = eqx.tree_at(lambda s: s.act, start, act)
        return pipeline.solve(sys, start, jnp.full((sys.nu,), 0.4)).actuator_force

    wanted = factor * np.asarray(force(sys))
    assert np.any(np.abs(wanted) > 1e-3)
    np.testing.assert_allclose(force(new), wanted, rtol=1e-5)


def test_bounds_of_strength():
    with pytest.raises(ValueError, match="`low` must not exceed `high`.*actuators"):
        randomize.motors(2.0, 1.0)(jr.key(0), eqsim.make("ant").sys)


def test_presets_that_scale_gears():
    """A gear would move the setpoint of a servo, and those robots have none."""
    strength = type(randomize.motors(0.6, 1.4))
    geared = [
        name
        for name in CLASSIC
        if not isinstance(randomize.presets(name)["motors"], strength)
    ]
    assert {"ant", "humanoid", "walker2d"} <= set(geared)
    for name in geared:
        assert not np.any(eqsim.make(name).sys.actuators.bias), name


def test_friction_of_explicit_pairs():
    """It holds instead of that of shapes, so the presets and the viewer change both."""
    sys = eqsim.load_mjcf("""
<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
  <body><freejoint/><geom name="foot" size=".1" friction=".8"/></body></worldbody>
  <contact><pair geom1="foot" geom2="floor" friction=".5 .4 .1 .1 .1"/></contact></mujoco>""")
    halved = default_sliders(sys)["friction ×"].apply(sys, jnp.asarray(0.5))
    for new in (randomize.presets("ant")["friction"](jr.key(0), sys), halved):
        shapes = new.geoms.friction / sys.geoms.friction
        factors = np.append(new.pairs.friction / sys.pairs.friction, shapes)
        np.testing.assert_allclose(factors, factors[0])
        assert abs(factors[0] - 1.0) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIC)
def test_presets_are_felt(name):
    """A preset of one thing changes how the robot moves."""
    env, key = eqsim.make(name), jr.key(0)
    actions = jr.uniform(jr.key(1), (120, env.sys.nu), minval=-1.0)

    @eqx.filter_jit
    def motion(sys):
        start = env.pipeline.init(sys, env.initial(key).q)
        step = lambda now, u: (env.pipeline.step(sys, now, u), None)
        return lax.scan(step, start, actions)[0].qd

    usual = motion(env.sys)
    for preset, change in randomize.presets(name).items():
        # In so few steps the arm of the pusher does not reach what it is to push.
        if (name, preset) != ("pusher", "friction"):
            new = motion(change(jr.key(2), env.sys))
            assert jnp.max(jnp.abs(new - usual)) > 1e-6, preset
