"""What holds for every environment, and how they are made."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import check_gradients, tree_allclose
from parity.reference import quick_compile

import eqsim
from eqsim import envs


# Class, numbers seen, actions, control time step, terms of the reward.
SIZES = {
    "ant": (envs.Ant, 105, 8, 0.05, "forward healthy ctrl contact"),
    "point_mass": (envs.PointMass, 2, 1, 0.1, "distance ctrl"),
    "half_cheetah": (envs.HalfCheetah, 17, 6, 0.05, "forward ctrl"),
    "hopper": (envs.Hopper, 11, 3, 0.008, "forward healthy ctrl"),
    "humanoid": (envs.Humanoid, 348, 17, 0.015, "forward healthy ctrl contact"),
    "humanoidstandup": (
        *(envs.HumanoidStandup, 348, 17, 0.015),
        "up ctrl impact constant",
    ),
    "inverted_double_pendulum": (
        *(envs.InvertedDoublePendulum, 9, 1, 0.05),
        "healthy distance velocity",
    ),
    "inverted_pendulum": (envs.InvertedPendulum, 4, 1, 0.04, "healthy"),
    "pusher": (envs.Pusher, 23, 7, 0.05, "near distance ctrl"),
    "reacher": (envs.Reacher, 10, 2, 0.02, "distance ctrl"),
    "swimmer": (envs.Swimmer, 8, 2, 0.04, "forward ctrl"),
    "walker2d": (envs.Walker2d, 17, 6, 0.008, "forward healthy ctrl"),
}


def shapes(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.quick_cases("inverted_pendulum", "reacher", "hopper")
def test_shapes(name):
    kind, nobs, nu, dt, terms = SIZES[name]
    env = eqsim.make(name)
    assert type(env) is kind
    # Only shapes: nothing is compiled.
    state, timestep = jax.eval_shape(env.reset, jr.key(0))
    new, stepped = jax.eval_shape(env.step, state, jnp.zeros(nu))
    assert shapes((state, timestep)) == shapes((new, stepped))
    assert timestep.obs.shape == (nobs,) and timestep.obs.dtype == jnp.float64
    assert timestep.reward.shape == () and timestep.reward.dtype == jnp.float64
    assert timestep.terminated.dtype == timestep.truncated.dtype == jnp.bool_
    assert set(timestep.terms) == set(terms.split())
    assert all(x.shape == () for x in timestep.terms.values())
    assert float(env.dt) == pytest.approx(dt)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("pipeline", ("spring", "positional"))
@pytest.mark.quick_cases(
    "positional-reacher",
    "spring-inverted_pendulum",
)
def test_pipelines(name, pipeline):
    """All see the same, and take the same time for a control step."""
    env, exact = eqsim.make(name, pipeline=pipeline), eqsim.make(name)
    state, timestep = jax.eval_shape(env.reset, jr.key(0))
    new, stepped = jax.eval_shape(env.step, state, jnp.zeros(env.sys.nu))
    assert shapes((state, timestep)) == shapes((new, stepped))
    assert timestep.obs.shape == (SIZES[name][1],) and env.dt == exact.dt


# How many numbers a flag adds to an observation; `test_gymnasium.py` has the values.
SEEN = {
    "exclude_current_positions_from_observation": -2,
    "include_cinert_in_observation": 130,
    "include_cvel_in_observation": 78,
    "include_qfrc_actuator_in_observation": 17,
    "include_cfrc_ext_in_observation": 78,
}


@pytest.mark.parametrize(
    "name, flags",
    (
        ("ant", (*SEEN,)[::4]),
        ("humanoid", (*SEEN,)),
        ("humanoidstandup", ("include_cvel_in_observation",)),
    ),
)
def test_flags(name, flags):
    """A flag that is not set leaves out, or shows, its part of the observation."""
    env = eqsim.make(name, **dict.fromkeys(flags, False))
    state = env.pipeline.init(env.sys)
    seen = jax.eval_shape(env.observe, state, jnp.zeros(env.sys.nu))
    assert seen.dtype == jnp.float64
    assert seen.shape == (SIZES[name][1] - sum(SEEN[k] for k in flags),)


@pytest.mark.parametrize("name", ("point_mass", "inverted_pendulum", "half_cheetah"))
@pytest.mark.quick_cases("inverted_pendulum")
def test_reset(name):
    env = eqsim.make(name)
    reset = eqx.filter_jit(env.reset)
    state, timestep = reset(jr.key(1))
    assert tree_allclose((state, timestep), reset(jr.key(1)), rtol=0.0, atol=0.0)
    other, _ = reset(jr.key(2))
    assert np.all(state.q != other.q) and np.all(state.qd != other.qd)
    assert np.max(np.abs(state.q - env.sys.joints.ref)) <= env.reset_noise_scale
    assert timestep.reward == 0 and not timestep.terminated
    assert all(x == 0 for x in timestep.terms.values())
    assert tree_allclose(timestep.obs, env.observe(state, jnp.zeros(env.sys.nu)))
    still, _ = eqsim.make(name, reset_noise_scale=0.0).reset(jr.key(0))
    assert np.array_equal(still.q, env.sys.joints.ref) and np.all(still.qd == 0)


def at(env, **changes):
    """The reference with some coordinates changed."""
    q = env.sys.joints.ref
    for index, value in changes.items():
        q = q.at[int(index[1:])].set(value)
    return env.pipeline.init(env.sys, q)


# Coordinates at which the task goes on, and at which it ends.
ENDS = {
    "ant": ([("q2", 0.21), ("q2", 0.99)], [("q2", 0.19), ("q2", 1.01)]),
    "point_mass": ([("q0", 0.9), ("q0", -0.9)], [("q0", 1.1), ("q0", -1.1)]),
    "hopper": (
        [("q1", 0.71), ("q2", 0.19), ("q3", 99.0)],
        [("q1", 0.69), ("q2", -0.21), ("q3", 101.0)],
    ),
    "humanoid": ([("q2", 1.01), ("q2", 1.99)], [("q2", 0.99), ("q2", 2.01)]),
    "inverted_double_pendulum": ([("q1", 0.58)], [("q1", 0.6), ("q1", -0.6)]),
    "inverted_pendulum": ([("q1", 0.19), ("q1", -0.19)], [("q1", 0.21), ("q1", -0.21)]),
    "walker2d": (
        [("q1", 0.81), ("q1", 1.99), ("q2", 0.99)],
        [("q1", 0.79), ("q1", 2.01), ("q2", -1.01)],
    ),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.quick_cases("ant", "hopper", "inverted_pendulum", "point_mass")
def test_terminated(name):
    env = eqsim.make(name)
    for ended, places in enumerate(ENDS[name]):
        for key, value in places:
            assert bool(env.terminated(at(env, **{key: value}))) is bool(ended)
    if name in ("ant", "hopper", "humanoid", "walker2d"):
        assert bool(env.terminated(at(env, q2=jnp.nan)))
        env = eqsim.make(name, terminate_when_unhealthy=False)
        assert not env.terminated(at(env, q1=9.0, q2=9.0))
    if name in ("ant", "inverted_pendulum"):
        infinite = jnp.full(env.sys.nv, jnp.inf)
        moving = env.pipeline.init(env.sys, env.sys.joints.ref, infinite)
        going_on = name == "ant"
        assert bool(env.terminated(moving)) is not going_on
        assert name != "ant" or bool(eqsim.make(name).terminated(moving))


@pytest.mark.parametrize("name", sorted(set(SIZES) - set(ENDS)))
def test_never_terminated(name):
    env = eqsim.make(name)
    assert not env.terminated(at(env, q0=-50.0, q1=1e3))


def test_up_is_weighted():
    """Which Gymnasium does not do."""
    env = eqsim.make("humanoidstandup", uph_cost_weight=2.0)
    up = jax.jit(lambda *args: env.rewards(*args)["up"])
    state = at(env, q2=0.3)
    assert float(up(state, jnp.zeros(17), state)) == pytest.approx(2.0 * 0.3 / 0.003)


def test_frame_skip_is_steps():
    env = eqsim.make("inverted_pendulum", frame_skip=3)
    state = at(env, q1=0.1)
    action, expected = jnp.array([0.5]), state
    for _ in range(3):
        expected = env.pipeline.step(env.sys, expected, action)
    assert tree_allclose(env.transition(state, action), expected, rtol=1e-12)
    assert float(env.dt) == pytest.approx(0.06)


BALL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="ball" pos="0 0 .3"><freejoint/><geom type="sphere" size=".3" mass="2"/></body>
  </worldbody>
</mujoco>"""


