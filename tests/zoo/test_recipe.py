"""Agents and environments from names and text."""

import enum
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
from eqsim_zoo.runs import (
    build,
    describe,
    find_preset,
    full_name,
    parse,
    Preset,
    presets,
    prior_of,
    Recipe,
    variants,
    with_skills,
)
from eqsim_zoo.runs._presets import _TABLE
from eqsim_zoo.runs._recipe import recipe_from_json


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


GOOD = {
    "rate=3e-4": 3e-4,
    "rate=2": 2.0,
    "pair=1,2.5": (1.0, 2.5),
    "number=7": 7,
    "size=2e3": 2000,
    "sizes=32,32,32": (32, 32, 32),
    "sizes=(64, 64)": (64, 64),
    "sizes=8": (8,),
    "flag=true": True,
    "flag=No": False,
    "mood=wild": Mood.wild,
    "name=a=b": "a=b",
    "maybe=0.5": 0.5,
    "maybe=None": None,
}


@pytest.mark.parametrize("text", GOOD)
def test_text_is_typed(text):
    name, _, value = text.partition("=")
    found = parse(Rich(), name, value)
    assert found == GOOD[text] and type(found) is type(GOOD[text])
    made = build(Rich, {name: found})
    assert tree_allclose(made, Rich(**{name: GOOD[text]}))


BAD = {
    "rate=fast": "expected a number, such as 0.1",
    "size=2.5": "expected an integer, such as 4",
    "sizes=1,x": "values separated by commas",
    "flag=maybe": "true or false",
    "mood=sad": "one of calm, wild",
    "squash=relu": "cannot be set as text",
    "size=inf": "expected an integer, such as 4",
    "size=1e999": "expected an integer, such as 4",
    "ratte=1": "no field 'ratte'. Did you mean 'rate'",
}


@pytest.mark.parametrize("text", BAD)
def test_text_that_does_not_fit(text):
    name, _, value = text.partition("=")
    with pytest.raises(ValueError, match=BAD[text].replace("?", "[?]")):
        parse(Rich(), name, value)


@pytest.mark.parametrize("name", ["rate", "x" * 10**6])
def test_messages_do_not_repeat_long_texts(name):
    with pytest.raises(ValueError) as caught:
        parse(Rich(), name, "y" * 10**6)
    assert len(str(caught.value)) < 1000


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
    assert parse(agent, "sac.actor_hidden", "8,9") == (8, 9)
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
    assert text["sac.class"] == "SAC" and text["mix.class"] == "Mix"
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


def test_recipe_gives_skills():
    env = Recipe("x", "point_mass", skills="one_hot:3").environment()
    assert isinstance(env, Skills) and env.prior == OneHotSkills(3)
    assert prior_of("uniform:2") == UniformSkills(2)
    for text, words in {
        "one_hot": "as in `one_hot:5`",
        "onehot:3": "Did you mean 'one_hot'",
        "one_hot:0": "at least 1",
        "normal:x": "as in `normal:5`",
    }.items():
        with pytest.raises(ValueError, match=words):
            prior_of(text)


def test_skills_drawn_again():
    """As often as the text says; without it never."""
    text = "uniform:2, resample_probability=0.25,least-steps=10"
    env = Recipe("x", "point_mass", skills=text).environment()
    assert isinstance(env, Skills) and env.prior == UniformSkills(2)
    assert float(env.resample_probability) == 0.25 and int(env.least_steps) == 10
    plain = Recipe("x", "point_mass", skills="uniform:2").environment()
    assert isinstance(plain, Skills)
    assert float(plain.resample_probability) == 0.0 and int(plain.least_steps) == 1


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


@pytest.mark.parametrize("text", WRONG_SKILLS)
def test_refuses_skills(text):
    env = Recipe("x", "point_mass").environment()
    with pytest.raises(ValueError, match=re.escape(WRONG_SKILLS[text])) as error:
        with_skills(env, f"one_hot:5,{text}")
    assert f"one_hot:5,{text}" in str(error.value)


@pytest.fixture
def names(monkeypatch):
    monkeypatch.setitem(eqsim.AGENTS._registered, "search", Search)
    monkeypatch.setitem(eqsim.ENVS._registered, "rail", Rail)


