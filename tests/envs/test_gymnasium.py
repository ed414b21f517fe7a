"""Beside Gymnasium's environments: starts, observations, rewards, termination.

Gymnasium's classes run with a converged solver, and their forces and places are those of
the state that they are in: see `_gymnasium.refreshed`.
"""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from parity.gymnasium_envs import draw_action, IDS, refreshed, shipped, term_of
from parity.reference import quick_compile

import eqsim


# Every option that is a number, and none at its default.
NUMBERS = {
    "ant": dict(
        forward_reward_weight=2.0,
        ctrl_cost_weight=0.3,
        contact_cost_weight=1e-2,
        healthy_reward=3.0,
        healthy_z_range=(0.4, 0.8),
        contact_force_range=(0.1, 5.0),
    ),
    "half_cheetah": dict(forward_reward_weight=2.0, ctrl_cost_weight=0.3),
    "hopper": dict(
        forward_reward_weight=2.0,
        ctrl_cost_weight=0.3,
        healthy_reward=3.0,
        healthy_state_range=(-1.0, 1.0),
        healthy_z_range=(0.9, 1.3),
        healthy_angle_range=(-0.5, 0.3),
    ),
    "humanoid": dict(
        forward_reward_weight=2.0,
        ctrl_cost_weight=0.3,
        contact_cost_weight=1e-6,
        contact_cost_range=(0.1, 1.0),
        healthy_reward=3.0,
        healthy_z_range=(1.2, 1.6),
    ),
    # Gymnasium does not use `uph_cost_weight`.
    "humanoidstandup": dict(
        ctrl_cost_weight=0.3, impact_cost_weight=1e-6, impact_cost_range=(0.1, 1.0)
    ),
    "inverted_double_pendulum": dict(healthy_reward=3.0),
    "inverted_pendulum": {},
    "pusher": dict(
        reward_near_weight=2.0, reward_dist_weight=0.3, reward_control_weight=0.4
    ),
    "reacher": dict(reward_dist_weight=0.3, reward_control_weight=0.4),
    "swimmer": dict(forward_reward_weight=2.0, ctrl_cost_weight=0.3),
    "walker2d": dict(
        forward_reward_weight=2.0,
        ctrl_cost_weight=0.3,
        healthy_reward=3.0,
        healthy_z_range=(1.1, 1.4),
        healthy_angle_range=(-0.5, 0.3),
    ),
}
POSITIONS = "exclude_current_positions_from_observation"
CONTACTS = "include_cfrc_ext_in_observation"
BODIES = [f"include_{k}_in_observation" for k in ("cinert", "cvel", "qfrc_actuator")]
ENDS = "terminate_when_unhealthy"
# Options that are not numbers; contacts are seen in `test_step`.
FLAGS = {
    "ant": [(POSITIONS, CONTACTS), (CONTACTS, ENDS)],
    "half_cheetah": [(POSITIONS,)],
    "hopper": [(POSITIONS,), (ENDS,)],
    "humanoid": [(CONTACTS, ENDS), *((CONTACTS, k) for k in (POSITIONS, *BODIES))],
    "humanoidstandup": [(CONTACTS,), *((CONTACTS, k) for k in (POSITIONS, *BODIES))],
    "swimmer": [(POSITIONS,)],
    "walker2d": [(POSITIONS,), (ENDS,)],
}


def batched(fn, axes):
    """One compiled program for all numbers of an environment."""
    options = {"compiler_options": quick_compile()}
    return jax.jit(jax.vmap(fn, in_axes=(None, *axes)), **options)


BEGIN = batched(lambda env, q, qd: env.begin(env.pipeline.init(env.sys, q, qd)), (0, 0))
STEP = batched(lambda env, state, action: env.step(state, action), (0, 0))
SEEN = batched(
    lambda env, state: (
        env.observe(state, jnp.zeros(env.sys.nu)),
        env.terminated(state),
    ),
    (0,),
)


def close(ours, theirs, tolerance=1e-9):
    np.testing.assert_allclose(ours, theirs, tolerance, tolerance)


@ft.lru_cache
def starts(name, count=8):
    """States that the environment may be in, some that end the task, and actions."""
    theirs, rng = refreshed(name), np.random.default_rng(0)
    theirs.reset(seed=0)
    # Far enough for the task to end in some.
    spread, rows = 0.8 if name == "inverted_double_pendulum" else 0.3, []
    for k in range(count):
        theirs.reset_model()
        q, qd = theirs.data.qpos.copy(), theirs.data.qvel.copy()
        scale = (0.1, 1.0)[k % 2]
        q += spread * scale * rng.normal(size=q.shape)
        qd += scale * rng.normal(size=qd.shape)
        if theirs.model.nq > theirs.model.nv:
            q[3:7] /= np.linalg.norm(q[3:7])
        rows.append((q, qd, draw_action(theirs, rng).astype(float)))
    theirs.close()
    return tuple(jnp.asarray(np.stack(x)) for x in zip(*rows))


