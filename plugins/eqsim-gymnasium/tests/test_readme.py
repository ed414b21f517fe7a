"""What the README shows runs as it stands."""

import pathlib
import re

import gymnasium
import pytest


README = pathlib.Path(__file__).parents[1] / "README.md"


def _blocks():
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_examples():
    namespace = {}
    for block in _blocks():
        if "sb3" not in block:
            exec(compile(block, README.name, "exec"), namespace)


@pytest.mark.filterwarnings("ignore")
def test_example_with_stable_baselines3():
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    (block,) = [block for block in _blocks() if "sb3" in block]
    exec(compile(block, README.name, "exec"), {"gymnasium": gymnasium})
