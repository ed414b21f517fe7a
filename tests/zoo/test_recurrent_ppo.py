"""Recurrent PPO: networks beside Equinox and plain loops, memories that begin with
episodes, and a task that needs them."""

import json

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from scipy import stats
from toys import Rail
from zoo.agents import AGENTS, init, iterate
from zoo.datasets import assert_same

import eqsim
from eqsim import AutoReset, TimeLimit
from eqsim._cli import main
from eqsim.testing import probes
from eqsim_zoo import evaluate, load_run, RecurrentPPO
from eqsim_zoo._cli import view_run
from eqsim_zoo.agents import RecurrentPPOBatch
from eqsim_zoo.blocks import collect, Squash
from eqsim_zoo.blocks.recurrent import GRU, RecurrentNetwork, Sequence, StepInputs
from eqsim_zoo.data import load_data
from eqsim_zoo.training.evaluation import evaluate_policy


AGENT = AGENTS["recurrent_ppo"]


def shaken(state, key):
    """A state whose networks have random numbers everywhere, and large actions."""
    keys = iter(jr.split(key, 100))
    shake = lambda x: x + 0.4 * jr.normal(next(keys), x.shape, x.dtype)
    where = lambda s: s.learner.model
    return eqx.tree_at(where, state, jtu.tree_map(shake, where(state)))


def test_unit_is_that_of_equinox(getkey):
    """With the biases of hidden reset and update gates in those of the inputs."""
    unit, size = GRU.create(getkey(), 3, 5, jnp.float64), 5
    biases = jr.normal(getkey(), (2, 3 * size))
    unit = eqx.tree_at(lambda u: (u.inputs.bias, u.hidden.bias), unit, tuple(biases))
    cell = eqx.nn.GRUCell(3, size, key=getkey())
    bias = biases[0].at[: 2 * size].add(biases[1][: 2 * size])
    cell = eqx.tree_at(
        lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n),
        cell,
        (unit.inputs.weight.T, unit.hidden.weight.T, bias, biases[1][2 * size :]),
    )
    x, hidden = jr.normal(getkey(), (3,)), jr.normal(getkey(), (size,))
    found = unit(hidden, unit.inputs(x))
    np.testing.assert_allclose(found, cell(x, hidden), rtol=1e-12)


def test_episodes_of_a_sequence_do_not_mix(getkey):
    """Outputs of each episode are those of the episode alone, from zeros; those of the
    first one continue from the memory that is given."""
    net = RecurrentNetwork.create(getkey(), 2, 4, (3, 1), jnp.tanh, dtype=jnp.float64)
    x, memory = jr.normal(getkey(), (7, 2)), jr.normal(getkey(), (4,))
    begins = jnp.zeros(7, bool).at[jnp.array([3, 5])].set(True)
    memories, out = net.unroll(memory, x, begins)
    for first, end in ((0, 3), (3, 5), (5, 7)):
        now = memory if first == 0 else net.first_memory()
        for t in range(first, end):
            now, y = net(now, x[t])
            np.testing.assert_allclose(memories[t], now, rtol=1e-12)
            np.testing.assert_allclose(out[t], y, rtol=1e-12)


NUMBER, LENGTH = 4, 7


@pytest.fixture(scope="module")
def collected():
    """Two batches of collection with ends of both kinds, within and between them."""
    agent = RecurrentPPO(
        num_envs=NUMBER,
        unroll_length=LENGTH,
        num_minibatches=1,
        memory_size=5,
        policy_hidden=(4,),
        value_hidden=(4,),
        reward_scale=0.3,
        gae_decay=0.8,
        discount=0.9,
    )
    env = AutoReset(TimeLimit(Rail(1, edge=0.25, noise=0.15), 5))
    state = shaken(init(agent, jr.key(0), env), jr.key(1))

    @eqx.filter_jit
    def turn(agent, state, env, key):
        actor = eqx.tree_at(
            lambda a: a.bounds, agent.controller(state, sample=True), None
        )
        running, steps, _ = collect(Squash(env), actor, state.running, key, LENGTH)
        batch, memory = agent.evaluate(state, steps)
        where = lambda s: (s.running, s.value_memory)
        return eqx.tree_at(where, state, (running, memory)), steps, batch

    out = []
    for k in range(2):
        state, steps, batch = turn(agent, state, env, jr.key(k + 2))
        out.append((steps, batch, state))
    return agent, out