def test_contacts_are_computed_once():
    """Although observation and reward ask for them separately."""

    def loops(seen):
        sys = eqsim.load_mjcf(BALL)
        env = eqsim.make("ant", sys=sys, include_cfrc_ext_in_observation=seen)
        step = lambda state: env.step(state, jnp.zeros(0))
        return jax.jit(step).lower(at(env)).compile().as_text().count(" while(")

    assert loops(True) == loops(False) > 0


@pytest.mark.parametrize("pipeline", ("generalized", "spring", "positional"))
def test_fast_is_known(pipeline):
    """Its step, and the derivative of that, as its docstring says."""
    env = eqsim.make("point_mass", pipeline=pipeline)
    n = 1 if pipeline == "generalized" else env.pipeline.substeps
    h, gain, share = 0.1, 3.0 / 2.0, (n + 1) / (2 * n)
    state = env.pipeline.init(env.sys, jnp.array([0.2]), jnp.array([-0.3]))
    action = jnp.array([0.7])
    new, timestep = eqx.filter_jit(env.step)(state, action)
    speed = -0.3 + h * gain * 0.7
    place = 0.2 - h * 0.3 + share * h * h * gain * 0.7
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    close(timestep.obs, [place, speed])
    close(timestep.reward, -(place**2) - 0.1 * 0.7**2)
    close(new.q, [place])
    A, B, C, D = eqx.filter_jit(eqsim.linearize)(env, state, action)
    close(A, [[1.0, h], [0.0, 1.0]])
    close(B, [[share * h * h * gain], [h * gain]])
    close(C, A)
    close(D, B)
    speed_of = lambda sys: env.pipeline.step(sys, state, action).qd[0]
    slope = jax.jit(jax.grad(speed_of))(env.sys)
    close(slope.links.mass, [-h * 3.0 * 0.7 / 4.0])