@pytest.mark.parametrize("name", IDS)
@pytest.mark.quick_cases("hopper")
def test_step(name):
    """Observation of the start; observation, reward, each of its terms and termination
    of a step, with all options that are numbers at their defaults, and at others."""
    (q, qd, actions), ended, terms = starts(name), [], set()
    for options in [{}, NUMBERS[name]] if NUMBERS[name] else [{}]:
        ours, theirs = eqsim.make(name, **options), refreshed(name, **options)
        assert float(ours.dt) == pytest.approx(theirs.dt)
        state, first = BEGIN(ours, q, qd)
        new, timestep = STEP(ours, state, actions)
        for k in range(len(q)):
            theirs.set_state(np.asarray(q[k]), np.asarray(qd[k]))
            close(first.obs[k], theirs._get_obs())
            obs, reward, terminated, _, info = theirs.step(np.asarray(actions[k]))
            close(new.q[k], theirs.data.qpos)
            close(new.qd[k], theirs.data.qvel)
            close(timestep.obs[k], obs)
            close(timestep.reward[k], reward)
            assert bool(timestep.terminated[k]) == bool(terminated)
            assert not timestep.truncated[k]
            for term, value in timestep.terms.items():
                key = term_of(name, term)
                close(value[k], 1.0 if key is None else info[key])
            close(timestep.reward[k], sum(x[k] for x in timestep.terms.values()))
            ended.append(terminated)
        terms |= set(timestep.terms)
        theirs.close()
    assert "healthy" not in terms or (any(ended) and not all(ended))


@pytest.mark.parametrize("name", IDS)
@pytest.mark.quick_cases("reacher", "swimmer")
def test_trajectory(name):
    """Both on their own for some steps, from the same starts."""
    q, qd, _ = starts(name)
    ours, theirs = eqsim.make(name), refreshed(name)
    steps, rng = 5, np.random.default_rng(1)
    actions = [[draw_action(theirs, rng) for _ in q] for _ in range(steps)]
    actions = np.asarray(actions, float)
    (state, _), reports = BEGIN(ours, q, qd), []
    for action in actions:
        state, timestep = STEP(ours, state, jnp.asarray(action))
        reports.append(timestep)
    for k in range(0, len(q), 2):
        theirs.set_state(np.asarray(q[k]), np.asarray(qd[k]))
        for action, timestep in zip(actions, reports, strict=True):
            obs, reward, *_ = theirs.step(action[k])
            close(timestep.obs[k], obs, 1e-6)
            close(timestep.reward[k], reward, 1e-6)
    theirs.close()


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.quick_cases("hopper", "swimmer")
def test_flags(name):
    q, qd, _ = starts(name)
    for flags in FLAGS[name]:
        options = {flag: False for flag in flags}
        ours, theirs = eqsim.make(name, **options), refreshed(name, **options)
        state = jax.vmap(lambda q, qd: ours.pipeline.init(ours.sys, q, qd))(q, qd)
        obs, terminated = SEEN(ours, state)
        assert obs.shape[1:] == theirs.observation_space.shape
        for k in range(len(q)):
            theirs.set_state(np.asarray(q[k]), np.asarray(qd[k]))
            close(obs[k], theirs._get_obs())
        if ENDS in flags:
            assert not np.any(terminated)
        theirs.close()


def test_main_body():
    """By name and by number."""
    q, qd, actions = starts("ant")
    for body in (5, "front_right_leg"):
        ours, theirs = (make("ant", main_body=body) for make in (eqsim.make, refreshed))
        state, new = (ours.pipeline.init(ours.sys, x, v) for x, v in zip(q[:2], qd[:2]))
        forward = jax.jit(lambda *args: ours.rewards(*args)["forward"])
        speed = forward(state, actions[0], new)
        places = []
        for k in range(2):
            theirs.set_state(np.asarray(q[k]), np.asarray(qd[k]))
            places.append(theirs.data.body(body).xpos[0])
        close(speed, (places[1] - places[0]) / theirs.dt)
        theirs.close()
    with pytest.raises(ValueError, match="no body 'torzo'.*torso"):
        eqsim.make("ant", main_body="torzo")


@pytest.mark.parametrize("name", IDS)
@pytest.mark.quick_cases("reacher", "pusher", "hopper")
def test_starts_are_drawn_alike(name):
    """The distribution of each coordinate and velocity, by Kolmogorov and Smirnov."""
    theirs, ours = shipped(name), eqsim.make(name)
    theirs.reset(seed=0)
    drawn = []
    for _ in range(400):
        theirs.reset_model()
        drawn.append(np.concatenate([theirs.data.qpos, theirs.data.qvel]))
    theirs.close()
    state = jax.jit(jax.vmap(lambda key: ours.initial(key)))(jr.split(jr.key(0), 1600))
    mine = np.concatenate([state.q, state.qd], axis=1)
    for a, b in zip(mine.T, np.stack(drawn).T, strict=True):
        values = np.sort(np.concatenate([a, b]))
        share = lambda x: np.searchsorted(np.sort(x), values + 1e-12) / len(x)
        assert np.max(np.abs(share(a) - share(b))) < 0.12
