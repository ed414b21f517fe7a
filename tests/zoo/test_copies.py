"""Agents and their training states survive `pickle`, `cloudpickle` and `copy.deepcopy`."""

import copy
import pickle

import cloudpickle
import equinox as eqx
import jax.random as jr
import jax.tree_util as jtu
import pytest
from toys import Rail
from zoo.agents import AGENTS, init, iterate
from zoo.skills import plane

import eqsim
from eqsim import AutoReset, TimeLimit
from eqsim.wrappers import OneHotSkills, Reach, TorsoPosition


COPIES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "cloudpickle": lambda x: pickle.loads(cloudpickle.dumps(x)),
    "deepcopy": copy.deepcopy,
}


def assert_same(new, old):
    """Same numbers and same structure, so that compiled programs are shared."""
    assert eqx.tree_equal(new, old)
    assert jtu.tree_structure(new) == jtu.tree_structure(old)
    assert hash(jtu.tree_structure(new)) == hash(jtu.tree_structure(old))


def _environment(name):
    if name in ("dads", "diayn", "metra"):
        return AutoReset(TimeLimit(plane(OneHotSkills(3)), 5))
    if name in ("gcbc", "gciql"):
        return TimeLimit(Reach(TorsoPosition(Rail())), 5)
    return AutoReset(TimeLimit(Rail(), 5))


@pytest.mark.parametrize("name", eqsim.AGENTS.names())
@pytest.mark.quick_cases("ppo", "sac", "dads", "es", "gciql")
def test_agents(name):
    make = eqsim.AGENTS.get(name)
    if not make.__module__.startswith("eqsim_zoo"):
        pytest.skip("of another package")
    agent = make()
    # Shapes instead of numbers: nothing is compiled.
    state = eqx.filter_eval_shape(agent.init, jr.key(0), _environment(name))
    for copied in COPIES.values():
        assert_same(copied(agent), agent)
        assert_same(copied(state), state)


def test_training_goes_on(getkey):
    copied = COPIES["cloudpickle"]
    agent, env = AGENTS["es"], AutoReset(TimeLimit(Rail(), 5))
    state = init(agent, getkey(), env)
    assert_same(copied(state), state)
    expected = iterate(agent, state, env)
    assert_same(iterate(copied(agent), copied(state), copied(env)), expected)
