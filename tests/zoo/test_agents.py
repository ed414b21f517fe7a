"""What holds for every agent of the zoo."""

import ast
import difflib
import inspect
import itertools
import pathlib
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from toys import Rail
from zoo.agents import AGENTS, init, iterate

import eqsim
import eqsim_zoo as zoo
from eqsim import AutoReset, testing, TimeLimit
from eqsim.testing import probes
from eqsim_zoo import blocks
from eqsim_zoo.agents.es import centered_ranks
from eqsim_zoo.blocks.populations import Perturbations
from eqsim_zoo.runs.members import members_of


each = pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
KINDS = {type(agent).__name__: type(agent) for agent in AGENTS.values()}
PROBES = probes.constant_reward, probes.observed_reward, probes.delayed_reward


@each
@pytest.mark.quick_cases("es")
def test_conforms(agent):
    """With all checks, of which two are that it solves the probes of actions."""
    build = lambda: type(agent)(**vars(agent))
    found = testing.check_conformance(agent, build=build)
    assert set(found.values()) == {"passed"}


def values(agent, state, obs):
    """What critics think of an observation, and of the action that would follow."""
    name = type(agent).__name__
    if name == "PPO":
        seen = obs
        if state.statistics is not None:
            seen = jnp.clip(state.statistics.normalize(obs), -10, 10)
        return state.learner.model.value(seen)
    if name == "SHAC":
        return state.critic.model(state.world.seen(obs))
    action = state.learner.actor.model(obs)
    action = action if name == "TD3" else action.mode()
    return state.learner.critic.model(obs, action)


@pytest.mark.parametrize("name", ("ppo", "recurrent_ppo", "sac", "td3", "shac"))
def test_updates_are_counted(name):
    """Not computed: only the names of what is reported."""
    agent, env = AGENTS[name], probes.constant_reward()
    state = eqx.filter_eval_shape(init, agent, jr.key(0), env)
    _, report = eqx.filter_eval_shape(iterate, agent, state, env)
    assert {"updates", "nonfinite"} <= report.keys()


CRITICS = {name: AGENTS[name] for name in ("ppo", "sac", "td3", "shac")}


@pytest.mark.parametrize("agent", CRITICS.values(), ids=CRITICS)
@pytest.mark.slow  # `test_ppo.py` has a quick one.
def test_values(agent):
    """What nothing can be done about is known in advance: 1; what is seen; and, a step
    before the reward, the discount."""
    if isinstance(agent, type(AGENTS["sac"])):
        # Without a price for certainty, which is no part of the reward.
        none = (jnp.asarray(1e-6), jnp.asarray(0.0))
        where = lambda a: (a.initial_temperature, a.temperature_learning_rate)
        agent = eqx.tree_at(where, agent, none)
    agent = eqx.tree_at(lambda a: a.discount, agent, jnp.asarray(0.8))
    made = [probe() for probe in PROBES]
    numbers = eqx.filter(made, eqx.is_array)
    many = jtu.tree_map(lambda *xs: jnp.stack(xs), *numbers)

    @eqx.filter_jit
    def run(many, key):
        def one(numbers):
            env = eqx.combine(numbers, made[0])
            first, static = eqx.partition(agent.init(key, env), eqx.is_array)
            turn = lambda _, now: eqx.partition(
                agent.iterate(eqx.combine(now, static), env)[0], eqx.is_array
            )[0]
            return jax.lax.fori_loop(0, 150, turn, first)

        return jax.vmap(one)(many)

    end = run(many, jr.key(1))
    like = init(agent, jr.key(1), made[0])
    for k, env in enumerate(made):
        state = eqx.combine(jtu.tree_map(lambda x: x[k], end), like)
        for context, time in itertools.product((-1.0, 1.0), range(int(env.length))):
            obs = jnp.array([context, time])
            found = values(agent, state, obs)
            np.testing.assert_allclose(found, env.value(obs, 0.8), atol=0.1)


@each
@pytest.mark.quick_cases("es")
def test_sweep_is_one_program(agent):
    """Agents with other numbers are a batch, each of which learns as it does alone."""
    names = "learning_rate", "actor_learning_rate", "step_size"
    name = next(name for name in names if hasattr(agent, name))
    where, rates = lambda agent: getattr(agent, name), jnp.array([1e-3, 1e-2])
    none = lambda x: x is None
    axes = eqx.tree_at(where, jtu.tree_map(lambda _: None, agent), 0, is_leaf=none)
    env = probes.action_reward()
    key = jr.key(0)
    twice = lambda agent, key: iterate(agent, init(agent, key, env), env)[0]
    run = eqx.filter_jit(eqx.filter_vmap(twice, in_axes=(axes, None)))
    together = run(eqx.tree_at(where, agent, rates), key)
    for k, rate in enumerate(rates):
        alone = twice(eqx.tree_at(where, agent, rate), key)
        row = jtu.tree_map(lambda x: x[k] if eqx.is_array(x) else x, together)
        assert testing.tree_allclose(row, alone, rtol=1e-6, atol=1e-9)


