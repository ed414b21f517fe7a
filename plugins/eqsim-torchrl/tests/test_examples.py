import importlib.util
import pathlib
import re

import jax
import pytest
import torch


PLUGIN = pathlib.Path(__file__).parents[1]
EXAMPLES, GUIDE = PLUGIN / "examples", PLUGIN.parents[1] / "docs" / "pytorch.md"


@pytest.fixture(autouse=True)
def single():
    """Examples run in single precision, as they do by themselves."""
    with jax.enable_x64(False):
        yield


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_random_rollout(capsys):
    load("random_rollout").main("point_mass", 3, [2])
    assert "2 environments, 3 steps" in capsys.readouterr().out


def test_policy_gradient():
    earned = load("policy_gradient").main("point_mass", 4, 8, 30)
    assert earned[-1] > earned[0]


@pytest.mark.slow
def test_policy_gradient_of_the_ant():
    earned = load("policy_gradient").main("ant", 10, 16, 10)
    assert earned[-1] > earned[0]


@pytest.mark.slow
def test_ppo_balances():
    assert load("ppo").main("inverted_pendulum", 400_000) > 999.0


@pytest.mark.slow
def test_ppo_runs():
    assert load("ppo").main("inverted_pendulum", 4096) > 0.0
    assert torch.is_grad_enabled()


def test_readme(readme):
    """All examples, in one namespace."""
    names = {}
    for block in readme:
        exec(block, names)


def test_guide():
    """All examples, in one namespace."""
    names = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(block, names)
