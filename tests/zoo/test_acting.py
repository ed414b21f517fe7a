"""Actions for batches of observations, of every agent, beside one observation at a time."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from zoo.agents import AGENTS, init
from zoo.skills import diayn

import eqsim_zoo as zoo
from eqsim import AbstractAgent
from eqsim.testing import probes
from eqsim.wrappers import OneHotSkills, Skills
from eqsim_zoo import blocks, vision
from eqsim_zoo.runs.offline import OfflineState


ENV = blocks.training_env(probes.point_mass(), 5, 0, jr.key(0))
BOUNDS = jnp.tile(jnp.array([[-1.0, 1.0]]), (2, 1))
SMALL = {"hidden": (5,)}
ENCODER = vision.SmallCNN(widths=(2,), kernels=(4,), strides=(4,), outputs=4)
OFFLINE = {
    "bc": zoo.BC(**SMALL),
    "awac": zoo.AWAC(**SMALL, normalize_observations=True),
    "discrete_cql": zoo.DiscreteCQL(levels=3, **SMALL),
    "td3_bc": zoo.TD3BC(**SMALL),
}


def check(agent, state, draw, batch=(3, 2)):
    """Actions of a batch are those of its rows, with a key those of the keys of rows."""
    rows = [draw(key) for key in jr.split(jr.key(1), 6)]
    many = jtu.tree_map(lambda *x: jnp.stack(x).reshape(*batch, *x[0].shape), *rows)
    found, drawn, none = _together(agent, state, many)
    alone, each = _alone(agent, state, rows)
    size = batch[0], batch[1], -1
    np.testing.assert_allclose(found, alone.reshape(size), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(drawn, each.reshape(size), rtol=1e-9, atol=1e-12)
    assert none.shape == (0, batch[1], 2)


@eqx.filter_jit
def _together(agent, state, many):
    drawn = agent.act(state, many, key=jr.key(2))
    none = jtu.tree_map(lambda x: x[:0], many)
    return agent.act(state, many), drawn, agent.act(state, none)


@eqx.filter_jit
def _one(agent, state, row, key):
    return agent.act(state, row), agent.act(state, row, key=key)


def _alone(agent, state, rows):
    keys = jr.split(jr.key(2), len(rows))
    found = [_one(agent, state, row, key) for row, key in zip(rows, keys)]
    return map(jnp.stack, zip(*found))


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
@pytest.mark.quick_cases("recurrent_ppo", "sac", "es")
def test_online(agent):
    state = init(agent, jr.key(0), ENV)
    check(agent, state, lambda key: jr.normal(key, (ENV.observation_size,)))


@pytest.mark.parametrize("agent", OFFLINE.values(), ids=OFFLINE)
@pytest.mark.quick_cases("awac", "discrete_cql")
def test_offline(agent):
    state = agent.create(jr.key(0), jnp.zeros(4), BOUNDS)
    check(agent, state, lambda key: jr.normal(key, (4,)))
    held = zoo.Offline(agent)
    check(held, OfflineState(state, jr.key(0)), lambda key: jr.normal(key, (4,)))


def test_skills():
    env = Skills(probes.point_mass(), OneHotSkills(3))
    state = init(diayn(), jr.key(0), blocks.training_env(env, 5, 0, jr.key(0)))
    check(diayn(), state, lambda key: env.reset(key)[1].obs)


def test_goals():
    agent = zoo.GCBC(agent=zoo.BC(**SMALL))
    obs = {"observation": jnp.zeros(4), "achieved_goal": jnp.zeros(2)}
    state = agent.create(jr.key(0), obs, BOUNDS)
    obs |= {"desired_goal": jnp.zeros(2)}
    draw = lambda key: jtu.tree_map(lambda x: jr.normal(key, x.shape), obs)
    check(agent, state, draw)


def draw_views(key):
    camera = jr.randint(key, (8, 8, 3), 0, 256).astype(jnp.uint8)
    return {"camera": camera, "joints": jr.normal(key, (3,))}


def off_policy_state(agent, obs):
    """A state whose learner acts on `obs`; `act` does not read the memory."""
    state = init(AGENTS["sac"], jr.key(0), ENV)
    learner = eqx.filter_jit(agent.create)(jr.key(0), obs, BOUNDS, BOUNDS.dtype)
    return dataclasses.replace(state, learner=learner)


@pytest.mark.parametrize("shared", (False, True))
def test_images_and_vectors(shared):
    inputs = vision.Images(ENCODER, shared=shared)
    agent = zoo.SAC(inputs=inputs, actor_hidden=(4,), critic_hidden=(4,))
    state = off_policy_state(agent, draw_views(jr.key(0)))
    check(agent, state, draw_views)
    views = jax.vmap(draw_views)(jr.split(jr.key(0), 3))
    views["joints"] = views["joints"][:2]
    with pytest.raises(ValueError, match=r"same batch axes, got .*camera.*\(3,\)"):
        agent.act(state, views)


def test_images_alone():
    agent = zoo.BC(inputs=vision.Images(ENCODER), **SMALL)
    draw = lambda key: draw_views(key)["camera"]
    check(agent, agent.create(jr.key(0), draw(jr.key(0)), BOUNDS), draw)


def test_parts_that_the_actor_does_not_see():
    agent = zoo.SAC(
        inputs=zoo.blocks.Vectors(("joints",), ("joints",)),
        actor_hidden=(4,),
        critic_hidden=(4,),
    )
    check(agent, off_policy_state(agent, draw_views(jr.key(0))), draw_views)


def test_wrong_observations_and_states():
    agent = OFFLINE["awac"]
    make = eqx.filter_jit(lambda key: agent.create(key, jnp.zeros(4), BOUNDS))
    state, members = make(jr.key(0)), eqx.filter_vmap(make)(jr.split(jr.key(0), 3))
    with pytest.raises(ValueError, match=r"`AWAC.act`.* a vector, .* got shape \(\)"):
        agent.act(state, jnp.zeros(()))
    with pytest.raises(
        ValueError, match=r"must be a vector of 4 numbers, got shape \(1,\)"
    ):
        agent.act(state, jnp.zeros(1))
    with pytest.raises(ValueError, match=r"that of 3 members.* `result.members.pick"):
        agent.act(members, jnp.zeros(4))
    each = eqx.filter_vmap(lambda state: agent.act(state, jnp.zeros(4)))
    assert eqx.filter_eval_shape(each, members).shape == (3, 2)


def subclasses(cls):
    for each in cls.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_agent_takes_batches():
    """Adapters leave it to the agent that they hold."""
    adapters = {"Offline", "AbstractGoalAgent"}
    ours = {
        x for x in subclasses(AbstractAgent) if x.__module__.startswith("eqsim_zoo")
    }
    assert len(ours) > 15
    for cls in ours:
        own = vars(cls).get("act")
        plain = own is not None and not hasattr(own, "__isabstractmethod__")
        if plain and cls.__name__ not in adapters:
            assert hasattr(own, "__wrapped__"), cls
