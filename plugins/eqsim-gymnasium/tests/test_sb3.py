"""Stable-Baselines3 on environments of eqsim."""

import builtins
import importlib
import sys

import gymnasium
import numpy as np
import pytest
from eqsim_gymnasium import EqsimVectorEnv


def test_error_names_the_extra(monkeypatch):
    """Where Stable-Baselines3 is missing."""
    monkeypatch.delitem(sys.modules, "eqsim_gymnasium.sb3", raising=False)
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("stable_baselines3"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'eqsim-gymnasium\[sb3\]'"):
        importlib.import_module("eqsim_gymnasium.sb3")


@pytest.fixture(scope="module")
def sb3():
    reason = "needs the extra sb3"
    pytest.importorskip("stable_baselines3", reason=reason)
    return importlib.import_module("eqsim_gymnasium.sb3")


def _envs(number=3, limit=6, **options):
    options = {"reset_noise_scale": 0.9, "autoreset_mode": "SameStep", **options}
    return EqsimVectorEnv("point_mass", number, max_episode_steps=limit, **options)


def _bounded():
    """Stable-Baselines3 wants bounds, and -1 to 1 at best."""
    env = gymnasium.make("eqsim_gymnasium:eqsim/InvertedPendulum-v0")
    return gymnasium.wrappers.RescaleAction(env, np.float64(-1.0), np.float64(1.0))


@pytest.mark.filterwarnings("ignore:.*float64")
def test_stable_baselines3_is_content(sb3):
    from stable_baselines3.common.env_checker import check_env

    check_env(_bounded(), warn=True)


def test_reports_of_the_vector_environment(sb3):
    expected, vec = _envs(9), sb3.SB3VecEnv(_envs(9))
    assert vec.seed(5) == list(range(5, 14))
    assert np.array_equal(vec.reset(), expected.reset(seed=5)[0])
    cut_off, ended = 0, 0
    for actions in np.random.default_rng(0).uniform(-2, 2, (40, 9, 1)):
        obs, reward, terminated, truncated, infos = expected.step(actions)
        found = vec.step(actions)
        assert np.array_equal(found[0], obs) and found[1].dtype == np.float32
        np.testing.assert_allclose(found[1], reward, rtol=1e-6)
        assert np.array_equal(found[2], terminated | truncated)
        for k, info in enumerate(found[3]):
            done = terminated[k] | truncated[k]
            assert ("terminal_observation" in info) == done
            limit = truncated[k] and not terminated[k]
            assert info["TimeLimit.truncated"] is bool(limit)
            cut_off, ended = cut_off + limit, ended + bool(terminated[k])
            total = info["reward_distance"] + info["reward_ctrl"]
            np.testing.assert_allclose(total, reward[k])
            if done:
                final = infos["final_obs"][k]
                assert np.array_equal(info["terminal_observation"], final)
                assert np.any(final != obs[k])
    assert cut_off and ended


def test_the_rest_of_the_interface(sb3, opengl):
    size = {"render_mode": "rgb_array", "width": 24, "height": 16}
    vec = sb3.SB3VecEnv(_envs(4, **size))
    vec.set_options([{"q": np.array([0.1 * k])} for k in range(4)])
    np.testing.assert_allclose(vec.reset()[:, 0], [0.0, 0.1, 0.2, 0.3])
    assert vec.get_attr("num_envs", [0, 2]) == [4, 4]
    assert vec.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [False] * 4
    assert [picture.shape for picture in vec.get_images()] == [(16, 24, 3)] * 4
    assert vec.render().shape == (32, 48, 3)
    vec.set_attr("nickname", "sled")
    assert vec.get_attr("nickname") == ["sled"] * 4
    with pytest.raises(ValueError, match="`indices` must be left out"):
        vec.set_attr("nickname", "one", 1)
    with pytest.raises(AttributeError, match="'jump'.*share one program"):
        vec.env_method("jump")
    with pytest.raises(ValueError, match="SameStep"):
        sb3.SB3VecEnv(_envs(autoreset_mode="NextStep"))
    vec.set_options([{"q": np.zeros(1)}, {}, {}, {}])
    with pytest.raises(ValueError, match="must have the same names"):
        vec.reset()
    vec.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ppo_learns_to_balance(sb3):
    """From a few steps to a whole episode of 200 of them."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecMonitor

    def make(limit, number=16):
        envs = gymnasium.make_vec(
            "eqsim_gymnasium:eqsim/InvertedPendulum-v0",
            num_envs=number,
            max_episode_steps=limit,
            autoreset_mode="SameStep",
        )
        return VecMonitor(sb3.SB3VecEnv(envs))

    # Small networks; several threads would wait for each other on a busy machine.
    torch.set_num_threads(1)
    model = PPO(
        "MlpPolicy",
        make(200),
        n_steps=64,
        batch_size=256,
        n_epochs=10,
        gamma=0.98,
        learning_rate=1e-3,
        seed=0,
        device="cpu",
    )
    before, _ = evaluate_policy(model, make(200), n_eval_episodes=16)
    model.learn(40_000)
    after, _ = evaluate_policy(model, make(200), n_eval_episodes=16)
    assert before < 60 and after > 150, (before, after)


@pytest.mark.filterwarnings("ignore")
def test_example(readme, sb3):
    """What the README shows runs as it stands."""
    (block,) = [block for block in readme if "sb3" in block]
    exec(block, {"gymnasium": gymnasium})
