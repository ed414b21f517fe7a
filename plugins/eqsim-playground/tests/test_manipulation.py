"""The tasks of the LEAP hand and the Panda beside MuJoCo C."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mujoco
import numpy as np
import pytest
from _checks import close, initial, needs_menagerie, needs_models, reset
from _references import LeapReference, PandaReference, REORIENT, ROTATE
from eqsim_playground import LeapReorient, LeapRotateZ, PandaPickCube, ReorientNoise

import eqsim


def tasks(**options):
    """Both without noise."""
    still = ReorientNoise(*(0.0,) * 3)
    return {
        False: LeapRotateZ(joint_noise=0.0, privileged=True, **options),
        True: LeapReorient(noise=still, privileged=True, **options),
    }


def weighed(env):
    """With weights of one in the place of zeros, so that all terms count."""
    ones = lambda x: jnp.where(x == 0.0, 1.0, x)
    return eqx.tree_at(lambda e: e.weights, env, jax.tree.map(ones, env.weights))


@needs_models
@pytest.mark.parametrize(
    "reorient", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_steps(reorient):
    """Observation, terms and end: of a cube on the hand, one that has reached its goal as
    it falls, and one that has fallen."""
    env, theirs = weighed(tasks()[reorient]), LeapReference(reorient)
    step, rng = eqx.filter_jit(env.step), np.random.default_rng(0)
    for name, weight in (REORIENT if reorient else ROTATE).items():
        theirs.weights[name] = weight or 1.0
    reached, falls = 0, 0
    for seed, height in ((0, 0.0), (1, 0.1), (2, -0.12)):
        q, qd = (np.array(x[0]) for x in initial(env, jr.split(jr.key(seed), 1)))
        q[18] += height
        state, _ = reset(
            env, jr.key(seed), {"q": jnp.asarray(q), "qd": jnp.asarray(qd)}
        )
        goal = q[19:] if seed == 1 else np.array([0.5, -0.5, 0.5, 0.5])
        theirs.place(q, qd, goal)
        for k in range(6):
            if reorient:
                fixed = jnp.asarray(goal), jnp.zeros(3)
                where = lambda s: (s.goal, s.goal_rate)
                state = eqx.tree_at(where, state, fixed)
            action = rng.uniform(-1.0, 1.0, 16) * (0.2 if k < 3 else 1.0)
            state, timestep = step(state, jnp.asarray(action))
            obs, terms, fallen = theirs.step(action)
            close(timestep.obs["privileged_state"], obs, 1e-5)
            close(timestep.obs["state"], obs[: len(timestep.obs["state"])], 1e-5)
            assert set(timestep.terms) == set(terms)
            for name, value in terms.items():
                close(timestep.terms[name], value, 1e-5)
            close(timestep.reward, sum(timestep.terms.values()), 1e-12)
            assert bool(timestep.terminated) == fallen
            reached, falls = reached + bool(terms.get("success")), falls + fallen
    assert falls and (reached or not reorient)


@needs_models
@pytest.mark.slow
def test_goal_turns_after_a_success():
    """About its own axes, by twice the control step, slower in each step."""
    env = tasks()[True]
    state, _ = reset(env, jr.key(0))
    start = eqx.tree_at(lambda s: s.goal, state, state.robot.q[19:])
    step = eqx.filter_jit(lambda state: env.step(state, jnp.zeros(16)))
    state, timestep = step(start)
    assert timestep.terms["success"] == 100.0
    rate = np.asarray(state.goal_rate)
    assert np.all((rate >= 1.0) & (rate <= 5.0))
    turn, inverse = np.zeros(4), np.zeros(4)
    mujoco.mju_negQuat(inverse, np.asarray(start.goal))
    mujoco.mju_mulQuat(turn, inverse, np.asarray(state.goal))
    vector = np.zeros(3)
    mujoco.mju_quat2Vel(vector, turn, 2.0 * 0.05)
    close(vector, rate)
    calm, timestep = step(eqx.tree_at(lambda s: s.goal, state, -state.robot.q[19:]))
    assert timestep.terms["success"] == 100.0
    away = jnp.asarray([-state.robot.q[20], *state.robot.q[jnp.array([19, 22, 21])]])
    calm, timestep = step(eqx.tree_at(lambda s: s.goal, state, away))
    assert timestep.terms["success"] == 0.0
    close(calm.goal_rate, 0.8 * rate)


@needs_models
def test_first_states():
    """Angles in the range of the servos, the cube near its place, any orientation."""
    env = tasks()[False]
    q, qd = (np.asarray(x) for x in initial(env, jr.split(jr.key(0), 2000)))
    home = np.asarray(env.sys.keyframe("home").q)
    low, high = np.asarray(env.sys.actuators.ctrl_range).T
    assert np.all((q[:, :16] >= low) & (q[:, :16] <= high)) and not np.any(qd)
    close(np.std(q[:, :16], axis=0), 0.1, 0.1)
    assert np.all(np.abs(q[:, 16:19] - home[16:19]) <= 0.01)
    close(np.sum(q[:, 19:] ** 2, axis=1), 1.0)
    # Uniform orientations: each entry has the mean square 1/4, and the sign is random.
    close(np.mean(q[:, 19:] ** 2, axis=0), 0.25, 0.1)
    assert np.all(np.abs(np.mean(q[:, 19:], axis=0)) < 0.05)


@needs_models
@pytest.mark.slow
def test_noise():
    """Of angles and of the cube, within the scales, and not of what is privileged."""
    env = LeapReorient(privileged=True)
    options = {"xla_backend_optimization_level": 0}
    first = lambda key: env.reset(key)[1].obs["privileged_state"]
    many = jax.jit(jax.vmap(first), compiler_options=options)
    seen = np.asarray(many(jr.split(jr.key(0), 200)))
    off = seen[:, :16] - seen[:, 57:73]
    assert np.max(np.abs(off)) <= 0.05 and np.max(np.abs(off)) > 0.045
    cube = seen[:, 32:35] - seen[:, 101:104]
    assert np.max(np.abs(cube)) <= 0.02 and np.max(np.abs(cube)) > 0.018
    rows = seen[:, 35:41] - seen[:, 104:110]
    assert 0.02 < np.std(rows) < 0.4


@needs_models
def test_history():
    """The latest observation stands first, and older ones move on."""
    env = LeapRotateZ(joint_noise=0.0, history=3)
    state, first = reset(env, jr.key(0))
    assert first.obs.shape == (96,) and not np.any(first.obs[32:])
    step = eqx.filter_jit(env.step)
    state, second = step(state, jnp.full(16, 0.1))
    state, third = step(state, jnp.full(16, 0.2))
    close(third.obs[32:], second.obs[:64], 0.0)
    close(third.obs[16:32], 0.1, 1e-12)
    close(second.obs[16:32], 0.0, 0.0)


def begun(env, q, target, quat, ctrl=None, reached=False):
    """Our state in an episode with a given target."""
    state, _ = reset(env, jr.key(0), {"q": jnp.asarray(q)})
    ctrl = state.ctrl if ctrl is None else jnp.asarray(ctrl)
    where = lambda s: (s.target, s.target_quat, s.ctrl, s.reached)
    new = jnp.asarray(target), jnp.asarray(quat), ctrl, jnp.asarray(reached)
    return eqx.tree_at(where, state, new)


def starts():
    """Home; the gripper around the box; the hand on the floor; the box too far away and
    below the floor."""
    theirs = PandaReference()
    quat = np.array([0.9, 0.1, -0.3, 0.2])
    quat /= np.linalg.norm(quat)
    target = np.array([0.6, 0.1, 0.35])
    home, pickup = theirs.home, theirs.model.keyframe("pickup1")
    grasp = pickup.qpos.copy()
    theirs.place(grasp, target, quat)
    grasp[9:12] = theirs.data.site("gripper").xpos
    grasp[12:] = 1.0, 0.0, 0.0, 0.0
    low = home.qpos.copy()
    low[:7] = 0.0, 1.2, 0.0, -1.4, 0.0, 2.6, -0.7853
    away, under = home.qpos.copy(), home.qpos.copy()
    away[9:12], under[9:12] = (1.001, 0.3, 0.03), (0.5, 0.3, -0.5)
    cases = [(home.qpos, home.ctrl), (grasp, pickup.ctrl), (low, low[:8])]
    cases += [(away, home.ctrl), (under, home.ctrl)]
    return theirs, target, quat, cases


@needs_menagerie
def test_steps_of_the_arm():
    """Observation, terms and end, of all kinds of starts."""
    env = PandaPickCube()
    step, rng = eqx.filter_jit(env.step), np.random.default_rng(0)
    theirs, target, quat, cases = starts()
    reached, collided, lost = 0, 0, 0
    for q, ctrl in cases:
        state = begun(env, q, target, quat, ctrl)
        theirs.place(q, target, quat, ctrl)
        for _ in range(8):
            action = rng.uniform(-1.5, 1.5, 8)
            state, timestep = step(state, jnp.asarray(action))
            obs, terms, end = theirs.step(action)
            close(timestep.obs, obs, 1e-6)
            assert set(timestep.terms) == set(terms)
            for name, value in terms.items():
                close(timestep.terms[name], value, 1e-7)
            close(timestep.reward, sum(terms.values()), 1e-7)
            assert bool(timestep.terminated) == end
            assert bool(state.reached) == theirs.reached
            reached += theirs.reached
            collided += terms["no_floor_collision"] == 0.0
            lost += end
    assert reached and collided and lost


@needs_menagerie
def test_observation_of_a_reset_of_the_arm():
    env, theirs = PandaPickCube(sample_orientation=True), PandaReference()
    state, timestep = reset(env, jr.key(3))
    close(timestep.obs, theirs.place(state.robot.q, state.target, state.target_quat))


@needs_menagerie
def test_first_states_of_the_arm():
    """The ranges of box and target, and of the angle of the target."""
    env = PandaPickCube(sample_orientation=True)
    options = {"xla_backend_optimization_level": 0}
    reset = jax.jit(jax.vmap(lambda k: env.reset(k)[0]), compiler_options=options)
    state = jax.tree.map(np.asarray, reset(jr.split(jr.key(0), 300)))
    box = state.robot.q[:, 9:12] - np.array([0.7, 0.0, 0.03])
    assert np.all(np.abs(box[:, :2]) <= 0.2) and np.max(np.abs(box)) > 0.19
    close(box[:, 2], 0.0, 1e-12)
    target = state.target - np.array([0.7, 0.0, 0.03])
    assert np.all(np.abs(target[:, :2]) <= 0.2)
    assert np.all((target[:, 2] >= 0.2) & (target[:, 2] <= 0.4))
    assert abs(np.corrcoef(box[:, 0], target[:, 0])[0, 1]) < 0.2
    angle = 2.0 * np.arccos(state.target_quat[:, 0])
    assert np.all(angle <= np.pi / 4 + 1e-9) and np.max(angle) > 0.75
    close(np.sum(state.target_quat**2, axis=1), 1.0)
    assert not np.any(state.robot.qd) and not np.any(state.reached)


@needs_menagerie
def test_settings_stay_in_range_of_the_arm():
    env = PandaPickCube()
    state, _ = reset(env, jr.key(0))
    step = eqx.filter_jit(env.step)
    for _ in range(100):
        state, _ = step(state, jnp.full(8, -1.0))
    close(state.ctrl, env.sys.actuators.ctrl_range[:, 0], 1e-12)


@needs_menagerie
def test_by_name_of_the_arm():
    plain = eqsim.make("playground_panda_pick_cube")
    turned = eqsim.make("playground_panda_pick_cube_orientation")
    assert not plain.sample_orientation and turned.sample_orientation
    _, timestep = reset(plain, jr.key(0))
    assert timestep.obs.shape == (66,)
