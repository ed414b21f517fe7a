"""Agents that learn from recordings are trained, stopped, shared among devices and
evaluated as all others are."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from toys import Rail
from zoo.disturbed_runs import signaled
from zoo.recordings import everything, first, random_batch
from zoo.states import bits

import eqsim
import eqsim_zoo as zoo
from eqsim import testing
from eqsim.testing import probes
from eqsim.wrappers import Reach
from eqsim_zoo import vision
from eqsim_zoo._cli._train_commands import _run, Request
from eqsim_zoo.blocks.networks import FeaturesNetwork
from eqsim_zoo.data import Dataset, RandomPolicy
from eqsim_zoo.runs.folders import read_config, write_config
from eqsim_zoo.runs.pages import _head, Series


SMALL = {"hidden": (8,)}
AGENTS = {
    "bc": zoo.BC(normalize_observations=True, **SMALL),
    "iql": zoo.IQL(**SMALL),
    "td3_bc": zoo.TD3BC(**SMALL),
    "cql": zoo.CQL(num_actions=2, **SMALL),
    "awac": zoo.AWAC(**SMALL),
    "discrete_cql": zoo.DiscreteCQL(**SMALL),
}
slow = pytest.mark.slow
QUICK = {"steps": 60, "turns": 6, "evaluations": 2, "episodes": 2, "episode_length": 5}


@pytest.fixture(scope="module")
def data():
    """Random actions on a rail."""
    env = Rail()
    policy = RandomPolicy(env.action_range)
    return zoo.data.record(
        env, policy, jr.key(0), steps=320, num_envs=8, episode_length=10
    )


def practising(agent, **options):
    return zoo.Offline(agent, **{"batch_size": 16, "num_updates": 5} | options)


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.quick_cases("bc")
def test_conforms(name):
    """To the conformance kit, but for learning, as what it is given has no meaning."""
    testing.check_conformance(practising(AGENTS[name]))


@pytest.mark.slow  # `test_resume.py` has the checks of training online.
def test_stopped_and_resumed(data, tmp_path):
    """Bit by bit as if it had not been."""
    agent, env = practising(AGENTS["iql"]), Rail()
    about = data.about._replace(random_return=-10.0, expert_return=0.0)
    data = dataclasses.replace(data, about=about)
    run = zoo.Run(agent, env, **QUICK, data=data)
    whole = zoo.train(run, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        zoo.train(run, out=tmp_path / "stopped", callbacks=[signaled(3)])
    resumed = zoo.resume(tmp_path / "stopped", agent=agent, env=env, data=data)
    assert bits(resumed.state) == bits(whole.state)
    assert resumed.counters.steps == 60
    rows = [
        row for row in zoo.runs.read_metrics(tmp_path / "whole") if "eval/score" in row
    ]
    assert len(rows) == 2
    for row in rows:
        np.testing.assert_allclose(row["eval/score"], 10.0 * (row["eval/return"] + 10))
    # What was learned is read, and acts, without the recording.
    run = zoo.load_run(tmp_path / "stopped", agent=agent, env=env)
    assert bits(run.state) == bits(whole.state)
    other = data.subset(range(3))
    with pytest.raises(ValueError, match="of 30 steps differs from that of the run"):
        zoo.resume(run.folder, agent=agent, env=env, data=other, more_steps=10)
    with pytest.raises(
        ValueError, match="is trained on a dataset. Pass the same `data`"
    ):
        zoo.resume(run.folder, agent=agent, env=env, more_steps=10)


@pytest.mark.slow
def test_without_an_environment(data, tmp_path):
    result = zoo.train(
        zoo.Run(practising(AGENTS["bc"]), None, **QUICK, data=data), out=tmp_path
    )
    assert result.counters.steps == 60 and not result.evaluations
    state = result.state.learned
    found = everything(data)
    np.testing.assert_allclose(
        state.statistics["obs"].mean, np.asarray(found.obs).mean(axis=0)
    )
    args = {"agent": practising(AGENTS["bc"]), "data": data}
    assert zoo.resume(tmp_path, more_steps=5, **args).counters.steps == 65
    assert zoo.load_run(tmp_path, **args).state is not None
    with pytest.raises(ValueError, match="dataset without an environment"):
        zoo.load_run(tmp_path, **args).environment()
    with pytest.raises(
        ValueError, match="`SAC` needs an environment for its initial state"
    ):
        zoo.train(zoo.Run(zoo.SAC(), None, **QUICK, data=data))


def test_off_policy_agents_normalize_by_the_dataset(data, tmp_path):
    """As they see no other steps; the run is loaded without the dataset as well."""
    sizes = {"num_envs": 2, "capacity": 64, "actor_hidden": (8,), "critic_hidden": (8,)}
    agent = zoo.TD3(**sizes, batch_size=8, normalize_observations=True)
    run = zoo.Run(agent, Rail(), 5, turns=1, evaluations=0, data=data)
    agent = run.members.agent(0)
    assert isinstance(agent, zoo.Offline) and agent.update_size == 8
    zoo.train(run, out=tmp_path)
    state = zoo.load_run(tmp_path, agent=agent, env=Rail()).state
    found, obs = state.learned.learner.statistics, np.asarray(everything(data).obs)
    np.testing.assert_allclose(found.mean, obs.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.variance, obs.var(axis=0), rtol=1e-6)


def test_batch_sizes(data, monkeypatch):
    """Those of off-policy agents are their own, unless the adapter has one, however the run
    is made."""
    makes = {"sac": zoo.SAC, "bc": zoo.BC}
    for name, make in makes.items():
        monkeypatch.setitem(eqsim.AGENTS._registered, name, make)

    def size(agent, **settings):
        run = zoo.Run(agent, Rail(), 5, data=data, settings=settings)
        return run.members.agent(0).update_size

    assert size(zoo.SAC(batch_size=64)) == 64 == size("sac", **{"agent.batch_size": 64})
    assert size(zoo.Offline(zoo.SAC(batch_size=64), 32)) == 32
    assert size("sac", **{"agent.batch_size": 64, "batch_size": 32}) == 32
    # The default of others, also where it is given.
    assert size("sac", **{"agent.batch_size": 64, "batch_size": 256}) == 256
    assert size("sac") == size("bc") == size(zoo.BC()) == 256
    request = Request("sac", "toys:Rail", steps=5.0, data="data.npz")
    run, _ = _run(request, {"agent.batch_size": 64})
    assert run.members.agent(0).update_size == 64
    # As many are drawn.
    seen = []
    sample = Dataset.sample
    draw = lambda self, key, n: seen.append(n) or sample(self, key, n)
    monkeypatch.setattr(Dataset, "sample", draw)
    sizes = {"capacity": 64, "actor_hidden": (8,), "critic_hidden": (8,), "num_envs": 2}
    learner = zoo.Offline(zoo.SAC(**sizes, batch_size=16), num_updates=1)
    env = zoo.Run(learner, Rail(), 5, data=data).source()
    state = eqx.filter_eval_shape(learner.init, jr.key(0), env)
    eqx.filter_eval_shape(learner.iterate, state, env)
    assert {*seen} == {16}


def test_runs_and_policies_are_named_by_what_learns(data, tmp_path):
    """And not by the adapter around it."""
    run = zoo.Run(AGENTS["bc"], Rail(), **QUICK, data=data)
    assert str(run).startswith("BC on Rail")
    agent = run.members.agent(0)
    state = eqx.filter_jit(agent.init)(jr.key(0), run.source())
    file = tmp_path / "policy.py"
    about = zoo.export.export_policy(agent, state, Rail(), file, format="numpy")
    assert about.agent == "BC"
    write_config(tmp_path, run, given=False)
    columns = dict.fromkeys(("steps", "seconds", "rate"), np.zeros((1, 1)))
    page = _head(tmp_path, read_config(tmp_path), [Series("run", columns)])
    assert "BC on Rail: 0 %" in "".join(page)


@slow
def test_members_learn_side_by_side(data):
    """As each would by itself."""
    agents = [practising(zoo.IQL(temperature=x, **SMALL)) for x in (1.0, 3.0)]
    args = QUICK | {"evaluations": 1, "turns": 2}
    both = zoo.train(zoo.Run(agents, Rail(), num_seeds=2, **args, data=data))
    alone = zoo.train(zoo.Run(agents[1], Rail(), **args, data=data))
    ours = both.members.pick(both.state, 2).learned.actor.model
    theirs = alone.state.learned.actor.model
    assert testing.tree_allclose(ours, theirs, rtol=1e-8)


def test_where_data_and_environment_do_not_fit(data):
    moved = eqx.tree_at(lambda d: d.bounds, data, 2.0 * data.bounds)
    with pytest.raises(ValueError, match="has action bounds"):
        zoo.train(zoo.Run(AGENTS["bc"], Rail(), **QUICK, data=moved))
    with pytest.raises(ValueError, match="not on these levels, first in step 0"):
        zoo.train(zoo.Run(zoo.IQL(levels=3, **SMALL), Rail(), **QUICK, data=data))
    with pytest.raises(ValueError, match="The dataset has observations"):
        zoo.train(zoo.Run(AGENTS["bc"], Reach(probes.point_mass()), **QUICK, data=data))
    with pytest.raises(ValueError, match="needs a dataset, but `Rail` has none"):
        agent = practising(AGENTS["bc"])
        agent.iterate(agent.init(jr.key(0), Rail()), Rail())
    with pytest.raises(ValueError, match="`PPO` is on-policy and cannot be trained"):
        zoo.train(zoo.Run(zoo.PPO(), Rail(), **QUICK, data=data))
    with pytest.raises(ValueError, match="cannot be trained in an environment alone"):
        zoo.train(zoo.Run(AGENTS["bc"], Rail(), **QUICK))


def test_host_and_device_teach_the_same(data):
    agent, env = practising(AGENTS["iql"]), Rail()
    states = []
    for own in (data, data.on_host()):
        where = zoo.runs.Recorded(env, own)
        state = eqx.filter_jit(agent.init)(jr.key(0), where)
        states.append(eqx.filter_jit(agent.iterate)(state, where)[0])
    assert bits(states[0]) == bits(states[1])


# From recordings to practice.


@pytest.mark.slow
def test_fine_tuning(data):
    """It begins as good as it was, remembers the recording, and goes on."""
    env = Rail()
    agent = practising(AGENTS["cql"])
    result = zoo.train(zoo.Run(agent, env, **QUICK, data=data))
    learned = result.state.learned
    sizes = {"actor_hidden": (8,), "critic_hidden": (8,), "random_steps": 0.0}
    sac = zoo.SAC(num_envs=2, unroll_length=2, capacity=1024, batch_size=32, **sizes)
    where = zoo.blocks.training_env(env, 10, 4, jr.key(1))
    state = zoo.fine_tuned(sac, where, jr.key(0), learned, data)
    obs = everything(data).obs[3]
    assert jnp.array_equal(sac.act(state, obs), agent.act(result.state, obs))
    assert state.memory.replay.size == 320
    assert jnp.array_equal(state.memory.replay.rows.obs[:320], everything(data).obs)
    args = {"episode_length": 10, "pool_size": 4, "episodes": 2}
    more = zoo.train(zoo.Run(sac, env, 8, turns=2, **args), state=state)
    assert more.state.memory.replay.size == 328
    assert more.state.memory.steps == 8
    with pytest.raises(
        ValueError, match="`state` is a `OffPolicyState` whose shapes differ"
    ):
        zoo.train(
            zoo.Run(sac, env, 8),
            state=eqx.tree_at(lambda s: s.learner.bounds, state, jnp.ones((3, 2))),
        )
    seen = zoo.SAC(num_envs=2, normalize_observations=True, **sizes)
    with pytest.raises(ValueError, match="was not given normalized observations"):
        zoo.fine_tuned(seen, where, jr.key(0), learned)
    wide = zoo.SAC(num_envs=2, unroll_length=2, capacity=1024, actor_hidden=(9,))
    with pytest.raises(ValueError, match="Set `actor_hidden` and `layer_norm`"):
        zoo.fine_tuned(wide, where, jr.key(0), learned)


# Goals in hindsight.


@pytest.fixture(scope="module")
def walks():
    """Of a point that moves at random."""
    env = Reach(probes.point_mass(), 0.1)
    policy = RandomPolicy(env.action_range)
    return env, zoo.data.record(
        env, policy, jr.key(0), steps=20_000, num_envs=100, episode_length=20
    )


@pytest.mark.slow
def test_goals_in_hindsight(walks):
    """Goals are what steps led to, later in a trajectory; and a step that leads there is
    the last."""
    _, data = walks
    index = jnp.arange(4000)
    for geometric in (True, False):
        hindsight = zoo.data.Hindsight(geometric, 0.0, 1.0, 0.0, discount=0.8)
        goal = hindsight.draw(jr.key(0), data, index)
        index = index.astype(data.last.dtype)
        assert jnp.all(goal >= index) and jnp.all(goal <= data.last[index])
        far, left = np.asarray(goal - index), np.asarray(data.last[index] - index)
        if geometric:
            np.testing.assert_allclose((far[left > 0] == 0).mean(), 0.2, atol=0.03)
        else:
            count = np.bincount(far[left == 9], minlength=10)
            assert len(count) == 10 and np.ptp(count) < 0.6 * count.mean() + 20
    rows = zoo.data.GoalData(data, zoo.data.Hindsight(tolerance=0.1)).rows(index, goal)
    target = everything(data).next_obs["achieved_goal"][goal]
    assert jnp.array_equal(rows.obs["desired_goal"], target)
    achieved = everything(data).next_obs["achieved_goal"][index]
    reached = jnp.linalg.norm(achieved - target, axis=1) <= 0.1
    assert jnp.array_equal(rows.terminated, reached)
    assert jnp.array_equal(rows.reward, jnp.where(reached, 0.0, -1.0))
    itself = zoo.data.GoalData(data, zoo.data.Hindsight()).rows(index, index)
    assert jnp.all(itself.terminated)


@pytest.mark.parametrize("name", ("gcbc", pytest.param("gciql", marks=slow)))
@pytest.mark.slow
def test_goals_are_reached(name, walks):
    """Out of random walks, of which few reach theirs."""
    env, data = walks
    hidden = {"hidden": (64, 64), "learning_rate": 1e-3}
    near = {"tolerance": 0.1, "discount": 0.9}
    agent = {
        "gcbc": lambda: zoo.GCBC(
            zoo.BC(**hidden), zoo.data.Hindsight(True, 0.0, 1.0, 0.0, **near)
        ),
        "gciql": lambda: zoo.GCIQL(
            zoo.IQL(expectile=0.9, discount=0.9, target_rate=0.02, **hidden),
            zoo.data.Hindsight(**near),
        ),
    }[name]()
    updates = {"gcbc": 1500, "gciql": 4000}[name]
    learner = zoo.Offline(agent, num_updates=50)
    args = {"episodes": 64, "episode_length": 40, "turns": 4, "evaluations": 1}
    result = zoo.train(zoo.Run(learner, env, updates, **args, data=data))
    before = np.asarray(data.terminated).sum() / len(data.ends())
    assert before < 0.5 and result.evaluations[-1][1].terminated.mean() > 0.9


def test_bad_hindsight(walks):
    env, data = walks
    for words, hindsight in {
        "`Hindsight.discount` is 1": zoo.data.Hindsight(discount=1.0),
        "`random` -1; expected non-negative": zoo.data.Hindsight(random=-1.0),
    }.items():
        with pytest.raises(ValueError, match=words):
            zoo.train(zoo.Run(zoo.GCBC(hindsight=hindsight), env, **QUICK, data=data))


def test_goals_have_to_be_told():
    agent, env = zoo.GCBC(), Reach(probes.point_mass(), 0.1)
    state = eqx.filter_eval_shape(agent.init, jr.key(0), env)
    with pytest.raises(ValueError, match="needs an observation with"):
        eqx.filter_eval_shape(agent.act, state, jnp.zeros(2))


# What is learned of pictures, and what is not learned.


@pytest.mark.slow
def test_pictures_and_numbers():
    """Encoders of their own or a shared one, which the critic alone teaches."""
    draws, rows = np.random.default_rng(0), 6
    picture = lambda: jnp.asarray(draws.integers(0, 256, (rows, 8, 8, 3)), jnp.uint8)
    plain = random_batch(rows=rows)
    show = lambda x: {"camera": picture(), "joints": x}
    batch = eqx.tree_at(
        lambda b: (b.obs, b.next_obs), plain, (show(plain.obs), show(plain.next_obs))
    )
    one = jax.tree_util.tree_map(lambda x: x[0], batch.obs)
    bounds = jnp.tile(jnp.array([[-1.0, 1.0]]), (2, 1))
    encoder, crop = (
        vision.Impala(widths=(2,), blocks=1, outputs=4),
        vision.RandomCrop(2),
    )
    for shared in (False, True):
        inputs = vision.Images(encoder, shared=shared, augmentations=(crop,))
        agent = zoo.IQL(inputs=inputs, normalize_observations=True, **SMALL)
        state = agent.create(jr.key(0), one, bounds)
        new, metrics = eqx.filter_jit(agent.update)(state, batch)
        assert all(np.isfinite(float(x)) for x in metrics.values())
        networks = new.actor.model, new.critic.model, new.value.model
        own = [isinstance(x, FeaturesNetwork) for x in networks]
        assert own == ([False, True, False] if shared else [True] * 3)
        action = agent.act(new, one)
        assert action.shape == (2,) and jnp.all(jnp.abs(action) <= 1.0)
        assert set(state.statistics) == {"joints"}
    with pytest.raises(ValueError, match="'camera' is an image .* needs an encoder"):
        zoo.BC(**SMALL).create(jr.key(0), one, bounds)


@pytest.mark.slow
def test_frozen_parts_are_constants():
    agent = zoo.IQL(**SMALL)
    learner = zoo.blocks.Learner.create(
        first(agent, 3, 2).critic.model, optax.adamw(0.1)
    )
    obs, action = random_batch().obs, random_batch().action
    loss = lambda critic: (jnp.mean(jax.vmap(critic)(obs, action) ** 2), {})
    layers = lambda c: c.networks.members.layers
    still = lambda c: layers(c)[0]
    new, metrics = learner.apply_loss_fn(loss, optax.adamw(0.1), frozen=still)
    assert eqx.tree_equal(still(new.model), still(learner.model))
    assert not eqx.tree_equal(layers(new.model)[1], layers(learner.model)[1])
    grads = eqx.filter_grad(lambda critic: loss(critic)[0])(learner.model)
    grads = eqx.tree_at(
        still, grads, jax.tree_util.tree_map(jnp.zeros_like, still(grads))
    )
    np.testing.assert_allclose(metrics["grad_norm"], optax.tree.norm(grads))
