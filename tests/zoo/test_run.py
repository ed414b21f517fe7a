"""Runs from names, and their folders; hyper-parameters as JSON."""

import dataclasses
import enum
import errno
import functools as ft
import json
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from toys import Rail
from zoo.search import Search

import eqsim
import eqsim_zoo as zoo
from eqsim.testing import tree_allclose
from eqsim.wrappers import OneHotSkills, Skills, UniformSkills
from eqsim_zoo import Run
from eqsim_zoo.runs import find_preset, presets
from eqsim_zoo.runs._presets import _TABLE
from eqsim_zoo.runs.fields import build, describe, full_name
from eqsim_zoo.runs.folders import locked, read_run, write_config
from eqsim_zoo.runs.run import prior_of, with_skills


class Mood(enum.Enum):
    calm = 1
    wild = 2


def single(x):
    return jnp.asarray(x, jnp.float32)


class Rich(eqsim.AbstractAgent):
    """Fields of all kinds."""

    rate: jax.Array = eqx.field(converter=single, default=0.1)
    pair: jax.Array = eqx.field(converter=single, default=(1.0, 2.0))
    number: jax.Array = eqx.field(converter=jnp.asarray, default=3)
    size: int = eqx.field(static=True, default=4)
    sizes: tuple[int, ...] = eqx.field(static=True, default=(5, 6))
    flag: bool = eqx.field(static=True, default=False)
    mood: Mood = eqx.field(static=True, default=Mood.calm)
    name: str = eqx.field(static=True, default="x")
    maybe: float | None = eqx.field(static=True, default=None)
    squash: object = eqx.field(static=True, default=jnp.tanh)

    def init(self, key, env):
        """Nothing is learned here."""

    def act(self, state, obs, *, key=None):
        """Nothing is done here."""

    update = init


@given(
    rate=st.floats(width=32, allow_nan=False, allow_infinity=False),
    pair=st.tuples(st.floats(width=32, min_value=0, max_value=2.0**99), st.just(2.0)),
    number=st.integers(-(2**31), 2**31),
    size=st.integers(0, 99),
    mood=st.sampled_from(Mood),
)
def test_json_and_back(**values):
    """Bit by bit, through text, and readable: single precision has few digits."""
    agent = Rich(**values)
    text = json.dumps(describe(agent))
    again = build(Rich, json.loads(text))
    assert jax.tree.structure(again) == jax.tree.structure(agent)
    for x, y in zip(jax.tree.leaves(agent), jax.tree.leaves(again)):
        assert x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes()
    assert describe(Rich())["rate"] == 0.1


def test_what_has_no_text():
    """A function is as it was, or the agent must be made in Python."""
    stored = describe(Rich(squash=jnp.sin))
    assert build(Rich, describe(Rich())).squash is jnp.tanh
    with pytest.raises(
        ValueError, match="`squash` of 'Rich' .* cannot be restored from text"
    ):
        build(Rich, stored)
    with pytest.raises(ValueError, match="has no field 'foo'"):
        build(Rich, {"foo": 1})


def test_fields_of_what_is_held():
    """By dotted names, which may be cut where only one field is meant."""
    agent = zoo.DADS(sac=zoo.SAC(discount=0.5, num_envs=3), mix=zoo.RewardMix(task=2.0))
    text = json.loads(json.dumps(describe(agent)))
    assert text["sac.discount"] == 0.5 and text["mix.task"] == 2.0
    assert text["mix.target_return"] == "-inf"
    again = build(zoo.DADS, text)
    assert jax.tree.structure(again) == jax.tree.structure(agent)
    assert tree_allclose(again, agent, rtol=0.0, atol=0.0)
    changed = build(zoo.DADS, text | {"sac.num_envs": 4})
    assert changed.sac.num_envs == 4 and float(changed.sac.discount) == 0.5
    assert full_name(agent, "discount") == "sac.discount"
    assert full_name(agent, "learning_rate") == "learning_rate"
    assert full_name(agent, "foo") == "foo"
    with pytest.raises(ValueError, match="no field 'sac.discont'. Did you mean 'sac.d"):
        build(zoo.DADS, {"sac.discont": 1.0})