def test_recipe(names):
    recipe = Recipe(
        "search",
        "rail",
        {"num_envs": 3},
        {"rate": [0.1, 0.2], "bad_after": [5, 6]},
        options={"n": 3},
    )
    agents = recipe.agents()
    assert [(float(a.rate), int(a.bad_after)) for a in agents] == [
        *((0.1, 5), (0.1, 6), (0.2, 5), (0.2, 6))
    ]
    assert all(agent.num_envs == 3 for agent in agents)
    assert recipe.environment().sys.nq == 3
    whole = recipe.complete()
    assert whole.settings == describe(Search(num_envs=3))
    assert [describe(a) for a in whole.agents()] == [describe(a) for a in agents]


def test_recipe_randomizes():
    env = Recipe("x", "point_mass", randomize="hard", pipeline="spring").environment()
    assert isinstance(env, eqsim.DomainRandomization)
    assert isinstance(env.pipeline, eqsim.Spring)


@pytest.mark.parametrize(
    "fields, words",
    (
        ({"agent": 3}, "`agent` must be text, got 3"),
        ({"env": None}, "`env` must be text, got None"),
        ({"skills": 2}, "`skills` must be text, got 2"),
        ({"settings": [1]}, "`settings` must be a dictionary of values by name"),
        ({"options": None}, "`options` must be a dictionary of values by name"),
        ({"sweep": {"rate": 0.1}}, "must be a list of values"),
        ({"sweep": {"rate": []}}, "must be a list of values"),
        ({"agents": "ppo"}, "a recipe has the fields agent, env"),
    ),
)
def test_recipes_of_other_types(fields, words):
    """A recipe is read from a file that anybody may have changed."""
    with pytest.raises(ValueError, match=words):
        recipe_from_json({"agent": "ppo", "env": "point_mass"} | fields)


@pytest.mark.parametrize(
    "settings, words",
    (
        ({"learning_rate": {"a": 1}}, "`learning_rate` of 'PPO' is"),
        ({"learning_rate": 10**400}, "PPO"),
        ({"num_envs": "many"}, "PPO"),
        ({"num_envs": None}, "PPO"),
    ),
)
def test_settings_of_other_types(settings, words):
    with pytest.raises(ValueError, match=words):
        build(eqsim.AGENTS.get("ppo"), settings)


def test_recipes_that_cannot_be_made(names):
    for words, recipe in {
        "no field 'rat'": Recipe("search", "rail", {"rat": 1}),
        "`num_envs` must be at least 1, got 0": Recipe(
            "search", "rail", {"num_envs": 0}
        ),
        "No 'serch' in 'eqsim.agents'": Recipe("serch", "rail"),
    }.items():
        with pytest.raises(ValueError, match=words):
            recipe.agents()
    for words, recipe in {
        "has no option 'm'": Recipe("search", "rail", options={"m": 1}),
        "randomization preset 'hrd'. Did you mean 'hard'": Recipe(
            "", "rail", randomize="hrd"
        ),
    }.items():
        with pytest.raises(ValueError, match=words):
            recipe.environment()


def test_presets(monkeypatch):
    made = Preset(Search(rate=0.7), steps=1000, episode_length=50)
    monkeypatch.setitem(_TABLE, ("search", "rail"), lambda: made)
    assert find_preset("search", "rail") is made
    assert find_preset("tiny:search", "my-package:rail") is made
    assert find_preset("search", "ant") is None
    assert presets()[("search", "rail")]() is made
    with pytest.raises(TypeError):
        presets()[("search", "ant")] = lambda: made
    with pytest.raises(ValueError, match="`steps` must be an integer of at least 1"):
        Preset(Search(), steps=0)
    with pytest.raises(ValueError, match="no preset 'qdx'. Did you mean 'qdax'"):
        find_preset("dads", "ant_omni", "qdx")


def test_presets_for_another_number_of_steps():
    """The learning rate reaches zero at the end if it does so in the preset."""
    for anneal, expected in ((1000.0, 3e6), (500.0, 500.0), (0.0, 0.0)):
        found = Preset(Search(anneal_steps=anneal), steps=1000).with_steps(3e6)
        assert found.steps == 3_000_000 and float(found.agent.anneal_steps) == expected
    for steps in (0, 0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="`steps` must be a positive integer"):
            Preset(Search(), steps=1000).with_steps(steps)


@pytest.mark.parametrize("names", [*_TABLE, *variants()], ids="-".join)
def test_each_preset_is_one(names):
    """Of agents and environments that exist, and settings that can be written down."""
    agent, env = names[:2]
    assert agent in eqsim.AGENTS.names() and env in eqsim.ENVS.names()
    found = find_preset(*names)
    again = build(
        eqsim.AGENTS.get(agent), json.loads(json.dumps(describe(found.agent)))
    )
    assert tree_allclose(again, found.agent)
