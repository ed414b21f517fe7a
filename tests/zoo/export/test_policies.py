"""Exported policies act as their agents: ONNX Runtime and NumPy (and PyTorch, if it is
installed) against `agent.act`."""

import importlib.util
import itertools
import json
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from toys import Rail, rails

import eqsim_zoo as zoo
from eqsim import AbstractAgent
from eqsim.wrappers import PrivilegedObservation
from eqsim_zoo.blocks.hyperparameters import cast_floats
from eqsim_zoo.blocks.networks import Activation
from eqsim_zoo.export import export_policy, OnnxPolicy


TOLERANCE = 1e-5
TORCH = importlib.util.find_spec("torch") is not None
FORMATS = {"onnx": ".onnx", "numpy": ".py"} | ({"torchscript": ".pt"} if TORCH else {})


class Parts(Rail):
    """Observations in parts, whose order of names is not that of their making."""

    def observe(self, state, action):
        return {
            "speed": state.qd,
            "place": 5.0 + 3.0 * state.q,
            "a b": state.q[:1] ** 2,
        }


class Picture(Rail):
    """A vector, and an image that shows the position."""

    def observe(self, state, action):
        shade = (100.0 + 50.0 * state.q[0]).astype(jnp.uint8)
        image = jnp.broadcast_to(shade, (32, 32, 3))
        return {"pixels": image, "speed": state.qd}


class HalfBounded(Rail):
    """Two motors, the second of which has no limits."""

    def __init__(self):
        Rail.__init__(self)
        self.sys = rails(2, limited=False)


def known(sys, state):
    """What the critic sees."""
    return state.q


PPO = dict(num_envs=2, unroll_length=2, num_minibatches=1, policy_hidden=(8, 7))
MEMORY = dict(num_envs=2, unroll_length=2, num_minibatches=1, memory_size=6)
REPLAY = dict(num_envs=2, batch_size=4, capacity=16, actor_hidden=(8, 7))
SOME = zoo.blocks.Vectors(actor_parts=("speed", "a b"))
ONLY = zoo.blocks.Vectors(actor_parts=("obs",))
CASES = {
    "ppo": (zoo.PPO(**PPO), Rail()),
    "ppo, levels": (zoo.PPO(**PPO, levels=5), Rail()),
    "ppo, no bounds": (zoo.PPO(**PPO, activation=Activation.ELU), HalfBounded()),
    "ppo, parts": (zoo.PPO(**PPO, activation=Activation.TANH), Parts()),
    "ppo, asymmetric": (
        zoo.PPO(**PPO, inputs=ONLY),
        PrivilegedObservation(Rail(), known),
    ),
    "sac": (zoo.SAC(**REPLAY, normalize_observations=True), Rail()),
    "sac, parts": (zoo.SAC(**REPLAY, inputs=SOME), Parts()),
    "td3": (zoo.TD3(**REPLAY), Rail()),
    "td3, parts": (zoo.TD3(**REPLAY, normalize_observations=True), Parts()),
    "recurrent_ppo": (zoo.RecurrentPPO(**MEMORY), Rail()),
    "recurrent_ppo, parts": (zoo.RecurrentPPO(**MEMORY, inputs=SOME), Parts()),
    "shac": (zoo.SHAC(num_envs=2, horizon=2, num_minibatches=1), Rail()),
    "shac, no bounds": (
        zoo.SHAC(num_envs=2, horizon=2, num_minibatches=1),
        HalfBounded(),
    ),
    "es": (zoo.ES(num_pairs=2, episode_length=2, hidden=(8,)), Rail()),
    "small cnn": (
        zoo.PPO(**PPO, inputs=zoo.vision.Images(zoo.vision.SmallCNN())),
        Picture(),
    ),
    "impala": (
        zoo.PPO(**PPO, inputs=zoo.vision.Images(zoo.vision.Impala())),
        Picture(),
    ),
}

READ = {
    "ppo, parts": ["a b", "place", "speed"],
    "sac, parts": ["a b", "speed"],
    "td3, parts": ["a b", "place", "speed"],
    "recurrent_ppo, parts": ["a b", "speed"],
    "small cnn": ["pixels", "speed"],
    "impala": ["pixels", "speed"],
}
"""What policies read, where that is not `obs`."""


