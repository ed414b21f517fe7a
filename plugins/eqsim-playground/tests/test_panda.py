"""The task of the Panda beside MuJoCo C."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _installed import needs_menagerie
from eqsim_playground import PandaPickCube

import eqsim


pytestmark = needs_menagerie


def close(ours, theirs, tolerance=1e-8):
    np.testing.assert_allclose(ours, theirs, tolerance, tolerance)


def begun(env, q, target, quat, ctrl=None, reached=False):
    """Our state in an episode with a given target."""
    state, _ = env.reset(jr.key(0), {"q": jnp.asarray(q)})
    ctrl = state.ctrl if ctrl is None else jnp.asarray(ctrl)
    where = lambda s: (s.target, s.target_quat, s.ctrl, s.reached)
    new = jnp.asarray(target), jnp.asarray(quat), ctrl, jnp.asarray(reached)
    return eqx.tree_at(where, state, new)


def starts():
    """Home; the gripper around the box; the hand on the floor; the box too far away and
    below the floor."""
    from _panda_reference import PandaReference

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


def test_steps():
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


def test_observation_of_a_reset():
    from _panda_reference import PandaReference

    env, theirs = PandaPickCube(sample_orientation=True), PandaReference()
    state, timestep = env.reset(jr.key(3))
    close(timestep.obs, theirs.place(state.robot.q, state.target, state.target_quat))


def test_first_states():
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


def test_settings_stay_in_range():
    env = PandaPickCube()
    state, _ = env.reset(jr.key(0))
    step = eqx.filter_jit(env.step)
    for _ in range(100):
        state, _ = step(state, jnp.full(8, -1.0))
    close(state.ctrl, env.sys.actuators.ctrl_range[:, 0], 1e-12)


def test_by_name():
    plain = eqsim.make("playground_panda_pick_cube")
    turned = eqsim.make("playground_panda_pick_cube_orientation")
    assert not plain.sample_orientation and turned.sample_orientation
    _, timestep = plain.reset(jr.key(0))
    assert timestep.obs.shape == (66,)
