"""Infos of version 5 of Gymnasium's MuJoCo environments, and the laws that
Gymnasium's own tests state for them."""

import functools

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from eqsim_gymnasium import EqsimEnv, EqsimVectorEnv
from gymnasium.utils.env_checker import check_env

import eqsim


CLASSIC = {
    "ant": "Ant",
    "half_cheetah": "HalfCheetah",
    "hopper": "Hopper",
    "humanoid": "Humanoid",
    "humanoidstandup": "HumanoidStandup",
    "inverted_double_pendulum": "InvertedDoublePendulum",
    "inverted_pendulum": "InvertedPendulum",
    "pusher": "Pusher",
    "reacher": "Reacher",
    "swimmer": "Swimmer",
    "walker2d": "Walker2d",
}
QUICK = "inverted_pendulum", "swimmer"
IN_PLANE = "ant", "humanoid", "swimmer"
UPRIGHT = "hopper", "humanoidstandup", "walker2d"
LOCOMOTION = *IN_PLANE, *UPRIGHT, "half_cheetah"
HEALTHY = "ant", "hopper", "humanoid", "walker2d", "inverted_double_pendulum"
HEALTHY = *HEALTHY, "inverted_pendulum"
OBJECTS = {
    "ant": (15, 14, 8, 14, 9, 14, 0),
    "half_cheetah": (9, 9, 6, 8, 9, 9, 0),
    "hopper": (6, 6, 3, 5, 6, 5, 0),
    "humanoid": (24, 23, 17, 14, 18, 18, 2),
    "humanoidstandup": (24, 23, 17, 14, 18, 18, 2),
    "inverted_double_pendulum": (3, 3, 1, 4, 3, 5, 0),
    "inverted_pendulum": (2, 2, 1, 3, 2, 3, 0),
    "pusher": (11, 11, 7, 13, 11, 20, 0),
    "reacher": (4, 4, 2, 5, 4, 10, 0),
    "swimmer": (5, 5, 2, 4, 5, 4, 0),
    "walker2d": (9, 9, 6, 8, 9, 8, 0),
}
"""Sizes in Gymnasium's tests: nq, nv, nu, nbody, njnt, ngeom, ntendon."""


def _each(names):
    """A case per environment; those that take long to compile are slow."""
    slow = pytest.mark.slow
    cases = [n if n in QUICK else pytest.param(n, marks=slow) for n in names]
    return pytest.mark.parametrize("name", cases)


@functools.cache
def _env(name):
    """One environment for all tests; where Gymnasium can, it observes its position."""
    place = {"exclude_current_positions_from_observation": False}
    return EqsimEnv(name, **(place if name in LOCOMOTION else {}))


def _actions(env, steps, seed=0):
    low, high = env.action_space.low, env.action_space.high
    drawn = np.random.default_rng(seed).uniform(low, high, (steps, *low.shape))
    # Gymnasium rounds actions to single precision.
    return drawn.astype(np.float32).astype(np.float64)


def _step(name, seed=0):
    """State before a step, observation and info after it, and the state then."""
    env = _env(name)
    env.reset(seed=seed)
    before = env.state
    obs, *_, info = env.step(_actions(env, 1)[0])
    return before, obs, info, env.state


def _gymnasium(name):
    """Gymnasium's environment with a converged solver, whose infos are those of the
    state after a step; as shipped, some lag behind by one stage of the integrator."""
    env = gymnasium.make(f"{CLASSIC[name]}-v5").unwrapped
    option = env.model.opt
    option.solver, option.tolerance = mujoco.mjtSolver.mjSOL_NEWTON, 0.0
    option.iterations = option.ls_iterations = 100
    simulate = env._step_mujoco_simulation

    def simulate_and_refresh(ctrl, n_frames):
        simulate(ctrl, n_frames)
        mujoco.mj_forward(env.model, env.data)
        mujoco.mj_rnePostConstraint(env.model, env.data)

    env._step_mujoco_simulation = simulate_and_refresh
    return env


