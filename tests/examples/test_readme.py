"""What README and docs show runs as it stands."""

import pathlib
import re

import pytest
from opengl import needs_opengl

import eqsim_zoo
from eqsim_zoo.runs import describe


ROOT = pathlib.Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/agents.md",
    "docs/collisions.md",
    pytest.param("docs/cli.md", marks=needs_opengl),
    "docs/constraints.md",
    "docs/control.md",
    "docs/getting_started.md",
    "docs/gradients.md",
    "docs/identification.md",
    "docs/index.md",
    "docs/kernels.md",
    "docs/meshes.md",
    "docs/pipelines.md",
    "docs/randomization.md",
    "docs/reliability.md",
    # Agents learn from datasets in `test_offline_training.py`.
    pytest.param("docs/recordings.md", marks=pytest.mark.slow),
    # `test_skill_learning.py` learns the same.
    pytest.param("docs/skills.md", marks=pytest.mark.slow),
    "docs/viewer.md",
    "docs/wrappers.md",
    "docs/your_robot.md",
    "zoo/README.md",
)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.quick_cases("README.md", "docs/getting_started.md", "docs/your_robot.md")
def test_examples(page, monkeypatch, tmp_path):
    """All Python blocks of a page, in one namespace."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)


AGENTS = {
    "SAC and TD3": ("SAC", "TD3"),
    "DIAYN, DADS and METRA": ("DIAYN", "DADS", "METRA"),
} | {k: (k,) for k in "PPO RecurrentPPO APG SHAC ES ARS".split()}
OWN = {name: f"Only {name}:" for name in ("SAC", "TD3", "DIAYN", "DADS", "METRA")}


@pytest.mark.parametrize("heading", AGENTS)
def test_arguments_of_agents(heading):
    """The tables of docs/agents.md name all arguments, with the defaults they have."""
    page = (ROOT / "docs" / "agents.md").read_text()
    section = re.search(rf"### {heading}\n(.*?)\n##", page, re.DOTALL).group(1)
    shared, *parts = re.split(r"\n(?=Only \w+:)", section)
    for name in AGENTS[heading]:
        own = [part for part in parts if part.startswith(OWN.get(name, " "))]
        assert len(own) == (name in OWN)
        told = {}
        for row in re.findall(
            r"^\| (`.*?) \| (.*?) \|", "\n".join([shared, *own]), re.M
        ):
            fields, values = re.findall(r"`(\w+)`", row[0]), row[1].split(", ")
            # Several fields have a default each, one may have several numbers.
            each = values if len(fields) > 1 else [values]
            told |= dict(zip(fields, each, strict=True))
        told = {k: v if isinstance(v, list) else [v] for k, v in told.items()}
        # What an agent holds has a table of its own.
        fields = describe(getattr(eqsim_zoo, name)())
        known = {name: value for name, value in fields.items() if "." not in name}
        assert told.keys() == known.keys()
        for field, value in known.items():
            # Layers of 64 and 64 of two networks are written once.
            values = value if isinstance(value, list) else [value]
            text = [x if isinstance(x, str) else _as_text(x) for x in values or [None]]
            assert told[field] in (text, text[:1]), field


def _as_text(x):
    if x is None:
        return "none"
    return str(x).lower() if isinstance(x, bool) else f"{x:.15g}"