def test_apg_discounts_from_the_beginning_of_an_episode():
    """Not from that of the window: two episodes of two steps, with a reward of 1 in the
    last one."""
    agent = zoo.APG(num_envs=2, horizon=4, hidden=(2,), discount=0.5)
    env = type(probes.constant_reward())(constant=1.0, length=2)
    _, report = iterate(agent, init(agent, jr.key(0), env), env)
    assert float(report["loss"]) == pytest.approx(-2.0 * 0.5 / 4)


@each
def test_refuses_what_does_not_reset_itself(agent):
    with pytest.raises(ValueError, match=r"AutoReset\(TimeLimit\(env, length\)\)"):
        agent.init(jr.key(0), Rail())


class Pictures(Rail):
    """Observations are pictures."""

    def observe(self, state, action):
        return jnp.zeros((4, 4, 3))


@each
def test_refuses_pictures(agent):
    """Without an encoder."""
    message = "one real vector|needs an encoder"
    with pytest.raises(ValueError, match=message):
        agent.init(jr.key(0), AutoReset(TimeLimit(Pictures(), 5)))


UNLIMITED = "ppo", "recurrent_ppo", "shac"
BOUNDED = {name: agent for name, agent in AGENTS.items() if name not in UNLIMITED}


@pytest.mark.parametrize("agent", BOUNDED.values(), ids=BOUNDED)
def test_refuses_actions_without_bounds(agent):
    """Which others take."""
    env = AutoReset(TimeLimit(eqsim.make("point_mass"), 8))
    with pytest.raises(ValueError, match="needs a finite range of positive width"):
        agent.init(jr.key(0), env)
    for name in UNLIMITED:
        eqx.filter_eval_shape(AGENTS[name].init, jr.key(0), env)


def test_shac_refuses_actions_with_one_bound():
    """Which PPO takes."""
    where = lambda env: env.sys.actuators.ctrl_range
    env = blocks.training_env(probes.point_mass(), 5, 0, jr.key(0))
    words = "`SHAC` differentiates .* actuator 'y' is {}.*`ctrlrange`.*`PPO` without"
    for span in ((0.0, np.inf), (-np.inf, 0.0)):
        half = eqx.tree_at(where, env, where(env).at[1].set(jnp.array(span)))
        found = re.escape(str(list(span)))
        with pytest.raises(ValueError, match=words.format(found)):
            members_of(AGENTS["shac"], 0, 1).skeleton(half)
        members_of(AGENTS["ppo"], 0, 1).skeleton(half)


RANGES = {
    "reversed": (1.0, -1.0),
    "empty": (1.0, 1.0),
    "too wide": (-1.5e308, 1.5e308),
    "not a number": (np.nan, 1.0),
}


ALL_EMPTY = [(name, "empty") for name in AGENTS]


@pytest.mark.parametrize(
    "name, span", ALL_EMPTY + [("es", span) for span in RANGES if span != "empty"]
)
def test_refuses_action_ranges(name, span):
    """With values that only an environment outside of compiled functions has."""
    where = lambda env: env.sys.actuators.ctrl_range
    env = blocks.training_env(probes.point_mass(), 5, 0, jr.key(0))
    env = eqx.tree_at(where, env, where(env).at[1].set(jnp.array(RANGES[span])))
    members = members_of(AGENTS[name], 0, 1)
    words = r"range of positive width, but that of actuator 'y' is \["
    with pytest.raises(ValueError, match=words):
        members.skeleton(env)


def source(kind):
    """Lines of a file with one statement on each, however it is wrapped."""
    tree = ast.parse(pathlib.Path(inspect.getsourcefile(kind)).read_text())
    lines = (line.strip() for line in ast.unparse(tree).splitlines())
    return [line for line in lines if line]


def test_agents_are_short_and_their_own():
    """A file of at most 400 lines each, of which two share at most 40 %."""
    skilled = {"DIAYN": zoo.DIAYN, "DADS": zoo.DADS, "METRA": zoo.METRA}
    kinds = KINDS | skilled
    assert len(kinds) == 11
    for kind in kinds.values():
        text = pathlib.Path(inspect.getsourcefile(kind)).read_text()
        assert len(text.splitlines()) <= 400
    files = {name: source(kind) for name, kind in kinds.items()}
    for (a, one), (b, two) in itertools.combinations(files.items(), 2):
        matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
        shared = sum(block.size for block in matcher.get_matching_blocks())
        assert shared <= 0.4 * min(len(one), len(two)), (a, b, shared)


def test_equal_returns_are_no_reason_to_move():
    """Neither among finite returns nor among those that are not, of which `best` is told."""
    agent = zoo.ES(num_pairs=3, episode_length=2, hidden=(4,), weight_decay=0.0)
    state = init(agent, jr.key(0), probes.constant_reward())
    size = sum(x.size for x in jtu.tree_leaves(state.learner.model))
    noise = jr.normal(jr.key(1), (3, size))
    equal = jnp.array([[2.0, 2.0], [jnp.nan, jnp.nan], [1.0, 1.0]])
    batch = Perturbations(noise, equal)
    new, found = agent.update(state, batch)
    assert found["grad_norm"] == 0.0 and found["best"] == 2.0
    assert eqx.tree_equal(new.learner.model, state.learner.model)
    ranks = centered_ranks(jnp.array([3.0, 5.0, 5.0, jnp.nan, 7.0]))
    np.testing.assert_allclose(ranks, [-0.25, 0.125, 0.125, -0.5, 0.5])