def _assert_same_infos(expected, found):
    assert set(expected) == set(found)
    for key, value in expected.items():
        scale = np.maximum(1.0, np.abs(value))
        assert np.shape(found[key]) == np.shape(value), key
        assert np.all(np.abs(found[key] - value) < 1e-6 * scale), key


@_each(CLASSIC)
def test_infos_are_those_of_gymnasium(name):
    theirs, ours = _gymnasium(name), _env(name)
    _, expected = theirs.reset(seed=3)
    start = {"q": theirs.data.qpos.copy(), "qd": theirs.data.qvel.copy()}
    _assert_same_infos(expected, ours.reset(options=start)[1])
    for action in _actions(ours, 8):
        expected, found = theirs.step(action), ours.step(action)
        _assert_same_infos(expected[4], found[4])
        assert abs(expected[1] - found[1]) < 1e-6 * max(1.0, abs(expected[1]))


def test_infos_of_many_are_those_of_single_ones():
    """Also in the step after an episode, which only resets."""
    name, number, limit = "swimmer", 3, 2
    single = lambda: gymnasium.wrappers.TimeLimit(EqsimEnv(name), limit)
    expected = gymnasium.vector.SyncVectorEnv([single] * number)
    found = EqsimVectorEnv(name, number, max_episode_steps=limit)
    infos = expected.reset(seed=1)[1], found.reset(seed=1)[1]
    keys = []
    for actions in _actions(expected, 4):
        keys.append(set(infos[0]))
        assert set(infos[0]) == set(infos[1])
        for key, value in infos[0].items():
            np.testing.assert_allclose(infos[1][key], value, atol=1e-9, err_msg=key)
        infos = expected.step(actions)[4], found.step(actions)[4]
    assert keys[0] == keys[3] and "x_velocity" not in keys[0]
    assert "x_velocity" in keys[1] and keys[0] < keys[1] == keys[2]


def test_velocity_with_repeated_actions():
    """The mean velocity of the whole step, in which the wrapper repeats the action."""
    env = EqsimEnv(eqsim.ActionRepeat(eqsim.make("swimmer"), 3))
    env.reset(seed=0)
    before = env.state.q[:2]
    info = env.step(np.ones(2))[4]
    velocity = (env.state.q[:2] - before) / (3 * env.eqsim_env.env.dt)
    np.testing.assert_allclose(info["x_velocity"], velocity[0], rtol=1e-9)
    np.testing.assert_allclose(info["y_velocity"], velocity[1], rtol=1e-9)


@_each(LOCOMOTION)
def test_position_is_observed(name):
    """Gymnasium: `test_verify_info_x_position`, `test_verify_info_y_position`,
    `test_reset_info`."""
    obs, info = _env(name).reset(seed=2)
    assert obs[0] == info["x_position"]
    _, obs, info, _ = _step(name)
    assert obs[0] == info["x_position"]
    if "y_position" in info:
        assert obs[1] == info["y_position"]
    assert ("y_position" in info) is (name in (*IN_PLANE, "humanoidstandup"))


@_each([name for name in LOCOMOTION if name != "humanoidstandup"])
def test_velocity_is_the_change_of_position(name):
    """Gymnasium: `test_verify_info_x_velocity`, `test_verify_info_y_velocity`,
    `test_verify_info_xy_velocity_xpos`, `test_verify_info_xy_velocity_com`."""
    before, _, info, after = _step(name)
    env, sys = _env(name).eqsim_env, _env(name).eqsim_env.sys
    center = lambda q: eqsim.kinematics.center_of_mass(sys, q)
    point = center if name == "humanoid" else lambda q: q
    change = np.asarray(point(after.q) - point(before.q)) / float(env.dt)
    np.testing.assert_allclose(info["x_velocity"], change[0], rtol=1e-9)
    if name in IN_PLANE:
        np.testing.assert_allclose(info["y_velocity"], change[1], rtol=1e-9)
    else:
        assert "y_velocity" not in info


