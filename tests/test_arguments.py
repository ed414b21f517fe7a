"""Arguments of wrong types are refused by name where they enter.

The tests check types of all signatures, so what users see runs in a process without.
"""

import json
import os
import pathlib
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import tree_allclose
from toys import Rail

import eqsim
from eqsim._errors import check_key, check_type
from eqsim._kernels import recorded_fallbacks


TESTS = pathlib.Path(__file__).parent

# Each mistake, and the words of its message.
MISTAKES = {
    "env.reset(0)": r"`key` must be a random key, got 0. Write `jax.random.key(0)`.",
    "env.reset(7)": "`jax.random.key(7)`",
    "env.reset(jr.split(key, 3))": "got keys of shape (3,)",
    "eqsim.AutoReset(env).reset(0)": "`key` must be a random key, got 0",
    "eqsim.DomainRandomization(env, lambda k, s: s).reset(0)": "must be a random key",
    "env.step(env.reset(key), zero)": "`state` must be a state of the robot",
    "env.step(zero, state)": "`state` must be a state of the robot",
    "eqsim.make(Rail)": "`name` must be the name of an environment, got the class `Rail`",
    "env.step(state, [0.0] * 2)": "`action` must be an array of shape (nu,) = (2,), got [",
    "env.step(state, [0.0] * 99)": "got an object of class `list`",
    "env.step(state, None)": "`action` must be an array of shape (nu,) = (2,), got None",
    "env.reset(key, {'qpos': zero})": "reset option 'qpos'. Did you mean 'q'?",
    "env.reset(key, {'qvel': zero})": "reset option 'qvel'. Did you mean 'qd'?",
    "sys.with_actuator_model('motor0', eqsim.actuators.Delay)": "got the class `Delay`",
    "sys.with_actuator_model('motor0', 3)": "`model` must be an `AbstractControlModel`",
    **{
        f"{pipeline}.{call}": words
        for pipeline in ("Generalized()", "Spring()", "Positional()")
        for call, words in {
            "step(sys, state, None)": "`ctrl` must be an array of shape (nu,) = (2,), got",
            "step(state, sys, zero)": "arguments are swapped: pass the robot, then",
            "step(sys, zero, zero)": "`state` must be a state of the robot, got",
            "step(None, state, zero)": "`sys` must be a robot (`eqsim.System`), got None",
            "solve(state, sys, zero)": "arguments are swapped",
        }.items()
    },
    "eqsim.model.replace_shape(sys, 'x', eqsim.model.Torus, ())": "the class `Torus`",
    "eqsim.rollout(env, policy, 0, 3)": "`key` must be a key of `jax.random.key`",
    "eqsim.rollout(policy, env, key, 3)": "`env` must be an environment",
    "eqsim.rollout(Rail, policy, key, 3)": "got the class `Rail`. Pass an instance",
    "eqsim.rollout(env, agent, key, 3)": "`eqsim.agent_policy(agent, state)`",
    "eqsim.rollout(env, zoo.ES, key, 3)": "got the class `ES`",
    "zoo.Run(zoo.ES, env, 100)": "`agent` must be an agent, got the class `ES`",
    "zoo.Run([agent, zoo.ES], env, 100)": "`agent[1]` must be an agent",
    "zoo.Run(env, agent, 100)": "`agent` must be an agent, got an",
    "zoo.Run(agent, Rail, 100)": "`env` must be an environment, a name or None, got",
    "zoo.Run(agent, env, 100, eval_env='ant')": "`eval_env` must be an environment",
    "zoo.train(agent)": "`run` must be a `Run`",
    "zoo.train(run, callbacks=[zoo.training.CSV])": "`callbacks[0]` must be",
    "zoo.train(run, callbacks=zoo.training.CSV())": "must be a sequence",
    "agent.init(key, Rail)": "`env` must be an environment, got the class `Rail`",
    "zoo.evaluate(zoo.ES, None, env, key)": "`agent` must be an agent",
    "zoo.evaluate(agent, env, None, key)": "`env` must be an environment of eqsim, got",
    "zoo.evaluate(agent, None, env, 0)": "`key` must be a random key",
}
CODE = """
import json, sys
import jax.numpy as jnp, jax.random as jr
import counts
import eqsim, eqsim_zoo as zoo
from eqsim import Generalized, Positional, Spring
from toys import push as policy, Rail

texts = json.load(sys.stdin)
env, agent, key = Rail(), zoo.ES(), jr.key(0)
run = zoo.Run(agent, env, 100)
state, zero, sys = env.reset(key)[0], jnp.zeros(2), env.sys
found = []
for text in texts:
    try:
        eval(text)
        found.append("accepted")
    except (TypeError, ValueError) as error:
        found.append(str(error))
print(json.dumps(found))
counts.check_all()
"""


def test_mistakes_are_refused_by_name():
    """And all counts are integers."""
    environment = {k: v for k, v in os.environ.items() if k != "EQSIM_TYPECHECK"}
    paths = [str(TESTS), environment.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps([*MISTAKES]),
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert run.returncode == 0, run.stderr
    for (text, words), found in zip(MISTAKES.items(), json.loads(run.stdout)):
        assert words in found, f"{text}: {found}"
        assert len(found) < 300, f"{text}: {found}"


@pytest.mark.parametrize("dtype", (jnp.float16, jnp.bfloat16, jnp.float32))
def test_actions_are_converted(dtype):
    """To the precision of the robot, in which everything is then computed, by kernels."""
    env = Rail()
    state, _ = env.reset(jr.key(0))
    action = jnp.asarray([0.5, -0.25], dtype)
    with recorded_fallbacks() as fallbacks:
        found = eqx.filter_jit(env.step)(state, action)
    expected = eqx.filter_jit(env.step)(state, action.astype(state.q.dtype))
    assert tree_allclose(found, expected, rtol=0, atol=0) and not fallbacks
    single = jax.tree.map(lambda x: x.astype(jnp.float32), state)
    robot = jax.tree.map(
        lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, env.sys
    )
    for pipeline in (eqsim.Generalized(), eqsim.Spring(), eqsim.Positional()):
        step = eqx.filter_jit(pipeline.step)
        assert step(robot, single, jnp.ones(2)).q.dtype == jnp.float32


@pytest.mark.parametrize("key", (jr.key(0), jr.PRNGKey(0), np.zeros(2, np.uint32)))
def test_keys(key):
    check_key(key)


@pytest.mark.parametrize(
    ("key", "error"),
    (
        (0, TypeError),
        (None, TypeError),
        (jnp.zeros(2), TypeError),
        (jnp.zeros((), jnp.int32), TypeError),
        (jnp.zeros(3, jnp.uint32), TypeError),
        (jr.split(jr.key(0), 2), ValueError),
        (jr.split(jr.PRNGKey(0), 2), ValueError),
    ),
)
def test_what_is_no_key(key, error):
    with pytest.raises(error, match="`key` must be"):
        check_key(key)


def test_check_type():
    check_type("size", 3, int | None, "an integer")
    check_type("size", None, int | None, "an integer")
    with pytest.raises(TypeError, match="^`size` must be an integer, got 'x'. Count.$"):
        check_type("size", "x", int, "an integer", "Count.")
    with pytest.raises(TypeError, match="got an object of class `list`"):
        check_type("size", [0] * 100, int, "an integer")
    with pytest.raises(TypeError, match="got the class `bool`. Pass an instance"):
        check_type("size", bool, int, "an integer", "Count.")
