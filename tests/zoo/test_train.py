"""The loop of all agents, beside plain loops that do the same."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, strategies as st
from toys import Rail
from zoo.search import Search
from zoo.states import bits

import eqsim
from eqsim import AbstractOnlineAgent
from eqsim.testing import probes
from eqsim_zoo import load_run, PPO, Run, SAC, train
from eqsim_zoo.blocks import Learner, mean_metrics, training_env
from eqsim_zoo.blocks.collecting import member_key, pool_key
from eqsim_zoo.runs import read_metrics
from eqsim_zoo.runs.members import members_of
from eqsim_zoo.runs.run import Counters
from eqsim_zoo.training import Checkpoint, RunWarning
from eqsim_zoo.training._loop import _means, advance, nonfinite_steps
from eqsim_zoo.training._turn import on_host, Report, run_turn


SHORT = {"episode_length": 10, "turns": 6, "evaluations": 2, "episodes": 4}


@eqx.filter_jit
def first(agent, key, env):
    return agent.init(key, env)


@eqx.filter_jit
def once(agent, state, env):
    return agent.iterate(state, env)


def plain(agent, env, seed, steps, pool_size=8):
    """The last state, and the metrics of each iteration."""
    env = training_env(env, 10, pool_size, pool_key(seed))
    state = first(agent, member_key(seed), env)
    metrics = []
    for _ in range(-(-steps // 8)):
        state, found = once(agent, state, env)
        metrics.append({name: float(x) for name, x in found.items()})
    return state, metrics


def close(one, two):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert (jax.random.key_data(x) == jax.random.key_data(y)).all()
        else:
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_is_a_plain_loop(tmp_path):
    result = train(
        Run(Search(), Rail(), 300, pool_size=8, **SHORT), out=tmp_path / "run"
    )
    state, metrics = plain(Search(), Rail(), 0, 300)
    close(result.state, state)
    rows = read_metrics(tmp_path / "run")
    assert rows[0]["iterations"] == 1 and rows[-1]["iterations"] == len(metrics) == 38
    assert result.counters.steps == rows[-1]["steps"] == 304
    last = 0
    for row in rows:
        part = metrics[last : row["iterations"]]
        last = row["iterations"]
        for name in ("loss", "return", "length"):
            known = [x[name] for x in part if np.isfinite(x[name])]
            mean = np.mean(known) if known else np.nan
            np.testing.assert_allclose(row[name], mean, rtol=1e-9)
    assert [row["steps"] for row in rows if "eval/return" in row] == [
        steps for steps, _ in result.evaluations
    ]


class Told(AbstractOnlineAgent):
    """Reports the rows of a table; its state is the number of the row."""

    table: jax.Array

    def init(self, key, env):
        return jnp.zeros((), jnp.int32)

    def act(self, state, obs, *, key=None):
        return jnp.zeros(1)

    def update(self, state, batch):
        return state, {}

    def iterate(self, state, env):
        names = "return", "length", "episodes", "loss"
        return state + 1, dict(zip(names, self.table[state]))


@pytest.mark.parametrize(
    "rows, expected",
    (
        # One fall, in an iteration of its own, is one of a hundred episodes.
        ([[np.nan, np.nan, 0, 1], [5, 2, 1, 3], [5, 2, 0, 8], [105, 10, 99, 4]], 104),
        ([[7, 2, 0, 0], [7, 2, 0, 1]], 7),  # None has ended: as in the turn before.
        ([[np.nan, np.nan, 0, 0]], np.nan),
    ),
)
def test_returns_of_a_turn_are_means_over_episodes(rows, expected):
    agent = Told(jnp.asarray(rows, float))
    members = members_of(agent, 0, 1)
    _, report = run_turn(members, Rail(), len(rows), agent.init(None, None))
    found = _means(on_host(report), 0)
    np.testing.assert_allclose(found["return"], expected)
    np.testing.assert_allclose(found["loss"], np.mean(rows, axis=0)[3])


def test_members_learn_as_by_themselves(tmp_path):
    """Two rates with two seeds, in one program, each with the pool of resets and the
    evaluations of its seed."""
    agents = [Search(rate=0.1), Search(rate=0.5)]
    result = train(
        Run(agents, Rail(), 160, num_seeds=2, pool_size=8, **SHORT), out=tmp_path / "m"
    )
    assert result.members.count == 4
    assert result.members.labels() == [
        {"seed": seed, "rate": rate} for rate in (0.1, 0.5) for seed in (0, 1)
    ]
    rows = read_metrics(tmp_path / "m")
    for member, label in enumerate(result.members.labels()):
        agent = agents[member // 2]
        state, metrics = plain(agent, Rail(), label["seed"], 160)
        close(result.members.pick(result.state, member), state)
        own = [row for row in rows if row["member"] == member]
        assert own[0]["loss"] == pytest.approx(metrics[0]["loss"])
    for seed in (0, 1):
        alone = train(Run(agents[1], Rail(), 160, seed=seed, pool_size=8, **SHORT))
        assert len(alone.evaluations) == len(result.evaluations)
        for (steps, one), (other, many) in zip(alone.evaluations, result.evaluations):
            assert steps == other
            returns = many.returns[2 + seed]
            np.testing.assert_allclose(one.returns[0], returns, rtol=1e-9)


def test_a_pool_with_wrappers_outside():
    """The pools of several seeds are found behind wrappers that draw in every episode."""
    env = eqsim.wrappers.NoisyObservation(Rail(), noise=0.1)
    plan = dict(steps=40, num_seeds=2, pool_size=8, **SHORT)
    both = train(Run(Search(), env, **plan))
    alone = train(Run(Search(), env, 40, seed=1, pool_size=8, **SHORT))
    close(both.members.pick(both.state, 1), alone.state)


@given(
    steps=st.integers(1, 10**7),
    turns=st.integers(1, 200),
    evaluations=st.integers(0, 20),
    more=st.integers(0, 10_000),
    pace=st.integers(1, 10_000),
)
def test_turns_and_evaluations(steps, turns, evaluations, more, pace):
    """All steps are taken, and less than one iteration too many, also where the first one
    takes more, as with a warm-up."""
    first = pace + more
    plan = Run("ppo", "ant", steps, turns=turns, evaluations=evaluations)
    now, evaluated = Counters(), 0
    while now.steps < plan.steps:
        n = plan.iterations(now)
        taken = first + (n - 1) * pace if not now.iterations else n * pace
        new = now.steps + taken
        evaluated += plan.evaluates(now.steps, new)
        now = Counters(now.turn + 1, now.iterations + n, new, taken / n)
    assert now.steps < steps + first
    assert now.turn <= turns + 3
    assert evaluated <= evaluations and (evaluated > 0) == (evaluations > 0)
    if (
        first == pace
        and pace * 3 * max(evaluations, 1) < steps
        and evaluations < turns / 2
    ):
        assert evaluated == evaluations


@pytest.mark.parametrize(
    "after, words",
    (
        (30, "`state.weight` became NaN or infinite"),
        (36, "`state.best` became NaN or infinite"),
    ),
)
@pytest.mark.quick_cases("36-`state.best` became NaN or infinite")
def test_bad_numbers_end_the_run(tmp_path, after, words):
    """In the middle of a turn, and in its last iteration, where no metric shows it. The
    checkpoint before them is kept, and the rows show what happened."""
    out, agent = tmp_path / "run", Search(bad_after=after)
    with pytest.raises(FloatingPointError) as error:
        train(Run(agent, Rail(), 400, **SHORT), out=out, callbacks=[Checkpoint(0.0)])
    rows = read_metrics(out)
    last = rows[-1]
    assert rows[-2]["iterations"] <= after < last["iterations"]
    text = str(error.value)
    assert f"{words} in turn {last['turn']} " in text
    assert (
        f"last good checkpoint is {out / 'last.ckpt'} (turn {last['turn'] - 1})" in text
    )
    assert "learning rate" in text
    run = load_run(out, agent=agent, env=Rail())
    assert run.counters.turn == last["turn"] - 1
    assert np.isfinite(run.state.best).all()


def report(bad, streaks, finite=10, **totals):
    """A turn of 10 iterations with 40 updates, of which `bad` are not finite."""
    one = lambda x: np.array([x])
    leading, trailing, longest = streaks
    return Report(
        total={name: one(x) for name, x in totals.items()},
        number={"loss": one(finite), "q": one(10), "return": one(0)},
        last={"loss": one(1.0), "return": one(np.nan)},
        steps=one(10),
        updates=one(40),
        nonfinite=one(bad),
        leading=one(leading),
        trailing=one(trailing),
        longest=one(longest),
        broken=np.zeros((1, 0), bool),
    )


def test_what_fails_a_member():
    """Ten iterations in a row of which half of the updates are not finite, also over the
    boundary of turns; or all iterations of a run."""
    run = lambda counters, report, steps=100: advance(counters, report, 10, (), steps)
    assert not run(Counters(), report(39, (9, 0, 9))).failed
    found = dict(run(Counters(), report(30, (10, 10, 10), finite=5)).failed)[0]
    assert "of 10 consecutive iterations, and in 30 of 40 updates, most often" in found
    assert "`loss`, in turn 1 (iterations 1 to 10, steps 0 to 10)" in found
    first = run(Counters(), report(12, (0, 4, 4)))
    assert first.streaks == (4,) and not first.failed
    assert not run(first, report(15, (5, 3, 5))).failed
    assert run(first, report(18, (6, 0, 6))).failed
    assert run(Counters(), report(40, (9, 9, 9)), 10).failed == ()
    one = report(4, (1, 1, 1))
    assert advance(Counters(), one, 1, (), 10).failed
    assert not advance(Counters(), one, 1, (), 11).failed


def test_steps_that_are_not_finite_are_described():
    terms = {"nonfinite_term/speed": 2.0, "nonfinite_term/cost": 0.0}
    counts = {"nonfinite_rewards": 3.0, "nonfinite_observations": 1.0}
    text = nonfinite_steps(report(0, (0, 0, 0), **counts, **terms), 0)
    assert text == "3 rewards (terms: `speed`) and 1 observations were not finite"
    assert nonfinite_steps(report(0, (0, 0, 0)), 0) == ""


class RareNaN(eqsim.wrappers.AbstractStateless):
    """Its reward and reward terms are NaN within a distance of a place on either side."""

    env: eqsim.AbstractEnv
    distance: float = eqx.field(static=True)

    lifetime = eqsim.wrappers.Lifetime.NONE

    def reset(self, key, options=None):
        return self.env.reset(key, options)

    def step(self, state, action):
        state, timestep = self.env.step(state, action)
        off = jnp.abs(self.physics(state).q[0]) - 0.2
        bad = jnp.abs(off) < self.distance
        nan = lambda x: jnp.where(bad, jnp.nan, x)
        where = lambda t: (t.reward, t.terms)
        new = jax.tree.map(nan, where(timestep))
        return state, eqx.tree_at(where, timestep, new)


NAN_AGENTS = {
    "ppo": PPO(num_envs=4, unroll_length=2, num_minibatches=2, policy_hidden=(4,)),
    "sac": SAC(
        num_envs=4,
        unroll_length=2,
        num_updates=1,
        batch_size=8,
        capacity=64,
        actor_hidden=(4,),
        critic_hidden=(4,),
        random_steps=0.0,
    ),
}


@pytest.mark.parametrize("agent", NAN_AGENTS.values(), ids=NAN_AGENTS)
@pytest.mark.quick_cases("sac")
def test_rare_nan_rewards_are_reported(agent, tmp_path):
    """A run goes on, with a warning at the first one, for any number of turns."""
    env, ends = RareNaN(probes.point_mass(), 0.02), []
    for turns in (2, 25):
        plan = dict(
            steps=400, turns=turns, evaluations=0, pool_size=8, episode_length=10
        )
        out = tmp_path / str(turns)
        with pytest.warns(RunWarning, match=r"rewards \(terms: `distance`\)") as found:
            ends.append(train(Run(agent, env, **plan), out=out))
        assert len(found) == 1
        assert "Check the environment: `eqsim rollout`" in str(found[0].message)
        rows = read_metrics(out)
        bad = sum(row["nonfinite_rewards"] for row in rows)
        assert 0 < bad < 200 and not any(row["nonfinite_observations"] for row in rows)
        ends[-1] = ends[-1].state, bad
    assert bits(ends[0][0]) == bits(ends[1][0]) and ends[0][1] == ends[1][1]


def test_nan_rewards_end_the_run():
    env = RareNaN(probes.point_mass(), 1e9)
    plan = dict(steps=400, turns=25, evaluations=0, pool_size=8, episode_length=10)
    with pytest.raises(
        FloatingPointError, match="rewards .terms: `distance`. were"
    ) as got:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)
            train(Run(NAN_AGENTS["ppo"], env, **plan))
    text = str(got.value)
    assert text.index("environment stays finite") < text.index("learning rate")


class Flaky(AbstractOnlineAgent):
    """Takes four gradient steps an iteration, some of them on a loss that is not finite."""

    bad: tuple[bool, ...] = eqx.field(static=True)

    def init(self, key, env):
        return Learner.create(jnp.ones(2), optax.sgd(0.1))

    def act(self, state, obs, *, key=None):
        return state.model

    def iterate(self, state, env):
        def once(state, bad):
            loss = lambda x: (jnp.sum(x**2) + jnp.where(bad, jnp.nan, 0.0), {})
            return state.apply_loss_fn(loss, optax.sgd(0.1))

        state, metrics = jax.lax.scan(once, state, jnp.array(self.bad))
        return state, mean_metrics(metrics)

    def update(self, state, batch):
        raise NotImplementedError("It learns from nothing.")


def test_skipped_updates_are_counted(tmp_path):
    """Each by itself: one of four in every iteration leaves the other three to learn and to
    report; two of four of ten iterations end the run."""
    plan = dict(steps=20, turns=4, evaluations=0, pool_size=0, episode_length=5)
    result = train(
        Run(Flaky((False, True, False, False)), Rail(), **plan), out=tmp_path
    )
    assert result.counters.iterations == 20
    np.testing.assert_allclose(result.state.model, 0.8**60, rtol=1e-9)
    rows = read_metrics(tmp_path)
    taken = np.diff([0, *(row["iterations"] for row in rows)])
    assert [row["nonfinite"] for row in rows] == [*taken]
    assert rows[0]["loss"] == pytest.approx(2 * (1 + 0.8**2 + 0.8**4) / 3)
    with pytest.raises(FloatingPointError, match="least half of the updates of 1[0-9]"):
        train(Run(Flaky((False, True, True, False)), Rail(), **plan))


@pytest.mark.slow
def test_bad_members_are_left_behind(tmp_path):
    agents = [Search(bad_after=20), Search()]
    with pytest.warns(
        match="member 0 .seed 0, bad_after 20.: `state.(best|weight)` became NaN"
    ):
        result = train(Run(agents, Rail(), 400, **SHORT), out=tmp_path / "run")
    assert [member for member, _ in result.counters.failed] == [0]
    alone = train(Run(Search(), Rail(), 400, **SHORT))
    close(result.members.pick(result.state, 1), alone.state)
    means = [float(found.mean()[1]) for _, found in result.evaluations]
    assert result.counters.best == max(means)


def test_what_makes_no_sense(tmp_path):
    rail = Rail()
    wrong = {"num_seeds": [0], "episodes": [0], "episode_length": [0]}
    wrong |= {"steps": [0, np.nan, 2.5], "pool_size": [-1], "seed": [-1]}
    for name, values in wrong.items():
        for value in values:
            words = f"`{name}` must be an integer of at least [01], got {value}"
            with pytest.raises(ValueError, match=words):
                Run(Search(), rail, **{"steps": 10} | {name: value})
    with pytest.raises(ValueError, match="may differ only in array values.* `sizes`"):
        train(Run([Search(), Search(sizes=(1,))], rail, 10))
    with pytest.raises(ValueError, match="Leave it out: `train` adds"):
        again = eqsim.AutoReset(eqsim.TimeLimit(rail, 5))
        train(Run(Search(), again, 10), out=tmp_path / "no")
    # The type checker of the tests looks at one item of a list, drawn at random.
    words = r"`agent\[1\]` must be an agent|AbstractAgent"
    with pytest.raises(TypeError, match=words):
        Run([Search(), Rail()], rail, 10)
    assert not (tmp_path / "no").exists()


def test_existing_runs_are_kept(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    plan = dict(steps=40, **SHORT)
    train(Run(Search(), Rail(), **plan), out=tmp_path)
    before = (tmp_path / "metrics.csv").read_text()
    with pytest.raises(FileExistsError, match="eqsim resume"):
        train(Run(Search(), Rail(), **plan), out=tmp_path)
    assert (tmp_path / "metrics.csv").read_text() == before
    logs = tmp_path / "tensorboard" / "member1" / "events.out.tfevents.1.host"
    logs.parent.mkdir(parents=True)
    logs.touch()
    train(Run(Search(), Rail(), 8, **SHORT), out=tmp_path, overwrite=True)
    assert len(read_metrics(tmp_path)) == 1 and not logs.exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"
