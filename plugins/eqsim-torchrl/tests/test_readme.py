import pathlib
import re

import jax
import pytest


PLUGIN = pathlib.Path(__file__).parents[1]
PAGES = PLUGIN / "README.md", PLUGIN.parents[1] / "docs" / "pytorch.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page):
    """All Python blocks of a page, in one namespace."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    names = {}
    with jax.enable_x64(False):
        for block in blocks:
            exec(compile(block, page.name, "exec"), names)