class Steady(eqx.Module):
    rate: float = 0.1


class Falling(eqx.Module):
    rate: float = 0.1


class Holder(eqsim.AbstractAgent):
    """Holds modules, one by itself and two together."""

    schedule: eqx.Module | None = eqx.field(default_factory=Steady)
    several: tuple = eqx.field(default_factory=lambda: (Steady(), Falling()))

    def init(self, key, env):
        """Nothing is learned here."""

    def act(self, state, obs, *, key=None):
        """Nothing is done here."""

    update = init


def written(agent):
    return json.loads(json.dumps(describe(agent)))


def test_classes_of_what_is_held():
    """Are written down, and cannot become others, though the fields are called the
    same."""
    text = written(zoo.DADS())
    assert text["sac.class"] == "SAC" and text["mix.class"] == "RewardMix"
    assert bool(eqx.tree_equal(build(Holder, written(Holder())), Holder()))
    changed = build(Holder, written(Holder(schedule=Steady(0.5))))
    assert isinstance(changed.schedule, Steady) and changed.schedule.rate == 0.5
    for other, words in (
        (Holder(schedule=Falling()), "`schedule` of 'Holder' is 'Falling' .* 'Steady'"),
        (Holder(schedule=None), "`schedule` of 'Holder' is None in .* but 'Steady'"),
        (
            Holder(several=(Falling(), Steady())),
            "`several` .* cannot be restored from text",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            build(Holder, written(other))
    empty = ft.partial(Holder, schedule=None)
    with pytest.raises(
        ValueError, match="is 'Steady' in the settings, but None in the agent"
    ):
        build(empty, written(Holder()))
    with pytest.raises(ValueError, match="no field 'scedule.class'"):
        build(Holder, {"scedule.class": "Steady"})


def test_skills_as_text():
    text = "uniform:2, resample_probability=0.25,least-steps=10"
    env = Run("x", "point_mass", 1, skills=text).environment()
    assert isinstance(env, Skills) and env.prior == UniformSkills(2)
    assert float(env.resample_probability) == 0.25 and int(env.least_steps) == 10
    plain = Run("x", "point_mass", 1, skills="one_hot:3").environment()
    assert isinstance(plain, Skills) and plain.prior == OneHotSkills(3)
    assert float(plain.resample_probability) == 0.0 and int(plain.least_steps) == 1
    for text, words in {
        "one_hot": "one_hot:5",
        "onehot:3": "'one_hot'",
        "one_hot:0": "at least 1",
        "normal:x": "normal:5",
    }.items():
        with pytest.raises(ValueError, match=words):
            prior_of(text)


WRONG_SKILLS = {
    "resample=0.5": "has no option 'resample'. Did you mean 'resample_probability'",
    "env=3": "has no option 'env'. Known: least_steps, resample_probability",
    "": "has no option ''",
    "resample_probability": "is ''; expected a number from 0 to 1",
    "resample_probability=x": "is 'x'; expected a number from 0 to 1",
    "resample_probability=1.5": "is '1.5'; expected a number from 0 to 1",
    "resample_probability=nan": "is 'nan'; expected a number from 0 to 1",
    "least_steps=2.5": "is '2.5'; expected an integer from 1",
    "least_steps=0": "is '0'; expected an integer from 1",
    f"least_steps={2**31}": "an integer from 1",
    "least_steps=2,least_steps=3": "`least_steps` is given twice",
}


def test_skills_that_are_refused():
    env = eqsim.make("point_mass")
    for text, words in WRONG_SKILLS.items():
        with pytest.raises(ValueError, match=re.escape(words)) as error:
            with_skills(env, f"one_hot:5,{text}")
        assert f"one_hot:5,{text}" in str(error.value)


def test_run_by_name(names):
    sweep = {"rate": [0.1, 0.2], "bad_after": [5, 6]}
    settings, options = {"num_envs": 3}, {"n": 3}
    run = Run("search", "rail", 9, settings=settings, sweep=sweep, options=options)
    agents = [run.members.agent(k) for k in range(run.members.count)]
    assert [(float(a.rate), int(a.bad_after)) for a in agents] == [
        *((0.1, 5), (0.1, 6), (0.2, 5), (0.2, 6))
    ]
    assert all(agent.num_envs == 3 for agent in agents)
    assert run.environment().sys.nq == 3 and run.environment() is run.environment()
    assert str(run) == "search on rail: 9 steps, 4 settings"
    assert str(Run([Search()], None, 1e6, num_seeds=2)) == (
        "Search on a dataset: 1,000,000 steps, 2 seeds"
    )


@pytest.mark.parametrize("named", (False, True))
def test_folder_of_a_run(names, tmp_path, named):
    """A run that was written is read again: what has a name is made by name, also agents
    that were given as objects; what has none must be passed."""
    agents = [Search(rate=0.25, num_envs=3), Search(rate=0.5, num_envs=3)]
    sizes = {"num_seeds": 2, "turns": 7, "episode_length": 9}
    if named:
        settings, sweep = {"num_envs": 3}, {"rate": [0.25, 0.5]}
        run = Run("search", "rail", 90, settings=settings, sweep=sweep, **sizes)
    else:
        run = Run(agents, Rail(), 90, **sizes)
    write_config(tmp_path, run, False)
    found = read_run(tmp_path, env=None if named else Rail())
    assert found.members.labels() == run.members.labels()
    assert (found.steps, found.turns, found.episode_length) == (90, 7, 9)
    assert bool(eqx.tree_equal(found.members, run.members))
    with pytest.raises(ValueError, match="rate: 0.25 in the run, 0.75 here"):
        read_run(tmp_path, Search(rate=0.75, num_envs=3), Rail())
    if not named:
        with pytest.raises(ValueError, match="`env`"):
            read_run(tmp_path)


def test_modules_named_by_files_are_not_imported(names, tmp_path):
    write_config(tmp_path, Run("search", "toys:Rail", 9), False)
    with pytest.raises(ValueError, match="'toys:Rail'.*not imported.*--env toys:Rail"):
        read_run(tmp_path)
    assert isinstance(read_run(tmp_path, env="toys:Rail").environment(), Rail)


@pytest.mark.parametrize("change", ({"format": "eqsim-run-1"}, {"agents": []}))
def test_files_of_another_format(names, tmp_path, change):
    write_config(tmp_path, Run("search", "rail", 9), False)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match="config.json.*written by another version"):
        read_run(tmp_path)


def test_domain_randomization_by_name():
    env = Run("x", "point_mass", 1, randomize="hard", pipeline="spring").environment()
    assert isinstance(env, eqsim.DomainRandomization)
    assert isinstance(env.pipeline, eqsim.Spring)


REFUSED = {
    "skills": lambda: Run("x", "y", 1, skills=2),
    "settings": lambda: Run("x", "y", 1, settings=[1]),
    "options": lambda: Run("x", "y", 1, options=None),
    "sweep": lambda: Run("x", "y", 1, sweep={"rate": 0.1}),
    r"`sweep\['r'\]` must be a list": lambda: Run("x", "y", 1, sweep={"r": []}),
    "`settings` is for an `agent`": lambda: Run(Search(), "y", 1, settings={"rate": 1}),
    "`pipeline` is for an `env`": lambda: Run("x", Rail(), 1, pipeline="spring"),
    "no field 'rat'": lambda: Run("search", "x", 1, settings={"rat": 1}).members,
    "least 1, got 0": lambda: Run("search", "x", 1, settings={"num_envs": 0}).members,
    "No 'serch'.*'search'": lambda: Run("serch", "x", 1).members,
    "no option 'm'": lambda: Run("x", "rail", 1, options={"m": 1}).environment(),
    "'hrd'.*'hard'": lambda: Run("x", "rail", 1, randomize="hrd").environment(),
    "Pass `env`": lambda: Run("x", None, 1).environment(),
    "`env`.*`data`": lambda: Run(Search(), None, 1).source(),
    "`learning_rate` of 'PPO'": lambda: build(zoo.PPO, {"learning_rate": {"a": 1}}),
    "PPO.*num_envs": lambda: build(zoo.PPO, {"num_envs": None}),
}


# Of the first ones, the type checks of the tests raise.
@pytest.mark.parametrize("words", REFUSED)
def test_runs_that_cannot_be_made(names, words):
    with pytest.raises((ValueError, TypeError), match=words):
        REFUSED[words]()


def test_presets(monkeypatch):
    made = Run("search", "rail", 1000, settings={"rate": 0.7})
    make = lambda steps=1000: dataclasses.replace(made, steps=steps)
    monkeypatch.setitem(_TABLE, ("search", "rail"), make)
    assert find_preset("tiny:search", "my-package:rail") == made
    found = find_preset("search", "rail", steps=3e6)
    assert found is not None and found.steps == 3_000_000
    assert find_preset("search", "ant") is None
    with pytest.raises(TypeError):
        presets()[("search", "ant")] = make
    for steps in (0, 0.5, float("nan"), float("inf")):
        with pytest.raises(
            ValueError, match="`steps` must be an integer of at least 1"
        ):
            find_preset("ppo", "ant", steps=steps)
    with pytest.raises(ValueError, match="'qdx'.*'qdax'"):
        find_preset("dads", "ant_omni", "qdx")


# Of eqsim-locomotion, whose tests find these environments.
ROBOTS = "a1 anymal_c apollo barkour berkeley_humanoid g1 go1 go2 h1 op3 spot t1"
OF_PLUGINS = (
    *(f"{robot}_velocity" for robot in ROBOTS.split()),
    *(f"{robot}_velocity_rough" for robot in ("go1", "h1")),
    *(f"{robot}_motion" for robot in ("g1", "h1")),
)


@pytest.mark.parametrize("names", presets(), ids="-".join)
def test_each_preset_is_one(names):
    """Of agents and environments that exist, and settings that can be written down."""
    agent, env, *_ = names
    assert agent in eqsim.AGENTS.names()
    assert env in eqsim.ENVS.names() or env in OF_PLUGINS
    found, longer = presets()[names](), presets()[names](3e6)
    assert (found.agent, found.env, longer.steps) == (agent, env, 3_000_000)
    made = found.members.agent(0)
    again = build(eqsim.AGENTS.get(agent), json.loads(json.dumps(describe(made))))
    assert tree_allclose(again, made)
    if agent == "shac" or agent == "ppo" and env not in OF_PLUGINS:
        # The learning rate reaches zero at the end.
        assert float(longer.members.agent(0).anneal_steps) == 3e6


# Locks of folders.


def test_one_process_at_a_time(tmp_path):
    """The lock is free again after the block, also after an exception."""
    with pytest.raises(KeyError), locked(tmp_path):
        with pytest.raises(FileExistsError, match="choose another folder"):
            with locked(tmp_path):
                pass
        raise KeyError
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    "code", (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO)
)
def test_file_systems_without_locks(tmp_path, monkeypatch, code):
    """A warning; other errors are raised."""

    def flock(*_):
        raise OSError(code, "broken disk")

    monkeypatch.setattr(pytest.importorskip("fcntl"), "flock", flock)
    # A file that an earlier run left does not look like another process.
    (tmp_path / ".lock").touch()
    if code == errno.EIO:
        expected = pytest.raises(OSError, match="broken disk")
    else:
        words = "has no locks: make sure that no other"
        expected = pytest.warns(UserWarning, match=words)
    with expected, locked(tmp_path):
        pass
