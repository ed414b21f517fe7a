"""Updates beside evosax called by hand, learning, checkpoints, and messages."""

import pathlib
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import optax
import pytest
from eqsim_evosax import Candidates, EvolutionStrategy
from evosax.algorithms import ARS, CMA_ES, Open_ES, PGPE

import eqsim
import eqsim_zoo as zoo
from eqsim import testing
from eqsim.bridges import is_key


STRATEGIES = "cma_es", "pgpe"
STRATEGIES += tuple(pytest.param(x, marks=pytest.mark.slow) for x in ("open_es", "ars"))
NOISE, RATE, STD_RATE = 0.3, 0.05, 0.2


@eqx.filter_jit
def iterate(agent, state, env):
    return agent.iterate(state, env)


@eqx.filter_jit
def init(agent, key, env):
    return agent.init(key, env)


def by_hand(strategy, size):
    """The algorithm of evosax and its parameters, as its documentation creates them."""
    solution, std = jnp.zeros(size), optax.constant_schedule(NOISE)
    if strategy == "cma_es":
        algorithm = CMA_ES(16, solution)
        return algorithm, algorithm.default_params.replace(std_init=NOISE)
    adam = optax.adam(RATE)
    if strategy == "pgpe":
        algorithm = PGPE(16, solution, optimizer=adam)
        params = algorithm.default_params
        return algorithm, params.replace(std_init=NOISE, std_lr=STD_RATE)
    make = {"open_es": Open_ES, "ars": ARS}[strategy]
    algorithm = make(16, solution, optimizer=adam, std_schedule=std)
    return algorithm, algorithm.default_params


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_updates_are_those_of_evosax(strategy):
    """Three generations of a quadratic function, whose minimum is elsewhere."""
    agent = EvolutionStrategy(
        strategy,
        population=16,
        hidden=(),
        noise=NOISE,
        learning_rate=RATE,
        std_learning_rate=STD_RATE,
    )
    state = init(agent, jr.key(0), eqsim.make("inverted_pendulum"))
    mean = state.search.mean
    returns_of = lambda x: -jnp.sum((x - 1.0) ** 2, axis=1)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        algorithm, params = by_hand(strategy, mean.size)
        theirs, key = algorithm.init(jr.key(1), mean, params), jr.key(2)
        for turn in range(3):
            population, theirs = algorithm.ask(jr.fold_in(key, turn), theirs, params)
            fitness = -returns_of(population)
            theirs, _ = algorithm.tell(key, population, fitness, theirs, params)
    search = agent._search(mean.size)
    for turn in range(3):
        found, asked = search.ask(jr.fold_in(key, turn), state.search)
        state = eqx.tree_at(lambda s: s.search, state, asked)
        state, _ = agent.update(state, Candidates(found, returns_of(found)))
    assert np.allclose(found, population, rtol=1e-9)
    assert np.allclose(state.search.mean, theirs.mean, rtol=1e-9)
    assert np.allclose(state.search.std, theirs.std, rtol=1e-9)
    assert np.linalg.norm(state.search.mean - mean) > 0.05
    if strategy == "cma_es":
        assert np.allclose(state.search.C, theirs.C, rtol=1e-9, atol=1e-12)


def test_balances_a_pendulum():
    """The mean policy of 20 generations of 16 candidates never falls."""
    env = eqsim.make("inverted_pendulum")
    agent = EvolutionStrategy(population=16, episode_length=100, hidden=(), noise=0.2)
    state = init(agent, jr.key(0), env)
    state, first = iterate(agent, state, env)
    for _ in range(20):
        state, last = iterate(agent, state, env)
    assert first["return"] < 60.0 < 95.0 < last["return"]
    policy = eqsim.agent_policy(agent, state)
    terminated = lambda state, action, timestep: timestep.terminated
    fallen = eqsim.rollout(env, policy, jr.split(jr.key(1), 8), 100, collect=terminated)
    assert not np.any(fallen[0])


def test_all_candidates_run_the_same_episodes():
    """Equal parameters have equal returns, and other ones in the next generation, whose
    targets are others."""
    env = eqsim.make("reacher")
    agent = EvolutionStrategy(
        "open_es",
        population=4,
        num_episodes=3,
        episode_length=10,
        noise=1e-30,
        learning_rate=0.0,
        normalize_observations=False,
    )
    state = init(agent, jr.key(0), env)
    state, one = iterate(agent, state, env)
    _, two = iterate(agent, state, env)
    for metrics in (one, two):
        assert metrics["best"] == pytest.approx(float(metrics["return"]), rel=1e-12)
        assert metrics["steps"] == 4 * 3 * 10
    assert abs(one["return"] - two["return"]) > 1e-3