@pytest.mark.parametrize(
    "name", ("point_mass", "inverted_double_pendulum", "reacher", "half_cheetah")
)
@pytest.mark.quick_cases("point_mass")
def test_gradients(name):
    """Of observation and reward of a step: by state, action, and the weights."""
    env = eqsim.make(name, frame_skip=1)
    numbers, other = eqx.partition(env, eqx.is_inexact_array)
    keep = jtu.tree_map(lambda _: None, numbers.sys)
    numbers, robot = eqx.tree_at(lambda e: e.sys, numbers, keep), env.sys

    def report(numbers, q, qd, action):
        whole = eqx.tree_at(lambda e: e.sys, eqx.combine(numbers, other), robot)
        state = whole.pipeline.init(robot, q, qd)
        timestep = whole.step(state, action)[1]
        return timestep.obs, timestep.reward, timestep.terms

    rng = np.random.default_rng(0)
    q = env.sys.joints.ref + 0.1 * jnp.asarray(rng.normal(size=env.sys.nq))
    qd, action = (
        0.3 * jnp.asarray(rng.normal(size=n)) for n in (env.sys.nv, env.sys.nu)
    )
    largest = check_gradients(report, numbers, q, qd, action)
    assert largest["[1]"] and largest["[3]"]


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.quick_cases("reacher", "hopper")
def test_gradients_at_rest_are_finite(name):
    """Of observation and rewards, at the reference, by all there is."""
    env = eqsim.make(name)
    state = env.pipeline.init(env.sys)
    if name == "reacher":  # the fingertip on the target, 0.1 m off the second joint
        state = env.pipeline.init(env.sys, jnp.array([0.0, 0.0, 0.21, 0.0]))

    def total(env, state, action):
        terms = env.rewards(state, action, state)
        return sum(terms.values()) + jnp.sum(env.observe(state, action))

    slope = jax.jit(jax.grad(total, (0, 1, 2)), compiler_options=quick_compile())
    for leaf in jax.tree.leaves(slope(env, state, jnp.zeros(env.sys.nu))):
        assert np.all(np.isfinite(leaf))