@_each(("ant",))
def test_torso_is_at_the_coordinates(name):
    """Gymnasium: `test_ant_com`, `test_verify_info_xy_velocity_xpos`."""
    before, *_, after = _step(name)
    sys = _env(name).eqsim_env.sys
    for state in (before, after):
        place = eqsim.kinematics.forward(sys, state.q).pos[sys.link("torso").index]
        assert np.array_equal(place[:2], state.q[:2])


@_each(HEALTHY)
def test_survival_is_rewarded_until_the_end(name):
    """Gymnasium: `test_verify_reward_survive`."""
    env = EqsimEnv(name, reset_noise_scale=0.0)
    env.reset(seed=0)
    for action in _actions(env, 80, seed=2):
        *_, terminated, _, info = env.step(action)
        assert (info["reward_survive"] == 0) is terminated
        if terminated:
            return
    raise AssertionError("the episode did not end, so its end was not tested")


@_each(CLASSIC)
def test_reward_is_the_sum_of_its_terms(name):
    """Gymnasium: `test_reward_sum`."""
    env = _env(name)
    env.reset(seed=1)
    # Gymnasium reports no key for the constant of this one.
    constant = 1.0 if name == "humanoidstandup" else 0.0
    for action in _actions(env, 20):
        _, reward, *_, info = env.step(action)
        terms = [x for k, x in info.items() if k.startswith("reward_") or "penal" in k]
        np.testing.assert_allclose(reward, sum(terms) + constant, rtol=1e-12)


@_each(IN_PLANE)
def test_distance_from_origin(name):
    """Gymnasium: `test_distance_from_origin_info`."""
    _, _, info, after = _step(name)
    origin = np.asarray(_env(name).eqsim_env.sys.joints.ref[:2])
    distance = np.linalg.norm(np.asarray(after.q[:2]) - origin)
    np.testing.assert_allclose(info["distance_from_origin"], distance, rtol=1e-12)


@_each(UPRIGHT)
def test_height_over_the_origin(name):
    """Gymnasium: `test_z_distance_from_origin_info`."""
    _, _, info, after = _step(name)
    index = 2 if name == "humanoidstandup" else 1
    height = after.q[index] - _env(name).eqsim_env.sys.joints.ref[index]
    np.testing.assert_allclose(info["z_distance_from_origin"], height, rtol=1e-12)


@_each([name for name in CLASSIC if name not in ("pusher", "reacher")])
def test_start_without_noise_is_the_reference(name):
    """Gymnasium: `test_reset_noise_scale`, `test_set_state`,
    `test_inverted_double_pendulum_max_height`,
    `test_inverted_double_pendulum_max_height_old`."""
    env = EqsimEnv(name, reset_noise_scale=0.0)
    env.reset(seed=0)
    ref = env.eqsim_env.sys.joints.ref
    assert np.all(env.state.q == ref) and np.all(env.state.qd == 0)
    if name == "inverted_double_pendulum":
        pose = eqsim.kinematics.forward(env.eqsim_env.sys, ref)
        upper = env.eqsim_env.sys.link("pole2").index
        top = pose.pos[upper, 2] + env.eqsim_env.pole_length
        np.testing.assert_allclose(top, 1.2, rtol=1e-12)
    q, qd = np.asarray(ref) + 0.01, np.linspace(-0.1, 0.1, env.state.qd.size)
    q = np.asarray(ref) if name in ("ant", "humanoid", "humanoidstandup") else q
    env.reset(options={"q": q, "qd": qd})
    assert np.all(env.state.q == q) and np.all(env.state.qd == qd)


@_each(CLASSIC)
def test_reset_state(name):
    """Gymnasium: `test_reset_state`: a seed determines the state, whatever was before."""
    env = _env(name)
    states = []
    for _ in range(2):
        env.reset(seed=123)
        states.append(np.concatenate([env.state.q, env.state.qd]))
        env.step(_actions(env, 1)[0])
    assert np.array_equal(*states)