def untrained(agent, env, key):
    """Return a state with statistics that are not those of nothing, and large weights."""
    where = zoo.blocks.training_env(env, 10, 0, jr.key(1))
    state = eqx.filter_jit(lambda key: agent.init(key, where))(key)
    keys = (jr.fold_in(key, k) for k in itertools.count())

    def shake(x):
        if not eqx.is_inexact_array(x) or x.size < 2:
            return x
        change = 0.3 * jr.normal(next(keys), x.shape, x.dtype)
        # Squared deviations stay positive.
        return x + (jnp.abs(change) if x.ndim == 1 else change)

    if isinstance(env, Picture):
        return state  # Larger weights would saturate the actions.

    def bounds(state):
        if hasattr(state, "bounds"):
            return state.bounds
        return (state.world if hasattr(state, "world") else state.learner).bounds

    return eqx.tree_at(bounds, jax.tree.map(shake, state), bounds(state))


def observations(env, rng, number):
    """Draw observations, some far outside of what is common."""
    _, timestep = env.reset(jr.key(0))

    def one(x):
        if x.dtype == np.uint8:
            return rng.integers(0, 256, x.shape, np.uint8)
        return rng.normal(size=x.shape).astype(np.float32)

    for k in range(number):
        obs = jax.tree.map(one, timestep.obs)
        scale = (0.1, 1.0, 30.0)[k % 3]
        wide = lambda x: x if x.dtype == np.uint8 else np.float32(scale) * x
        yield jax.tree.map(wide, obs)


