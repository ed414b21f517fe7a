"""What README and docs show runs as it stands."""

import pathlib
import re

import pytest
from opengl import needs_opengl


ROOT = pathlib.Path(__file__).parents[2]
PAGES = (
    "README.md",
    pytest.param("docs/cli.md", marks=needs_opengl),
    "docs/gradients.md",
    "docs/pipelines.md",
    "docs/wrappers.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_examples(page):
    """All Python blocks of a page, in one namespace."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)