def loop(networks, steps, batch):
    """Means, values and following values of one batch, step by step in Python."""
    seen = lambda obs: np.clip(np.asarray(obs) / np.sqrt(1.0 + 1e-8), -10.0, 10.0)
    call = eqx.filter_jit(lambda net, memory, x: net(memory, x))
    means, values, nexts = np.zeros((3, NUMBER, LENGTH))
    for i in range(NUMBER):
        policy, value = batch.steps.policy_memory[i], batch.steps.value_memory[i]
        last = batch.steps.inputs.action[i, 0]
        for t in range(LENGTH):
            x = jnp.concatenate([seen(steps.obs[i, t]), last])
            policy, mean = call(networks.policy, policy, x)
            value, now = call(networks.value, value, x)
            last = jnp.tanh(steps.action[i, t])
            after = jnp.concatenate([seen(steps.next_obs[i, t]), last])
            means[i, t], values[i, t] = mean[0], now[0]
            nexts[i, t] = call(networks.value, value, after)[1][0]
            if steps.done[i, t]:
                policy, value, last = jtu.tree_map(
                    jnp.zeros_like, (policy, value, last)
                )
        yield policy, value, last
    yield means, values, nexts


@pytest.mark.slow
def test_batches_are_what_happened(collected):
    """Both batches, the second from the memories that the first one has left: the
    density is that of the policy that drew; advantages are a plain sum of later errors,
    with the value of what the last action led to, after the whole episode."""
    agent, out = collected
    flags = [(np.asarray(s.terminated), np.asarray(s.truncated)) for s, *_ in out]
    assert all(np.any(x) for pair in flags for x in pair)
    # Some episode passes from the first batch to the second, and some does not.
    assert 0 < np.sum(out[0][0].done[:, -1]) < NUMBER
    assert np.all(np.asarray(out[0][1].steps.policy_memory) == 0.0)
    for steps, batch, state in out:
        *ends, (means, values, nexts) = loop(state.learner.model, steps, batch)
        for i, (policy, value, last) in enumerate(ends):
            memory = state.running.memory
            np.testing.assert_allclose(memory.hidden[i], policy, rtol=1e-9)
            np.testing.assert_allclose(memory.action[i], last, rtol=1e-9)
            np.testing.assert_allclose(state.value_memory[i], value, rtol=1e-9)
        normal = stats.norm(means, np.exp(state.learner.model.log_std))
        expected = normal.logpdf(steps.action[..., 0])
        np.testing.assert_allclose(batch.log_prob, expected, rtol=1e-9)
        left = np.where(steps.terminated, 0.0, 0.9)
        error = 0.3 * np.asarray(steps.reward) + left * nexts - values
        expected, done = np.zeros((NUMBER, LENGTH)), np.asarray(steps.done)
        for i in range(NUMBER):
            for t in range(LENGTH):
                last = next((s for s in range(t, LENGTH) if done[i, s]), LENGTH - 1)
                terms = (0.72 ** (s - t) * error[i, s] for s in range(t, last + 1))
                expected[i, t] = sum(terms)
        np.testing.assert_allclose(batch.advantage, expected, rtol=1e-6)
        np.testing.assert_allclose(batch.value, values, rtol=1e-6)
    first, second = out[0][2], out[1][1]
    assert_same(second.steps.policy_memory, first.running.memory.hidden)
    assert_same(second.steps.value_memory, first.value_memory)


class Cue(eqsim.wrappers.AbstractStateless):
    """The context is seen in the first step of an episode, and matters in the last."""

    env: eqsim.AbstractEnv

    lifetime = eqsim.wrappers.Lifetime.NONE

    def reset(self, key, options=None):
        state, timestep = self.env.reset(key, options)
        return state, self._seen(timestep)

    def step(self, state, action):
        state, timestep = self.env.step(state, action)
        return state, self._seen(timestep)

    def _seen(self, timestep):
        hide = lambda obs: jnp.where(obs[1] > 0.0, 0.0, obs[0])
        where = lambda t: (t.obs, t.final_obs)
        seen = tuple(x.at[0].set(hide(x)) for x in where(timestep))
        return eqx.tree_at(where, timestep, seen)