def runner(file, format):
    """Return a function from inputs by name to outputs by name."""
    if format == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(file))
        inputs = [x.name for x in session.get_inputs()]
        outputs = [x.name for x in session.get_outputs()]
        call = lambda given: dict(
            zip(outputs, session.run(None, {name: given[name] for name in inputs}))
        )
        return inputs, call
    about = json.loads(file.with_suffix(".json").read_text())
    inputs = list(about["inputs"])
    if format == "numpy":
        spec = importlib.util.spec_from_file_location("policy", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return inputs, module.run
    import torch

    module, outputs = torch.jit.load(str(file)), list(about["outputs"])

    def run(given):
        out = module(*[torch.from_numpy(np.asarray(given[name])) for name in inputs])
        found = out if isinstance(out, tuple) else (out,)
        return {name: x.numpy() for name, x in zip(outputs, found)}

    return inputs, run


def largest_difference(agent, state, env, path, format):
    """Return the largest difference of actions from those of the agent in single
    precision, and the names of the inputs. Memory is kept over the steps."""
    about = export_policy(agent, state, env, path, format=format)
    inputs, run = runner(path, format)
    few = cast_floats((agent, state), jnp.float32)
    recurrent = isinstance(agent, zoo.RecurrentPPO)
    actor = few[0].controller(few[1]) if recurrent else None
    memory, kept, worst = about.start, actor and actor.first_memory(), 0.0
    act = jax.jit(
        lambda kept, obs: (
            actor.next_action(kept, obs, None)
            if recurrent
            else (kept, few[0].act(few[1], obs))
        )
    )
    actions = []
    for obs in observations(env, np.random.default_rng(0), 12):
        parts = obs if isinstance(obs, dict) else {"obs": obs}
        out = run({**parts, **memory})
        memory = {name: out[f"next_{name}"] for name in memory}
        kept, expected = act(kept, jax.tree.map(jnp.asarray, obs))
        assert (
            out["action"].dtype == np.float32 and out["action"].shape == expected.shape
        )
        worst = max(worst, np.max(np.abs(out["action"] - np.asarray(expected))))
        actions.append(np.asarray(expected))
    assert np.std(actions, axis=0).max() > 1e-4
    return worst, inputs


@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick_cases("ppo, asymmetric", "td3", "recurrent_ppo, parts")
def test_acts_as_the_agent(case, tmp_path, getkey):
    agent, env = CASES[case]
    state = untrained(agent, env, getkey())
    for format, suffix in FORMATS.items():
        path = tmp_path / f"policy{suffix}"
        worst, inputs = largest_difference(agent, state, env, path, format)
        assert worst <= TOLERANCE, (format, worst)
        memory = ["memory_0", "memory_1"] if case.startswith("recurrent") else []
        assert inputs == [*READ.get(case, ["obs"]), *memory]


def test_numpy_module_needs_numpy_alone(tmp_path, getkey):
    agent, env = CASES["recurrent_ppo"]
    state = untrained(agent, env, getkey())
    export_policy(agent, state, env, tmp_path / "policy.py", format="numpy")
    program = (
        "import sys, numpy, policy\n"
        "obs = numpy.ones(4)\n"
        "first, memory = policy.act(obs)\n"
        "second, memory = policy.act(obs, memory)\n"
        "again, _ = policy.act(obs, policy.START)\n"
        "assert (first == again).all() and (first != second).any()\n"
        "print({'jax', 'eqsim', 'onnx'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "set()", done.stderr
    about = json.loads((tmp_path / "policy.json").read_text())
    assert about["agent"] == "RecurrentPPO" and about["env"] == "Rail"
    assert about["inputs"] == {"obs": [4], "memory_0": [6], "memory_1": [2]}


def test_onnx_policy_keeps_its_memory(tmp_path, getkey):
    agent, env = CASES["recurrent_ppo, parts"]
    state = untrained(agent, env, getkey())
    export_policy(agent, state, env, tmp_path / "policy.onnx")
    policy = OnnxPolicy(tmp_path / "policy.onnx")
    assert policy.inputs == {"a b": (1,), "speed": (2,)}
    obs = next(observations(env, np.random.default_rng(1), 1))
    first, second = policy.act(obs), policy.act(obs)
    policy.reset()
    assert np.array_equal(policy.act(obs), first) and not np.array_equal(first, second)


def test_onnx_policy_sees_images(tmp_path, getkey):
    """In bytes, as the environment gives them."""
    agent, env = CASES["small cnn"]
    state = untrained(agent, env, getkey())
    export_policy(agent, state, env, tmp_path / "policy.onnx")
    policy = OnnxPolicy(tmp_path / "policy.onnx")
    obs = next(observations(env, np.random.default_rng(1), 1))
    few, single = cast_floats((agent, state), jnp.float32)
    expected = few.act(single, jax.tree.map(jnp.asarray, obs))
    np.testing.assert_allclose(policy.act(obs), expected, atol=TOLERANCE)


# What cannot be exported.


class Sorted(AbstractAgent):
    """An agent with operations that have no row."""

    def init(self, key, env):
        return jnp.ones(2, jnp.float32)

    def act(self, state, obs, *, key=None):
        return jnp.sort(state * obs[:2]) + jax.scipy.special.i0e(obs[:2])

    def update(self, learner, batch, /):
        return learner, {}


def test_all_unknown_primitives_are_listed(tmp_path):
    for format in ("onnx", "numpy"):
        path = tmp_path / f"policy{FORMATS[format]}"
        with pytest.raises(ValueError, match="`sort`.*`bessel_i0e`.*supported are"):
            export_policy(
                Sorted(), jnp.ones(2, jnp.float32), Rail(), path, format=format
            )


def test_wrong_arguments(tmp_path, getkey):
    agent, env = CASES["ppo"]
    state = untrained(agent, env, getkey())
    with pytest.raises(ValueError, match="ends with '.onnx', got .*x.pt"):
        export_policy(agent, state, env, tmp_path / "x.pt")
    (tmp_path / "bad.onnx").write_text("nothing")
    with pytest.raises(ValueError, match="is no ONNX file"):
        OnnxPolicy(tmp_path / "bad.onnx")
    with pytest.raises(FileNotFoundError, match="There is no policy file"):
        OnnxPolicy(tmp_path / "none.onnx")


@pytest.mark.skipif(TORCH, reason="PyTorch is installed")
def test_pytorch_is_named(tmp_path, getkey):
    agent, env = CASES["ppo"]
    state = untrained(agent, env, getkey())
    with pytest.raises(ImportError, match="PyTorch. Run `pip install torch`"):
        export_policy(agent, state, env, tmp_path / "x.pt", format="torchscript")