@pytest.mark.parametrize("name", CLASSIC)
def test_objects_of_the_model(name):
    """Gymnasium: `test_model_object_count`."""
    sys = eqsim.make(name).sys
    links, joints = len(sys.links.names), len(sys.joints.names)
    sizes = sys.nq, sys.nv, sys.nu, links + 1, joints, len(sys.geoms.names)
    assert (*sizes, sys.ntendon) == OBJECTS[name]


def _parts(name):
    """Sizes of the parts of an observation, from the sizes of the model."""
    nq, nv, _, nbody, *_, ntendon = OBJECTS[name]
    links = nbody - 1
    parts = {"cinert": 10 * links, "cvel": 6 * links, "cfrc_ext": 6 * links}
    parts |= {"qfrc_actuator": nv - 6, "ten_length": ntendon, "ten_velocity": ntendon}
    return nq, nv, parts


def _observed(name, **options):
    """Size of an observation. Only shapes: nothing is compiled."""
    env = eqsim.make(name, **options)
    state = env.pipeline.init(env.sys)
    return jax.eval_shape(env.observe, state, jnp.zeros(env.sys.nu)).size


SEEN = "ant", "humanoid", "humanoidstandup"
"""Environments that observe more than positions and velocities; slow to trace."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in SEEN)) for n in LOCOMOTION],
)
def test_observation_structure(name):
    """Gymnasium: `test_observation_structure`."""
    nq, nv, parts = _parts(name)
    found = gymnasium.make(f"{CLASSIC[name]}-v5").unwrapped.observation_structure
    skipped = found.pop("skipped_qpos", 0)
    assert found.pop("qpos") == nq - skipped and found.pop("qvel") == nv
    assert all(size in (0, parts[part]) for part, size in found.items())
    assert _observed(name) == nq - skipped + nv + sum(found.values())
    places = {"exclude_current_positions_from_observation": False}
    assert _observed(name, **places) == _observed(name) + skipped


@_each(SEEN)
def test_model_sensors(name):
    """Gymnasium: `test_model_sensors`."""
    *_, parts = _parts(name)
    seen = "cinert", "cvel", "qfrc_actuator", "cfrc_ext"
    for part in ("cfrc_ext",) if name == "ant" else seen:
        without = _observed(name, **{f"include_{part}_in_observation": False})
        assert _observed(name) - without == parts[part], part
    sys = eqsim.make(name).sys
    q, qd, links = sys.joints.ref, jnp.zeros(sys.nv), len(sys.links.names)
    inertias = jax.eval_shape(eqsim.dynamics.centered_inertias, sys, q)
    velocities = jax.eval_shape(eqsim.dynamics.centered_velocities, sys, q, qd)
    assert inertias.shape == (links, 10) and velocities.shape == (links, 6)


def test_dt():
    """Gymnasium: `test_dt`."""
    many, one = eqsim.make("ant"), eqsim.make("ant", frame_skip=1)
    assert one.dt * 5 == many.dt
    longer = eqx.tree_at(lambda env: env.sys.dt, one, jnp.array(0.05))
    assert longer.dt == many.dt


def _repeats():
    """Numbers of time steps per control step; one is quick, with a small robot."""
    for name in CLASSIC:
        for number in range(1, 6):
            quick = name == "inverted_pendulum" and number == 3
            marks = [] if quick else pytest.mark.slow
            yield pytest.param(name, number, marks=marks)


@pytest.mark.filterwarnings("ignore:.*A Box (action|observation) space m")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend")
@pytest.mark.parametrize("name, number", [*_repeats()])
def test_frame_skip(name, number):
    """Gymnasium: `test_frame_skip`."""
    env = EqsimEnv(name, frame_skip=number)
    check_env(env, skip_render_check=True)
    assert env.eqsim_env.dt == pytest.approx(number * float(env.eqsim_env.sys.dt))
