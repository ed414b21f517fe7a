"""Agents and their training states survive `pickle`, `cloudpickle` and `copy.deepcopy`."""

import equinox as eqx
import jax.random as jr
import pytest
from copying import assert_copied, assert_same, COPIES
from toys import Rail
from zoo.agents import AGENTS, init, iterate
from zoo.skills import plane

import eqsim
from eqsim import AutoReset, TimeLimit
from eqsim.wrappers import OneHotSkills, Reach, TorsoPosition


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
    assert_copied((agent, state))


def test_training_goes_on(getkey):
    copied = COPIES["cloudpickle"]
    agent, env = AGENTS["es"], AutoReset(TimeLimit(Rail(), 5))
    state = init(agent, getkey(), env)
    assert_same(copied(state), state)
    expected = iterate(agent, state, env)
    assert_same(iterate(copied(agent), copied(state), copied(env)), expected)