def test_make():
    pipeline = eqsim.Generalized()
    assert eqsim.make("ant", pipeline=pipeline).pipeline is pipeline
    assert type(eqsim.make("ant", pipeline="generalized").pipeline) is type(pipeline)
    with pytest.raises(TypeError, match="`pipeline=Generalized\\(\\)`|'pipeline'"):
        eqsim.make("ant", pipeline=eqsim.Generalized)  # pyright: ignore
    with pytest.raises(TypeError, match="no option 'frame_skp'.*'frame_skip'"):
        eqsim.make("ant", frame_skp=3)
    with pytest.raises(ValueError, match="inverted_pendulum"):
        eqsim.make("inverted_pendulums")
    with pytest.raises(ValueError, match="generalized"):
        eqsim.make("ant", pipeline="generalised")


def test_precision():
    """Robot and numbers are of the precision that holds when they are made."""
    for flag, dtype in ((False, jnp.float32), (True, jnp.float64)):
        with jax.enable_x64(flag):
            for name in ("half_cheetah", "point_mass"):
                env = eqsim.make(name)
                arrays = jax.tree.leaves(eqx.filter(env, eqx.is_inexact_array))
                assert {x.dtype for x in arrays} == {jnp.dtype(dtype)}


def test_wrong_action():
    env = eqsim.make("inverted_pendulum")
    with pytest.raises(ValueError, match=r"`action`.*\(nu,\) = \(1,\).*\(2,\)"):
        env.step(at(env), jnp.zeros(2))
    # Where types are checked, that comes first.
    with pytest.raises((ValueError, TypeError), match=r"filter_vmap|f64\[5,1\]"):
        env.step(at(env), jnp.zeros((5, 1)))


def test_system_is_a_field():
    """A heavier pole and a longer time step count, without another environment."""
    env = eqsim.make("inverted_pendulum")
    where = lambda e: (e.sys.links.mass, e.sys.dt)
    mass, dt = where(env)
    other = eqx.tree_at(where, env, (2.0 * mass, 0.5 * dt))
    assert float(other.dt) == pytest.approx(0.02)
    step = eqx.filter_jit(lambda env: env.step(at(env, q1=0.1), jnp.array([0.5])))
    assert not np.allclose(step(env)[0].qd, step(other)[0].qd, rtol=1e-3)
    compiled = [step(e) for e in (env, other)]
    direct = [e.step(at(e, q1=0.1), jnp.array([0.5])) for e in (env, other)]
    assert tree_allclose(compiled, direct, rtol=1e-12)


def test_sizes_follow_the_wrappers():
    env = envs.PointMass()
    assert (env.observation_size, env.action_size) == (2, 1)
    stacked = eqsim.TimeLimit(eqsim.StackObservation(env, 3), 10)
    assert stacked.observation_size == 6


def test_sizes_of_other_observations_are_errors():
    class Pair(envs.PointMass):
        def observe(self, state, action):
            return {"q": state.q, "qd": state.qd}

    with pytest.raises(ValueError, match="one array each, but .* parts .'q'., .'qd'."):
        _ = Pair().observation_size


def test_environments_share_no_arrays():
    """Arrays of one may be donated while another one is in use."""
    first, second = eqsim.make("reacher"), eqsim.make("reacher")
    for leaf in jax.tree.leaves(eqx.filter(first.sys, eqx.is_array)):
        leaf.delete()
    assert np.all(np.isfinite(second.sys.links.mass))
    assert np.all(np.isfinite(eqsim.make("reacher").sys.links.mass))