@pytest.mark.parametrize(
    "strategy", ("cma_es", pytest.param("pgpe", marks=pytest.mark.slow))
)
def test_a_return_that_is_not_finite_counts_as_the_least(strategy):
    agent = EvolutionStrategy(strategy, population=4, hidden=())
    state = init(agent, jr.key(0), eqsim.make("inverted_pendulum"))
    size = state.search.mean.size
    found, _ = agent._search(size).ask(jr.key(3), state.search)
    learned = lambda returns: agent.update(
        state, Candidates(found, jnp.array(returns))
    )[0]
    ill = learned([3.0, jnp.nan, -jnp.inf, 1.0])
    least = learned([3.0, 1.0, 1.0, 1.0])
    assert np.array_equal(ill.search.mean, least.search.mean)
    none = learned([jnp.nan] * 4)
    arrays = [x for x in jtu.tree_leaves(none.search) if eqx.is_inexact_array(x)]
    assert all(np.all(np.isfinite(x)) for x in arrays)


@pytest.mark.parametrize(
    "strategy", ("cma_es", pytest.param("pgpe", marks=pytest.mark.slow))
)
def test_a_run_resumes_exactly(strategy, tmp_path):
    """A run that is interrupted ends as one that is not."""
    env = eqsim.make("inverted_pendulum")
    agent = EvolutionStrategy(strategy, population=4, episode_length=20, hidden=(4,))
    plan = dict(steps=400, episode_length=20, evaluations=2, episodes=2)
    whole = zoo.train(zoo.Run(agent, env, **plan))
    half = dict(steps=200, episode_length=20, evaluations=1, episodes=2)
    zoo.train(zoo.Run(agent, env, **half), out=tmp_path / "run")
    rest = zoo.resume(tmp_path / "run", more_steps=200, agent=agent, env=env)
    for x, y in zip(jtu.tree_leaves(whole.state), jtu.tree_leaves(rest.state)):
        assert np.array_equal(_data(x), _data(y))


def _data(x):
    return jr.key_data(x) if is_key(x) else x


def test_settings_are_swept_in_one_program():
    env = eqsim.make("inverted_pendulum")
    make = lambda rate: EvolutionStrategy(
        "open_es", population=4, episode_length=5, hidden=(), learning_rate=rate
    )
    agents = eqx.filter_vmap(make)(jnp.array([0.0, 0.01]))
    learn = lambda agent: agent.iterate(agent.init(jr.key(0), env), env)[0].search.mean
    means = eqx.filter_jit(eqx.filter_vmap(learn))(agents)
    first = init(make(0.0), jr.key(0), env).search.mean
    assert np.array_equal(means[0], first)
    assert np.allclose(abs(means[1] - first), 0.01, rtol=1e-3)


@pytest.mark.parametrize(
    "settings, message",
    (
        ({"population": 5}, "population` must be an even number of at least 4, got 5"),
        ({"population": 2}, "population` must be an even number of at least 4, got 2"),
        ({"strategy": "nes"}, "one of cma_es, open_es, pgpe, ars, got 'nes'"),
        ({"noise": 0.0}, "noise` must be finite and positive, got 0.0"),
        ({"learning_rate": -1.0}, "learning_rate` must be finite and at least 0"),
        ({"std_learning_rate": 0.0}, "std_learning_rate` must be finite and positive"),
        ({"num_episodes": 0}, "num_episodes` must be .* got 0"),
    ),
)
def test_ranges(settings, message):
    with pytest.raises(ValueError, match=message):
        EvolutionStrategy(**settings)


def test_only_vectors_are_observed():
    env = eqsim.Pixels(eqsim.make("inverted_pendulum"), width=8, height=8)
    with pytest.raises(ValueError, match="observations that are one real vector"):
        EvolutionStrategy().init(jr.key(0), env)


def test_found_by_name():
    assert eqsim.AGENTS.get("evolution_strategy") is EvolutionStrategy


def test_examples(readme):
    """What the README shows runs as it stands."""
    (block,) = readme
    exec(block, {})


def test_settings():
    """The README has names and defaults of all fields, in order."""
    page = (pathlib.Path(__file__).parents[1] / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", page.split("## Settings")[1], re.M)
    agent = EvolutionStrategy()
    assert [name for name, _ in rows] == list(EvolutionStrategy.__dataclass_fields__)
    for name, shown in rows:
        value = vars(agent)[name]
        if name == "strategy":
            value = value.value
        elif name == "hidden":
            value = ", ".join(map(str, value))
        elif eqx.is_array(value):
            value = f"{float(value):g}"
        assert shown == str(value).lower(), name


@pytest.mark.parametrize(
    "strategy",
    (
        "cma_es",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("open_es", "pgpe", "ars")),
    ),
)
def test_conformance(strategy):
    """All that eqsim asks of an agent, for each strategy."""
    agent = EvolutionStrategy(
        strategy,
        population=32,
        episode_length=2,
        hidden=(8,),
        noise=0.2,
        learning_rate=0.05,
    )
    testing.check_conformance(agent)
