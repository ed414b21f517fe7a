"""docs/policies_outside.md: policies of runs in NumPy, compared with those of eqsim."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Rail, rails

import eqsim
import eqsim_zoo as zoo
from eqsim_zoo.blocks.networks import Activation


ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / "docs" / "examples" / "numpy_policy.py"
PAGE = ROOT / "docs" / "policies_outside.md"


class Parts(Rail):
    """Observations in parts, whose order of names is not that of their making."""

    def observe(self, state, action):
        return {"speed": state.qd, "place": 5.0 + 3.0 * state.q, "a": state.q[:1] ** 2}


class HalfBounded(Rail):
    """Two motors, the second of which has no limits."""

    def __init__(self):
        Rail.__init__(self)
        self.sys = rails(2, limited=False)


OFF_POLICY = {
    "num_envs": 4,
    "unroll_length": 2,
    "num_updates": 2,
    "batch_size": 16,
    "capacity": 256,
    "random_steps": 8.0,
    "actor_hidden": (8, 7),
    "critic_hidden": (8,),
}
PPO = {"num_envs": 8, "unroll_length": 8, "policy_hidden": (8, 7), "learning_rate": 0.1}
CASES = {
    "ppo": (zoo.PPO(**PPO), Rail()),
    "ppo, parts": (zoo.PPO(**PPO, activation=Activation.ELU), Parts()),
    "ppo, some parts": (
        zoo.PPO(
            **PPO,
            activation=Activation.RELU,
            inputs=zoo.blocks.Vectors(actor_parts=("speed", "a")),
            normalize_observations=False,
        ),
        Parts(),
    ),
    "ppo, no bounds": (zoo.PPO(**PPO, activation=Activation.TANH), HalfBounded()),
    "sac": (zoo.SAC(**OFF_POLICY, learning_rate=0.1), Rail()),
    "sac, parts": (zoo.SAC(**OFF_POLICY, normalize_observations=True), Parts()),
    "td3": (zoo.TD3(**OFF_POLICY, normalize_observations=True), Rail()),
}


def _example():
    spec = importlib.util.spec_from_file_location("numpy_policy", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick_cases("sac, parts")  # `test_members_and_settings` has PPO.
def test_acts_as_the_agent(case, tmp_path):
    agent, env = CASES[case]
    plan = dict(steps=256, episode_length=10, turns=4, evaluations=0, pool_size=4)
    result = zoo.train(zoo.Run(agent, env, **plan), out=tmp_path / "run")
    act = _example().load_policy(tmp_path / "run" / "last.ckpt")
    ours = jax.jit(lambda obs: agent.act(result.state, obs))
    _, timestep = env.reset(jax.random.key(0))
    rng, seen = np.random.default_rng(0), []
    # Far observations are clipped after normalization.
    for scale in (0.1, 1.0, 1e3) * 5:
        draw = lambda x: scale * rng.normal(size=x.shape)
        obs = jax.tree.map(draw, timestep.obs)
        expected = np.asarray(ours(jax.tree.map(jnp.asarray, obs)))
        np.testing.assert_allclose(act(obs), expected, rtol=1e-9, atol=1e-12)
        seen.append(expected)
    assert np.std(seen, axis=0).min() > 1e-4


def test_members_and_settings(tmp_path):
    agents = [zoo.PPO(**PPO), zoo.PPO(**PPO | {"learning_rate": 0.01})]
    plan = dict(
        steps=128, episode_length=10, turns=2, evaluations=0, pool_size=4, num_seeds=2
    )
    result = zoo.train(zoo.Run(agents, Rail(), **plan), out=tmp_path / "run")
    load, obs = _example().load_policy, np.array([0.3, -0.2, 0.1, 1.0])
    for member in range(4):
        act = load(tmp_path / "run" / "last.ckpt", member)
        state = result.members.pick(result.state, member)
        expected = result.members.agent(member).act(state, jnp.asarray(obs))
        np.testing.assert_allclose(act(obs), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "agent, name",
    (
        (zoo.PPO(levels=3), "PPO"),
        (zoo.SAC(inputs=zoo.vision.Images(zoo.vision.SmallCNN())), "SAC"),
        (zoo.SHAC(), "SHAC"),
    ),
)
def test_other_agents_are_refused(agent, name, tmp_path):
    stored = {"class": type(agent).__name__, "fields": zoo.runs.describe(agent)}
    path = tmp_path / "other.ckpt"
    zoo.runs.save_checkpoint(path, {"x": jnp.zeros(2)}, {"agents": [stored]})
    with pytest.raises(ValueError, match=f"{name} with these settings is not supp"):
        _example().load_policy(path)


@pytest.mark.slow
def test_code_of_the_page(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(FILE.parent)
    monkeypatch.setitem(eqsim.AGENTS._registered, "ppo", zoo.PPO)
    settings = {"num_envs": 64}
    plan = dict(turns=2, evaluations=1, episodes=2, pool_size=8)
    run = zoo.Run("ppo", "inverted_pendulum", 2048, settings=settings, **plan)
    namespace = {}
    # With JAX's default settings.
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        zoo.train(run, out="runs/pendulum")
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(compile(block, PAGE.name, "exec"), namespace)


def test_imports_numpy_and_safetensors_alone():
    program = "import numpy_policy, sys; print({'jax', 'eqsim'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=FILE.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "set()", done.stderr
