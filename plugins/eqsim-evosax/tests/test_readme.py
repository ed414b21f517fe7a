"""Examples of the README run, and its table of settings is complete."""

import pathlib
import re

import equinox as eqx
from eqsim_evosax import EvolutionStrategy


README = (pathlib.Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_examples():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], "README.md", "exec"), {})


def test_settings():
    """Names and defaults of all fields, in order."""
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*) \|", README.split("## Settings")[1], re.M
    )
    agent = EvolutionStrategy()
    assert [name for name, _ in rows] == list(EvolutionStrategy.__dataclass_fields__)
    for name, shown in rows:
        value = vars(agent)[name]
        if name == "strategy":
            value = value.value
        elif name == "hidden":
            value = ", ".join(map(str, value))
        elif eqx.is_array(value):
            value = f"{float(value):g}"
        assert shown == str(value).lower(), name