PROBE = probes.observed_action_reward()
CUE = Cue(type(PROBE)(constant=1.0, weight=1.0, follow=0.8, length=3.0))


@pytest.fixture(scope="module")
def trained():
    state = init(AGENT, jr.key(0), CUE)
    for _ in range(60):
        state, _ = iterate(AGENT, state, CUE)
    return state


@pytest.mark.slow  # Learning.
def test_remembers_a_cue(trained):
    """Without memory, no policy has a mean return above 1 - 0.8^2 = 0.36, also this one
    without its own. Evaluation carries the memory."""
    options = {"episodes": 16, "episode_length": 3}
    found = evaluate(AGENT, trained, CUE, jr.key(1), **options)
    assert found.returns.min() > 0.9
    forgets = lambda obs, key: AGENT.act(trained, obs)
    assert evaluate_policy(forgets, CUE, jr.key(1), **options).mean() < 0.37


def test_first_minibatch_has_the_policy_of_collection(trained):
    """With a step size of zero all do: the ratio is 1, also with memories that earlier
    steps have left."""
    rate = lambda agent: agent.learning_rate
    still = eqx.tree_at(rate, AGENT, jnp.zeros_like(AGENT.learning_rate))
    state = shaken(trained, jr.key(0))
    for _ in range(2):
        state, report = iterate(still, state, CUE)
        assert abs(float(report["kl"])) < 1e-15
    assert np.any(np.asarray(state.running.memory.hidden) != 0.0)


def test_act_is_the_first_step(trained):
    """With and without a key, whatever the environments of the state remember."""
    obs, key = jnp.array([1.0, 0.0]), jr.key(3)
    for sample in (False, True):
        actor = AGENT.controller(trained, sample=sample)
        _, action = actor.next_action(actor.first_memory(), obs, key)
        assert_same(action, AGENT.act(trained, obs, key=key if sample else None))


# Compiles training, two evaluations and a recording.
@pytest.mark.slow
def test_commands_use_the_memory(names, monkeypatch, capsys):
    """What `eqsim eval` reports are episodes with the controller, not with `act`;
    `eqsim view` is given the controller, and `eqsim record` takes it with noise."""
    monkeypatch.setitem(eqsim.AGENTS._registered, "recurrent_ppo", RecurrentPPO)
    train = (
        "train recurrent_ppo rail --num-envs 4 --unroll-length 4 --num-minibatches 2"
    )
    short = " --memory-size 4 --steps 640 --episode-length 6 --pool-size 2 --out run"
    assert main((train + short + " --learning-rate 0.1").split()) == 0
    capsys.readouterr()
    assert main("eval run --episodes 3 --json --last".split()) == 0
    told = json.loads(capsys.readouterr().out)["members"][0]["returns"]
    run = load_run("run")
    agent, state = run.members.agent(0), run.members.pick(run.state, 0)
    options = {"episodes": 3, "episode_length": 6}
    go = lambda policy: evaluate_policy(policy, Rail(), jr.key(0), **options).returns
    np.testing.assert_allclose(told, go(agent.controller(state)), rtol=1e-9)
    assert not np.allclose(told, go(lambda obs, key: agent.act(state, obs)), rtol=1e-3)
    assert isinstance(view_run("run")[1], eqsim.AbstractController)
    record = "record rail --policy run --steps 24 --noise 0.1 --episode-length 6"
    assert main(f"{record} --episodes 2".split()) == 0
    assert len(load_data("data.npz")) == 24


def test_refusals():
    with pytest.raises(ValueError, match="must divide `num_envs` = 10, got 4"):
        RecurrentPPO(num_envs=10, num_minibatches=4)
    with pytest.raises(ValueError, match="`RecurrentPPO.memory_size` must be .* got 0"):
        RecurrentPPO(memory_size=0)
    memory = jnp.zeros((7, 16))
    inputs = StepInputs(jnp.zeros((7, 2, 2)), jnp.zeros((7, 2, 1)))
    steps = Sequence(inputs, jnp.zeros((7, 2), bool), memory, memory)
    batch = RecurrentPPOBatch(steps, jnp.zeros((7, 2, 1)), *jnp.zeros((3, 7, 2)))
    with pytest.raises(ValueError, match="must divide the 7 sequences .* got 4"):
        AGENT.update(init(AGENT, jr.key(0), CUE), batch)
